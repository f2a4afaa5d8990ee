// A model, the activations kept for the backward pass, and scratch memory.
#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include "panels.h"

struct Shape {
    int vocab, hidden, layers, heads, kv_heads, head_dim, mlp, bias, qk_norm, tied, bf16, threads;
    int q() const { return heads * head_dim; }
    int kv() const { return kv_heads * head_dim; }
    int qkv() const { return q() + 2 * kv(); }
};

struct Block {
    long norm1, qkv, qkv_bias, q_norm, k_norm, out, norm2, gate_up, down;  // where in the flat vector they begin
    Panels to_qkv, to_out, to_gate_up, to_down;
    Panels of_qkv, of_out, of_gate_up, of_down;  // the same matrices for the backward pass
};

struct Arena {  // scratch memory, allocated in order and freed at once
    std::vector<char> room;
    size_t used = 0, wanted = 0;
    template <class X> X* take(size_t n) {
        size_t bytes = (n * sizeof(X) + 4 * NR + 63) / 64 * 64;
        used += bytes;
        if (used + 64 > room.size()) {
            wanted = std::max(wanted, used);
            extra.push_back((char*)aligned_alloc(64, bytes));
            return (X*)extra.back();
        }
        return (X*)(base() + used - bytes);
    }
    char* base() { return (char*)(((uintptr_t)room.data() + 63) / 64 * 64); }
    void clear() {
        for (char* p : extra) free(p);
        extra.clear();
        if (wanted) room.resize(wanted + 64), wanted = 0;
        used = 64;
    }
    ~Arena() { clear(); }
    std::vector<char*> extra;
};

struct Tape;

struct Token {  // one position to read: its sequence is `before`, shared, then `own`, up to `at`
    int id, position, at;
    char* own;
    long room;
    const char* before;
    long read, before_room;
    Tape* tape;  // its activations are stored in this row of the tape
    int row;
    const Token* also = nullptr;  // a token of another row with the same text so far: it is stored there as well
};

// Activations of one unit for the backward pass, M tokens in all layers: a unit is prompts and the rows after them.
struct Tape {
    int M = 0, most = 0;  // tokens, and the capacity
    char* memory = nullptr;
    size_t size = 0;
    char *x, *qkv, *o, *middle, *gate_up, *cache;  // [layers][most][width] each; keys and values
    float* last;  // [most][hidden]
    long rooms = 0;  // positions that its rows' keys and values take, each row padded to L
    std::vector<Token> tokens;
    std::vector<int> first, lead;  // where in the unit each token's own row begins, and the span before that row
    std::vector<int> blocks;  // for each token, the number of blocks of L positions before its row
    Tape() = default;
    Tape(const Tape&) = delete;
    ~Tape() { free(memory); }

    // A place for M tokens whose rows' keys and values take `positions`. Memory is reused if it is large enough.
    template <class T> void open(const Shape& s, int tokens_, long positions) {
        M = 0, most = tokens_, rooms = positions;
        size_t n = (size_t)tokens_, used = 0, bytes[7];
        size_t of[7] = {n * s.hidden * sizeof(float) * s.layers,
                        n * s.qkv() * sizeof(T) * s.layers,
                        n * s.q() * sizeof(T) * s.layers,
                        n * s.hidden * sizeof(float) * s.layers,
                        n * 2 * s.mlp * sizeof(T) * s.layers,
                        n * s.hidden * sizeof(float),
                        (size_t)positions * s.kv() * 2 * s.layers * sizeof(T)};
        for (int i = 0; i < 7; i++) bytes[i] = used, used += (of[i] + 4 * NR + 63) / 64 * 64;
        if (size < used) {
            free(memory);
            memory = (char*)aligned_alloc(64, size = used);
        }
        x = memory + bytes[0], qkv = memory + bytes[1], o = memory + bytes[2], middle = memory + bytes[3];
        gate_up = memory + bytes[4], last = (float*)(memory + bytes[5]), cache = memory + bytes[6];
        tokens.clear(), first.clear(), lead.clear(), blocks.clear();
    }
    template <class X> X* at(char* array, int layer, int row, int width) const {
        return (X*)array + ((long)layer * most + row) * width;
    }
};

// The arguments of a learner's pass over units, see `isocost_forward`; `spot` is where each mask is in (N, T).
struct Laid {
    std::vector<int64_t> first_span, counts, lead, ids, first_mask, at, target, given, spot;
    std::vector<float> temperature, logp, entropy;
    void clear() {
        for (auto* v : {&first_span, &counts, &lead, &ids, &first_mask, &at, &target, &given, &spot}) v->clear();
        temperature.clear();
    }
};

struct Model {
    // Python's handle and its tapes, which Python may free in any order, and in any thread.
    std::atomic<int> users{1};
    Shape s;
    Unit unit = VECTORS;  // for products of bfloat16
    std::atomic<int> workers{1};  // cores in use, at most as many as threads
    float eps;
    long size, embed, norm, head;
    const float* flat = nullptr;
    bool laid_out = false, laid_out_back = false;  // whether the panels are those of the weights in `flat`
    std::vector<float> turn_c, turn_s;  // (positions, head_dim): cosines, and sines with signs
    std::vector<Block> blocks;
    Panels to_logits, of_logits;
    std::vector<Arena> arenas;
    std::vector<std::unique_ptr<Tape>> tapes;  // of units that the learner read itself
    std::vector<Tape*> taped;  // of all units of the last forward pass
    Laid laid;
    std::mutex of_spare;
    std::vector<std::unique_ptr<Tape>> spare;  // the sampler's, not in use
    std::vector<std::vector<float>> sums;  // gradients of the threads other than the first
};

template <class Y> static inline void norm(const float* x, const float* w, int n, float eps, Y* y) {
    V s{};
    for (int i = 0; i < n; i += L) s += get(x + i) * get(x + i);
    float r = 1.0f / std::sqrt(sum(s) / n + eps);
    for (int i = 0; i < n; i += L) put(y + i, get(x + i) * r * get(w + i));
}
