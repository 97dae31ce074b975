// IQ1_S: points with -1, 0 and 1, an eighth more or less.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq1_s_numbers {
    DEV const block_IQ1_S &b(const uint8_t *r, int k) { return ((const block_IQ1_S *)r)[k >> 8]; }
    DEV int h(const uint8_t *r, int k) { return b(r, k).h[k >> 5 & 7]; }
    DEV int code(const uint8_t *r, int k) {
        const int l = k >> 3 & 31, high = h(r, k) >> (3 * (l & 3)) & 7;
        return level_iq1(grid_iq1_s(b(r, k).q[l] | high << 8), k & 7) + (h(r, k) >> 15 ? -1 : 1);
    }
    DEV int scale(const uint8_t *r, int k) { return 2 * (h(r, k) >> 12 & 7) + 1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV int magnitude(int i) { return i == 0 ? 1 : i == 1 ? 7 : 9; }
};
template <> struct src<QUANT_IQ1_S> : signed_levels<iq1_s_numbers, 2, 1> {};
