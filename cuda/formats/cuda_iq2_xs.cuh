// IQ2_XS: as IQ2_XXS with a scale for 16 columns.
#pragma once
#include "cuda/formats/cuda_iq2_xxs.cuh"

template <> struct src<QUANT_IQ2_XS> {
    DEV const block_IQ2_XS &b(const uint8_t *r, int k) { return ((const block_IQ2_XS *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const int q = b(r, k).q[k >> 3 & 31];
        return with_even_sign(level_iq2(grid_iq2_xs(q & 511), k & 7), q >> 9, k & 7);
    }
    DEV int scale(const uint8_t *r, int k) { return 2 * (b(r, k).sc[k >> 5 & 7] >> (k >> 2 & 4) & 15) + 1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
