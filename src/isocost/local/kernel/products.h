// Matrix products: words of four bytes, one float or two neighbours along the sum.
#pragma once

#include <vector>
#include "vectors.h"

struct F32 {
    typedef float T;
    static constexpr int per = 1;  // elements of a word
    static inline V rounded(V v) { return v; }
    static inline V fma(V c, uint32_t a, U b) {
        float f;
        memcpy(&f, &a, 4);
        return c + all(f) * (V)b;
    }
    static inline uint32_t word(float a, float) {
        uint32_t w;
        memcpy(&w, &a, 4);
        return w;
    }
};

struct BF16 {
    typedef uint16_t T;
    static constexpr int per = 2;
    static inline V rounded(V v) {
        T t[L];
        put(t, v);
        return get(t);
    }
    static inline V fma(V c, uint32_t a, U b) {
#ifdef __AVX512BF16__
        return (V)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
#else
        U w = U{} + a;
        c = c + (V)(w << 16) * (V)(b << 16);
        return c + (V)(w & 0xffff0000u) * (V)(b & 0xffff0000u);
#endif
    }
    static inline uint16_t one(float x) {
        uint32_t u;
        memcpy(&u, &x, 4);
        return x != x ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
    }
    static inline uint32_t word(float a, float b) { return one(a) | (uint32_t)one(b) << 16; }
};

// R rows by NR columns of A B, K words deep: A's word (i, k) is at i ri + k rk, B's row k at k bk.
template <class P, int R, class End>
static inline void tile(const uint32_t* A, long ri, long rk, const uint32_t* B, long bk, int K, const End& end) {
    V c0[R], c1[R];
    for (int i = 0; i < R; i++) c0[i] = c1[i] = V{};
    for (int k = 0; k < K; k++) {
        U b0 = *(const U*)(B + k * bk), b1 = *(const U*)(B + k * bk + L);
#pragma GCC unroll 16
        for (int i = 0; i < R; i++) {
            uint32_t a = A[i * ri + k * rk];
            c0[i] = P::fma(c0[i], a, b0);
            c1[i] = P::fma(c1[i], a, b1);
        }
    }
    for (int i = 0; i < R; i++) end(i, c0[i], c1[i]);
}

// All of A B, M by N. `end(m, n, c0, c1)` takes columns n to n + L, and n + L to n + 2 L; those beyond N are undefined.
template <class P, class End>
static void product(const uint32_t* A, long ri, long rk, int M, const uint32_t* B, long bn, long bk, int N, int K,
                    const End& end) {
    for (int n = 0; n < N; n += NR, B += bn) {
        int m = 0;
        auto here = [&](int i, V a, V b) { end(m + i, n, a, b); };
        for (; m + MR <= M && M - m != 16; m += MR) tile<P, MR>(A + m * ri, ri, rk, B, bk, K, here);
        if constexpr (MR > 8)
            for (; m + 8 <= M; m += 8) tile<P, 8>(A + m * ri, ri, rk, B, bk, K, here);  // 16 rows are two of these
        for (; m + 4 <= M; m += 4) tile<P, 4>(A + m * ri, ri, rk, B, bk, K, here);
        for (; m < M; m++) tile<P, 1>(A + m * ri, ri, rk, B, bk, K, here);
    }
}

// A matrix laid out for `product` as B: panels of NR columns, each K words deep.
struct Panels {
    std::vector<uint32_t> words;
    int N = 0, K = 0;  // columns, words

    // Element (n, k) of the product's B is w[n sn + k sk]; `split` > 0 pairs L columns with those `split` further on.
    template <class P> void pack(const float* w, int columns, int depth, long sn, long sk, int split = 0) {
        N = columns, K = depth / P::per;
        int panels = (N + NR - 1) / NR;
        words.resize((size_t)panels * K * NR);
        auto column = [&](int p, int j) { return split ? (long)p * L + j % L + (j / L) * split : (long)p * NR + j; };
        auto word = [&](const float* at) { return P::word(at[0], P::per > 1 ? at[sk] : 0.0f); };
        for (int p = 0; p < panels; p++) {
            uint32_t* to = words.data() + (size_t)p * K * NR;
            if (sn == 1 && !split && (p + 1) * NR <= N) {  // neighbours stay neighbours: whole lines are copied
                const float* from = w + (long)p * NR;
                for (int k = 0; k < K; k++)
                    for (int j = 0; j < NR; j++) to[(size_t)k * NR + j] = word(from + (long)k * P::per * sk + j);
                continue;
            }
            for (int j = 0; j < NR; j++) {
                long n = column(p, j);
                for (int k = 0; k < K; k++)
                    to[(size_t)k * NR + j] = n < N ? word(w + n * sn + (long)k * P::per * sk) : 0;
            }
        }
    }
    template <class P, class End> void times(const typename P::T* A, int M, const End& end) const {
        product<P>((const uint32_t*)A, K, 1, M, words.data(), (long)K * NR, NR, N, K, end);
    }
};
