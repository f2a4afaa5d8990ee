// Vectors as wide as the machine has them, in the compiler's own terms; float32 and bfloat16 in memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int L = 16, MR = 12;
#elif defined(__AVX2__)
constexpr int L = 8, MR = 6;
#else
constexpr int L = 4, MR = 6;
#endif
constexpr int NR = 2 * L;        // columns of a tile
constexpr int CHUNK = 192;       // rows that go through the layers together: their activations fit a core's cache

typedef float V __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef uint32_t U __attribute__((vector_size(4 * L), aligned(4), may_alias));
typedef uint16_t H16 __attribute__((vector_size(2 * L), aligned(2), may_alias));

// One broadcast. `V{} + x` would be an addition too, for it turns -0 into 0; x - 0 is x.
static inline V all(float x) { return x - V{}; }
static inline V get(const float* p) { return *(const V*)p; }
static inline void put(float* p, V v) { *(V*)p = v; }
static inline V get(const uint16_t* p) {
#ifdef __AVX512F__                                          // GCC compiles the other line to halves and inserts
    return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16);
#else
    return (V)(__builtin_convertvector(*(const H16*)p, U) << 16);
#endif
}
static inline void put(uint16_t* p, V v) {                  // to the nearest bfloat16, ties to even; NaN stays NaN
    U u = (U)v, up = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (U)(v != v);
    u = (up & ~nan) | (0x7fc0 & nan);
#ifdef __AVX512F__
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16((__m512i)u));
#else
    *(H16*)p = __builtin_convertvector(u, H16);
#endif
}
#if defined(__AVX512F__)
#define SWAPPED(x) __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#elif defined(__AVX2__)
#define SWAPPED(x) __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6)
#else
#define SWAPPED(x) __builtin_shufflevector(x, x, 1, 0, 3, 2)
#endif
static inline V swap(V x) { return SWAPPED(x); }             // swaps neighbours
typedef float Q4 __attribute__((vector_size(16), aligned(4), may_alias));
static inline float sum(V v) {  // by quarters of 4 lanes, so that it is a few instructions
    float s[L];
    put(s, v);
    Q4 q = *(Q4*)s;
    for (int i = 4; i < L; i += 4) q += *(Q4*)(s + i);
    return (q[0] + q[2]) + (q[1] + q[3]);
}
static inline float most(V v) {
    float s[L];
    put(s, v);
    Q4 q = *(Q4*)s;
    for (int i = 4; i < L; i += 4) q = *(Q4*)(s + i) > q ? *(Q4*)(s + i) : q;
    return std::max(std::max(q[0], q[2]), std::max(q[1], q[3]));
}
static inline V below(V v, int count, float other) {         // the first `count` lanes of v, and `other` in the rest
    static constexpr int32_t each[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return *(const I*)each < count ? v : all(other);
}

// L rows of L become L columns: in each step, blocks of `s` lanes change places across the diagonal.
template <int s, size_t... lane> static inline void exchange(V* rows, std::index_sequence<lane...>) {
#pragma GCC unroll 16
    for (int i = 0; i < L; i++) {
        if (i & s) continue;
        V a = rows[i], b = rows[i + s];
        rows[i] = __builtin_shufflevector(a, b, (lane & s ? L + lane - s : lane)...);
        rows[i + s] = __builtin_shufflevector(a, b, (lane & s ? L + lane : lane + s)...);
    }
    if constexpr (s > 1) exchange<s / 2>(rows, std::index_sequence<lane...>());
}
static inline void transpose(V* rows) { exchange<L / 2>(rows, std::make_index_sequence<L>()); }
static inline V larger(V a, V b) { return a > b ? a : b; }

// e^x to about one unit in the last place, 0 below -87 (Cephes' polynomial).
static inline __attribute__((always_inline)) V exp(V x) {
    V low = all(-87.0f), in = larger(x, low);
    in = in < 88.0f ? in : all(88.0f);
    V n = in * 1.44269504088896341f;
    const V magic = all(12582912.0f);  // adding and taking it away rounds to an integer
    n = (n + magic) - magic;
    V r = in - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    V p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    V scale = (V)((__builtin_convertvector(n, I) + 127) << 23);
    V y = p * scale;
    return x < low ? V{} : (x != x ? x : y);
}
