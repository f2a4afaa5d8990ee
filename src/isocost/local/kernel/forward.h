// Tokens through all layers.
#pragma once

#include <utility>
#include "attention.h"

// M tokens through all layers; x, (M, hidden), leaves as the residual stream before the last norm. Tokens that have a
// tape leave there what they were on the way, and so do those that are stored `also`. With `wanted`, (M,), the last
// layer computes only the keys and values of the other tokens, whose x is then undefined.
template <class P>
static void layers(const Model& m, Arena& arena, const Token* t, int M, float* x, const uint8_t* wanted = nullptr) {
    typedef typename P::T T;
    const Shape& s = m.s;
    int H = s.hidden, Q = s.q(), KV = s.kv(), W = s.qkv(), F = s.mlp, D = s.head_dim;
    float* wide = arena.take<float>((size_t)M * W);
    T* a = arena.take<T>((size_t)M * H);
    T* spare = arena.take<T>((size_t)M * std::max({W + Q, F}));
    float* scratch = arena.take<float>(scratch_of(s, t, M));
    std::vector<Token> those;
    std::vector<long> places;
    for (int i = 0; i < M; i++) memcpy(x + (long)i * H, m.flat + m.embed + (long)t[i].id * H, H * sizeof(float));
    for (int l = 0; l < s.layers; l++) {
        const Block& b = m.blocks[l];
        const float* bias = s.bias ? m.flat + b.qkv_bias : nullptr;
        T *qkv = spare, *o = spare + (long)M * W;
        auto keep = [&](char* Tape::* array, const auto* from, int width) {
            typedef std::remove_const_t<std::remove_reference_t<decltype(*from)>> X;
            for (int i = 0; i < M; i++)
                for (const Token* k = t + i; k; k = k->also)
                    if (Tape* tape = k->tape)
                        memcpy(tape->at<X>(tape->*array, l, k->row, width), from + (long)i * width, width * sizeof(X));
        };
        keep(&Tape::x, x, H);
        for (int i = 0; i < M; i++) norm(x + (long)i * H, m.flat + b.norm1, H, m.eps, a + (long)i * H);
        b.to_qkv.times<P>(a, M, [&](int i, int n, V c0, V c1) {
            float* to = wide + (long)i * W + n;
            put(to, bias ? c0 + get(bias + n) : c0);
            if (n + L < W) put(to + L, bias ? c1 + get(bias + n + L) : c1);
        });
        for (int i = 0; i < M; i++) {
            float* from = wide + (long)i * W;
            T* to = qkv + (long)i * W;
            if (s.qk_norm)
                for (int h = 0; h < s.heads + s.kv_heads; h++)
                    norm(from + h * D, m.flat + (h < s.heads ? b.q_norm : b.k_norm), D, m.eps, from + h * D);
            const float *c = &m.turn_c[(long)t[i].position * D], *z = &m.turn_s[(long)t[i].position * D];
            for (int n = 0; n < Q + KV; n += D)
                for (int d = 0; d < D; d += L) {
                    V v = get(from + n + d);
                    put(to + n + d, v * get(c + d) + swap(v) * get(z + d));
                }
            for (int n = Q + KV; n < W; n += L) put(to + n, get(from + n));
            for (const Token* k = t + i; k; k = k->also) remember<P>(s, *k, l, to + Q, to + Q + KV);
        }
        if (wanted && l == s.layers - 1) {  // the wanted tokens become the first ones
            for (int i = 0; i < M; i++)
                if (wanted[i]) {
                    long k = (long)places.size();
                    memmove(x + k * H, x + (long)i * H, H * sizeof(float));
                    memmove(qkv + k * W, qkv + (long)i * W, W * sizeof(T));
                    places.push_back(i), those.push_back(t[i]);
                }
            t = those.data(), M = (int)those.size();
            if (!M) return;
        }
        attend<P>(s, t, M, l, qkv, o, scratch);
        keep(&Tape::qkv, qkv, W);
        keep(&Tape::o, o, Q);
        auto add = [&](int i, int n, V c0, V c1) {
            float* to = x + (long)i * H + n;
            put(to, get(to) + c0);
            if (n + L < H) put(to + L, get(to + L) + c1);
        };
        b.to_out.times<P>(o, M, add);
        keep(&Tape::middle, x, H);
        for (int i = 0; i < M; i++) norm(x + (long)i * H, m.flat + b.norm2, H, m.eps, a + (long)i * H);
        b.to_gate_up.times<P>(a, M, [&](int i, int n, V gate, V up) {
            int f = n / 2;
            gate = P::rounded(gate), up = P::rounded(up);
            for (const Token* k = t + i; k; k = k->also)
                if (Tape* tape = k->tape) {
                    T* both = tape->at<T>(tape->gate_up, l, k->row, 2 * F) + f;
                    put(both, gate), put(both + F, up);
                }
            put(spare + (long)i * F + f, gate / (1.0f + exp(-gate)) * up);
        });
        b.to_down.times<P>(spare, M, add);
    }
    for (long k = (long)places.size() - 1; k >= 0; k--) memmove(x + places[k] * H, x + k * H, H * sizeof(float));
}

// Spans to read, nine numbers each: tokens, the place of the first in its own row, that row's memory and room, the
// memory, length and room of its shared start; a tape or 0, and the row there of the row's first token.
struct Span {
    int64_t count, at, own, room, before, read, before_room, tape, row;
};

static Token token_of(const Span& s, int64_t id, int k) {
    int at = (int)s.at + k;
    return {(int)id,       (int)s.read + at,      at,           (char*)s.own,
            (long)s.room,  (const char*)s.before, (long)s.read, (long)s.before_room,
            (Tape*)s.tape, (int)s.row + at};
}

// Hidden states after the last norm of each span's last token, (spans, hidden), for spans first to last. With `also`,
// for spans of one token each, the tokens that are the same.
template <class P>
static void read_spans(const Model& m, Arena& arena, const Span* spans, const int64_t* ids, const int64_t* starts,
                       long first, long last, float* hidden, const Token* const* also = nullptr) {
    std::vector<Token> t;
    std::vector<std::pair<int, long>> ends;
    int H = m.s.hidden;
    auto flush = [&] {
        arena.clear();
        float* x = arena.take<float>(t.size() * H);
        layers<P>(m, arena, t.data(), (int)t.size(), x);
        for (size_t i = 0; i < t.size(); i++)
            for (const Token* k = &t[i]; k; k = k->also)
                if (k->tape) memcpy(k->tape->last + (long)k->row * H, x + i * H, H * sizeof(float));
        for (auto [i, span] : ends) norm(x + (long)i * H, m.flat + m.norm, H, m.eps, hidden + span * H);
        t.clear(), ends.clear();
    };
    for (long k = first; k < last; k++)
        for (int i = 0; i < spans[k].count; i++) {
            t.push_back(token_of(spans[k], ids[starts[k] + i], i));
            if (also) t.back().also = also[k];
            if (i + 1 == spans[k].count) ends.push_back({(int)t.size() - 1, k});
            if (t.size() == CHUNK) flush();
        }
    if (!t.empty()) flush();
}

static void logits_of(const Model& m, const float* hidden, int rows, float* z) {
    int V_ = m.s.vocab;
    m.to_logits.times<F32>(hidden, rows, [&](int i, int n, V c0, V c1) {
        float* to = z + (long)i * V_ + n;
        for (int k = 0; k < 2; k++, n += L, to += L) {
            V c = k ? c1 : c0;
            if (n + L <= V_) put(to, c);
            else
                for (int j = 0; n + j < V_; j++) to[j] = c[j];
        }
    });
}
