// FP4: floats of four bits as bitsandbytes has them, whose scale is a float32: levels, 120 of them the largest.
#pragma once
#include "cuda/formats/levels.cuh"

template <> struct src<QUANT_FP4> : float_blocks<block_FP4, 12000> {
    DEV int
    whole(int i) { // that of the smallest is not: 0.625, and as codes 8 to 15 have no odd ones, there 0
        static const uint8_t magnitude[8] = {0, 1, 80, 120, 40, 60, 20, 30};
        return i == 9 ? 0 : i & 8 ? -magnitude[i & 7] : magnitude[i];
    }
    DEV float level(int i) { return 0x1p-7f * ((i & 7) == 1 ? (i & 8 ? -0.625f : 0.625f) : (float)whole(i)); }
};
