// Products of bfloat16 with matrix units (Intel AMX), and the same instructions in plain C++.
//
// A unit has eight tiles of at most 16 rows of 64 bytes and five instructions: configure, zero, load, dot, store. `Amx`
// is the processor's; `Emulated` follows the pseudocode of TDPBF16PS in Intel's Software Developer's Manual, so that
// what is built on the instructions is tested on any machine. Both take the same blocks in the same order.
//
// A row's numbers do not depend on the other rows of its tile, and every product is cut along the sum in the same way.
// So rows have the same bits in any batch, as with vectors, but not the bits that vectors give: those sum in another
// order.
#pragma once

#include <cmath>
#include "products.h"

#if defined(__x86_64__) && defined(__linux__) && defined(ISOCOST_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define FOR_TILES __attribute__((target("amx-tile,amx-bf16")))
#define HAS_TILES 1
#else
#define FOR_TILES
#define HAS_TILES 0
#endif

constexpr int ROWS = 16, WORDS = 16;             // of a tile
constexpr int COLUMNS = NR < 16 ? NR : 16;       // of a tile of B and of C; a panel is one or two of them wide
constexpr int WIDE = NR / COLUMNS;
enum Unit { VECTORS = 0, AMX = 1, EMULATED = 2 };
// Tiles 0 to 3 are sums: those of a block's upper rows, then of its lower. 4 and 5 are A's, 6 and 7 B's.

struct alignas(64) TileShapes {                  // what LDTILECFG reads, "palette 1"
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};                     // of a row of each tile
    uint8_t rows[16] = {};
    TileShapes() {
        for (int t = 0; t < 8; t++) rows[t] = ROWS, bytes[t] = 4 * (t == 4 || t == 5 ? WORDS : COLUMNS);
    }
};

struct Emulated {
    TileShapes shapes;
    uint32_t tiles[8][16][16] = {};
    static float flushed(float x) {
        return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
    }
    static float read(uint32_t bits) {
        float x;
        memcpy(&x, &bits, 4);
        return flushed(x);
    }
    template <int t> void zero() { memset(tiles[t], 0, sizeof tiles[t]); }
    template <int t> void load(const void* from, long stride) {
        zero<t>();
        for (int r = 0; r < shapes.rows[t]; r++) memcpy(tiles[t][r], (const char*)from + r * stride, shapes.bytes[t]);
    }
    template <int t> void store(void* to, long stride) const {
        for (int r = 0; r < shapes.rows[t]; r++) memcpy((char*)to + r * stride, tiles[t][r], shapes.bytes[t]);
    }
    // Row by row: the even and the odd products of a pair have sums of their own, rounded after every multiply-add;
    // their sum is added to the tile. Denormal numbers are zero on the way in and on the way out.
    template <int c, int a, int b> void dot() {
        static_assert(c < 4 && a / 2 == 2 && b / 2 == 3, "see TileShapes");
        for (int m = 0; m < shapes.rows[c]; m++)
            for (int n = 0; n < shapes.bytes[c] / 4; n++) {
                float even = 0, odd = 0;
                for (int k = 0; k < shapes.bytes[a] / 4; k++) {
                    uint32_t x = tiles[a][m][k], y = tiles[b][k][n];
                    even = flushed(std::fma(read(x << 16), read(y << 16), even));
                    odd = flushed(std::fma(read(x & 0xffff0000u), read(y & 0xffff0000u), odd));
                }
                float sum = flushed(read(tiles[c][m][n]) + flushed(even + odd));
                memcpy(&tiles[c][m][n], &sum, 4);
            }
    }
};

#if HAS_TILES
struct Amx {  // a thread configures its tiles with `Tiles` below
    template <int t> FOR_TILES void zero() { asm volatile("tilezero %%tmm%c0" : : "i"(t)); }
    template <int t> FOR_TILES void load(const void* from, long stride) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
    }
    template <int t> FOR_TILES void store(void* to, long stride) const {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(t) : "memory");
    }
    template <int c, int a, int b> FOR_TILES void dot() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
    }
};
#endif

// One or two tiles of rows by NR columns of A B, `deep` words, whole tiles. A's rows are `ri` words apart, B is a panel
template <class Eight, bool two>
FOR_TILES static void block(const uint32_t* A, long ri, const uint32_t* B, int deep, float* out) {
    Eight t;
    const long a = 4 * ri, b = 4 * NR;           // strides in bytes
    t.template zero<0>();
    if constexpr (WIDE == 2) t.template zero<1>();
    if constexpr (two) t.template zero<2>();
    if constexpr (two && WIDE == 2) t.template zero<3>();
    for (int k = 0; k < deep; k += WORDS) {
        const uint32_t* panel = B + (long)k * NR;
        t.template load<6>(panel, b);
        t.template load<4>(A + k, a);
        t.template dot<0, 4, 6>();
        if constexpr (two) t.template load<5>(A + ROWS * ri + k, a), t.template dot<2, 5, 6>();
        if constexpr (WIDE == 2) {
            t.template load<7>(panel + COLUMNS, b);
            t.template dot<1, 4, 7>();
            if constexpr (two) t.template dot<3, 5, 7>();
        }
    }
    t.template store<0>(out, b);
    if constexpr (WIDE == 2) t.template store<1>(out + COLUMNS, b);
    if constexpr (two) t.template store<2>(out + ROWS * NR, b);
    if constexpr (two && WIDE == 2) t.template store<3>(out + ROWS * NR + COLUMNS, b);
}

static inline int whole_tiles(int words) { return (words + WORDS - 1) / WORDS * WORDS; }

// All of A B, as `product` gives it. A's rows are `ri` words apart and K words long; each of B's panels has
// whole_tiles(K) words to a column, those after K zero. Rows that fill no tile are copied to where they do.
template <class End>
static void tiled(Unit unit, const uint32_t* A, long ri, int M, const uint32_t* B, int N, int K, const End& end) {
    static thread_local std::vector<uint32_t, Lines<uint32_t>> room;
    alignas(64) float out[2 * ROWS * NR];
    int deep = whole_tiles(K), here = K == deep ? M / ROWS * ROWS : 0;       // rows that are read where they are
    if (here < M) {
        size_t size = (size_t)(M - here + 2 * ROWS - 1) / (2 * ROWS) * (2 * ROWS) * deep;
        if (room.size() < size) room.resize(size);
        std::fill(room.begin(), room.begin() + size, 0u);
        for (int m = here; m < M; m++) memcpy(&room[(size_t)(m - here) * deep], A + m * ri, K * sizeof(uint32_t));
    }
#if HAS_TILES
    auto* one = unit == AMX ? block<Amx, false> : block<Emulated, false>;
    auto* both = unit == AMX ? block<Amx, true> : block<Emulated, true>;
#else
    auto *one = block<Emulated, false>, *both = block<Emulated, true>;
    (void)unit;
#endif
    for (int n = 0; n < N; n += NR, B += (size_t)deep * NR)
        for (int m = 0, rows; m < M; m += rows) {
            bool inside = m < here;
            rows = (inside ? here : M) - m;
            auto* run = rows > ROWS ? both : one;
            rows = std::min(rows, rows > ROWS ? 2 * ROWS : ROWS);
            if (inside) run(A + m * ri, ri, B, deep, out);
            else run(&room[(size_t)(m - here) * deep], deep, B, deep, out);
            for (int i = 0; i < rows; i++) end(m + i, n, get(out + i * NR), get(out + i * NR + L));
        }
}

// Tiles of this thread while it lives. Other libraries in the process configure them too: nothing outlives a call.
struct Tiles {
    bool on;
    FOR_TILES explicit Tiles(Unit unit) : on(unit == AMX) {
#if HAS_TILES
        static const TileShapes shapes;
        if (on) asm volatile("ldtilecfg %0" : : "m"(shapes));
#endif
    }
    FOR_TILES ~Tiles() {
#if HAS_TILES
        if (on) asm volatile("tilerelease");
#endif
    }
    Tiles(const Tiles&) = delete;
};

// Whether this process may use them: 1; or 0: not in this build, -1: not on this processor, -2: the system forbids it.
static int tiles_here() {
#if HAS_TILES
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return -1;
    const long REQUEST = 0x1023, DATA = 18;      // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, REQUEST, DATA) ? -2 : 1;
#else
    return 0;
#endif
}
