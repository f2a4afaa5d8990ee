// Stacks of small networks of dense layers with relu, and their optimiser: what `isocost.control.networks` does with
// torch. Each network is computed alone, so that its numbers do not depend on the stack.
//
// The weights of one network lie one after another: for each layer (in, out) and (out). Inner widths are multiples of
// NR, so products need no packing: a row of weights is a row of panels.
#pragma once

#include "products.h"

struct Net {
    int inputs, width, depth, outputs;
    long matrix(int l) const { return l == 0 ? 0 : inputs * width + width + (long)(l - 1) * (width * width + width); }
    long bias(int l) const { return matrix(l) + (l == 0 ? inputs : width) * (l == depth ? outputs : width); }
};

// C = A B with rows of B `N` apart, N a multiple of NR; A's (m, k) is at m ri + k rk.
template <class End>
static inline void dense(const float* A, long ri, long rk, int M, const float* B, int N, int K, const End& end) {
    product<F32>((const uint32_t*)A, ri, rk, M, (const uint32_t*)B, NR, N, N, K, end);
}

static inline float dot(const float* a, const float* b, int width) {
    V s{};
    for (int k = 0; k < width; k += L) s += get(a + k) * get(b + k);
    return sum(s);
}

// (rows, columns) -> (columns, rows), by whole blocks of L by L as far as they go
static inline void turned(const float* from, int rows, int columns, float* to) {
    int down = rows / L * L, across = columns / L * L;
    for (int i = 0; i < down; i += L)
        for (int j = 0; j < across; j += L) {
            V block[L];
            for (int k = 0; k < L; k++) block[k] = get(from + (long)(i + k) * columns + j);
            transpose(block);
            for (int k = 0; k < L; k++) put(to + (long)(j + k) * rows + i, block[k]);
        }
    for (int i = 0; i < rows; i++)
        for (int j = i < down ? across : 0; j < columns; j++) to[(long)j * rows + i] = from[(long)i * columns + j];
}

// y (count, outputs) of x (count, inputs); h (depth, count, width) are the hidden layers.
static void read(const Net& n, const float* p, const float* x, int count, float* h, float* y, float* scratch) {
    int H = n.width;
    for (int l = 0; l < n.depth; l++) {
        const float *from = l ? h + (long)(l - 1) * count * H : x, *bias = p + n.bias(l);
        float* to = h + (long)l * count * H;
        int in = l ? H : n.inputs;
        dense(from, in, 1, count, p + n.matrix(l), H, in, [&](int m, int j, V a, V b) {
            put(to + (long)m * H + j, larger(a + get(bias + j), V{}));
            put(to + (long)m * H + j + L, larger(b + get(bias + j + L), V{}));
        });
    }
    const float *last = h + (long)(n.depth - 1) * count * H, *bias = p + n.bias(n.depth);
    turned(p + n.matrix(n.depth), H, n.outputs, scratch);
    for (int b = 0; b < count; b++)
        for (int o = 0; o < n.outputs; o++)
            y[b * n.outputs + o] = dot(last + (long)b * H, scratch + (long)o * H, H) + bias[o];
}

// From dy the gradients by weights (g, overwritten) and by inputs (dx), each only if it is given. `d` has room for
// 2 count width, `scratch` for max(width, outputs) width.
static void back(const Net& n, const float* p, const float* x, int count, const float* h, const float* dy, float* g,
                 float* dx, float* d, float* scratch) {
    int H = n.width, O = n.outputs;
    float *now = d, *next = d + (long)count * H;
    const float* last = h + (long)(n.depth - 1) * count * H;
    auto kept = [](const float* h, V v) { return get(h) > 0 ? v : V{}; };       // where relu let it through
    turned(p + n.matrix(n.depth), H, O, scratch);
    for (int b = 0; b < count; b++)
        for (int k = 0; k < H; k += L) {
            V s{};
            for (int o = 0; o < O; o++) s += all(dy[b * O + o]) * get(scratch + (long)o * H + k);
            put(now + (long)b * H + k, kept(last + (long)b * H + k, s));
        }
    if (g) {
        for (int o = 0; o < O; o++) {
            float s = 0;
            for (int b = 0; b < count; b++) s += dy[b * O + o];
            g[n.bias(n.depth) + o] = s;
            for (int k = 0; k < H; k += L) {
                V sums{};
                for (int b = 0; b < count; b++) sums += all(dy[b * O + o]) * get(last + (long)b * H + k);
                put(scratch + k, sums);
            }
            for (int k = 0; k < H; k++) g[n.matrix(n.depth) + (long)k * O + o] = scratch[k];
        }
    }
    for (int l = n.depth - 1; l >= 0; l--) {
        int in = l ? H : n.inputs;
        const float* from = l ? h + (long)(l - 1) * count * H : x;
        if (g) {
            float *matrix = g + n.matrix(l), *bias = g + n.bias(l);
            for (int k = 0; k < H; k += L) {
                V s{};
                for (int b = 0; b < count; b++) s += get(now + (long)b * H + k);
                put(bias + k, s);
            }
            dense(from, 1, in, in, now, H, count, [&](int m, int j, V a, V b) {
                put(matrix + (long)m * H + j, a), put(matrix + (long)m * H + j + L, b);
            });
        }
        if (l) {
            turned(p + n.matrix(l), H, H, scratch);
            dense(now, H, 1, count, scratch, H, H, [&](int m, int j, V a, V b) {
                long at = (long)m * H + j;
                put(next + at, kept(from + at, a)), put(next + at + L, kept(from + at + L, b));
            });
            std::swap(now, next);
        } else if (dx)
            for (int b = 0; b < count; b++)
                for (int i = 0; i < in; i++)
                    dx[b * in + i] = dot(now + (long)b * H, p + n.matrix(0) + (long)i * H, H);
    }
}

extern "C" {

// Networks run . members of `size` numbers each: x (runs, shared ? 1 : members, count, inputs) -> y (.., count, outputs)
// and, if it is given, the hidden layers h (runs members, depth, count, width), which `isocost_mlp_back` reads.
void isocost_mlp(const int64_t* shape, const float* p, const float* x, float* h, float* y) {
    int64_t runs = shape[0], members = shape[1], shared = shape[2], count = shape[3], size = shape[8];
    Net n{(int)shape[4], (int)shape[5], (int)shape[6], (int)shape[7]};
    int64_t hidden = n.depth * count * n.width;
    std::vector<float, Lines<float>> scratch((int64_t)n.width * n.outputs), own(h ? 0 : hidden);
    for (int64_t i = 0; i < runs * members; i++)
        read(n, p + i * size, x + (shared ? i / members : i) * count * n.inputs, (int)count,
             h ? h + i * hidden : own.data(), y + i * count * n.outputs, scratch.data());
}

// From dy (.., count, outputs): g (runs, members, size) and dx (runs, members, count, inputs), each if it is given.
void isocost_mlp_back(const int64_t* shape, const float* p, const float* x, const float* h, const float* dy, float* g,
                      float* dx) {
    int64_t runs = shape[0], members = shape[1], shared = shape[2], count = shape[3], size = shape[8];
    Net n{(int)shape[4], (int)shape[5], (int)shape[6], (int)shape[7]};
    std::vector<float, Lines<float>> d(2 * count * n.width), scratch((int64_t)n.width * std::max(n.width, n.outputs));
    for (int64_t i = 0; i < runs * members; i++) {
        float* own = g ? g + i * size : nullptr;
        long used = n.bias(n.depth) + n.outputs;
        if (own) memset(own + used, 0, (size - used) * sizeof(float));
        back(n, p + i * size, x + (shared ? i / members : i) * count * n.inputs, (int)count,
             h + i * n.depth * count * n.width, dy + i * count * n.outputs, own,
             dx ? dx + i * count * n.inputs : nullptr, d.data(), scratch.data());
    }
}

// Adam of `runs` rows of `size` numbers: by row its step size, the scale of the second moment's root, and what is kept of
// the weights; `betas` are Adam's two, 1 minus each of them, and epsilon.
void isocost_adam(int64_t runs, int64_t size, float* p, float* first, float* second, const float* g, const float* rate,
                  const float* scale, const float* kept, const float* betas) {
    float b1 = betas[0], b2 = betas[1], one = betas[2], two = betas[3], eps = betas[4];
    for (int64_t r = 0; r < runs; r++) {
        float step = rate[r], root = scale[r], keep = kept[r];
        float *w = p + r * size, *m = first + r * size, *v = second + r * size;
        const float* d = g + r * size;
        for (int64_t i = 0; i < size; i++) {
            m[i] = b1 * m[i] + one * d[i];
            v[i] = b2 * v[i] + two * d[i] * d[i];
            w[i] = keep * w[i] - step * m[i] / (root * std::sqrt(v[i]) + eps);
        }
    }
}
}
