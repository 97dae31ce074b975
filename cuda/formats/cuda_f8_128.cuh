// F8_128: floats of eight bits whose scale is a float32. On the card float32: no layout has that yet.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_F8_128> {
    static constexpr bool to_float = true;
    DEV int code(const uint8_t *, int) { return 0; }
    DEV float value(const uint8_t *r, int k) {
        const block_F8_128 &b = ((const block_F8_128 *)r)[k >> 7];
        const int q = b.q[k & 127], e = q >> 3 & 15, m = q & 7;
        float v = e ? __uint_as_float((uint32_t)(e + 120) << 23 | (uint32_t)m << 20) : (float)m * 0x1p-9f;
        if ((q & 127) == 127) v = __uint_as_float(0x7fc00000u);
        return b.s * (q & 128 ? -v : v);
    }
};
