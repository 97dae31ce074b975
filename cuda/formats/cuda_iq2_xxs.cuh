// IQ2_XXS: points of a codebook; on the card codes of eight bits with a sign, a whole scale for 16 columns and d for 256. That is what
// the other types of IQ2, IQ3_XXS and IQ1 become, too.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq2_xxs_numbers {
    DEV const block_IQ2_XXS &b(const uint8_t *r, int k) { return ((const block_IQ2_XXS *)r)[k >> 8]; }
    DEV uint32_t a(const uint8_t *r, int k) {
        const uint16_t *q = b(r, k).q + (k >> 5 & 7) * 4 + 2;
        return q[0] | (uint32_t)q[1] << 16;
    }
    DEV int code(const uint8_t *r, int k) {
        const int l = k >> 3 & 3, index = ((const uint8_t *)(b(r, k).q + (k >> 5 & 7) * 4))[l];
        return with_even_sign(level_iq2(grid_iq2_xxs(index), k & 7), a(r, k) >> (7 * l) & 127, k & 7);
    }
    DEV int scale(const uint8_t *r, int k) { return 2 * (int)(a(r, k) >> 28) + 1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV int magnitude(int i) { return i == 0 ? 8 : i == 1 ? 25 : 43; }
};
template <> struct src<QUANT_IQ2_XXS> : signed_levels<iq2_xxs_numbers, 4, 1> {};
