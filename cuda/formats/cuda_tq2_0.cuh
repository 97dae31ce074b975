// TQ2_0: codes of two bits, less one; on the card as Q4_0.
#pragma once
#include "cuda/formats/cuda_q4_0.cuh"

template <> struct src<QUANT_TQ2_0> {
    DEV const block_TQ2_0 &b(const uint8_t *r, int k) { return ((const block_TQ2_0 *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        return (b(r, k).q[(k >> 7 & 1) * 32 + (k & 31)] >> (2 * (k >> 5 & 3)) & 3) - 1;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};
