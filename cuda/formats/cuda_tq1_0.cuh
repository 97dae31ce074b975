// TQ1_0: digits of base 3; on the card as Q4_0.
#pragma once
#include "cuda/formats/cuda_q4_0.cuh"

template <> struct src<QUANT_TQ1_0> {
    DEV const block_TQ1_0 &b(const uint8_t *r, int k) { return ((const block_TQ1_0 *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const int i = k & 255, j = i - 160, n = i - 240;
        const int byte = i < 160 ? b(r, k).q[i & 31] : i < 240 ? b(r, k).q[32 + (j & 15)] : b(r, k).h[n & 3];
        int digit = i < 160 ? i >> 5 : i < 240 ? j >> 4 : n >> 2, v = byte;
        for (; digit > 0; digit--) v = v * 3 & 255;
        return (v * 3 >> 8) - 1;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
