// NF4: levels of a normal distribution, whose scale is a float32. Those of products with int8 are the nearest to 106.34 times the number, even
// where that is negative: of all factors the one with the least error so, 0.56% of a normal distribution's weights (112 without that: 0.47%).
#pragma once
#include "cuda/formats/levels.cuh"

template <> struct src<QUANT_NF4> : float_blocks<block_NF4, 10634> {
    using blocks = float_blocks<block_NF4, 10634>;
    DEV int code(const uint8_t *r, int k) { return blocks::code(r, k) ^ 8; } // those above 0 first
    DEV int whole(int i) {
        static const int8_t whole[16] = {8,    17,  26,  36,  47,  60,  77,  106,
                                         -106, -74, -56, -42, -30, -20, -10, 0};
        return whole[i];
    }
    DEV float level(int i) {
        static const float level[16] = {0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f,
                                        -1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f};
        return level[i] * (106.34f * 0x1p-7f);
    }
};
