// A matrix of weights, laid out once for many products.
#pragma once

#include "tiles.h"

// A matrix laid out for `product` as B: panels of NR columns, each K words deep.
struct Panels {
    std::vector<uint32_t, Lines<uint32_t>> words;
    int N = 0, K = 0, deep = 0;  // columns, words, and words with those that fill the last tile, which are zero
    Unit unit = VECTORS;

    // Element (n, k) of the product's B is w[n sn + k sk]; `split` > 0 pairs L columns with those `split` further on.
    template <class P> void pack(const float* w, int columns, int depth, long sn, long sk, int split = 0) {
        N = columns, K = depth / P::per, deep = P::per > 1 ? whole_tiles(K) : K;
        int panels = (N + NR - 1) / NR;
        words.resize((size_t)panels * deep * NR);
        auto column = [&](int p, int j) { return split ? (long)p * L + j % L + (j / L) * split : (long)p * NR + j; };
        auto word = [&](const float* at) { return P::word(at[0], P::per > 1 ? at[sk] : 0.0f); };
        for (int p = 0; p < panels; p++) {
            uint32_t* to = words.data() + (size_t)p * deep * NR;
            if (sn == 1 && !split && (p + 1) * NR <= N) {  // neighbours stay neighbours: whole lines are copied
                const float* from = w + (long)p * NR;
                for (int k = 0; k < K; k++)
                    for (int j = 0; j < NR; j++) to[(size_t)k * NR + j] = word(from + (long)k * P::per * sk + j);
                continue;
            }
            int upto = 0;                                  // of K: rows of whole vectors along it are turned
            if (P::per == 1 && sk == 1 && column(p, L - 1) < N && column(p, NR - 1) < N) upto = K / L * L;
            for (int k = 0; k < upto; k += L)
                for (int j = 0; j < NR; j += L) {
                    V rows[L];
                    for (int i = 0; i < L; i++) rows[i] = get(w + column(p, j + i) * sn + k);
                    transpose(rows);
                    for (int i = 0; i < L; i++) put((float*)to + (size_t)(k + i) * NR + j, rows[i]);
                }
            for (int j = 0; j < NR; j++) {
                long n = column(p, j);
                for (int k = upto; k < K; k++)
                    to[(size_t)k * NR + j] = n < N ? word(w + n * sn + (long)k * P::per * sk) : 0;
            }
        }
    }
    template <class P, class End> void times(const typename P::T* A, int M, const End& end) const {
        if constexpr (P::per > 1)
            if (unit != VECTORS) return tiled(unit, (const uint32_t*)A, K, M, words.data(), N, K, end);
        product<P>((const uint32_t*)A, K, 1, M, words.data(), (long)deep * NR, NR, N, K, end);
    }
};

// a (M, K) times w (N, K) transposed, both rounded to bfloat16, on a unit: out (M, N). K is even.
static void product_of(Unit unit, int64_t M, int64_t N, int64_t K, const float* a, const float* w, float* out) {
    Tiles tiles(unit);
    Panels panels;
    panels.unit = unit;
    panels.pack<BF16>(w, (int)N, (int)K, K, 1);
    std::vector<uint32_t> words((size_t)M * K / 2 + L);
    for (int64_t i = 0; i < M * K; i += 2) words[i / 2] = BF16::word(a[i], a[i + 1]);
    panels.times<BF16>((const uint16_t*)words.data(), (int)M, [&](int i, int n, V c0, V c1) {
        for (int j = 0; j < NR && n + j < N; j++) out[i * N + n + j] = j < L ? c0[j] : c1[j - L];
    });
}
