// IQ3_S: points of a codebook whose values fit the codes and scales of Q6_K.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq3_s_numbers {
    DEV const block_IQ3_S &b(const uint8_t *r, int k) { return ((const block_IQ3_S *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_IQ3_S &x = b(r, k);
        const int p = k >> 2 & 63,
                  v = level_iq3_s(grid_iq3_s(x.q[p] | (x.h[p >> 3] >> (p & 7) & 1) << 8), k & 3);
        return x.sg[k >> 3 & 31] >> (k & 7) & 1 ? -v : v;
    }
    DEV int scale(const uint8_t *r, int k) {
        const int g = k >> 5 & 7;
        return 2 * (b(r, k).sc[g >> 1] >> (4 * (g & 1)) & 15) + 1;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV int magnitude(int i) { return 2 * i + 1; }
};
template <> struct src<QUANT_IQ3_S> : signed_levels<iq3_s_numbers, 1, 8> {};
