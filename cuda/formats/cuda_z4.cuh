// Z4: codes of four bits less a whole zero point: on the card as Q4_1, whose minimum is scale * zero point, rounded to a half.
#pragma once
#include "cuda/formats/cuda_q4_1.cuh"

template <> struct src<QUANT_Z4> {
    DEV const block_Z4 &b(const uint8_t *r, int k) { return ((const block_Z4 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k & 15] >> (k & 16 ? 4 : 0) & 15; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *r, int k) {
        return __half_as_ushort(__float2half_rn(-half_bits(b(r, k).d) * (float)b(r, k).z));
    }
};
