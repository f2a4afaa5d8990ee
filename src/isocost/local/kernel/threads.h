// Thread pools: one for each caller that computes at the same time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#include <pthread.h>

// Workers wait for work: they spin for some microseconds, then sleep, so that other processes can use the core.
// They are made when first needed and never end; a forked child makes its own.
struct Pool {
    std::mutex mutex;
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
            seen = round.load();  // no worker misses a round that needs it: `run` waits
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

// The pools that no caller uses. A forked child has none, as their workers stay with its parent.
struct Pools {
    std::mutex mutex;
    std::vector<Pool*> idle;
    Pool* take() {
        std::lock_guard<std::mutex> lock(mutex);
        if (idle.empty()) return new Pool;
        Pool* pool = idle.back();
        idle.pop_back();
        return pool;
    }
    void give(Pool* pool) {
        std::lock_guard<std::mutex> lock(mutex);
        idle.push_back(pool);
    }
};

// f(0), f(1), ... f(threads - 1), on as many cores as `workers` says: worker w does those whose remainder is w.
static void each(int threads, int workers, const std::function<void(int)>& f) {
    static Pools* pools = (pthread_atfork(nullptr, nullptr, [] { pools = new Pools; }), new Pools);
    workers = workers < threads ? workers : threads;
    auto part = [&](int w) {
        for (int t = w; t < threads; t += workers) f(t);
    };
    if (workers < 2) {
        for (int t = 0; t < threads; t++) f(t);
        return;
    }
    Pool* pool = pools->take();
    pool->run(workers, part);
    pools->give(pool);
}
