// NF4: levels of a normal distribution, whose scale is a float32. On the card float32: no layout has that yet.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_NF4> {
    static constexpr bool to_float = true;
    DEV int code(const uint8_t *, int) { return 0; }
    DEV float value(const uint8_t *r, int k) {
        static const float level[16] = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};
        const block_NF4 &b = ((const block_NF4 *)r)[k >> 6];
        return b.s * level[b.q[k >> 1 & 31] >> (4 * (k & 1)) & 15];
    }
};
