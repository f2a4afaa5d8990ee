// AdamW's two passes over the whole vector, to the bit what `LocalLearner._step` does with torch: `lerp` and `addcmul`
// are fused multiply-adds. Nothing else here is a product that is added to something, which the compiler could fuse.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" {

// `share` is 1, or less where the gradient is clipped. A block is multiplied by it while it is in the nearest cache, in
// a loop of its own, so that the products are rounded.
void isocost_moments(float* grad, float* first, float* second, int64_t size, float share, float one, float b2,
                     float two) {
    constexpr int64_t block = 1024;
    for (int64_t begin = 0; begin < size; begin += block) {
        int64_t end = std::min(begin + block, size);
        for (int64_t i = begin; i < end && share < 1; i++) grad[i] *= share;
        for (int64_t i = begin; i < end; i++) {
            float g = grad[i], m = first[i], v = second[i];
            first[i] = std::fma(one, g - m, m);
            second[i] = std::fma(two * g, g, v * b2);
        }
    }
}

// `spread` is the root of the second moments, which torch computes: its last bit is that of torch's own library.
void isocost_descend(float* p, const float* first, const float* spread, int64_t size, float root, float eps,
                     float rate) {
    for (int64_t i = 0; i < size; i++) p[i] += rate * first[i] / (spread[i] / root + eps);
}
}
