// IQ1_M: as IQ1_S with a scale for 16 columns.
#pragma once
#include "cuda/formats/levels.cuh"
#include "cuda/formats/grids.cuh"

struct iq1_m_numbers {
    DEV const block_IQ1_M &b(const uint8_t *r, int k) { return ((const block_IQ1_M *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const int l = k >> 3 & 31, h = b(r, k).h[l >> 1] >> (4 * (l & 1));
        return level_iq1(grid_iq1_s(b(r, k).q[l] | (h & 7) << 8), k & 7) + (h & 8 ? -1 : 1);
    }
    DEV int scale(const uint8_t *r, int k) {
        const int g = k >> 4 & 15;
        return 2 * (b(r, k).sc[g >> 2] >> (3 * (g & 3)) & 7) + 1;
    }
    DEV uint32_t d(const uint8_t *r, int k) {
        const uint16_t *s = b(r, k).sc;
        return (uint32_t)(s[0] >> 12 | s[1] >> 12 << 4 | s[2] >> 12 << 8 | s[3] >> 12 << 12);
    }
    DEV int magnitude(int i) { return i == 0 ? 1 : i == 1 ? 7 : 9; }
};
template <> struct src<QUANT_IQ1_M> : signed_levels<iq1_m_numbers, 2, 1> {};
