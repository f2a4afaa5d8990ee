// Products of the kernel, timed: prints "rows inputs outputs fp32 bf16 tiles" for each shape, in GFLOP per CPU second.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include "panels.h"

static double seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

template <class P> static double rate(Unit unit, int M, int K, int N) {
    Tiles tiles(unit);
    std::vector<float> w((size_t)N * K), c((size_t)M * N + NR);
    std::vector<uint32_t> a((size_t)M * K / P::per + L);
    for (auto& x : w) x = (float)rand() / RAND_MAX - 0.5f;
    for (auto& x : a) x = P::word((float)rand() / RAND_MAX - 0.5f, (float)rand() / RAND_MAX - 0.5f);
    Panels panels;
    panels.unit = unit;
    panels.pack<P>(w.data(), N, K, K, 1);
    double work = 2.0 * M * N * K, best = 0;
    int times = std::max(1, (int)(5e7 / work));
    for (int repeat = 0; repeat < 15; repeat++) {            // the best: other work on the machine only slows it down
        double began = seconds();
        for (int i = 0; i < times; i++)
            panels.times<P>((const typename P::T*)a.data(), M, [&](int m, int n, V x, V y) {
                float* to = &c[(size_t)m * N + n];
                put(to, x);
                if (n + L < N) put(to + L, y);
            });
        best = std::max(best, work * times / (seconds() - began) / 1e9);
    }
    return best;
}

int main() {
    const int shapes[][3] = {{192, 128, 384}, {192, 128, 768}, {192, 384, 128}, {16, 128, 384},
                             {1, 128, 384},   {192, 576, 1536}, {192, 1536, 576}};
    bool amx = tiles_here() == 1;
    for (auto& [M, K, N] : shapes)
        printf("%d %d %d %.1f %.1f %.1f\n", M, K, N, rate<F32>(VECTORS, M, K, N), rate<BF16>(VECTORS, M, K, N),
               amx ? rate<BF16>(AMX, M, K, N) : 0.0);
}
