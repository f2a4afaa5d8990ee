// The decoder of decoder.py for processors: forward with a cache, draws, and the backward pass, each thread on its own
// rows from the embedding to the last norm, so that no thread waits for another and activations stay in the cache.
//
// A row's numbers never depend on its neighbours: every product sums over k in order, in any tile.
// `F32` computes in float32. `BF16` rounds the inputs of products to bfloat16 and sums in float32. Norms, the residual
// stream, attention's sums, the head and all gradients of weights are float32 in both.
//
// Vectors are the compiler's own (GCC, Clang), as wide as the machine's. Lengths that vectors run along (hidden, the
// feed-forward's width, the head's width) are multiples of `L`, as native.py checks.
//
// Read in this order: vectors, products, tiles, panels, threads, model, attention, forward, draws, backward, units;
// here are the calls, and in wave.h those that do several of them at once.

#include <unordered_map>
#include "threads.h"
#include "units.h"

// Shares [0, count) out by weight, in order: thread t's part is [cut[t], cut[t + 1]).
template <class Weight> static std::vector<long> shares(long count, int threads, const Weight& weight) {
    double total = 0, seen = 0;
    for (long i = 0; i < count; i++) total += weight(i);
    std::vector<long> cut(threads + 1, count);
    cut[0] = 0;
    int t = 1;
    for (long i = 0; i < count && t < threads; i++) {
        while (t < threads && seen >= total * t / threads) cut[t++] = i;
        seen += weight(i);
    }
    return cut;
}

// f(0), f(1), ... by the model's workers, each with the matrix unit that the model uses: up to the model's number of
// threads, or of parts where another number is given.
template <class F> static void with_threads(const Model& m, const F& f, int parts = 0) {
    each(parts ? parts : m.s.threads, m.workers, [&](int t) {
        Tiles tiles(m.unit);
        f(t);
    });
}

extern "C" {

int isocost_lanes() { return L; }

Model* isocost_open(const int64_t* shape, double eps, const int64_t* offsets, int64_t size, const float* turns,
                    int64_t positions) {
    Model* m = new Model;
    int* to = (int*)&m->s;
    for (int i = 0; i < 12; i++) to[i] = (int)shape[i];
    m->eps = (float)eps, m->size = size;
    m->embed = offsets[0], m->norm = offsets[1], m->head = m->s.tied ? offsets[0] : offsets[2];
    m->blocks.resize(m->s.layers);
    for (int l = 0; l < m->s.layers; l++)
        for (int i = 0; i < 9; i++) (&m->blocks[l].norm1)[i] = offsets[3 + 9 * l + i];
    m->workers = m->s.threads;
    m->arenas.resize(m->s.threads);
    m->sums.resize(m->s.threads);
    int D = m->s.head_dim;
    m->turn_c.resize(positions * D), m->turn_s.resize(positions * D);
    for (int64_t i = 0; i < positions * D / 2; i++) {
        m->turn_c[2 * i] = m->turn_c[2 * i + 1] = turns[2 * i];
        m->turn_s[2 * i] = -turns[2 * i + 1], m->turn_s[2 * i + 1] = turns[2 * i + 1];
    }
    return m;
}

// The unit that computes products of bfloat16, a number of `Unit`; before the weights are loaded.
void isocost_use(Model* m, int unit) { m->unit = (Unit)unit; }

// Compute on this many cores from the next call on. The number of threads decides in which order gradients are summed;
// the number of workers decides nothing but the time.
void isocost_workers(Model* m, int workers) { m->workers = workers; }

// 1 where tiles can be used, else why not: see `tiles_here`.
int isocost_tiles() { return tiles_here(); }

void isocost_product(int unit, int64_t M, int64_t N, int64_t K, const float* a, const float* w, float* out) {
    product_of((Unit)unit, M, N, K, a, w, out);
}

void isocost_close(Model* m) {
    if (!--m->users) delete m;
}

}

static Tape* spare_tape(Model* m) {
    m->users++;
    std::lock_guard<std::mutex> lock(m->of_spare);
    if (m->spare.empty()) return new Tape;
    Tape* tape = m->spare.back().release();
    m->spare.pop_back();
    return tape;
}

static void spare_tapes(Model* m, int64_t count, Tape* const* tapes) {
    {
        std::lock_guard<std::mutex> lock(m->of_spare);
        for (int64_t k = 0; k < count; k++) m->spare.emplace_back(tapes[k]);
    }
    m->users -= (int)count - 1;
    isocost_close(m);
}

// Lay out the weights for reading tokens, or for the backward pass, unless that is done since they were loaded. A
// learner whose groups all lie on tapes reads none.
static void lay_out_weights(Model* m, bool backward) {
    bool& done = backward ? m->laid_out_back : m->laid_out;
    if (done) return;
    done = true;
    const Shape& s = m->s;
    const float* flat = m->flat;
    int H = s.hidden, Q = s.q(), W = s.qkv(), F = s.mlp;
    auto all = [&](auto p) {
        typedef decltype(p) P;
        auto layer = [&](Block& b) {
            for (Panels* p : {&b.to_qkv, &b.to_out, &b.to_gate_up, &b.to_down}) p->unit = m->unit;
            for (Panels* p : {&b.of_qkv, &b.of_out, &b.of_gate_up, &b.of_down}) p->unit = m->unit;
            if (backward) {
                b.of_qkv.pack<P>(flat + b.qkv, H, W, 1, H);
                b.of_out.pack<P>(flat + b.out, Q, H, 1, Q);
                b.of_gate_up.pack<P>(flat + b.gate_up, H, 2 * F, 1, H);
                b.of_down.pack<P>(flat + b.down, F, H, 1, F);
                return;
            }
            b.to_qkv.pack<P>(flat + b.qkv, W, H, H, 1);
            b.to_out.pack<P>(flat + b.out, H, Q, Q, 1);
            b.to_gate_up.pack<P>(flat + b.gate_up, 2 * F, H, H, 1, F);
            b.to_down.pack<P>(flat + b.down, H, F, F, 1);
        };
        with_threads(*m, [&](int t) {
            for (int l = t; l < s.layers; l += s.threads) layer(m->blocks[l]);
        });
    };
    if (s.bf16) all(BF16());
    else all(F32());
    if (backward) m->of_logits.pack<F32>(flat + m->head, H, s.vocab, 1, H);
}

extern "C" {

// Use the weights in `flat`, which is not copied and does not change before the next load.
void isocost_load(Model* m, const float* flat) {
    m->flat = flat, m->laid_out = m->laid_out_back = false;
    m->to_logits.pack<F32>(flat + m->head, m->s.vocab, m->s.hidden, m->s.hidden, 1);
}

// Read spans; `hidden` (spans, hidden) gets each span's last state, after the last norm.
void isocost_read(Model* m, int64_t count, const Span* spans, const int64_t* ids, float* hidden) {
    lay_out_weights(m, false);
    std::vector<int64_t> starts(count + 1, 0);
    for (int64_t k = 0; k < count; k++) starts[k + 1] = starts[k] + spans[k].count;
    int parts = m->workers;  // rows do not depend on how they are shared out
    auto cut = shares(count, parts, [&](long k) { return (double)spans[k].count; });
    with_threads(*m, [&](int t) {
        if (m->s.bf16) read_spans<BF16>(*m, m->arenas[t], spans, ids, starts.data(), cut[t], cut[t + 1], hidden);
        else read_spans<F32>(*m, m->arenas[t], spans, ids, starts.data(), cut[t], cut[t + 1], hidden);
    }, parts);
}

// Copy the keys and values of the first tokens of rows, (rows, 3) of from, to and their number, between memories for
// `room` tokens: per layer and head, keys in blocks, then values.
void isocost_copy(Model* m, int64_t rows, const int64_t* those, int64_t room) {
    size_t each = m->s.head_dim * (m->s.bf16 ? 2 : 4), whole = room * each;
    for (int64_t i = 0; i < rows; i++, those += 3)
        for (int k = 0; k < 2 * m->s.layers * m->s.kv_heads; k++)
            memcpy((char*)those[1] + k * whole, (char*)those[0] + k * whole, padded(those[2]) * each);
}

void isocost_logits(Model* m, int64_t rows, const float* hidden, float* z) {
    int parts = m->workers;
    auto cut = shares(rows, parts, [](long) { return 1.0; });
    with_threads(*m, [&](int t) {
        long a = cut[t], n = cut[t + 1] - a;
        if (n) logits_of(*m, hidden + a * m->s.hidden, (int)n, z + a * m->s.vocab);
    }, parts);
}

// A draw from each row of logits (rows, vocab), which are overwritten; `id` is vocab if they are not finite.
void isocost_draw(Model* m, int64_t rows, float* z, const float* temperature, const double* u, int64_t* id,
                  float* logp) {
    int V_ = m->s.vocab;
    int parts = m->workers;
    auto cut = shares(rows, parts, [](long) { return 1.0; });
    with_threads(*m, [&](int t) {
        std::vector<double> blocks((V_ + SUMS - 1) / SUMS);
        std::vector<float> e(V_);
        for (long i = cut[t]; i < cut[t + 1]; i++) {
            Drawn d = softmax(z + i * V_, e.data(), V_, temperature[i], -1, u + i, blocks.data());
            id[i] = d.id, logp[i] = d.logp;
        }
    }, parts);
}

// Temper and truncate rows of logits (rows, vocab) in place.
void isocost_truncate(Model* m, int64_t rows, float* z, const float* temperature, const float* top_p,
                      const int64_t* top_k) {
    int V_ = m->s.vocab;
    int parts = m->workers;
    auto cut = shares(rows, parts, [](long) { return 1.0; });
    with_threads(*m, [&](int t) {
        std::vector<std::pair<float, int>> some;
        for (long i = cut[t]; i < cut[t + 1]; i++) truncate(z + i * V_, V_, temperature[i], top_p[i], top_k[i], some);
    }, parts);
}

// Decode `rows` rows by up to `ticks` tokens each. Row i reads its `last` token at span i and writes on until it has
// written left[i] tokens or one that ends it, which line by[i] of `ends`, (lines, vocab + 1), says. It stops early after the tick in which some request has no row left:
// row i is of request of[i], with open[of[i]] rows to go. u, ids and logp are (rows, ticks); wrote[i] says how many.
// If the logits of a row are not finite its last id is not a token, and all stop after that tick.
//
// Rows with one number in `same` have read the same text. They are read once while they write the same: each draws from
// the same logits with its own number, and what is kept of them is copied. Their numbers have the same bits as if each
// was read. `same` leaves with a number for each text that rows have read now.
void isocost_decode(Model* m, int64_t rows, int64_t ticks, const Span* spans, const int64_t* last, const int64_t* left,
                    const int64_t* of, int64_t* open, const uint8_t* ends, const int64_t* by, const float* temperature,
                    const double* u, int64_t* ids, float* logp, int64_t* wrote, int64_t* same) {
    lay_out_weights(m, false);
    struct Part {
        std::vector<long> alive, done, leaders;
        std::vector<Span> now;
        std::vector<Token> others;
        std::vector<const Token*> also;
        std::vector<int64_t> read, starts;
        std::vector<float> hidden, z, mine, e;
        std::vector<double> blocks;
        bool bad = false;
    };
    int H = m->s.hidden, V_ = m->s.vocab;
    constexpr int few = 48;  // rows whose logits are computed together
    int workers = m->workers;
    std::vector<Part> parts(workers);
    // By row: the row that is read for it, and the next row for which that one is read. While rows part: the last of
    // those now read for what one row was read for, as a place in `leaders`, and the one before it.
    std::vector<long> with(rows), next(rows), newest(rows), before(rows);
    auto cut = shares(rows, workers, [&](long i) { return (double)std::min(left[i], ticks); });
    for (int t = 0; t < workers; t++) {
        Part& p = parts[t];
        std::unordered_map<int64_t, long> leader;
        for (long i = cut[t]; i < cut[t + 1]; i++)
            with[i] = leader.emplace(same[i], i).first->second, wrote[i] = 0, p.alive.push_back(i);
        size_t n = p.alive.size();
        p.hidden.resize((n + 1) * H), p.z.resize((size_t)few * V_ + NR), p.mine.resize(V_), p.e.resize(V_),
            p.blocks.resize((V_ + SUMS - 1) / SUMS), p.others.reserve(n);
    }
    auto step = [&](Part& p, Arena& arena, int64_t tick) {
        p.now.clear(), p.read.clear(), p.starts.clear(), p.done.clear(), p.leaders.clear(), p.others.clear(),
            p.also.clear();
        auto token = [&](long i) { return tick ? ids[i * ticks + tick - 1] : last[i]; };
        for (long i : p.alive) newest[with[i]] = -1;
        for (long i : p.alive) {
            Span s = spans[i];
            s.count = 1, s.at += tick;
            long old = with[i], k = newest[old];
            while (k >= 0 && p.read[k] != token(i)) k = before[p.leaders[k]];
            if (k >= 0) {
                long leader = with[i] = p.leaders[k];
                next[i] = next[leader], next[leader] = i;
                p.others.push_back(token_of(s, token(i), 0)), p.others.back().also = p.also[k];
                p.also[k] = &p.others.back();
                continue;
            }
            before[i] = newest[old], newest[old] = (long)p.now.size(), with[i] = i, next[i] = -1;
            p.now.push_back(s), p.starts.push_back((int64_t)p.read.size()), p.read.push_back(token(i));
            p.leaders.push_back(i), p.also.push_back(nullptr);
        }
        auto go = m->s.bf16 ? read_spans<BF16> : read_spans<F32>;
        go(*m, arena, p.now.data(), p.read.data(), p.starts.data(), 0, (long)p.now.size(), p.hidden.data(),
           p.also.data());
        for (size_t a = 0, count = p.leaders.size(); a < count; a += few) {
            int n = (int)std::min<size_t>(few, count - a);
            logits_of(*m, p.hidden.data() + a * H, n, p.z.data());
            for (int k = 0; k < n; k++)
                for (long i = p.leaders[a + k]; i >= 0; i = next[i]) {
                    long at = i * ticks + tick;
                    float* z = p.z.data() + (size_t)k * V_;  // a draw overwrites its logits
                    if (next[i] >= 0) z = (float*)memcpy(p.mine.data(), z, V_ * sizeof(float));
                    Drawn d = softmax(z, p.e.data(), V_, temperature[i], -1, u + at, p.blocks.data());
                    ids[at] = d.id, logp[at] = d.logp, wrote[i] = tick + 1;
                }
        }
        size_t kept = 0;
        for (long i : p.alive) {
            int64_t id = ids[i * ticks + tick];
            if (id == V_) p.bad = true;
            else if (!ends[by[i] * (V_ + 1) + id] && wrote[i] < left[i]) p.alive[kept++] = i;
            else p.done.push_back(i);
        }
        p.alive.resize(kept);
    };
    for (int64_t tick = 0; tick < ticks; tick++) {
        with_threads(*m, [&](int t) {
            if (!parts[t].alive.empty()) step(parts[t], m->arenas[t], tick);
            else parts[t].done.clear();
        }, workers);
        bool stop = false, any = false;
        for (Part& p : parts) {
            stop |= p.bad;
            for (long i : p.done) stop |= --open[of[i]] == 0;
            any |= !p.alive.empty();
        }
        if (stop || !any) break;
    }
    std::copy(with.begin(), with.end(), same);
}

// The learner's forward pass over units: prompts, and rows that continue them. Unit k's spans are first_span[k] to
// first_span[k + 1]; lead[j] is the span, earlier in its unit, that span j continues, or -1. Its masked tokens are
// first_mask[k] to first_mask[k + 1]: `at` is the token (among all ids) whose state predicts it, `target` its id. Where
// given[k] is a tape, the sampler has read the unit already. `keep` makes the backward pass possible.
void isocost_forward(Model* m, int64_t units, const int64_t* first_span, const int64_t* counts, const int64_t* lead,
                     const int64_t* ids, const int64_t* first_mask, const int64_t* at, const int64_t* target,
                     const float* temperature, const int64_t* given, float* logp, float* entropy, int keep) {
    for (int64_t k = 0; k < units; k++)
        if (!given[k]) lay_out_weights(m, false);
    auto owner = owners(*m, units, first_span, counts);
    std::vector<int64_t> begin(units + 1, 0);
    for (int64_t k = 0; k < units; k++) {
        begin[k + 1] = begin[k];
        for (int64_t j = first_span[k]; j < first_span[k + 1]; j++) begin[k + 1] += counts[j];
    }
    while ((int64_t)m->tapes.size() < std::max<int64_t>(units, m->s.threads)) m->tapes.emplace_back(new Tape);
    m->taped.assign(units, nullptr);
    with_threads(*m, [&](int t) {
        for (int64_t k = 0; k < units; k++) {
            if (owner[k] != t) continue;
            Tape& tape = given[k] ? *(Tape*)given[k] : *m->tapes[keep ? k : t];
            int64_t a = first_mask[k], n = first_mask[k + 1] - a, j = first_span[k], spans = first_span[k + 1] - j;
            std::vector<int64_t> local(at + a, at + a + n), leads(lead + j, lead + j + spans), rooms(spans);
            for (auto& x : local) x -= begin[k];
            auto go = [&](auto p) {
                typedef decltype(p) P;
                if (!given[k]) {
                    long all = 0;
                    for (int64_t i = 0; i < spans; i++) {
                        all += rooms[i] = padded(counts[j + i]);
                        if (leads[i] >= 0) leads[i] -= j;
                    }
                    tape.open<typename P::T>(m->s, (int)(begin[k + 1] - begin[k]), all);
                    write_tokens(m->s, sizeof(typename P::T), tape, spans, counts + j, leads.data(), rooms.data(),
                                 ids + begin[k], keep);
                }
                forward_unit<P>(*m, m->arenas[t], tape, given[k], keep, n, local.data(), target + a, temperature + a,
                                logp + a, entropy + a);
            };
            if (m->s.bf16) go(BF16());
            else go(F32());
            if (keep) m->taped[k] = &tape;
        }
    });
}

// Add the gradient of sum(d_logp logp + d_entropy entropy) to `grad`, with the activations of `isocost_forward`. Units
// whose masked tokens all have zeros are skipped.
void isocost_backward(Model* m, int64_t units, const int64_t* first_span, const int64_t* counts,
                      const int64_t* first_mask, const int64_t* at, const int64_t* target, const float* temperature,
                      const float* d_logp, const float* d_entropy, float* grad) {
    lay_out_weights(m, true);
    auto owner = owners(*m, units, first_span, counts);
    std::vector<int64_t> begin(units + 1, 0);
    for (int64_t k = 0; k < units; k++) begin[k + 1] = begin[k] + m->taped[k]->M;
    with_threads(*m, [&](int t) {
        float* mine = grad;
        if (t) {
            m->sums[t].assign(m->size, 0.0f);
            mine = m->sums[t].data();
        }
        for (int64_t k = 0; k < units; k++) {
            if (owner[k] != t) continue;
            int64_t a = first_mask[k], n = first_mask[k + 1] - a;
            bool any = false;
            for (int64_t i = a; i < a + n && !any; i++) any = !(d_logp[i] == 0 && d_entropy[i] == 0);
            if (!any) continue;
            std::vector<int64_t> local(at + a, at + a + n);
            for (auto& x : local) x -= begin[k];
            if (m->s.bf16)
                backward_unit<BF16>(*m, m->arenas[t], *m->taped[k], n, local.data(), target + a, temperature + a,
                                    d_logp + a, d_entropy + a, mine);
            else
                backward_unit<F32>(*m, m->arenas[t], *m->taped[k], n, local.data(), target + a, temperature + a,
                                   d_logp + a, d_entropy + a, mine);
        }
    });
    with_threads(*m, [&](int t) {
        for (int k = 1; k < m->s.threads; k++) {
            const float* from = m->sums[k].data();
            for (int64_t i = m->size * t / m->s.threads; i < m->size * (t + 1) / m->s.threads; i++) grad[i] += from[i];
        }
    });
}

// The sampler's tapes: a prompt, and rows with room for `own` tokens each. `where` gets the memory for keys and values
// of the prompt and of every row.

Tape* isocost_tape(Model* m, int64_t prompt, int64_t rows, int64_t own, int64_t* where) {
    Tape* tape = spare_tape(m);
    size_t item = m->s.bf16 ? 2 : 4, each = (size_t)m->s.kv() * 2 * m->s.layers * item;
    long positions = padded(prompt) + rows * padded(own);
    int tokens = (int)(prompt + rows * own);
    if (m->s.bf16) tape->open<uint16_t>(m->s, tokens, positions);
    else tape->open<float>(m->s, tokens, positions);
    for (int64_t r = 0; r <= rows; r++)
        where[r] = (int64_t)(tape->cache + (r ? padded(prompt) + (r - 1) * padded(own) : 0) * each);
    return tape;
}

// All rows are written: counts[0] tokens of prompt, counts[r] that row r has read, and all their ids. Close the gaps.
void isocost_tape_close(Model* m, Tape* tape, int64_t rows, int64_t own, const int64_t* counts, const int64_t* ids) {
    const Shape& s = m->s;
    size_t item = s.bf16 ? 2 : 4;
    std::vector<int64_t> lead(rows + 1, 0), rooms(rows + 1, padded(own));
    lead[0] = -1, rooms[0] = padded(counts[0]);
    auto close = [&](char* array, int layers, size_t width) {
        for (int l = 0; l < layers; l++) {
            char* base = array + (size_t)l * tape->most * width;
            int64_t to = counts[0];
            for (int64_t r = 1; r <= rows; to += counts[r++]) {
                int64_t from = counts[0] + (r - 1) * own;
                if (from != to) memmove(base + to * width, base + from * width, counts[r] * width);
            }
        }
    };
    close(tape->x, s.layers, s.hidden * sizeof(float)), close(tape->middle, s.layers, s.hidden * sizeof(float));
    close(tape->qkv, s.layers, s.qkv() * item), close(tape->o, s.layers, s.q() * item);
    close(tape->gate_up, s.layers, 2 * s.mlp * item), close((char*)tape->last, 1, s.hidden * sizeof(float));
    write_tokens(s, item, *tape, rows + 1, counts, lead.data(), rooms.data(), ids);
}

void isocost_tape_free(Model* m, Tape* tape) {
    spare_tapes(m, 1, &tape);
}

int64_t isocost_tape_bytes(Model* m, int64_t tokens) {  // of one tape for this many tokens, approximately
    const Shape& s = m->s;
    int64_t item = s.bf16 ? 2 : 4;
    return tokens * (s.layers * (8 * s.hidden + item * (s.qkv() + s.q() + 2 * s.mlp + 2 * s.kv())) + 4 * s.hidden);
}
}

#include "descent.h"
#include "wave.h"
