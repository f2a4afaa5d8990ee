// A wave of short answers in one call, and the learner's passes over groups that lie on the sampler's tapes: the calls
// of kernel.cpp, without their arguments being laid out in Python.
#pragma once

#include "units.h"

// Philox-4x32-10 as in chance.py: the four numbers in (0, 1) of token positions 4 block to 4 block + 3.
static void uniforms(uint64_t block, uint64_t who, uint64_t slot, uint64_t wave, const int64_t* key, double* u) {
    uint64_t a = block, b = who, c = slot, d = wave, k0 = (uint64_t)key[0], k1 = (uint64_t)key[1];
    for (int i = 0; i < 10; i++) {
        uint64_t p = a * 0xD2511F53u, q = c * 0xCD9E8D57u;
        a = (q >> 32) ^ b ^ k0, b = q & 0xFFFFFFFFu, c = (p >> 32) ^ d ^ k1, d = p & 0xFFFFFFFFu;
        k0 = (k0 + 0x9E3779B9u) & 0xFFFFFFFFu, k1 = (k1 + 0xBB67AE85u) & 0xFFFFFFFFu;
    }
    u[0] = ((double)a + 0.5) / 4294967296.0, u[1] = ((double)b + 0.5) / 4294967296.0;
    u[2] = ((double)c + 0.5) / 4294967296.0, u[3] = ((double)d + 0.5) / 4294967296.0;
}

extern "C" void isocost_uniforms(int64_t rows, int64_t count, const int64_t* addresses, double* u) {
    for (int64_t i = 0; i < rows; i++, addresses += 6)  // position, attempt and turn, slot, wave, and the key
        for (int64_t b = 0; b < count; b++, u += 4)
            uniforms(addresses[0] + b, addresses[1], addresses[2], addresses[3], addresses + 4, u);
}

// Lay out the rows of a batch, (N, T), as the units that the tapes hold, each group with rows[g] of them. False unless
// every group's rows are all of its tape's, token for token, and every token after the prompt is masked.
static bool lay_out(Model* m, int64_t groups, const int64_t* rows, const int64_t* tapes, int64_t N, int64_t T,
                    const int64_t* tokens, const uint8_t* mask, const int64_t* length, const float* temperature) {
    Laid& a = m->laid;
    a.clear();
    int64_t row = 0;
    for (int64_t g = 0; g < groups; g++) {
        const Tape& tape = *(const Tape*)tapes[g];
        if (!rows[g] || row + rows[g] > N) return false;
        int64_t P = 0, prompt = (int64_t)a.counts.size(), start = (int64_t)a.ids.size(), at = 0;
        while (P < T && !mask[row * T + P]) P++;
        auto same = [&](int64_t r, int64_t from, int64_t to) {
            for (int64_t i = from; i < to; i++, at++)
                if (at >= tape.M || tape.tokens[at].id != tokens[r * T + i] || tape.tokens[at].position != i)
                    return false;
            a.ids.insert(a.ids.end(), tokens + r * T + from, tokens + r * T + to);
            return true;
        };
        if (!P || P >= T || !same(row, 0, P)) return false;
        a.first_span.push_back(prompt), a.first_mask.push_back((int64_t)a.at.size());
        a.counts.push_back(P), a.lead.push_back(-1), a.given.push_back(tapes[g]);
        for (int64_t k = 0; k < rows[g]; k++, row++) {
            const int64_t* line = tokens + row * T;
            int64_t n = length[row], begin = (int64_t)a.ids.size();
            if (n <= P || memcmp(line, tokens + (row - k) * T, P * sizeof(int64_t)) || !same(row, P, n - 1))
                return false;
            for (int64_t t = 0; t < T; t++)
                if ((mask[row * T + t] != 0) != (t >= P && t < n)) return false;
            a.counts.push_back(n - 1 - P), a.lead.push_back(prompt);
            for (int64_t t = P; t < n; t++) {
                a.at.push_back(t == P ? start + P - 1 : begin + t - 1 - P), a.target.push_back(line[t]);
                a.temperature.push_back(temperature[row]), a.spot.push_back(row * T + t);
            }
        }
        if (at != tape.M) return false;
    }
    a.first_span.push_back((int64_t)a.counts.size()), a.first_mask.push_back((int64_t)a.at.size());
    a.logp.resize(a.at.size()), a.entropy.resize(a.at.size());
    return row == N;
}

// A batch of rows, each a prompt and what was written after it, in the fields of `isocost.fast.columns.Rows`.
struct Rows {
    int64_t *tokens, *role, *turn, *length;
    uint8_t* mask;
    float* logp;
};

// Fill them, from ids and log-probs that are `width` apart, and return T.
static int64_t put_rows(const Rows& to, int64_t groups, const int64_t* lengths, const int64_t* prompts,
                        const int64_t* rows, const int64_t* ids, const float* logp, const int64_t* wrote,
                        int64_t width) {
    int64_t T = 0;
    for (int64_t g = 0, i = 0; g < groups; g++)
        for (int64_t r = 0; r < rows[g]; r++, i++) T = std::max(T, to.length[i] = lengths[g] + wrote[i]);
    for (int64_t g = 0, i = 0; g < groups; prompts += lengths[g++])
        for (int64_t r = 0; r < rows[g]; r++, i++, ids += width, logp += width)
            for (int64_t t = 0, at = i * T; t < T; t++, at++) {
                int64_t k = t - lengths[g];
                bool own = k >= 0 && k < wrote[i];
                to.tokens[at] = own ? ids[k] : k < 0 ? prompts[t] : 0, to.logp[at] = own ? logp[k] : 0.0f;
                to.mask[at] = to.role[at] = own, to.turn[at] = own - 1;
            }
    return T;
}

extern "C" {

// Write the answers of a wave from their first token on. Group g has a prompt of lengths[g] tokens and rows[g] rows of
// up to limit[g] tokens each; row i is attempts[i], with its random numbers at (key, wave, slots[g], attempt, turn),
// the words of `address`. ids and logp are (all rows, width); wrote[i] says how many, and ended[i] whether an end token
// is the last of them. `tapes` gets a tape for each group.
// Returns T, the longest row's tokens with its prompt, and lays all rows out as a batch, (all rows, T) each: see
// `put_rows`. 0 if the logits of a row were not finite; the tapes are then empty.
int isocost_wave(Model* m, int64_t groups, const int64_t* lengths, const int64_t* prompts, const int64_t* rows,
                 const int64_t* limit, const int64_t* slots, const int64_t* attempts, const int64_t* address,
                 float temperature, const uint8_t* ends, int64_t width, int64_t* ids, float* logp, int64_t* wrote,
                 uint8_t* ended, int64_t* tapes, const Rows* batch) {
    int H = m->s.hidden, V_ = m->s.vocab;
    std::vector<Span> starts(groups), spans;
    std::vector<int64_t> where, left, first, own(groups);
    for (int64_t g = 0; g < groups; g++) {
        own[g] = std::max<int64_t>(limit[g] - 1, 1);  // the last token is never read
        where.resize(rows[g] + 1);
        Tape* tape = isocost_tape(m, lengths[g], rows[g], own[g], where.data());
        tapes[g] = (int64_t)tape;
        starts[g] = {lengths[g], 0, where[0], padded(lengths[g]), 0, 0, 0, tapes[g], 0};
        for (int64_t r = 0; r < rows[g]; r++) {
            spans.push_back({1, 0, where[1 + r], padded(own[g]), where[0], lengths[g], padded(lengths[g]), tapes[g],
                             lengths[g] + own[g] * r});
            left.push_back(limit[g]), first.push_back(g);
        }
    }
    int64_t R = (int64_t)spans.size(), blocks = (width + 3) / 4;
    std::vector<double> u(R * blocks * 4), now(R);
    for (int64_t i = 0; i < R; i++) {
        for (int64_t b = 0; b < blocks; b++)
            uniforms(b, attempts[i] + (address[3] << 16), slots[first[i]], address[2], address,
                     &u[(i * blocks + b) * 4]);
        now[i] = u[i * blocks * 4];
    }
    std::vector<float> hidden(groups * H), z(groups * V_), each_z(R * V_), said(R), warm(R, temperature);
    std::vector<int64_t> said_ids(R);
    isocost_read(m, groups, starts.data(), prompts, hidden.data());
    isocost_logits(m, groups, hidden.data(), z.data());
    for (int64_t i = 0; i < R; i++) memcpy(&each_z[i * V_], &z[first[i] * V_], V_ * sizeof(float));
    isocost_draw(m, R, each_z.data(), warm.data(), now.data(), said_ids.data(), said.data());

    std::vector<int64_t> live, last, more, of, text;
    std::vector<Span> on;
    bool bad = false;
    for (int64_t i = 0; i < R; i++) {
        ids[i * width] = said_ids[i], logp[i * width] = said[i], wrote[i] = said_ids[i] < V_;
        bad |= said_ids[i] == V_;
        if (bad || ends[said_ids[i]] || left[i] <= 1) continue;
        live.push_back(i), on.push_back(spans[i]), last.push_back(said_ids[i]), more.push_back(left[i] - 1);
        text.push_back(first[i]);
    }
    int64_t A = (int64_t)live.size();
    if (A && !bad) {
        int64_t ticks = *std::max_element(more.begin(), more.end()), open = A;
        std::vector<double> later(A * ticks);
        std::vector<int64_t> new_ids(A * ticks), counts(A);
        std::vector<float> new_logp(A * ticks);
        for (int64_t k = 0; k < A; k++)
            for (int64_t t = 0; t < ticks && t + 1 < blocks * 4; t++)
                later[k * ticks + t] = u[live[k] * blocks * 4 + t + 1];
        of.assign(A, 0);
        isocost_decode(m, A, ticks, on.data(), last.data(), more.data(), of.data(), &open, ends, of.data(), warm.data(),
                       later.data(), new_ids.data(), new_logp.data(), counts.data(), text.data());
        for (int64_t k = 0; k < A; k++) {
            int64_t i = live[k], n = counts[k];
            bad |= n && new_ids[k * ticks + n - 1] == V_;
            for (int64_t t = 0; t < n; t++)
                ids[i * width + 1 + t] = new_ids[k * ticks + t], logp[i * width + 1 + t] = new_logp[k * ticks + t];
            wrote[i] += n;
        }
    }
    std::vector<int64_t> counts, read;
    int64_t T = bad ? 0 : put_rows(*batch, groups, lengths, prompts, rows, ids, logp, wrote, width);
    for (int64_t g = 0, i = 0; g < groups; prompts += lengths[g++]) {
        counts.assign(1, lengths[g]), read.assign(prompts, prompts + lengths[g]);
        for (int64_t r = 0; r < rows[g]; r++, i++) {
            ended[i] = !bad && ends[ids[i * width + wrote[i] - 1]];
            counts.push_back(bad ? 0 : wrote[i] - 1);
            read.insert(read.end(), ids + i * width, ids + i * width + counts.back());
        }
        isocost_tape_close(m, (Tape*)tapes[g], rows[g], own[g], counts.data(), read.data());
    }
    return (int)T;
}

void isocost_tapes_free(Model* m, int64_t count, const int64_t* tapes) {
    spare_tapes(m, count, (Tape* const*)tapes);
}

// The learner's forward pass over groups that the sampler left on tapes, (N, T) each; positions that are not masked
// stay as they are. Returns the number of tokens on the tapes; 0, and nothing is done, if the rows are not those of the
// tapes.
int isocost_taped(Model* m, int64_t groups, const int64_t* rows, const int64_t* tapes, int64_t N, int64_t T,
                  const int64_t* tokens, const uint8_t* mask, const int64_t* length, const float* temperature,
                  float* logp, float* entropy) {
    if (!lay_out(m, groups, rows, tapes, N, T, tokens, mask, length, temperature)) return 0;
    Laid& a = m->laid;
    isocost_forward(m, groups, a.first_span.data(), a.counts.data(), a.lead.data(), a.ids.data(), a.first_mask.data(),
                    a.at.data(), a.target.data(), a.temperature.data(), a.given.data(), a.logp.data(),
                    a.entropy.data(), 1);
    for (size_t k = 0; k < a.spot.size(); k++) logp[a.spot[k]] = a.logp[k], entropy[a.spot[k]] = a.entropy[k];
    return (int)a.ids.size();
}

// The backward pass of `isocost_taped`, from (N, T) gradients; `d_entropy` may be null.
void isocost_taped_backward(Model* m, const float* d_logp, const float* d_entropy, float* grad) {
    Laid& a = m->laid;
    for (size_t k = 0; k < a.spot.size(); k++)
        a.logp[k] = d_logp[a.spot[k]], a.entropy[k] = d_entropy ? d_entropy[a.spot[k]] : 0.0f;
    isocost_backward(m, (int64_t)a.given.size(), a.first_span.data(), a.counts.data(), a.first_mask.data(),
                     a.at.data(), a.target.data(), a.temperature.data(), a.logp.data(), a.entropy.data(), grad);
}
}
