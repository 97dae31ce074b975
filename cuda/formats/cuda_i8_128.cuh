// I8_128: codes of eight bits whose scale is a float32. On the card float32: no layout has that yet.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_I8_128> {
    static constexpr bool to_float = true;
    DEV int code(const uint8_t *, int) { return 0; }
    DEV float value(const uint8_t *r, int k) {
        const block_I8_128 &b = ((const block_I8_128 *)r)[k >> 7];
        return b.s * (float)b.q[k & 127];
    }
};
