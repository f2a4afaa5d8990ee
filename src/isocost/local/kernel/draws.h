// From logits to log-probs, entropies, kept sets and draws.
#pragma once

#include <utility>
#include "vectors.h"

constexpr int SUMS = 8 * L;  // numbers summed in float32 before the sum is added to a double

struct Drawn {
    float logp, entropy;
    int id;
};

// Softmax of V logits over a temperature, which stay in z, as e = exp(z - max), which may be z itself where `id` is
// given: its log-prob and the entropy; or with u, a draw and its log-prob.
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
            if (!(passed + blocks[b] > goal)) {
                passed += blocks[b];
                continue;
            }
            double here = passed;
            for (int j = b * SUMS; j < std::min(V_, b * SUMS + SUMS); j++)
                if (e[j] > 0 && (here += e[j]) > goal) {
                    d.id = j;
                    break;
                }
            passed += blocks[b];
        }
        for (int j = V_ - 1; d.id == V_ && total == total && j >= 0; j--)  // rounding at the very end of the line
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

// Tempered logits outside the kept set become -inf: the top_k most likely (0: all), then of those, renormalised, the
// fewest with total probability top_p. Ties are kept in order of id. Only candidates are sorted.
static void truncate(float* z, int V_, float temperature, float top_p, int64_t top_k,
                     std::vector<std::pair<float, int>>& some) {
    auto before = [](const std::pair<float, int>& a, const std::pair<float, int>& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    const float never = -std::numeric_limits<float>::infinity();
    float top = never;
    for (int j = 0; j < V_; j++) z[j] /= temperature, top = std::max(top, z[j]);
    if ((top_p >= 1 && !top_k) || !(top < -never && top > never)) return;  // not finite: reported by the draw
    for (float reach = 8;; reach *= 2) {  // candidates: within `reach` of the top, more if these are too few
        some.clear();
        for (int j = 0; j < V_; j++)
            if (z[j] >= top - reach) some.push_back({z[j], j});
        bool all = (int)some.size() == V_ || reach > 1e30f;
        double left = 0, passed = 0;  // an upper bound of the others' weight
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
            if (top_k > 0)
                for (auto& x : some) total += std::exp((double)x.first - top);
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
