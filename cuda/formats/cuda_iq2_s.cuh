// IQ2_S: as IQ2_XS with a larger codebook and all signs.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq2_s_numbers {
    DEV const block_IQ2_S &b(const uint8_t *r, int k) { return ((const block_IQ2_S *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_IQ2_S &x = b(r, k);
        const int l = k >> 3 & 31,
                  v = level_iq2(grid_iq2_s(x.q[l] | (x.h[l >> 2] >> (2 * (l & 3)) & 3) << 8), k & 7);
        return x.sg[l] >> (k & 7) & 1 ? -v : v;
    }
    DEV int scale(const uint8_t *r, int k) { return 2 * (b(r, k).sc[k >> 5 & 7] >> (k >> 2 & 4) & 15) + 1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV int magnitude(int i) { return i == 0 ? 8 : i == 1 ? 25 : 43; }
};
template <> struct src<QUANT_IQ2_S> : signed_levels<iq2_s_numbers, 4, 1> {};
