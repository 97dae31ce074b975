// FP4: floats of four bits as bitsandbytes has them, whose scale is a float32. On the card float32: no layout has that yet.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_FP4> {
    static constexpr bool to_float = true;
    DEV int code(const uint8_t *, int) { return 0; }
    DEV float value(const uint8_t *r, int k) {
        static const float level[8] = {0.0f, 0.005208333333f, 0.6666666667f, 1.0f, 0.3333333333f,
                                       0.5f, 0.1666666667f,   0.25f};
        const block_FP4 &b = ((const block_FP4 *)r)[k >> 6];
        const int q = b.q[k >> 1 & 31] >> (4 * (k & 1)) & 15;
        return b.s * (q & 8 ? -level[q & 7] : level[q & 7]);
    }
};
