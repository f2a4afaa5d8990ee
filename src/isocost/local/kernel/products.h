// Matrix products: words of four bytes, one float or two neighbours along the sum.
#pragma once

#include <new>
#include <vector>
#include "vectors.h"

// A policy is how numbers are stored (T), how many make a word (`per`), and how a word is multiplied: in `steps` steps,
// each with one scalar of A and one vector of B.
struct F32 {
    typedef float T, Scalar;
    static constexpr int per = 1, steps = 1;
    static inline V rounded(V v) { return v; }
    static inline V column(const uint32_t* b, int) { return get((const float*)b); }
    static inline V fma(V c, float a, V b) { return c + all(a) * b; }
    static inline const float* scalars(const uint32_t* words, long, float*) { return (const float*)words; }
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
#ifdef __AVX512BF16__                                       // both products of a word in one instruction
    typedef uint32_t Scalar;
    static constexpr int steps = 1;
    static inline U column(const uint32_t* b, int) { return *(const U*)b; }
    static inline V fma(V c, uint32_t a, U b) {
        return (V)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
    }
    static inline const uint32_t* scalars(const uint32_t* words, long, uint32_t*) { return words; }
#else                                                       // the first, then the second, as float32
    typedef float Scalar;
    static constexpr int steps = 2;
    static inline V column(const uint32_t* b, int step) {
        U w = *(const U*)b;
        return (V)(step ? w & 0xffff0000u : w << 16);
    }
    static inline V fma(V c, float a, V b) { return c + all(a) * b; }
    static inline const float* scalars(const uint32_t* words, long count, float* room) {
        const uint16_t* x = (const uint16_t*)words;
        for (long i = 0; i < 2 * count; i += L) put(room + i, get(x + i));
        return room;
    }
#endif
    static inline uint16_t one(float x) {
        uint32_t u;
        memcpy(&u, &x, 4);
        return x != x ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
    }
    static inline uint32_t word(float a, float b) { return one(a) | (uint32_t)one(b) << 16; }
};

// R rows by NR columns of A B, K words deep: A's word (i, k) is at i ri + k rk, B's row k at k bk.
template <class P, int R, class End>
static inline void tile(const typename P::Scalar* A, long ri, long rk, const uint32_t* B, long bk, int K,
                        const End& end) {
    V c0[R], c1[R];
    for (int i = 0; i < R; i++) c0[i] = c1[i] = V{};
    for (int k = 0; k < K; k++) {
#pragma GCC unroll 2
        for (int step = 0; step < P::steps; step++) {
            auto b0 = P::column(B + k * bk, step), b1 = P::column(B + k * bk + L, step);
#pragma GCC unroll 16
            for (int i = 0; i < R; i++) {
                auto a = A[(i * ri + k * rk) * P::steps + step];
                c0[i] = P::fma(c0[i], a, b0);
                c1[i] = P::fma(c1[i], a, b1);
            }
        }
    }
    for (int i = 0; i < R; i++) end(i, c0[i], c1[i]);
}

// One row of A with `panels` panels of B at once, whose sums do not wait for each other's.
template <class P, int panels, class End>
static inline void line(const typename P::Scalar* A, long rk, const uint32_t* B, long bn, long bk, int K,
                        const End& end) {
    V c0[panels], c1[panels];
    for (int p = 0; p < panels; p++) c0[p] = c1[p] = V{};
    for (int k = 0; k < K; k++)
#pragma GCC unroll 2
        for (int step = 0; step < P::steps; step++) {
            auto a = A[k * rk * P::steps + step];
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) {
                c0[p] = P::fma(c0[p], a, P::column(B + p * bn + k * bk, step));
                c1[p] = P::fma(c1[p], a, P::column(B + p * bn + k * bk + L, step));
            }
        }
    for (int p = 0; p < panels; p++) end(p * NR, c0[p], c1[p]);
}

// All of A B, M by N. `end(m, n, c0, c1)` takes columns n to n + L, and n + L to n + 2 L; those beyond N are undefined.
template <class P, class End>
static void product(const uint32_t* A, long ri, long rk, int M, const uint32_t* B, long bn, long bk, int N, int K,
                    const End& end) {
    static thread_local std::vector<typename P::Scalar> room;
    long count = (M - 1) * ri + (K - 1) * rk + 1;           // words of A
    if (P::steps > 1 && (long)room.size() < P::steps * count + L) room.resize(P::steps * count + L);
    const auto* a = P::scalars(A, count, room.data());
    auto row = [&](int m) { return a + m * ri * P::steps; };
    int m = 0;                                              // rows that the tiles below leave are done one by one
    const uint32_t* panel = B;
    for (int n = 0; n < N; n += NR, panel += bn) {
        auto here = [&](int i, V x, V y) { end(m + i, n, x, y); };
        for (m = 0; m + MR <= M && M - m != 16; m += MR) tile<P, MR>(row(m), ri, rk, panel, bk, K, here);
        if constexpr (MR > 8) {
            for (; m + 8 <= M; m += 8) {                    // 16 rows are two of eight
                if (M - m == 10 || M - m == 11) {
                    if (M - m == 10) tile<P, 10>(row(m), ri, rk, panel, bk, K, here);
                    else tile<P, 11>(row(m), ri, rk, panel, bk, K, here);
                    m = M;
                    break;
                }
                tile<P, 8>(row(m), ri, rk, panel, bk, K, here);
            }
            if (m + 6 <= M) tile<P, 6>(row(m), ri, rk, panel, bk, K, here), m += 6;
        }
        for (; m + 4 <= M; m += 4) tile<P, 4>(row(m), ri, rk, panel, bk, K, here);
        if (m + 2 <= M) tile<P, 2>(row(m), ri, rk, panel, bk, K, here), m += 2;
    }
    for (; m < M; m++) {
        int n = 0;
        panel = B;
        auto here = [&](int j, V x, V y) { end(m, n + j, x, y); };
        for (; n + 4 * NR <= N; n += 4 * NR, panel += 4 * bn) line<P, 4>(row(m), rk, panel, bn, bk, K, here);
        for (; n < N; n += NR, panel += bn) line<P, 1>(row(m), rk, panel, bn, bk, K, here);
    }
}

// Memory that begins where a line of the cache does, so that no vector lies in two lines.
template <class X> struct Lines {
    typedef X value_type;
    template <class Y> struct rebind { typedef Lines<Y> other; };
    X* allocate(size_t n) { return (X*)::operator new(n * sizeof(X), std::align_val_t(64)); }
    void deallocate(X* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
    bool operator==(const Lines&) const { return true; }
    bool operator!=(const Lines&) const { return false; }
};
