// The learner's work on one unit: prompts, and the rows that continue them.
#pragma once

#include "backward.h"
#include "draws.h"
#include "forward.h"

// Units to threads: in order, each to the thread with the least work so far.
static std::vector<int> owners(const Model& m, int64_t units, const int64_t* first_span, const int64_t* counts) {
    std::vector<double> load(m.s.threads, 0);
    std::vector<int> owner(units);
    for (int64_t k = 0; k < units; k++) {
        owner[k] = (int)(std::min_element(load.begin(), load.end()) - load.begin());
        for (int64_t j = first_span[k]; j < first_span[k + 1]; j++) load[owner[k]] += (double)counts[j];
    }
    return owner;
}

static long padded(int64_t n) { return (n + L - 1) / L * L; }

// Store on a tape the tokens of its spans, whose keys and values lie one after the other, each with room for rooms[j].
// The tape is to `keep` their activations.
static void write_tokens(const Shape& s, size_t item, Tape& tape, int64_t spans, const int64_t* counts,
                         const int64_t* lead, const int64_t* rooms, const int64_t* ids, bool keep = true) {
    std::vector<std::pair<Span, int>> seen;  // spans so far, and where their tokens begin
    tape.tokens.clear(), tape.first.clear(), tape.lead.clear(), tape.blocks.clear();
    long passed = 0;
    for (int64_t j = 0; j < spans; j++) {
        int begin = (int)tape.tokens.size(), before = 0;
        int64_t memory = (int64_t)(tape.cache + (size_t)passed * s.kv() * 2 * s.layers * item);
        Span span{counts[j], 0, memory, rooms[j], 0, 0, 0, keep ? (int64_t)&tape : 0, begin};
        if (lead[j] >= 0) {
            auto& [from, at] = seen[lead[j]];
            span.before = from.own, span.read = from.count, span.before_room = from.room, before = at;
        }
        for (int i = 0; i < span.count; i++) {
            tape.tokens.push_back(token_of(span, *ids++, i));
            tape.first.push_back(begin), tape.lead.push_back(before), tape.blocks.push_back((int)(passed / L));
        }
        seen.push_back({span, begin});
        passed += rooms[j];
    }
    tape.M = (int)tape.tokens.size();
}

constexpr int HEAD = 64;  // masked tokens whose logits are computed together

// Without `keep`, nothing is kept for a backward pass.
template <class P>
static void forward_unit(const Model& m, Arena& arena, Tape& tape, bool read, bool keep, int64_t masks,
                         const int64_t* at, const int64_t* target, const float* temperature, float* logp,
                         float* entropy) {
    int H = m.s.hidden, V_ = m.s.vocab, M = tape.M;
    std::vector<uint8_t> wanted(keep ? 0 : M, 0);
    for (int64_t k = 0; k < masks && !keep; k++) wanted[at[k]] = 1;
    for (int i = 0; i < M && !read; i += CHUNK) {
        arena.clear();
        layers<P>(m, arena, tape.tokens.data() + i, std::min(CHUNK, M - i), tape.last + (long)i * H,
                  keep ? nullptr : wanted.data() + i);
    }
    arena.clear();
    float *f = arena.take<float>((size_t)HEAD * H), *z = arena.take<float>((size_t)HEAD * V_);
    double* blocks = arena.take<double>((V_ + SUMS - 1) / SUMS);
    for (int64_t k = 0; k < masks; k += HEAD) {
        int n = (int)std::min<int64_t>(HEAD, masks - k);
        for (int i = 0; i < n; i++) norm(tape.last + at[k + i] * H, m.flat + m.norm, H, m.eps, f + (long)i * H);
        logits_of(m, f, n, z);
        for (int i = 0; i < n; i++) {
            Drawn d = softmax(z + (long)i * V_, z + (long)i * V_, V_, temperature[k + i], (int)target[k + i], nullptr,
                              blocks);
            logp[k + i] = d.logp, entropy[k + i] = d.entropy;
        }
    }
}

template <class P>
static void backward_unit(const Model& m, Arena& arena, const Tape& tape, int64_t masks, const int64_t* at,
                          const int64_t* target, const float* temperature, const float* d_logp, const float* d_entropy,
                          float* grad) {
    int H = m.s.hidden, V_ = m.s.vocab, M = tape.M;
    arena.clear();
    float *dx = arena.take<float>((size_t)M * H), *df = arena.take<float>((size_t)M * H);
    size_t mark = arena.used;
    float *f = arena.take<float>((size_t)HEAD * H), *z = arena.take<float>((size_t)HEAD * V_);
    double* blocks = arena.take<double>((V_ + SUMS - 1) / SUMS);
    memset(dx, 0, (size_t)M * H * sizeof(float)), memset(df, 0, (size_t)M * H * sizeof(float));
    for (int64_t k = 0; k < masks; k += HEAD) {
        int n = (int)std::min<int64_t>(HEAD, masks - k);
        for (int i = 0; i < n; i++) norm(tape.last + at[k + i] * H, m.flat + m.norm, H, m.eps, f + (long)i * H);
        logits_of(m, f, n, z);
        for (int i = 0; i < n; i++) {
            float* e = z + (long)i * V_;
            int id = (int)target[k + i];
            float g = d_logp[k + i], w = d_entropy[k + i], t = temperature[k + i];
            Drawn d = softmax(e, e, V_, t, id, nullptr, blocks);
            double total = 0;
            for (int j = 0; j < (V_ + SUMS - 1) / SUMS; j++) total += blocks[j];
            float scale = (float)(1.0 / total), log_total = (float)std::log(total);
            // d logp / dz = [id] - p; d entropy / dz = -p (log p + entropy)
            for (int j = 0; j < V_; j++) {
                float p = e[j] * scale, slope = -g * p;
                if (w != 0 && p > 0) slope -= w * p * (std::log(e[j]) - log_total + d.entropy);
                e[j] = slope / t;
            }
            e[id] += g / t;
        }
        m.of_logits.times<F32>(z, n, [&](int i, int c, V c0, V c1) {
            float* to = df + at[k + i] * H + c;
            put(to, get(to) + c0);
            if (c + L < H) put(to + L, get(to + L) + c1);
        });
        learn<F32>(VECTORS, z, V_, f, H, n, grad + m.head, arena);
    }
    for (int i = 0; i < M; i++)
        unnorm(tape.last + (long)i * H, m.flat + m.norm, df + (long)i * H, H, m.eps, dx + (long)i * H, grad + m.norm);
    arena.used = mark;
    back<P>(m, arena, tape, dx, grad);
}
