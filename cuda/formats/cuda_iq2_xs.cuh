// IQ2_XS: as IQ2_XXS with a scale for 16 columns.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq2_xs_numbers {
    DEV const block_IQ2_XS &b(const uint8_t *r, int k) { return ((const block_IQ2_XS *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const int q = b(r, k).q[k >> 3 & 31];
        return with_even_sign(level_iq2(grid_iq2_xs(q & 511), k & 7), q >> 9, k & 7);
    }
    DEV int scale(const uint8_t *r, int k) { return 2 * (b(r, k).sc[k >> 5 & 7] >> (k >> 2 & 4) & 15) + 1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV int magnitude(int i) { return i == 0 ? 8 : i == 1 ? 25 : 43; }
};
template <> struct src<QUANT_IQ2_XS> : signed_levels<iq2_xs_numbers, 4, 1> {};
