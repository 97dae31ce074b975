// I8_128: codes of eight bits whose scale is a float32: on the card as Q8_0, the scale rounded to a half.
#pragma once
#include "cuda/formats/cuda_q8_0.cuh"

template <> struct src<QUANT_I8_128> {
    DEV const block_I8_128 &b(const uint8_t *r, int k) { return ((const block_I8_128 *)r)[k >> 7]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k & 127]; }
    DEV uint32_t d(const uint8_t *r, int k) { return __half_as_ushort(__float2half_rn(b(r, k).s)); }
};
