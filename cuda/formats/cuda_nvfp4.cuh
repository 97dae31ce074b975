// NVFP4: floats of four bits times a scale of eight for 16 columns: on the card halves, which hold the products exactly.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_NVFP4> {
    static constexpr bool to_half = true;
    DEV int code(const uint8_t *, int) { return 0; }
    DEV uint16_t half(const uint8_t *r, int k) {
        const block_NVFP4 &b = ((const block_NVFP4 *)r)[k >> 6];
        const int j = k & 15, s = b.s[k >> 4 & 3], e = s >> 3 & 15,
                  q = b.q[(k >> 4 & 3) * 8 + (j & 7)] >> (j & 8 ? 4 : 0) & 15;
        const float scale = s == 0 || s == 0x7f ? 0.f
                            : e ? __uint_as_float((uint32_t)(e + 120) << 23 | (uint32_t)(s & 7) << 20)
                                : (float)(s & 7) * 0x1p-9f,
                    v = (q & 7) < 2
                            ? 0.5f * (float)(q & 7)
                            : __uint_as_float((uint32_t)(126 + (q >> 1 & 3)) << 23 | (uint32_t)(q & 1) << 22);
        return __half_as_ushort(__float2half_rn(q & 8 ? -scale * v : scale * v));
    }
};
