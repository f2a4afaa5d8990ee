// Attention of one token on its sequence, and the layout of a sequence's keys and values.
#pragma once

#include <type_traits>
#include "model.h"

// A sequence's keys and values in a layer: per head, keys as words [room / L][D / per][L], then values as [room][D].
template <class T> static inline T* keys_of(const char* base, const Shape& s, long room, int layer, int head) {
    return (T*)base + ((long)layer * s.kv_heads + head) * 2 * room * s.head_dim;
}

// Put a vector, D / per words, at place `at` of blocks.
template <class P> static inline void scatter(const typename P::T* x, int D, typename P::T* blocks, int at) {
    uint32_t* to = (uint32_t*)(blocks + (long)(at / L) * D * L) + at % L;
    for (int w = 0; w < D / P::per; w++) to[w * L] = ((const uint32_t*)x)[w];
}

template <class P>
static inline void remember(const Shape& s, const Token& t, int layer, const typename P::T* k, const typename P::T* v) {
    int D = s.head_dim;
    for (int h = 0; h < s.kv_heads; h++) {
        auto* keys = keys_of<typename P::T>(t.own, s, t.room, layer, h);
        scatter<P>(k + h * D, D, keys, t.at);
        memcpy(keys + t.room * D + (long)t.at * D, v + h * D, D * sizeof(typename P::T));
    }
}

// Products of one vector with `count` others that are stored in blocks. Four sums per block hide the latency of adds.
template <class P>
static inline void scores(const typename P::T* vector, const typename P::T* blocks, int count, int D, float* out) {
    typename P::Scalar room[16 * L];                        // a head has at most 16 vectors
    const auto* q = P::scalars((const uint32_t*)vector, D / P::per, room);
    for (int b = 0; b * L < count; b++, blocks += D * L) {
        V s0{}, s1{}, s2{}, s3{};
        const uint32_t* k = (const uint32_t*)blocks;
        for (int w = 0; w < D / P::per; w += 4, k += 4 * L) {
            auto add = [&](V s, int i, int step) {
                return P::fma(s, q[(w + i) * P::steps + step], P::column(k + i * L, step));
            };
#pragma GCC unroll 2
            for (int step = 0; step < P::steps; step++)
                s0 = add(s0, 0, step), s1 = add(s1, 1, step), s2 = add(s2, 2, step), s3 = add(s3, 3, step);
        }
        put(out + b * L, (s0 + s1) + (s2 + s3));
    }
}

constexpr int HEADS = 4;  // that one token attends with together

struct Look {  // one query's weights, still to be scaled, over the keys of the shared start and its own
    int before, own, own_from, end;  // numbers of keys, where the own ones' weights begin, and where all end
    float scale;
};

// Of N heads from `head` on, whose queries follow each other at q and whose weights are put `stride` apart. The heads
// take each step together: one head's alone would wait for its own results most of the time.
template <int N, class P>
static inline void look(const Shape& s, const Token& t, int layer, int head, const typename P::T* q, float* p,
                        long stride, Look* out) {
    typedef typename P::T T;
    int D = s.head_dim, group = s.heads / s.kv_heads, own = t.at + 1, read = (int)t.read, from = (read + L - 1) / L * L,
        end = from + (own + L - 1) / L * L;
    const float never = -std::numeric_limits<float>::infinity(), scale = 1.0f / std::sqrt((float)D);
    for (int h = 0; h < N; h++) {
        int kv = (head + h) / group;
        float* to = p + h * stride;
        if (read) scores<P>(q + h * D, keys_of<T>(t.before, s, t.before_room, layer, kv), read, D, to);
        scores<P>(q + h * D, keys_of<T>(t.own, s, t.room, layer, kv), own, D, to + from);
    }
    V high[N], total[N];
    for (int h = 0; h < N; h++) {
        float* to = p + h * stride;
        if (read < from) put(to + from - L, below(get(to + from - L), read - from + L, never));
        if (from + own < end) put(to + end - L, below(get(to + end - L), from + own - end + L, never));
        high[h] = all(never), total[h] = V{};
        for (int j = 0; j < end; j += L) high[h] = larger(high[h], get(to + j));
    }
    for (int h = 0; h < N; h++) high[h] = all(most(high[h]));
    for (int j = 0; j < end; j += L)
        for (int h = 0; h < N; h++) {
            float* to = p + h * stride + j;
            V e = exp((get(to) - high[h]) * scale);
            put(to, e);
            total[h] += e;
        }
    for (int h = 0; h < N; h++) out[h] = {read, own, from, end, 1.0f / sum(total[h])};
}

// out += p V over `count` values; N vectors to a value, 0 for any number.
template <int N, class T> static inline void blend(const float* p, const T* values, int count, int D, V* out) {
    const int n = N ? N : D / L;
    V odd[N ? N : 16];
    for (int d = 0; d < n; d++) odd[d] = V{};
    int j = 0;
    for (; j + 2 <= count; j += 2, values += 2 * D)
        for (int d = 0; d < n; d++) out[d] += p[j] * get(values + d * L), odd[d] += p[j + 1] * get(values + D + d * L);
    if (j < count)
        for (int d = 0; d < n; d++) out[d] += p[j] * get(values + d * L);
    for (int d = 0; d < n; d++) out[d] += odd[d];
}

template <int N, class P>
static inline void attend_with(const Shape& s, const Token& t, int layer, const typename P::T* q, typename P::T* out,
                               float* p) {
    typedef typename P::T T;
    int D = s.head_dim, group = s.heads / s.kv_heads;
    const int n = N ? N : D / L;
    const long stride = (t.read + L - 1) / L * L + (t.at + L) / L * L;
    auto some = [&](auto count, int first) {
        constexpr int heads = decltype(count)::value;
        Look a[heads];
        look<heads, P>(s, t, layer, first, q + first * D, p, stride, a);
        for (int i = 0; i < heads; i++) {
            int h = first + i, kv = h / group;
            const float* w = p + i * stride;
            V seen[N ? N : 16];
            for (int d = 0; d < n; d++) seen[d] = V{};
            if (a[i].before)
                blend<N>(w, keys_of<T>(t.before, s, t.before_room, layer, kv) + t.before_room * D, a[i].before, D,
                         seen);
            blend<N>(w + a[i].own_from, keys_of<T>(t.own, s, t.room, layer, kv) + t.room * D, a[i].own, D, seen);
            for (int d = 0; d < n; d++) put(out + h * D + d * L, seen[d] * a[i].scale);
        }
    };
    int h = 0;
    for (; h + HEADS <= s.heads; h += HEADS) some(std::integral_constant<int, HEADS>(), h);
    for (; h < s.heads; h++) some(std::integral_constant<int, 1>(), h);
}

// Runs f with the number of vectors to a head as a constant, for the usual numbers.
template <class F> static inline void with_width(int n, const F& f) {
    switch (n) {
        case 1:
            return f(std::integral_constant<int, 1>());
        case 2:
            return f(std::integral_constant<int, 2>());
        case 4:
            return f(std::integral_constant<int, 4>());
        default:
            return f(std::integral_constant<int, 0>());
    }
}

template <class P>
static void attend(const Shape& s, const Token* t, int M, int layer, const typename P::T* q, typename P::T* out,
                   float* scratch) {
    with_width(s.head_dim / L, [&](auto n) {
        for (int i = 0; i < M; i++)
            attend_with<decltype(n)::value, P>(s, t[i], layer, q + (long)i * s.qkv(), out + (long)i * s.q(), scratch);
    });
}

static long scratch_of(const Shape& s, const Token* t, int M) {
    long most = 0;
    for (int m = 0; m < M; m++) most = std::max(most, t[m].read + t[m].at);
    return HEADS * (most + 3 * L) + 2 * s.head_dim;
}
