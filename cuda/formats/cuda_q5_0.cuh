// Q5_0: codes of five bits with a sign, which the layout of Q8_0 holds.
#pragma once
#include "cuda/formats/cuda_q8_0.cuh"

template <> struct src<QUANT_Q5_0> {
    DEV const block_Q5_0 &b(const uint8_t *r, int k) { return ((const block_Q5_0 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q5_0 &x = b(r, k);
        int v = x.q[k & 15], i = k & 31;
        return ((k & 16 ? v >> 4 : v & 15) | (x.h[i >> 3] >> (i & 7) & 1) << 4) - 16;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
