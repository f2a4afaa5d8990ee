// The backward pass through all layers.
#pragma once

#include <algorithm>
#include "attention.h"

// Columns of x (M, N) in strips of `width`, each a word deep per token (F32) or pair of tokens (BF16), and of zeros up
// to `deep`: the layout for sums over tokens, whose strides do not compete for the same cache lines.
template <class P>
static const uint32_t* strips(const typename P::T* x, int M, int N, int width, int deep, Arena& arena) {
    int words = (M + P::per - 1) / P::per, count = (N + width - 1) / width;
    uint32_t* out = arena.take<uint32_t>((size_t)count * deep * width);
    for (int w = 0; w < words; w++) {
        const typename P::T *a = x + (long)w * P::per * N, *b = w * P::per + 1 < M ? a + N : nullptr;
        for (int k = 0; k < count; k++) {
            uint32_t* to = out + ((long)k * deep + w) * width;
            int n = std::min(width, N - k * width);
            for (int j = 0; j < n; j++) {
                if constexpr (P::per == 1) memcpy(to + j, a + k * width + j, 4);
                else to[j] = a[k * width + j] | (b ? (uint32_t)b[k * width + j] << 16 : 0u);
            }
        }
    }
    for (int k = 0; k < count && words < deep; k++)
        memset(out + ((long)k * deep + words) * width, 0, (size_t)(deep - words) * width * sizeof(uint32_t));
    return out;
}

// Columns of x (M, N) as rows of `deep` words, one for each pair of tokens and then zeros: what tiles load.
static const uint32_t* turned(const uint16_t* x, int M, int N, int deep, Arena& arena) {
    uint32_t* out = arena.take<uint32_t>((size_t)N * deep);
    constexpr int some = 16;  // columns at a time, whose lines stay in the cache
    for (int n = 0; n < N; n += some)
        for (int w = 0; w < deep; w++) {
            const uint16_t* a = x + (long)2 * w * N;
            bool one = 2 * w < M, two = 2 * w + 1 < M;
            for (int j = n; j < std::min(N, n + some); j++)
                out[(long)j * deep + w] = (one ? a[j] : 0u) | (two ? (uint32_t)a[N + j] << 16 : 0u);
        }
    return out;
}

// grad (N, K) += dY^T X over M tokens, for dY (M, N) and X (M, K).
template <class P>
static void learn(Unit unit, const typename P::T* dY, int N, const typename P::T* X, int K, int M, float* grad,
                  Arena& arena) {
    size_t mark = arena.used;
    int words = (M + P::per - 1) / P::per;
    auto add_to = [&](int first) {
        return [=](int i, int k, V c0, V c1) {
            float* to = grad + (long)(first + i) * K + k;
            put(to, get(to) + c0);
            if (k + L < K) put(to + L, get(to + L) + c1);
        };
    };
    if constexpr (P::per > 1)
        if (unit != VECTORS) {
            int deep = whole_tiles(words);
            const uint32_t *A = turned(dY, M, N, deep, arena), *B = strips<P>(X, M, K, NR, deep, arena);
            tiled(unit, A, deep, N, B, K, deep, add_to(0));
            arena.used = mark;
            return;
        }
    const uint32_t *A = strips<P>(dY, M, N, MR, words, arena), *B = strips<P>(X, M, K, NR, words, arena);
    for (int n = 0; n < N; n += MR, A += (long)words * MR)
        product<P>(A, 1, MR, std::min(MR, N - n), B, (long)words * NR, NR, K, words, add_to(n));
    arena.used = mark;
}

// dx += the backward pass of the norm for dy; and the gradient of its weight.
static void unnorm(const float* x, const float* w, const float* dy, int n, float eps, float* dx, float* dw) {
    V s{}, c{};
    for (int i = 0; i < n; i += L) s += get(x + i) * get(x + i), c += get(dy + i) * get(w + i) * get(x + i);
    float r = 1.0f / std::sqrt(sum(s) / n + eps), k = r * r * r * sum(c) / n;
    for (int i = 0; i < n; i += L) {
        V v = get(x + i), d = get(dy + i);
        put(dx + i, get(dx + i) + d * get(w + i) * r - v * k);
        put(dw + i, get(dw + i) + d * v * r);
    }
}

template <class P> static void narrow(const float* x, long count, typename P::T* y) {
    for (long i = 0; i < count; i += L) put(y + i, get(x + i));
}

// The backward pass of one token's attention: adds to the gradients (M, qkv) of its query and of all keys and values.
// `turned` holds the unit's values of this layer in blocks, as keys are.
template <int N, class P>
static inline void unattend(const Shape& s, const Tape& tape, int layer, int i, const typename P::T* qkv,
                            const typename P::T* turned, const float* d_out, float* d_qkv, float* scratch) {
    typedef typename P::T T;
    const Token& t = tape.tokens[i];
    int D = s.head_dim, W = s.qkv(), Q = s.q(), KV = s.kv(), group = s.heads / s.kv_heads;
    const int n = N ? N : D / L;
    float scale = 1.0f / std::sqrt((float)D);
    long room = (t.read + L - 1) / L * L + (t.at + L) / L * L;
    T* narrow = (T*)scratch;
    float *p = scratch + D, *dp = p + room;
    for (int h = 0; h < s.heads; h++) {
        int kv = h / group, K0 = Q + kv * D, V0 = Q + KV + kv * D;
        const float* go = d_out + h * D;
        const T* q = qkv + (long)i * W + h * D;
        for (int d = 0; d < n; d++) put(narrow + d * L, get(go + d * L));
        Look a;
        look<1, P>(s, t, layer, h, q, p, 0, &a);
        auto values = [&](int row, long room) {
            return turned + ((long)tape.blocks[row] * s.kv_heads + (long)kv * room / L) * D * L;
        };
        if (a.before) scores<P>(narrow, values(tape.lead[i], t.before_room), a.before, D, dp);
        scores<P>(narrow, values(tape.first[i], t.room), a.own, D, dp + a.own_from);
        V dots{};
        for (int j = 0; j < a.end; j += L) {
            V w = get(p + j) * a.scale;
            put(p + j, w);
            dots += w > 0.0f ? w * get(dp + j) : V{};
        }
        V dot = all(sum(dots));
        for (int j = 0; j < a.end; j += L) {
            V w = get(p + j);
            put(dp + j, w > 0.0f ? w * (get(dp + j) - dot) : V{});
        }
        V dq[N ? N : 16], q_[N ? N : 16], g_[N ? N : 16];
        for (int d = 0; d < n; d++) dq[d] = V{}, q_[d] = get(q + d * L) * scale, g_[d] = get(go + d * L);
        auto visit = [&](const float* w, const float* ds, int count, long row) {
            const T* k = qkv + row * W + K0;
            float *dk = d_qkv + row * W + K0, *dv = d_qkv + row * W + V0;
            for (int j = 0; j < count; j++, k += W, dk += W, dv += W)
                for (int d = 0; d < n; d++) {
                    dq[d] += ds[j] * get(k + d * L);
                    put(dk + d * L, get(dk + d * L) + ds[j] * q_[d]);
                    put(dv + d * L, get(dv + d * L) + w[j] * g_[d]);
                }
        };
        visit(p, dp, a.before, tape.lead[i]);
        visit(p + a.own_from, dp + a.own_from, a.own, tape.first[i]);
        float* to = d_qkv + (long)i * W + h * D;
        for (int d = 0; d < n; d++) put(to + d * L, get(to + d * L) + dq[d] * scale);
    }
}

// A unit's values (M, of rows W apart) in blocks, each row's of each head after the other.
template <class P> static void turn(const Shape& s, const Tape& tape, const typename P::T* values, typename P::T* out) {
    int D = s.head_dim, W = s.qkv();
    for (int i = 0; i < tape.M; i++) {
        const Token& t = tape.tokens[i];
        for (int h = 0; h < s.kv_heads; h++)
            scatter<P>(values + (long)i * W + h * D, D,
                       out + ((long)tape.blocks[tape.first[i]] * s.kv_heads + (long)h * t.room / L) * D * L, t.at);
    }
}

// For each token the first whose numbers are the same, bit for bit: rows with the same text after the same prompt, and
// the same gradients dx (M, width), differ in nothing.
static std::vector<int> alike(const Tape& tape, const float* dx, int width) {
    std::vector<int> as(tape.M);
    std::vector<std::pair<int, int>> rows;  // that are like none before: where they begin, and their tokens
    for (int b = 0, n; b < tape.M; b += n) {
        for (n = 1; b + n < tape.M && tape.first[b + n] == b;) n++;
        auto same = [&](std::pair<int, int> row) {
            auto [a, count] = row;
            bool text = count == n && tape.lead[a] == tape.lead[b];
            for (int i = 0; i < n && text; i++) text = tape.tokens[a + i].id == tape.tokens[b + i].id;
            return text && !memcmp(dx + (long)a * width, dx + (long)b * width, (size_t)n * width * sizeof(float));
        };
        auto like = std::find_if(rows.begin(), rows.end(), same);
        int a = like == rows.end() ? b : like->first;
        if (a == b && tape.tokens[b].read) rows.push_back({b, n});
        for (int i = 0; i < n; i++) as[b + i] = a + i;
    }
    return as;
}

// From the gradient dx (M, hidden) of a unit's residual stream before the last norm to those of all weights.
template <class P> static void back(const Model& m, Arena& arena, const Tape& tape, float* dx, float* grad) {
    typedef typename P::T T;
    const Shape& s = m.s;
    int M = tape.M, H = s.hidden, Q = s.q(), KV = s.kv(), W = s.qkv(), F = s.mlp, D = s.head_dim;
    auto floats = [&](size_t n) { return arena.take<float>(n); };
    T *small = arena.take<T>((size_t)M * H), *normed = arena.take<T>((size_t)M * H);
    T *h = arena.take<T>((size_t)M * F), *d_both = arena.take<T>((size_t)M * std::max(2 * F, W));
    float *dy = floats((size_t)M * std::max(H, Q)), *d_qkv = floats((size_t)M * W);
    float* scratch = floats(2 * scratch_of(s, tape.tokens.data(), M) + 4 * L);
    T* turned = arena.take<T>((size_t)tape.rooms * s.kv());
    // Tokens with the same numbers are multiplied once, and what comes of it is copied. Sums over tokens have them all.
    std::vector<int> as = alike(tape, dx, H), those;
    for (int i = 0; i < M; i++)
        if (as[i] == i) those.push_back(i);
    int distinct = (int)those.size();
    T* packed = distinct < M ? arena.take<T>((size_t)distinct * std::max({2 * F, W, H})) : nullptr;
    auto times = [&](const Panels& weights, const T* from, int width, const auto& end) {
        if (distinct == M) return weights.template times<P>(from, M, end);
        for (int k = 0; k < distinct; k++)
            memcpy(packed + (long)k * width, from + (long)those[k] * width, width * sizeof(T));
        weights.template times<P>(packed, distinct, [&](int k, int n, V c0, V c1) { end(those[k], n, c0, c1); });
    };
    auto copy = [&](auto* to, int width) {
        for (int i = 0; i < M && distinct < M; i++)
            if (as[i] != i) memcpy(to + (long)i * width, to + (long)as[i] * width, width * sizeof(*to));
    };
    for (int l = s.layers - 1; l >= 0; l--) {
        const Block& b = m.blocks[l];
        const float *x = tape.at<float>(tape.x, l, 0, H), *middle = tape.at<float>(tape.middle, l, 0, H);
        const T *qkv = tape.at<T>(tape.qkv, l, 0, W), *o = tape.at<T>(tape.o, l, 0, Q);
        const T* both = tape.at<T>(tape.gate_up, l, 0, 2 * F);
        narrow<P>(dx, (long)M * H, small);
        times(b.of_down, small, H, [&](int i, int n, V c0, V c1) {
            for (int k = 0; k < 2 && n + k * L < F; k++) {
                const T* g = both + (long)i * 2 * F + n + k * L;
                V gate = get(g), up = get(g + F), d = k ? c1 : c0, e = 1.0f / (1.0f + exp(-gate)), silu = gate * e;
                put(h + (long)i * F + n + k * L, silu * up);
                T* to = d_both + (long)i * 2 * F + n + k * L;
                put(to, d * up * (e + silu * (1.0f - e)));
                put(to + F, d * silu);
            }
        });
        copy(h, F), copy(d_both, 2 * F);
        learn<P>(m.unit, small, H, h, F, M, grad + b.down, arena);
        auto to_dy = [&](int width) {
            return [=](int i, int n, V c0, V c1) {
                put(dy + (long)i * width + n, c0);
                if (n + L < width) put(dy + (long)i * width + n + L, c1);
            };
        };
        times(b.of_gate_up, d_both, 2 * F, to_dy(H));
        copy(dy, H);
        for (int i = 0; i < M; i++) norm(middle + (long)i * H, m.flat + b.norm2, H, m.eps, normed + (long)i * H);
        learn<P>(m.unit, d_both, 2 * F, normed, H, M, grad + b.gate_up, arena);
        for (int i = 0; i < M; i++)
            unnorm(middle + (long)i * H, m.flat + b.norm2, dy + (long)i * H, H, m.eps, dx + (long)i * H,
                   grad + b.norm2);

        narrow<P>(dx, (long)M * H, small);
        times(b.of_out, small, H, to_dy(Q));
        copy(dy, Q);
        learn<P>(m.unit, small, H, o, Q, M, grad + b.out, arena);
        memset(d_qkv, 0, (size_t)M * W * sizeof(float));
        turn<P>(s, tape, qkv + Q + KV, turned);
        with_width(D / L, [&](auto n) {
            for (int i = 0; i < M; i++)
                unattend<decltype(n)::value, P>(s, tape, l, i, qkv, turned, dy + (long)i * Q, d_qkv, scratch);
        });
        for (int i = 0; i < M; i++) {
            long at = (long)tape.tokens[i].position * D;
            for (int n = 0; n < Q + KV; n += L) {
                float* to = d_qkv + (long)i * W + n;
                V v = get(to);
                put(to, v * get(&m.turn_c[at + n % D]) + swap(v * get(&m.turn_s[at + n % D])));
            }
            if (s.bias)
                for (int n = 0; n < W; n += L) {
                    float* to = grad + b.qkv_bias + n;
                    put(to, get(to) + get(d_qkv + (long)i * W + n));
                }
        }
        narrow<P>(d_qkv, (long)M * W, d_both);
        times(b.of_qkv, d_both, W, to_dy(H));
        copy(dy, H);
        for (int i = 0; i < M; i++) norm(x + (long)i * H, m.flat + b.norm1, H, m.eps, normed + (long)i * H);
        learn<P>(m.unit, d_both, W, normed, H, M, grad + b.qkv, arena);
        for (int i = 0; i < M; i++)
            unnorm(x + (long)i * H, m.flat + b.norm1, dy + (long)i * H, H, m.eps, dx + (long)i * H, grad + b.norm1);
    }
    for (int i = 0; i < M; i++) {
        float *to = grad + m.embed + (long)tape.tokens[i].id * H, *from = dx + (long)i * H;
        for (int n = 0; n < H; n += L) put(to + n, get(to + n) + get(from + n));
    }
}
