// Q1_0: signs, a scale for 128 columns; on the card as Q4_0.
#pragma once
#include "cuda/formats/cuda_q4_0.cuh"

template <> struct src<QUANT_Q1_0> {
    DEV const block_Q1_0 &b(const uint8_t *r, int k) { return ((const block_Q1_0 *)r)[k >> 7]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k >> 3 & 15] >> (k & 7) & 1 ? 1 : -1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
