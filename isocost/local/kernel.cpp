// The decoder of decoder.py for processors: forward with a cache, draws, and the backward pass, each thread on its own
// rows from the embedding to the last norm, so that nobody waits for anybody and activations stay in the cache.
//
// A row's numbers never depend on its neighbours: every product sums over k in order, whatever the tile it stands in.
// `F32` computes in float32. `BF16` rounds what enters a product to bfloat16 and sums in float32. Norms, the residual
// stream, attention's sums, the head and all gradients of weights are float32 in both.
//
// Vectors are the compiler's own (GCC, Clang), as wide as the machine's. Lengths that vectors run along (hidden, the
// feed-forward's width, the head's width) are multiples of `L`; native.py sees to it.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>
#include <pthread.h>
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

static inline V all(float x) { return V{} + x; }
static inline V get(const float* p) { return *(const V*)p; }
static inline void put(float* p, V v) { *(V*)p = v; }
static inline V get(const uint16_t* p) {
#ifdef __AVX512F__                                          // what GCC makes of the other line is halves and inserts
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
static inline V swap(V x) { return SWAPPED(x); }             // neighbours change places
typedef float Q4 __attribute__((vector_size(16), aligned(4), may_alias));
static inline float sum(V v) {                               // by quarters of 4 lanes, so that it is a few instructions
    float s[L];
    put(s, v);
    Q4 q = *(Q4*)s;
    for (int i = 4; i < L; i += 4) q += *(Q4*)(s + i);
    return (q[0] + q[2]) + (q[1] + q[3]);
}
static inline float most(V v) {
    float m = v[0];
    for (int i = 1; i < L; i++) m = std::max(m, v[i]);
    return m;
}
static inline V larger(V a, V b) { return a > b ? a : b; }

// e^x to about one unit in the last place, 0 below -87 (Cephes' polynomial).
static inline __attribute__((always_inline)) V exp(V x) {
    V low = all(-87.0f), in = larger(x, low);
    in = in < 88.0f ? in : all(88.0f);
    V n = in * 1.44269504088896341f;
    const V magic = all(12582912.0f);                       // adding and taking it away rounds to an integer
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

// ---- products: words of four bytes, one float or two neighbours along the sum ----------------------------------------

struct F32 {
    typedef float T;
    static constexpr int per = 1;                           // elements of a word
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

// R rows by NR columns of A B, K words deep: A's word (i, k) stands at i ri + k rk, B's row k at k bk.
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

// All of A B, M by N. `end(m, n, c0, c1)` takes columns n to n + L, and n + L to n + 2 L; those beyond N are rubbish.
template <class P, class End>
static void product(const uint32_t* A, long ri, long rk, int M, const uint32_t* B, long bn, long bk, int N, int K,
                    const End& end) {
    for (int n = 0; n < N; n += NR, B += bn) {
        int m = 0;
        auto here = [&](int i, V a, V b) { end(m + i, n, a, b); };
        for (; m + MR <= M && M - m != 16; m += MR) tile<P, MR>(A + m * ri, ri, rk, B, bk, K, here);
        if constexpr (MR > 8)
            for (; m + 8 <= M; m += 8) tile<P, 8>(A + m * ri, ri, rk, B, bk, K, here);      // 16 rows are two of these
        for (; m + 4 <= M; m += 4) tile<P, 4>(A + m * ri, ri, rk, B, bk, K, here);
        for (; m < M; m++) tile<P, 1>(A + m * ri, ri, rk, B, bk, K, here);
    }
}

// A matrix laid out for `product` as B: panels of NR columns, each K words deep.
struct Panels {
    std::vector<uint32_t> words;
    int N = 0, K = 0;                                       // columns, words

    // Element (n, k) of the product's B is w[n sn + k sk]; `split` > 0 pairs L columns with those `split` further on.
    template <class P>
    void pack(const float* w, int columns, int depth, long sn, long sk, int split = 0) {
        N = columns, K = depth / P::per;
        int panels = (N + NR - 1) / NR;
        words.resize((size_t)panels * K * NR);
        for (int p = 0; p < panels; p++)
            for (int j = 0; j < NR; j++) {
                long n = split ? (long)p * L + j % L + (j / L) * split : (long)p * NR + j;
                uint32_t* to = words.data() + (size_t)p * K * NR + j;
                if (n < N)
                    for (int k = 0; k < K; k++) {
                        const float* at = w + n * sn + (long)k * P::per * sk;
                        to[(size_t)k * NR] = P::word(at[0], P::per > 1 ? at[sk] : 0.0f);
                    }
                else
                    for (int k = 0; k < K; k++) to[(size_t)k * NR] = 0;
            }
    }
    template <class P, class End>
    void times(const typename P::T* A, int M, const End& end) const {
        product<P>((const uint32_t*)A, K, 1, M, words.data(), (long)K * NR, NR, N, K, end);
    }
};

// ---- threads ---------------------------------------------------------------------------------------------------------

// Workers that wait for something to do: awake for some microseconds, then asleep, so that a core which another process
// wants is not spent on waiting. Made when first needed, never ended; a forked child makes its own.
struct Pool {
    std::mutex one, mutex;
    std::condition_variable wake, done;
    std::atomic<int64_t> round{0};
    std::atomic<int> left{0};
    int wanted = 0, workers = 0;
    const std::function<void(int)>* job = nullptr;

    static constexpr int SPINS = 2000;
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    void work(int index, int64_t seen) {
        for (;;) {
            for (int i = 0; i < SPINS && round.load(std::memory_order_acquire) == seen; i++) pause();
            std::unique_lock<std::mutex> lock(mutex);
            wake.wait(lock, [&] { return round.load() != seen; });
            seen = round.load();                            // who is wanted cannot miss a round: `run` waits for it
            bool mine = index < wanted;
            auto* f = job;
            lock.unlock();
            if (!mine) continue;
            (*f)(index);
            if (left.fetch_sub(1) == 1) {
                std::lock_guard<std::mutex> lock(mutex);
                done.notify_one();
            }
        }
    }
    void run(int threads, const std::function<void(int)>& f) {
        std::lock_guard<std::mutex> lock(one);
        std::unique_lock<std::mutex> now(mutex);
        for (; workers < threads - 1; workers++) std::thread(&Pool::work, this, workers + 1, round.load()).detach();
        job = &f, wanted = threads, left = threads - 1;
        round++;
        now.unlock();
        wake.notify_all();
        f(0);
        for (int i = 0; i < SPINS && left.load(); i++) pause();
        now.lock();
        done.wait(now, [&] { return left.load() == 0; });
    }
};

// f(0), f(1), ... f(threads - 1), side by side.
static void each(int threads, const std::function<void(int)>& f) {
    static Pool* pool = (pthread_atfork(nullptr, nullptr, [] { pool = new Pool; }), new Pool);
    if (threads > 1) pool->run(threads, f);
    else f(0);
}

// ---- the model -------------------------------------------------------------------------------------------------------

struct Shape {
    int vocab, hidden, layers, heads, kv_heads, head_dim, mlp, bias, qk_norm, tied, bf16, threads;
    int q() const { return heads * head_dim; }
    int kv() const { return kv_heads * head_dim; }
    int qkv() const { return q() + 2 * kv(); }
};

struct Block {
    long norm1, qkv, qkv_bias, q_norm, k_norm, out, norm2, gate_up, down;     // where in the flat vector they begin
    Panels to_qkv, to_out, to_gate_up, to_down;
    Panels of_qkv, of_out, of_gate_up, of_down;                               // the same matrices for the way back
};

struct Arena {                                              // scratch that is taken in order and given back at once
    std::vector<char> room;
    size_t used = 0, wanted = 0;
    template <class X>
    X* take(size_t n) {
        size_t bytes = (n * sizeof(X) + 4 * NR + 63) / 64 * 64;
        used += bytes;
        if (used + 64 > room.size()) { wanted = std::max(wanted, used); extra.push_back((char*)aligned_alloc(64, bytes)); return (X*)extra.back(); }
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

struct Token {                       // one position to read: its sequence is `before`, shared, then `own`, up to `at`
    int id, position, at;
    char* own;
    long room;
    const char* before;
    long read, before_room;
    Tape* tape;                      // what is to be remembered of it goes to this row there
    int row;
};

// What the way back needs of one unit, M tokens in all layers: a unit is some prompts and the rows that go on from them.
struct Tape {
    int M = 0, most = 0;             // tokens, and how many there is room for
    char* memory = nullptr;
    size_t size = 0;
    char *x, *qkv, *o, *middle, *gate_up, *cache;           // [layers][most][width] each; keys and values
    float* last;                                            // [most][hidden]
    long rooms = 0;                  // positions that its rows' keys and values take, each row padded to L
    std::vector<Token> tokens;
    std::vector<int> first, lead;    // where in the unit each token's own row begins, and what stands before that row
    std::vector<int> blocks;         // for each token, how many blocks of L positions stand before its row
    Tape() = default;
    Tape(const Tape&) = delete;
    ~Tape() { free(memory); }

    // A place for M tokens whose rows' keys and values take `positions`. Memory stays what it was if it is enough.
    template <class T> void open(const Shape& s, int tokens_, long positions) {
        M = 0, most = tokens_, rooms = positions;
        size_t n = (size_t)tokens_, used = 0, bytes[7];
        size_t of[7] = {n * s.hidden * sizeof(float) * s.layers, n * s.qkv() * sizeof(T) * s.layers,
                        n * s.q() * sizeof(T) * s.layers, n * s.hidden * sizeof(float) * s.layers,
                        n * 2 * s.mlp * sizeof(T) * s.layers, n * s.hidden * sizeof(float),
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

struct Model {
    int users = 1;                   // Python's handle and its tapes, which Python may let go of in any order
    Shape s;
    float eps;
    long size, embed, norm, head;
    const float* flat = nullptr;
    std::vector<float> turn_c, turn_s;                      // (positions, head_dim): cosines, and sines with signs
    std::vector<Block> blocks;
    Panels to_logits, of_logits;
    std::vector<Arena> arenas;
    std::vector<std::unique_ptr<Tape>> tapes;               // of units that the learner read itself
    std::vector<Tape*> taped;                               // of all units of the last forward pass
    std::vector<std::unique_ptr<Tape>> spare;               // the sampler's, that nobody uses now
    std::vector<std::vector<float>> sums;                   // gradients of the threads but the first
};

template <class Y> static inline void norm(const float* x, const float* w, int n, float eps, Y* y) {
    V s{};
    for (int i = 0; i < n; i += L) s += get(x + i) * get(x + i);
    float r = 1.0f / std::sqrt(sum(s) / n + eps);
    for (int i = 0; i < n; i += L) put(y + i, get(x + i) * r * get(w + i));
}

// ---- attention -------------------------------------------------------------------------------------------------------

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

// Products of one vector with `count` others that stand in blocks. Four sums a block, so that none waits long.
template <class P>
static inline void scores(const typename P::T* vector, const typename P::T* blocks, int count, int D, float* out) {
    const uint32_t* q = (const uint32_t*)vector;
    for (int b = 0; b * L < count; b++, blocks += D * L) {
        V s0{}, s1{}, s2{}, s3{};
        const uint32_t* k = (const uint32_t*)blocks;
        for (int w = 0; w < D / P::per; w += 4, k += 4 * L) {
            s0 = P::fma(s0, q[w], *(const U*)k), s1 = P::fma(s1, q[w + 1], *(const U*)(k + L));
            s2 = P::fma(s2, q[w + 2], *(const U*)(k + 2 * L)), s3 = P::fma(s3, q[w + 3], *(const U*)(k + 3 * L));
        }
        put(out + b * L, (s0 + s1) + (s2 + s3));
    }
}

struct Look {                        // one query's weights, still to be scaled, over what was before and what is its own
    int before, own, own_from, end;  // numbers of keys, where the own ones' weights begin, and where all end
    float scale;
};

template <class P>
static inline Look look(const Shape& s, const Token& t, int layer, int head, const typename P::T* q, float* p) {
    typedef typename P::T T;
    int D = s.head_dim, own = t.at + 1, read = (int)t.read, from = (read + L - 1) / L * L, end = from + (own + L - 1) / L * L;
    if (read) scores<P>(q, keys_of<T>(t.before, s, t.before_room, layer, head), read, D, p);
    scores<P>(q, keys_of<T>(t.own, s, t.room, layer, head), own, D, p + from);
    const float never = -std::numeric_limits<float>::infinity();
    for (int j = read; j < from; j++) p[j] = never;
    for (int j = from + own; j < end; j++) p[j] = never;
    V top = all(never);
    for (int j = 0; j < end; j += L) top = larger(top, get(p + j));
    V high = all(most(top)), total{};
    const float scale = 1.0f / std::sqrt((float)D);
    for (int j = 0; j < end; j += L) {
        V e = exp((get(p + j) - high) * scale);
        put(p + j, e);
        total += e;
    }
    return {read, own, from, end, 1.0f / sum(total)};
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
static inline void attend_with(const Shape& s, const Token& t, int layer, const typename P::T* q, typename P::T* out, float* p) {
    typedef typename P::T T;
    int D = s.head_dim, group = s.heads / s.kv_heads;
    const int n = N ? N : D / L;
    for (int h = 0; h < s.heads; h++) {
        int kv = h / group;
        V seen[N ? N : 16];
        for (int d = 0; d < n; d++) seen[d] = V{};
        Look a = look<P>(s, t, layer, kv, q + h * D, p);
        if (a.before)
            blend<N>(p, keys_of<T>(t.before, s, t.before_room, layer, kv) + t.before_room * D, a.before, D, seen);
        blend<N>(p + a.own_from, keys_of<T>(t.own, s, t.room, layer, kv) + t.room * D, a.own, D, seen);
        for (int d = 0; d < n; d++) put(out + h * D + d * L, seen[d] * a.scale);
    }
}

// Runs f with the number of vectors to a head as a constant, where it is one of the usual ones.
template <class F> static inline void with_width(int n, const F& f) {
    switch (n) {
        case 1: return f(std::integral_constant<int, 1>());
        case 2: return f(std::integral_constant<int, 2>());
        case 4: return f(std::integral_constant<int, 4>());
        default: return f(std::integral_constant<int, 0>());
    }
}

template <class P>
static void attend(const Shape& s, const Token* t, int M, int layer, const typename P::T* q, typename P::T* out, float* scratch) {
    with_width(s.head_dim / L, [&](auto n) {
        for (int i = 0; i < M; i++)
            attend_with<decltype(n)::value, P>(s, t[i], layer, q + (long)i * s.qkv(), out + (long)i * s.q(), scratch);
    });
}

static long scratch_of(const Shape& s, const Token* t, int M) {
    long most = 0;
    for (int m = 0; m < M; m++) most = std::max(most, t[m].read + t[m].at);
    return most + 3 * L + 2 * s.head_dim;
}

// ---- forward ---------------------------------------------------------------------------------------------------------

// M tokens through all layers; x, (M, hidden), leaves as the residual stream before the last norm. Tokens that have a
// tape leave there what they were on the way.
template <class P>
static void layers(const Model& m, Arena& arena, const Token* t, int M, float* x) {
    typedef typename P::T T;
    const Shape& s = m.s;
    int H = s.hidden, Q = s.q(), KV = s.kv(), W = s.qkv(), F = s.mlp, D = s.head_dim;
    float* wide = arena.take<float>((size_t)M * W);
    T* a = arena.take<T>((size_t)M * H);
    T* spare = arena.take<T>((size_t)M * std::max({W + Q, F}));
    float* scratch = arena.take<float>(scratch_of(s, t, M));
    for (int i = 0; i < M; i++) memcpy(x + (long)i * H, m.flat + m.embed + (long)t[i].id * H, H * sizeof(float));
    for (int l = 0; l < s.layers; l++) {
        const Block& b = m.blocks[l];
        const float* bias = s.bias ? m.flat + b.qkv_bias : nullptr;
        T *qkv = spare, *o = spare + (long)M * W;
        auto keep = [&](char* Tape::* array, const auto* from, int width) {
            typedef std::remove_const_t<std::remove_reference_t<decltype(*from)>> X;
            for (int i = 0; i < M; i++)
                if (Tape* tape = t[i].tape)
                    memcpy(tape->at<X>(tape->*array, l, t[i].row, width), from + (long)i * width, width * sizeof(X));
        };
        keep(&Tape::x, x, H);
        for (int i = 0; i < M; i++) norm(x + (long)i * H, m.flat + b.norm1, H, m.eps, a + (long)i * H);
        b.to_qkv.times<P>(a, M, [&](int i, int n, V c0, V c1) {
            float* to = wide + (long)i * W + n;
            put(to, bias ? c0 + get(bias + n) : c0);
            if (n + L < W) put(to + L, bias ? c1 + get(bias + n + L) : c1);
        });
        for (int i = 0; i < M; i++) {
            float* from = wide + (long)i * W;
            T* to = qkv + (long)i * W;
            if (s.qk_norm)
                for (int h = 0; h < s.heads + s.kv_heads; h++)
                    norm(from + h * D, m.flat + (h < s.heads ? b.q_norm : b.k_norm), D, m.eps, from + h * D);
            const float *c = &m.turn_c[(long)t[i].position * D], *z = &m.turn_s[(long)t[i].position * D];
            for (int n = 0; n < Q + KV; n += L) {
                V v = get(from + n);
                put(to + n, v * get(c + n % D) + swap(v) * get(z + n % D));
            }
            for (int n = Q + KV; n < W; n += L) put(to + n, get(from + n));
            remember<P>(s, t[i], l, to + Q, to + Q + KV);
        }
        attend<P>(s, t, M, l, qkv, o, scratch);
        keep(&Tape::qkv, qkv, W);
        keep(&Tape::o, o, Q);
        auto add = [&](int i, int n, V c0, V c1) {
            float* to = x + (long)i * H + n;
            put(to, get(to) + c0);
            if (n + L < H) put(to + L, get(to + L) + c1);
        };
        b.to_out.times<P>(o, M, add);
        keep(&Tape::middle, x, H);
        for (int i = 0; i < M; i++) norm(x + (long)i * H, m.flat + b.norm2, H, m.eps, a + (long)i * H);
        b.to_gate_up.times<P>(a, M, [&](int i, int n, V gate, V up) {
            int f = n / 2;
            gate = P::rounded(gate), up = P::rounded(up);
            if (Tape* tape = t[i].tape) {
                T* both = tape->at<T>(tape->gate_up, l, t[i].row, 2 * F) + f;
                put(both, gate), put(both + F, up);
            }
            put(spare + (long)i * F + f, gate / (1.0f + exp(-gate)) * up);
        });
        b.to_down.times<P>(spare, M, add);
    }
}

// ---- draws -----------------------------------------------------------------------------------------------------------

constexpr int SUMS = 8 * L;          // numbers that are summed in float32 before their sum joins a double

struct Drawn { float logp, entropy; int id; };

// Softmax of V logits over a temperature, which stay in z, as e = exp(z - max), which may be z itself where `id` is given:
// its log-prob and the entropy; or with u, a draw and its log-prob.
static Drawn softmax(float* z, float* e, int V_, float temperature, int id, const double* u, double* blocks) {
    float top = -std::numeric_limits<float>::infinity();
    int whole = V_ / L * L;
    V high = all(top), t = all(temperature);
    for (int j = 0; j < whole; j += L) {
        V v = get(z + j) / t;
        put(z + j, v);
        high = larger(high, v);
    }
    float chosen = 0;
    for (int j = whole; j < V_; j++) z[j] = z[j] / temperature, top = std::max(top, z[j]);
    top = std::max(top, most(high));
    if (id >= 0) chosen = z[id] - top;
    double total = 0, inner = 0;
    int count = 0;
    for (int b = 0; b < V_; b += SUMS) {
        V some{}, dot{};
        for (int j = b; j < std::min(V_, b + SUMS); j += L) {
            float part[L];
            if (j >= whole)
                for (int i = 0; i < L; i++) part[i] = j + i < V_ ? z[j + i] : -std::numeric_limits<float>::infinity();
            V v = get(j < whole ? z + j : part) - top, w = exp(v);
            put(j < whole ? e + j : part, w);
            if (j >= whole) memcpy(e + j, part, (V_ - j) * sizeof(float));
            some += w;
            if (!u) dot += w > 0.0f ? w * v : V{};
        }
        blocks[count] = sum(some);
        total += blocks[count++];
        inner += sum(dot);
    }
    Drawn d{0, 0, id};
    double log_total = std::log(total);
    d.entropy = (float)(log_total - inner / total);
    if (u) {
        double goal = *u * total, passed = 0;
        d.id = V_;
        for (int b = 0; b < count && d.id == V_; b++) {
            if (!(passed + blocks[b] > goal)) { passed += blocks[b]; continue; }
            double here = passed;
            for (int j = b * SUMS; j < std::min(V_, b * SUMS + SUMS); j++)
                if (e[j] > 0 && (here += e[j]) > goal) { d.id = j; break; }
            passed += blocks[b];
        }
        for (int j = V_ - 1; d.id == V_ && total == total && j >= 0; j--)     // rounding at the very end of the line
            if (e[j] > 0) d.id = j;
        chosen = d.id < V_ ? z[d.id] - top : 0;
    }
    d.logp = (float)(chosen - log_total);
    return d;
}

// Sum of e^(z - top).
static double mass(const float* z, int count, float top) {
    double total = 0;
    int j = 0;
    for (; j + SUMS <= count; j += SUMS) {
        V some{};
        for (int i = 0; i < SUMS; i += L) some += exp(get(z + j + i) - top);
        total += sum(some);
    }
    for (; j < count; j++) total += std::exp((double)z[j] - top);
    return total;
}

// Tempered logits outside the kept set become -inf: the top_k likeliest (0: all), then of those, renormalised, the fewest
// that hold top_p. Ties are kept in order of id. Only what can be kept is sorted.
static void truncate(float* z, int V_, float temperature, float top_p, int64_t top_k, std::vector<std::pair<float, int>>& some) {
    auto before = [](const std::pair<float, int>& a, const std::pair<float, int>& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    const float never = -std::numeric_limits<float>::infinity();
    float top = never;
    for (int j = 0; j < V_; j++) z[j] /= temperature, top = std::max(top, z[j]);
    if ((top_p >= 1 && !top_k) || !(top < -never && top > never)) return;    // not finite: the draw says so
    for (float reach = 8;; reach *= 2) {                    // candidates: within `reach` of the top, more if they do not do
        some.clear();
        for (int j = 0; j < V_; j++)
            if (z[j] >= top - reach) some.push_back({z[j], j});
        bool all = (int)some.size() == V_ || reach > 1e30f;
        double left = 0, passed = 0;                        // what the others weigh at most
        if (!all) left = (V_ - (double)some.size()) * std::exp(-(double)reach);
        if (top_k > 0) {
            if ((int64_t)some.size() < std::min<int64_t>(top_k, V_) && !all) continue;
            if (top_k < (int64_t)some.size()) {
                std::nth_element(some.begin(), some.begin() + top_k, some.end(), before);
                some.resize(top_k);
            }
            left = 0;
        }
        if (top_p < 1) {
            double total = 0;
            if (top_k > 0) for (auto& x : some) total += std::exp((double)x.first - top);
            else total = mass(z, V_, top);
            double inside = 0;
            for (auto& x : some) inside += std::exp((double)x.first - top);
            if (!all && left > 0 && inside < top_p * total) continue;
            std::sort(some.begin(), some.end(), before);
            size_t kept = 0;
            while (kept < some.size() && passed < top_p * total) passed += std::exp((double)some[kept++].first - top);
            some.resize(kept);
        }
        break;
    }
    std::fill(z, z + V_, never);
    for (auto& [value, id] : some) z[id] = value;
}

// ---- backward --------------------------------------------------------------------------------------------------------

// Columns of x (M, N) in strips of `width`, each a word deep per token (F32) or pair of tokens (BF16): what a sum over
// tokens reads, without strides that fight for the same lines of the cache.
template <class P>
static const uint32_t* strips(const typename P::T* x, int M, int N, int width, Arena& arena) {
    int words = (M + P::per - 1) / P::per, count = (N + width - 1) / width;
    uint32_t* out = arena.take<uint32_t>((size_t)count * words * width);
    for (int w = 0; w < words; w++) {
        const typename P::T *a = x + (long)w * P::per * N, *b = w * P::per + 1 < M ? a + N : nullptr;
        for (int k = 0; k < count; k++) {
            uint32_t* to = out + ((long)k * words + w) * width;
            int n = std::min(width, N - k * width);
            for (int j = 0; j < n; j++) {
                if constexpr (P::per == 1) memcpy(to + j, a + k * width + j, 4);
                else to[j] = a[k * width + j] | (b ? (uint32_t)b[k * width + j] << 16 : 0u);
            }
        }
    }
    return out;
}

// grad (N, K) += dY^T X over M tokens, for dY (M, N) and X (M, K).
template <class P>
static void learn(const typename P::T* dY, int N, const typename P::T* X, int K, int M, float* grad, Arena& arena) {
    size_t mark = arena.used;
    const uint32_t *A = strips<P>(dY, M, N, MR, arena), *B = strips<P>(X, M, K, NR, arena);
    int words = (M + P::per - 1) / P::per;
    for (int n = 0; n < N; n += MR, A += (long)words * MR) {
        product<P>(A, 1, MR, std::min(MR, N - n), B, (long)words * NR, NR, K, words, [&](int i, int k, V c0, V c1) {
            float* to = grad + (long)(n + i) * K + k;
            put(to, get(to) + c0);
            if (k + L < K) put(to + L, get(to + L) + c1);
        });
    }
    arena.used = mark;
}

// dx += the norm's way back of dy, and the gradient of its weight.
static void unnorm(const float* x, const float* w, const float* dy, int n, float eps, float* dx, float* dw) {
    V s{}, c{};
    for (int i = 0; i < n; i += L) s += get(x + i) * get(x + i), c += get(dy + i) * get(w + i) * get(x + i);
    float r = 1.0f / std::sqrt(sum(s) / n + eps), k = r * r * r * sum(c) / n;
    for (int i = 0; i < n; i += L) {
        V v = get(x + i), d = get(dy + i);
        put(dx + i, get(dx + i) + d * get(w + i) * r - v * k);
        put(dw + i, get(dw + i) + d * v * r);
    }
}

template <class P> static void narrow(const float* x, long count, typename P::T* y) {
    for (long i = 0; i < count; i += L) put(y + i, get(x + i));
}

// The way back through one token's attention: adds to the gradients (M, qkv) of its query and of all keys and values.
// `turned` holds the unit's values of this layer in blocks, as keys are.
template <int N, class P>
static inline void unattend(const Shape& s, const Tape& tape, int layer, int i, const typename P::T* qkv,
                            const typename P::T* turned, const float* d_out, float* d_qkv, float* scratch) {
    typedef typename P::T T;
    const Token& t = tape.tokens[i];
    int D = s.head_dim, W = s.qkv(), Q = s.q(), KV = s.kv(), group = s.heads / s.kv_heads;
    const int n = N ? N : D / L;
    float scale = 1.0f / std::sqrt((float)D);
    long room = (t.read + L - 1) / L * L + (t.at + L) / L * L;
    T* narrow = (T*)scratch;
    float *p = scratch + D, *dp = p + room;
    for (int h = 0; h < s.heads; h++) {
        int kv = h / group, K0 = Q + kv * D, V0 = Q + KV + kv * D;
        const float* go = d_out + h * D;
        const T* q = qkv + (long)i * W + h * D;
        for (int d = 0; d < n; d++) put(narrow + d * L, get(go + d * L));
        Look a = look<P>(s, t, layer, kv, q, p);
        auto values = [&](int row, long room) {
            return turned + ((long)tape.blocks[row] * s.kv_heads + (long)kv * room / L) * D * L;
        };
        if (a.before) scores<P>(narrow, values(tape.lead[i], t.before_room), a.before, D, dp);
        scores<P>(narrow, values(tape.first[i], t.room), a.own, D, dp + a.own_from);
        V dots{};
        for (int j = 0; j < a.end; j += L) {
            V w = get(p + j) * a.scale;
            put(p + j, w);
            dots += w > 0.0f ? w * get(dp + j) : V{};
        }
        V dot = all(sum(dots));
        for (int j = 0; j < a.end; j += L) {
            V w = get(p + j);
            put(dp + j, w > 0.0f ? w * (get(dp + j) - dot) : V{});
        }
        V dq[N ? N : 16], q_[N ? N : 16], g_[N ? N : 16];
        for (int d = 0; d < n; d++) dq[d] = V{}, q_[d] = get(q + d * L) * scale, g_[d] = get(go + d * L);
        auto visit = [&](const float* w, const float* ds, int count, long row) {
            const T* k = qkv + row * W + K0;
            float *dk = d_qkv + row * W + K0, *dv = d_qkv + row * W + V0;
            for (int j = 0; j < count; j++, k += W, dk += W, dv += W)
                for (int d = 0; d < n; d++) {
                    dq[d] += ds[j] * get(k + d * L);
                    put(dk + d * L, get(dk + d * L) + ds[j] * q_[d]);
                    put(dv + d * L, get(dv + d * L) + w[j] * g_[d]);
                }
        };
        visit(p, dp, a.before, tape.lead[i]);
        visit(p + a.own_from, dp + a.own_from, a.own, tape.first[i]);
        float* to = d_qkv + (long)i * W + h * D;
        for (int d = 0; d < n; d++) put(to + d * L, get(to + d * L) + dq[d] * scale);
    }
}

// A unit's values (M, of rows W apart) in blocks, each row's of each head after the other.
template <class P> static void turn(const Shape& s, const Tape& tape, const typename P::T* values, typename P::T* out) {
    int D = s.head_dim, W = s.qkv();
    for (int i = 0; i < tape.M; i++) {
        const Token& t = tape.tokens[i];
        for (int h = 0; h < s.kv_heads; h++)
            scatter<P>(values + (long)i * W + h * D, D,
                       out + ((long)tape.blocks[tape.first[i]] * s.kv_heads + (long)h * t.room / L) * D * L, t.at);
    }
}

// From the gradient dx (M, hidden) of a unit's residual stream before the last norm to those of all weights.
template <class P> static void back(const Model& m, Arena& arena, const Tape& tape, float* dx, float* grad) {
    typedef typename P::T T;
    const Shape& s = m.s;
    int M = tape.M, H = s.hidden, Q = s.q(), KV = s.kv(), W = s.qkv(), F = s.mlp, D = s.head_dim;
    auto floats = [&](size_t n) { return arena.take<float>(n); };
    T *small = arena.take<T>((size_t)M * H), *normed = arena.take<T>((size_t)M * H);
    T *h = arena.take<T>((size_t)M * F), *d_both = arena.take<T>((size_t)M * std::max(2 * F, W));
    float *dy = floats((size_t)M * std::max(H, Q)), *d_qkv = floats((size_t)M * W);
    float* scratch = floats(2 * scratch_of(s, tape.tokens.data(), M) + 4 * L);
    T* turned = arena.take<T>((size_t)tape.rooms * s.kv());
    for (int l = s.layers - 1; l >= 0; l--) {
        const Block& b = m.blocks[l];
        const float *x = tape.at<float>(tape.x, l, 0, H), *middle = tape.at<float>(tape.middle, l, 0, H);
        const T *qkv = tape.at<T>(tape.qkv, l, 0, W), *o = tape.at<T>(tape.o, l, 0, Q);
        const T* both = tape.at<T>(tape.gate_up, l, 0, 2 * F);
        narrow<P>(dx, (long)M * H, small);
        b.of_down.template times<P>(small, M, [&](int i, int n, V c0, V c1) {
            for (int k = 0; k < 2 && n + k * L < F; k++) {
                const T* g = both + (long)i * 2 * F + n + k * L;
                V gate = get(g), up = get(g + F), d = k ? c1 : c0, e = 1.0f / (1.0f + exp(-gate)), silu = gate * e;
                put(h + (long)i * F + n + k * L, silu * up);
                T* to = d_both + (long)i * 2 * F + n + k * L;
                put(to, d * up * (e + silu * (1.0f - e)));
                put(to + F, d * silu);
            }
        });
        learn<P>(small, H, h, F, M, grad + b.down, arena);
        auto to_dy = [&](int width) {
            return [=](int i, int n, V c0, V c1) {
                put(dy + (long)i * width + n, c0);
                if (n + L < width) put(dy + (long)i * width + n + L, c1);
            };
        };
        b.of_gate_up.template times<P>(d_both, M, to_dy(H));
        for (int i = 0; i < M; i++) norm(middle + (long)i * H, m.flat + b.norm2, H, m.eps, normed + (long)i * H);
        learn<P>(d_both, 2 * F, normed, H, M, grad + b.gate_up, arena);
        for (int i = 0; i < M; i++)
            unnorm(middle + (long)i * H, m.flat + b.norm2, dy + (long)i * H, H, m.eps, dx + (long)i * H, grad + b.norm2);

        narrow<P>(dx, (long)M * H, small);
        b.of_out.template times<P>(small, M, to_dy(Q));
        learn<P>(small, H, o, Q, M, grad + b.out, arena);
        memset(d_qkv, 0, (size_t)M * W * sizeof(float));
        turn<P>(s, tape, qkv + Q + KV, turned);
        with_width(D / L, [&](auto n) {
            for (int i = 0; i < M; i++)
                unattend<decltype(n)::value, P>(s, tape, l, i, qkv, turned, dy + (long)i * Q, d_qkv, scratch);
        });
        for (int i = 0; i < M; i++) {
            long at = (long)tape.tokens[i].position * D;
            for (int n = 0; n < Q + KV; n += L) {
                float* to = d_qkv + (long)i * W + n;
                V v = get(to);
                put(to, v * get(&m.turn_c[at + n % D]) + swap(v * get(&m.turn_s[at + n % D])));
            }
            if (s.bias)
                for (int n = 0; n < W; n += L) {
                    float* to = grad + b.qkv_bias + n;
                    put(to, get(to) + get(d_qkv + (long)i * W + n));
                }
        }
        narrow<P>(d_qkv, (long)M * W, d_both);
        b.of_qkv.template times<P>(d_both, M, to_dy(H));
        for (int i = 0; i < M; i++) norm(x + (long)i * H, m.flat + b.norm1, H, m.eps, normed + (long)i * H);
        learn<P>(d_both, W, normed, H, M, grad + b.qkv, arena);
        for (int i = 0; i < M; i++)
            unnorm(x + (long)i * H, m.flat + b.norm1, dy + (long)i * H, H, m.eps, dx + (long)i * H, grad + b.norm1);
    }
    for (int i = 0; i < M; i++) {
        float *to = grad + m.embed + (long)tape.tokens[i].id * H, *from = dx + (long)i * H;
        for (int n = 0; n < H; n += L) put(to + n, get(to + n) + get(from + n));
    }
}

// ---- what Python calls -----------------------------------------------------------------------------------------------

// Spans to read, nine numbers each: tokens, the place of the first in its own row, that row's memory and room, the
// memory, length and room of what stands before it; a tape or 0, and the row there of the row's first token.
struct Span { int64_t count, at, own, room, before, read, before_room, tape, row; };

static Token token_of(const Span& s, int64_t id, int k) {
    int at = (int)s.at + k;
    return {(int)id, (int)s.read + at, at, (char*)s.own, (long)s.room, (const char*)s.before, (long)s.read,
            (long)s.before_room, (Tape*)s.tape, (int)s.row + at};
}

// Hidden states after the last norm of each span's last token, (spans, hidden), for spans first to last.
template <class P>
static void read_spans(const Model& m, Arena& arena, const Span* spans, const int64_t* ids, const int64_t* starts,
                       long first, long last, float* hidden) {
    std::vector<Token> t;
    std::vector<std::pair<int, long>> ends;
    int H = m.s.hidden;
    auto flush = [&] {
        arena.clear();
        float* x = arena.take<float>(t.size() * H);
        layers<P>(m, arena, t.data(), (int)t.size(), x);
        for (size_t i = 0; i < t.size(); i++)
            if (t[i].tape) memcpy(t[i].tape->last + (long)t[i].row * H, x + i * H, H * sizeof(float));
        for (auto [i, span] : ends) norm(x + (long)i * H, m.flat + m.norm, H, m.eps, hidden + span * H);
        t.clear(), ends.clear();
    };
    for (long k = first; k < last; k++)
        for (int i = 0; i < spans[k].count; i++) {
            t.push_back(token_of(spans[k], ids[starts[k] + i], i));
            if (i + 1 == spans[k].count) ends.push_back({(int)t.size() - 1, k});
            if (t.size() == CHUNK) flush();
        }
    if (!t.empty()) flush();
}

static void logits_of(const Model& m, const float* hidden, int rows, float* z) {
    int V_ = m.s.vocab;
    m.to_logits.times<F32>(hidden, rows, [&](int i, int n, V c0, V c1) {
        float* to = z + (long)i * V_ + n;
        for (int k = 0; k < 2; k++, n += L, to += L) {
            V c = k ? c1 : c0;
            if (n + L <= V_) put(to, c);
            else for (int j = 0; n + j < V_; j++) to[j] = c[j];
        }
    });
}

// Shares [0, count) out by weight, in order: thread t's part is [cut[t], cut[t + 1]).
template <class Weight> static std::vector<long> shares(long count, int threads, const Weight& weight) {
    double total = 0, seen = 0;
    for (long i = 0; i < count; i++) total += weight(i);
    std::vector<long> cut(threads + 1, count);
    cut[0] = 0;
    int t = 1;
    for (long i = 0; i < count && t < threads; i++) {
        while (t < threads && seen >= total * t / threads) cut[t++] = i;
        seen += weight(i);
    }
    return cut;
}

extern "C" {

int isocost_lanes() { return L; }

Model* isocost_open(const int64_t* shape, double eps, const int64_t* offsets, int64_t size, const float* turns, int64_t positions) {
    Model* m = new Model;
    int* to = (int*)&m->s;
    for (int i = 0; i < 12; i++) to[i] = (int)shape[i];
    m->eps = (float)eps, m->size = size;
    m->embed = offsets[0], m->norm = offsets[1], m->head = m->s.tied ? offsets[0] : offsets[2];
    m->blocks.resize(m->s.layers);
    for (int l = 0; l < m->s.layers; l++)
        for (int i = 0; i < 9; i++) (&m->blocks[l].norm1)[i] = offsets[3 + 9 * l + i];
    m->arenas.resize(m->s.threads);
    m->sums.resize(m->s.threads);
    int D = m->s.head_dim;
    m->turn_c.resize(positions * D), m->turn_s.resize(positions * D);
    for (int64_t i = 0; i < positions * D / 2; i++) {
        m->turn_c[2 * i] = m->turn_c[2 * i + 1] = turns[2 * i];
        m->turn_s[2 * i] = -turns[2 * i + 1], m->turn_s[2 * i + 1] = turns[2 * i + 1];
    }
    return m;
}

void isocost_close(Model* m) {
    if (!--m->users) delete m;
}

// Take the weights in `flat`, which stays where it is; `backward` also lays them out for the way back.
void isocost_load(Model* m, const float* flat, int backward) {
    const Shape& s = m->s;
    m->flat = flat;
    int H = s.hidden, Q = s.q(), W = s.qkv(), F = s.mlp;
    auto all = [&](auto p) {
        typedef decltype(p) P;
        auto layer = [&](Block& b) {
            b.to_qkv.pack<P>(flat + b.qkv, W, H, H, 1);
            b.to_out.pack<P>(flat + b.out, H, Q, Q, 1);
            b.to_gate_up.pack<P>(flat + b.gate_up, 2 * F, H, H, 1, F);
            b.to_down.pack<P>(flat + b.down, H, F, F, 1);
            if (!backward) return;
            b.of_qkv.pack<P>(flat + b.qkv, H, W, 1, H);
            b.of_out.pack<P>(flat + b.out, Q, H, 1, Q);
            b.of_gate_up.pack<P>(flat + b.gate_up, H, 2 * F, 1, H);
            b.of_down.pack<P>(flat + b.down, F, H, 1, F);
        };
        each(s.threads, [&](int t) {
            for (int l = t; l < s.layers; l += s.threads) layer(m->blocks[l]);
        });
    };
    if (s.bf16) all(BF16()); else all(F32());
    m->to_logits.pack<F32>(flat + m->head, s.vocab, H, H, 1);
    if (backward) m->of_logits.pack<F32>(flat + m->head, H, s.vocab, 1, H);
}

// Read spans; `hidden` (spans, hidden) gets each span's last state, after the last norm.
void isocost_read(Model* m, int64_t count, const Span* spans, const int64_t* ids, float* hidden) {
    std::vector<int64_t> starts(count + 1, 0);
    for (int64_t k = 0; k < count; k++) starts[k + 1] = starts[k] + spans[k].count;
    auto cut = shares(count, m->s.threads, [&](long k) { return (double)spans[k].count; });
    each(m->s.threads, [&](int t) {
        if (m->s.bf16) read_spans<BF16>(*m, m->arenas[t], spans, ids, starts.data(), cut[t], cut[t + 1], hidden);
        else read_spans<F32>(*m, m->arenas[t], spans, ids, starts.data(), cut[t], cut[t + 1], hidden);
    });
}

void isocost_logits(Model* m, int64_t rows, const float* hidden, float* z) {
    auto cut = shares(rows, m->s.threads, [](long) { return 1.0; });
    each(m->s.threads, [&](int t) {
        long a = cut[t], n = cut[t + 1] - a;
        if (n) logits_of(*m, hidden + a * m->s.hidden, (int)n, z + a * m->s.vocab);
    });
}

// A draw from each row of logits (rows, vocab), which are spent; `id` is vocab where they are not finite.
void isocost_draw(Model* m, int64_t rows, float* z, const float* temperature, const double* u, int64_t* id, float* logp) {
    int V_ = m->s.vocab;
    auto cut = shares(rows, m->s.threads, [](long) { return 1.0; });
    each(m->s.threads, [&](int t) {
        std::vector<double> blocks((V_ + SUMS - 1) / SUMS);
        std::vector<float> e(V_);
        for (long i = cut[t]; i < cut[t + 1]; i++) {
            Drawn d = softmax(z + i * V_, e.data(), V_, temperature[i], -1, u + i, blocks.data());
            id[i] = d.id, logp[i] = d.logp;
        }
    });
}

// Temper and truncate rows of logits (rows, vocab) in place.
void isocost_truncate(Model* m, int64_t rows, float* z, const float* temperature, const float* top_p, const int64_t* top_k) {
    int V_ = m->s.vocab;
    auto cut = shares(rows, m->s.threads, [](long) { return 1.0; });
    each(m->s.threads, [&](int t) {
        std::vector<std::pair<float, int>> some;
        for (long i = cut[t]; i < cut[t + 1]; i++) truncate(z + i * V_, V_, temperature[i], top_p[i], top_k[i], some);
    });
}

// Decode `rows` rows by up to `ticks` tokens each. Row i reads its `last` token at span i and writes on until it has
// written left[i] tokens or one that ends it. It stops early after the tick in which some request has no row left:
// row i is of request of[i], with open[of[i]] rows to go. u, ids and logp are (rows, ticks); wrote[i] says how many.
// Returns -1 where the logits of some row are not finite.
int64_t isocost_decode(Model* m, int64_t rows, int64_t ticks, const Span* spans, const int64_t* last, const int64_t* left,
                       const int64_t* of, int64_t* open, const uint8_t* ends, const float* temperature, const double* u,
                       int64_t* ids, float* logp, int64_t* wrote) {
    struct Part {
        std::vector<long> alive, done;
        std::vector<Span> now;
        std::vector<int64_t> read, starts;
        std::vector<float> hidden, z, e;
        std::vector<double> blocks;
        bool bad = false;
    };
    int H = m->s.hidden, V_ = m->s.vocab;
    constexpr int few = 48;                                 // rows whose logits are made together
    std::vector<Part> parts(m->s.threads);
    auto cut = shares(rows, m->s.threads, [&](long i) { return (double)std::min(left[i], ticks); });
    for (int t = 0; t < m->s.threads; t++) {
        Part& p = parts[t];
        for (long i = cut[t]; i < cut[t + 1]; i++) wrote[i] = 0, p.alive.push_back(i);
        p.hidden.resize((p.alive.size() + 1) * H), p.z.resize((size_t)few * V_ + NR), p.e.resize(V_), p.blocks.resize((V_ + SUMS - 1) / SUMS);
    }
    auto step = [&](Part& p, Arena& arena, int64_t tick) {
        p.now.clear(), p.read.clear(), p.starts.clear(), p.done.clear();
        for (long i : p.alive) {
            Span s = spans[i];
            s.count = 1, s.at += tick;
            p.now.push_back(s), p.starts.push_back((int64_t)p.read.size());
            p.read.push_back(tick ? ids[i * ticks + tick - 1] : last[i]);
        }
        auto go = m->s.bf16 ? read_spans<BF16> : read_spans<F32>;
        go(*m, arena, p.now.data(), p.read.data(), p.starts.data(), 0, (long)p.now.size(), p.hidden.data());
        size_t kept = 0, count = p.alive.size();
        for (size_t a = 0; a < count; a += few) {
            int n = (int)std::min<size_t>(few, count - a);
            logits_of(*m, p.hidden.data() + a * H, n, p.z.data());
            for (int k = 0; k < n; k++) {
                long i = p.alive[a + k], at = i * ticks + tick;
                Drawn d = softmax(p.z.data() + (size_t)k * V_, p.e.data(), V_, temperature[i], -1, u + at, p.blocks.data());
                ids[at] = d.id, logp[at] = d.logp, wrote[i] = tick + 1;
                if (d.id == V_) p.bad = true;
                else if (!ends[d.id] && wrote[i] < left[i]) p.alive[kept++] = i;
                else p.done.push_back(i);
            }
        }
        p.alive.resize(kept);
    };
    for (int64_t tick = 0; tick < ticks; tick++) {
        each(m->s.threads, [&](int t) {
            if (!parts[t].alive.empty()) step(parts[t], m->arenas[t], tick);
            else parts[t].done.clear();
        });
        bool stop = false, any = false;
        for (Part& p : parts) {
            if (p.bad) return -1;
            for (long i : p.done) stop |= --open[of[i]] == 0;
            any |= !p.alive.empty();
        }
        if (stop || !any) break;
    }
    return 0;
}

// The learner's forward pass over units: prompts, and rows that go on from them. Unit k's spans are first_span[k] to
// first_span[k + 1]; lead[j] is the span, earlier in its unit, that span j goes on from, or -1. Its masked tokens are
// first_mask[k] to first_mask[k + 1]: `at` is the token (among all ids) whose state predicts it, `target` its id. Where
// given[k] is a tape, the sampler has read the unit already. With `keep` the way back stays possible.
void isocost_forward(Model* m, int64_t units, const int64_t* first_span, const int64_t* counts,
                     const int64_t* lead, const int64_t* ids, const int64_t* first_mask, const int64_t* at, const int64_t* target,
                     const float* temperature, const int64_t* given, float* logp, float* entropy, int keep);

// Add the gradient of sum(d_logp logp + d_entropy entropy) to `grad`, for what `isocost_forward` kept. Units whose
// masked tokens all have zeros are passed over.
void isocost_backward(Model* m, int64_t units, const int64_t* first_span, const int64_t* counts,
                      const int64_t* first_mask, const int64_t* at, const int64_t* target, const float* temperature, const float* d_logp,
                      const float* d_entropy, float* grad);
}

// Units to threads: in order, each to who has the least to do so far.
static std::vector<int> owners(const Model& m, int64_t units, const int64_t* first_span, const int64_t* counts) {
    std::vector<double> load(m.s.threads, 0);
    std::vector<int> owner(units);
    for (int64_t k = 0; k < units; k++) {
        owner[k] = (int)(std::min_element(load.begin(), load.end()) - load.begin());
        for (int64_t j = first_span[k]; j < first_span[k + 1]; j++) load[owner[k]] += (double)counts[j];
    }
    return owner;
}

static long padded(int64_t n) { return (n + L - 1) / L * L; }

// Note on a tape the tokens of its spans, whose keys and values lie one after the other, each with room for rooms[j].
static void write_tokens(const Shape& s, size_t item, Tape& tape, int64_t spans, const int64_t* counts, const int64_t* lead,
                         const int64_t* rooms, const int64_t* ids) {
    std::vector<std::pair<Span, int>> seen;                 // spans so far, and where their tokens begin
    tape.tokens.clear(), tape.first.clear(), tape.lead.clear(), tape.blocks.clear();
    long passed = 0;
    for (int64_t j = 0; j < spans; j++) {
        int begin = (int)tape.tokens.size(), before = 0;
        int64_t memory = (int64_t)(tape.cache + (size_t)passed * s.kv() * 2 * s.layers * item);
        Span span{counts[j], 0, memory, rooms[j], 0, 0, 0, (int64_t)&tape, begin};
        if (lead[j] >= 0) {
            auto& [from, at] = seen[lead[j]];
            span.before = from.own, span.read = from.count, span.before_room = from.room, before = at;
        }
        for (int i = 0; i < span.count; i++) {
            tape.tokens.push_back(token_of(span, *ids++, i));
            tape.first.push_back(begin), tape.lead.push_back(before), tape.blocks.push_back((int)(passed / L));
        }
        seen.push_back({span, begin});
        passed += rooms[j];
    }
    tape.M = (int)tape.tokens.size();
}

constexpr int HEAD = 64;             // masked tokens whose logits are made together

template <class P>
static void forward_unit(const Model& m, Arena& arena, Tape& tape, bool read, int64_t masks, const int64_t* at, const int64_t* target,
                         const float* temperature, float* logp, float* entropy) {
    int H = m.s.hidden, V_ = m.s.vocab, M = tape.M;
    for (int i = 0; i < M && !read; i += CHUNK) {
        arena.clear();
        layers<P>(m, arena, tape.tokens.data() + i, std::min(CHUNK, M - i), tape.last + (long)i * H);
    }
    arena.clear();
    float *f = arena.take<float>((size_t)HEAD * H), *z = arena.take<float>((size_t)HEAD * V_);
    double* blocks = arena.take<double>((V_ + SUMS - 1) / SUMS);
    for (int64_t k = 0; k < masks; k += HEAD) {
        int n = (int)std::min<int64_t>(HEAD, masks - k);
        for (int i = 0; i < n; i++) norm(tape.last + at[k + i] * H, m.flat + m.norm, H, m.eps, f + (long)i * H);
        logits_of(m, f, n, z);
        for (int i = 0; i < n; i++) {
            Drawn d = softmax(z + (long)i * V_, z + (long)i * V_, V_, temperature[k + i], (int)target[k + i], nullptr, blocks);
            logp[k + i] = d.logp, entropy[k + i] = d.entropy;
        }
    }
}

template <class P>
static void backward_unit(const Model& m, Arena& arena, const Tape& tape, int64_t masks, const int64_t* at,
                          const int64_t* target, const float* temperature, const float* d_logp, const float* d_entropy,
                          float* grad) {
    int H = m.s.hidden, V_ = m.s.vocab, M = tape.M;
    arena.clear();
    float *dx = arena.take<float>((size_t)M * H), *df = arena.take<float>((size_t)M * H);
    size_t mark = arena.used;
    float *f = arena.take<float>((size_t)HEAD * H), *z = arena.take<float>((size_t)HEAD * V_);
    double* blocks = arena.take<double>((V_ + SUMS - 1) / SUMS);
    memset(dx, 0, (size_t)M * H * sizeof(float)), memset(df, 0, (size_t)M * H * sizeof(float));
    for (int64_t k = 0; k < masks; k += HEAD) {
        int n = (int)std::min<int64_t>(HEAD, masks - k);
        for (int i = 0; i < n; i++) norm(tape.last + at[k + i] * H, m.flat + m.norm, H, m.eps, f + (long)i * H);
        logits_of(m, f, n, z);
        for (int i = 0; i < n; i++) {
            float* e = z + (long)i * V_;
            int id = (int)target[k + i];
            float g = d_logp[k + i], w = d_entropy[k + i], t = temperature[k + i];
            Drawn d = softmax(e, e, V_, t, id, nullptr, blocks);
            double total = 0;
            for (int j = 0; j < (V_ + SUMS - 1) / SUMS; j++) total += blocks[j];
            float scale = (float)(1.0 / total), log_total = (float)std::log(total);
            // d logp / dz = [id] - p; d entropy / dz = -p (log p + entropy)
            for (int j = 0; j < V_; j++) {
                float p = e[j] * scale, slope = -g * p;
                if (w != 0 && p > 0) slope -= w * p * (std::log(e[j]) - log_total + d.entropy);
                e[j] = slope / t;
            }
            e[id] += g / t;
        }
        m.of_logits.times<F32>(z, n, [&](int i, int c, V c0, V c1) {
            float* to = df + at[k + i] * H + c;
            put(to, get(to) + c0);
            if (c + L < H) put(to + L, get(to + L) + c1);
        });
        learn<F32>(z, V_, f, H, n, grad + m.head, arena);
    }
    for (int i = 0; i < M; i++)
        unnorm(tape.last + (long)i * H, m.flat + m.norm, df + (long)i * H, H, m.eps, dx + (long)i * H, grad + m.norm);
    arena.used = mark;
    back<P>(m, arena, tape, dx, grad);
}

void isocost_forward(Model* m, int64_t units, const int64_t* first_span, const int64_t* counts,
                     const int64_t* lead, const int64_t* ids, const int64_t* first_mask, const int64_t* at, const int64_t* target,
                     const float* temperature, const int64_t* given, float* logp, float* entropy, int keep) {
    auto owner = owners(*m, units, first_span, counts);
    std::vector<int64_t> begin(units + 1, 0);
    for (int64_t k = 0; k < units; k++) {
        begin[k + 1] = begin[k];
        for (int64_t j = first_span[k]; j < first_span[k + 1]; j++) begin[k + 1] += counts[j];
    }
    while ((int64_t)m->tapes.size() < std::max<int64_t>(units, m->s.threads)) m->tapes.emplace_back(new Tape);
    m->taped.assign(units, nullptr);
    each(m->s.threads, [&](int t) {
        for (int64_t k = 0; k < units; k++) {
            if (owner[k] != t) continue;
            Tape& tape = given[k] ? *(Tape*)given[k] : *m->tapes[keep ? k : t];
            int64_t a = first_mask[k], n = first_mask[k + 1] - a, j = first_span[k], spans = first_span[k + 1] - j;
            std::vector<int64_t> local(at + a, at + a + n), leads(lead + j, lead + j + spans), rooms(spans);
            for (auto& x : local) x -= begin[k];
            auto go = [&](auto p) {
                typedef decltype(p) P;
                if (!given[k]) {
                    long all = 0;
                    for (int64_t i = 0; i < spans; i++) {
                        all += rooms[i] = padded(counts[j + i]);
                        if (leads[i] >= 0) leads[i] -= j;
                    }
                    tape.open<typename P::T>(m->s, (int)(begin[k + 1] - begin[k]), all);
                    write_tokens(m->s, sizeof(typename P::T), tape, spans, counts + j, leads.data(), rooms.data(), ids + begin[k]);
                }
                forward_unit<P>(*m, m->arenas[t], tape, given[k], n, local.data(), target + a, temperature + a, logp + a, entropy + a);
            };
            if (m->s.bf16) go(BF16()); else go(F32());
            if (keep) m->taped[k] = &tape;
        }
    });
}

void isocost_backward(Model* m, int64_t units, const int64_t* first_span, const int64_t* counts,
                      const int64_t* first_mask, const int64_t* at, const int64_t* target, const float* temperature, const float* d_logp,
                      const float* d_entropy, float* grad) {
    auto owner = owners(*m, units, first_span, counts);
    std::vector<int64_t> begin(units + 1, 0);
    for (int64_t k = 0; k < units; k++) begin[k + 1] = begin[k] + m->taped[k]->M;
    each(m->s.threads, [&](int t) {
        float* mine = grad;
        if (t) {
            m->sums[t].assign(m->size, 0.0f);
            mine = m->sums[t].data();
        }
        for (int64_t k = 0; k < units; k++) {
            if (owner[k] != t) continue;
            int64_t a = first_mask[k], n = first_mask[k + 1] - a;
            bool any = false;
            for (int64_t i = a; i < a + n && !any; i++) any = !(d_logp[i] == 0 && d_entropy[i] == 0);
            if (!any) continue;
            std::vector<int64_t> local(at + a, at + a + n);
            for (auto& x : local) x -= begin[k];
            if (m->s.bf16)
                backward_unit<BF16>(*m, m->arenas[t], *m->taped[k], n, local.data(), target + a, temperature + a, d_logp + a, d_entropy + a, mine);
            else
                backward_unit<F32>(*m, m->arenas[t], *m->taped[k], n, local.data(), target + a, temperature + a, d_logp + a, d_entropy + a, mine);
        }
    });
    each(m->s.threads, [&](int t) {
        for (int k = 1; k < m->s.threads; k++) {
            const float* from = m->sums[k].data();
            for (int64_t i = m->size * t / m->s.threads; i < m->size * (t + 1) / m->s.threads; i++) grad[i] += from[i];
        }
    });
}

// The sampler's tapes: a prompt, and rows with room for `own` tokens each. `where` gets the memory for keys and values of
// the prompt and of every row.
extern "C" {

Tape* isocost_tape(Model* m, int64_t prompt, int64_t rows, int64_t own, int64_t* where) {
    if (m->spare.empty()) m->spare.emplace_back(new Tape);
    Tape* tape = m->spare.back().release();
    m->spare.pop_back(), m->users++;
    size_t item = m->s.bf16 ? 2 : 4, each = (size_t)m->s.kv() * 2 * m->s.layers * item;
    long positions = padded(prompt) + rows * padded(own);
    int tokens = (int)(prompt + rows * own);
    if (m->s.bf16) tape->open<uint16_t>(m->s, tokens, positions); else tape->open<float>(m->s, tokens, positions);
    for (int64_t r = 0; r <= rows; r++) where[r] = (int64_t)(tape->cache + (r ? padded(prompt) + (r - 1) * padded(own) : 0) * each);
    return tape;
}

// All rows are written: counts[0] tokens of prompt, counts[r] that row r has read, and all their ids. Close the gaps.
void isocost_tape_close(Model* m, Tape* tape, int64_t rows, int64_t own, const int64_t* counts, const int64_t* ids) {
    const Shape& s = m->s;
    size_t item = s.bf16 ? 2 : 4;
    std::vector<int64_t> lead(rows + 1, 0), rooms(rows + 1, padded(own));
    lead[0] = -1, rooms[0] = padded(counts[0]);
    auto close = [&](char* array, int layers, size_t width) {
        for (int l = 0; l < layers; l++) {
            char* base = array + (size_t)l * tape->most * width;
            int64_t to = counts[0];
            for (int64_t r = 1; r <= rows; to += counts[r++]) {
                int64_t from = counts[0] + (r - 1) * own;
                if (from != to) memmove(base + to * width, base + from * width, counts[r] * width);
            }
        }
    };
    close(tape->x, s.layers, s.hidden * sizeof(float)), close(tape->middle, s.layers, s.hidden * sizeof(float));
    close(tape->qkv, s.layers, s.qkv() * item), close(tape->o, s.layers, s.q() * item);
    close(tape->gate_up, s.layers, 2 * s.mlp * item), close((char*)tape->last, 1, s.hidden * sizeof(float));
    write_tokens(s, item, *tape, rows + 1, counts, lead.data(), rooms.data(), ids);
}

void isocost_tape_free(Model* m, Tape* tape) {
    m->spare.emplace_back(tape);
    isocost_close(m);
}

int64_t isocost_tape_bytes(Model* m, int64_t tokens) {      // of one tape for so many tokens, about
    const Shape& s = m->s;
    int64_t item = s.bf16 ? 2 : 4;
    return tokens * (s.layers * (8 * s.hidden + item * (s.qkv() + s.q() + 2 * s.mlp + 2 * s.kv())) + 4 * s.hidden);
}
}
