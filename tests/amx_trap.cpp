// AMX on processors without it: a handler of SIGILL that executes the six instructions the kernel uses. It decodes the
// machine code itself and follows Intel's Software Developer's Manual, independently of kernel/tiles.h.
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

struct Tiled {
    bool configured = false;
    uint8_t rows[8] = {};
    uint16_t bytes[8] = {};
    uint8_t data[8][16][64] = {};
};
static thread_local Tiled unit;
static long executed[256];                       // instructions, by opcode

static void fail(const char* why) {
    fprintf(stderr, "amx_trap: %s\n", why);
    abort();
}

static float at_least_normal(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

static float half(const uint8_t* row, int i) {
    uint16_t b;
    memcpy(&b, row + 2 * i, 2);
    uint32_t w = (uint32_t)b << 16;
    float x;
    memcpy(&x, &w, 4);
    return at_least_normal(x);
}

static void dot(int c, int a, int b) {
    if (unit.bytes[a] / 4 != unit.rows[b] || unit.rows[c] != unit.rows[a] || unit.bytes[c] != unit.bytes[b])
        fail("#UD: shapes of tiles do not fit");
    for (int m = 0; m < unit.rows[c]; m++) {
        float sums[32] = {};
        for (int k = 0; k < unit.bytes[a] / 4; k++)
            for (int n = 0; n < unit.bytes[c] / 4; n++)
                for (int odd = 0; odd < 2; odd++)
                    sums[2 * n + odd] = at_least_normal(std::fma(
                        half(unit.data[a][m], 2 * k + odd), half(unit.data[b][k], 2 * n + odd), sums[2 * n + odd]));
        for (int n = 0; n < unit.bytes[c] / 4; n++) {
            float before;
            memcpy(&before, unit.data[c][m] + 4 * n, 4);
            float pair = at_least_normal(sums[2 * n] + sums[2 * n + 1]);
            float after = at_least_normal(at_least_normal(before) + pair);
            memcpy(unit.data[c][m] + 4 * n, &after, 4);
        }
    }
}

static const int REGISTERS[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void handle(int, siginfo_t*, void* context) {
    greg_t* g = ((ucontext_t*)context)->uc_mcontext.gregs;
    const uint8_t* code = (const uint8_t*)g[REG_RIP];
    if (code[0] != 0xc4 || (code[1] & 31) != 2 || (code[2] & 0x84)) fail("not an instruction of AMX");
    int pp = code[2] & 3, opcode = code[3], modrm = code[4], mod = modrm >> 6, reg = modrm >> 3 & 7, rm = modrm & 7;
    int vvvv = ~code[2] >> 3 & 15;
    const uint8_t* next = code + 5;
    uint8_t* base = nullptr;
    long stride = 0;
    if (mod != 3) {
        bool relative = false;
        long address = 0;
        if (rm == 4) {
            int sib = *next++, index = (sib >> 3 & 7) | (~code[1] >> 3 & 8), from = sib & 7;
            if (index != 4) stride = (long)g[REGISTERS[index]] << (sib >> 6);
            if (from != 5 || mod) address = g[REGISTERS[from | (~code[1] >> 2 & 8)]];
            else memcpy(&from, next, 4), address = from, next += 4;
        } else if (rm == 5 && !mod) relative = true;
        else address = g[REGISTERS[rm | (~code[1] >> 2 & 8)]];
        int32_t displacement = 0;
        if (mod == 1) displacement = (int8_t)*next++;
        if (mod == 2 || relative) memcpy(&displacement, next, 4), next += 4;
        base = (uint8_t*)(address + displacement + (relative ? (long)next : 0));
    }
    executed[opcode]++;
    if (opcode == 0x49 && pp == 0 && mod != 3) {             // LDTILECFG
        if (base[0] != 1 || base[1]) fail("#GP: palette or start row");
        for (int i = 2; i < 16; i++) if (base[i]) fail("#GP: reserved bits");
        for (int t = 0; t < 8; t++) {
            memcpy(&unit.bytes[t], base + 16 + 2 * t, 2), unit.rows[t] = base[48 + t];
            if (unit.bytes[t] > 64 || unit.rows[t] > 16 || !unit.bytes[t] != !unit.rows[t]) fail("#GP: shape of a tile");
        }
        for (int i = 32; i < 48; i++) if (base[i]) fail("#GP: reserved bits");
        for (int i = 56; i < 64; i++) if (base[i]) fail("#GP: reserved bits");
        memset(unit.data, 0, sizeof unit.data), unit.configured = true;
    } else if (opcode == 0x49 && pp == 0) {                  // TILERELEASE
        unit = Tiled();
    } else if (!unit.configured) {
        fail("#UD: tiles are not configured in this thread");
    } else if (opcode == 0x49 && pp == 3) {                  // TILEZERO
        memset(unit.data[reg], 0, sizeof unit.data[reg]);
    } else if (opcode == 0x4b && pp == 3) {                  // TILELOADD
        memset(unit.data[reg], 0, sizeof unit.data[reg]);
        for (int r = 0; r < unit.rows[reg]; r++) memcpy(unit.data[reg][r], base + r * stride, unit.bytes[reg]);
    } else if (opcode == 0x4b && pp == 2) {                  // TILESTORED
        for (int r = 0; r < unit.rows[reg]; r++) memcpy(base + r * stride, unit.data[reg][r], unit.bytes[reg]);
    } else if (opcode == 0x5c && pp == 2) {                  // TDPBF16PS
        dot(reg, rm, vvvv);
    } else {
        fail("an instruction of AMX that the kernel should not use");
    }
    g[REG_RIP] = (greg_t)next;
}

extern "C" void amx_trap_install() {
    struct sigaction action = {};
    action.sa_sigaction = handle, action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, nullptr);
}

extern "C" long amx_trap_count(int opcode) { return executed[opcode]; }
extern "C" int amx_trap_configured() { return unit.configured; }

// The kernel's products without the rest of it.
#include "panels.h"
extern "C" int isocost_tiles() { return tiles_here(); }
extern "C" void isocost_product(int unit_, int64_t M, int64_t N, int64_t K, const float* a, const float* w, float* out) {
    product_of((::Unit)unit_, M, N, K, a, w, out);
}
