// Z4: codes less a whole zero point. On the card float32: no layout has both yet.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_Z4> {
    static constexpr bool to_float = true;
    DEV int code(const uint8_t *, int) { return 0; }
    DEV float value(const uint8_t *r, int k) {
        const block_Z4 &b = ((const block_Z4 *)r)[k >> 5];
        const int q = b.q[k & 15] >> (k & 16 ? 4 : 0) & 15;
        return half_bits(b.d) * (float)(q - b.z);
    }
};
