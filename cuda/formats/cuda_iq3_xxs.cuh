// IQ3_XXS: as IQ2_XXS with points of four values, of which a quarter is taken.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq3_xxs_numbers {
    DEV const block_IQ3_XXS &b(const uint8_t *r, int k) { return ((const block_IQ3_XXS *)r)[k >> 8]; }
    DEV uint32_t a(const uint8_t *r, int k) {
        const uint16_t *a = b(r, k).a + (k >> 5 & 7) * 2;
        return a[0] | (uint32_t)a[1] << 16;
    }
    DEV int code(const uint8_t *r, int k) {
        const int v = level_iq3_xxs(grid_iq3_xxs(b(r, k).q[k >> 2 & 63]), k & 3);
        return with_even_sign(v, a(r, k) >> (7 * (k >> 3 & 3)) & 127, k & 7);
    }
    DEV int scale(const uint8_t *r, int k) { return 4 * (int)(a(r, k) >> 28) + 2; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV int magnitude(int i) { return 4 + 8 * i + (i == 7 ? 2 : 0); }
};
template <> struct src<QUANT_IQ3_XXS> : signed_levels<iq3_xxs_numbers, 3, 1> {};
