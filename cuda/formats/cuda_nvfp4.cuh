// NVFP4: floats of four bits times a scale of eight for 16 columns: levels, all of them exact.
#pragma once
#include "cuda/formats/levels.cuh"

template <> struct src<QUANT_NVFP4> {
    static constexpr bool by_bytes = true;
    DEV const block_NVFP4 &b(const uint8_t *r, int k) { return ((const block_NVFP4 *)r)[k >> 6]; }
    DEV int code(const uint8_t *r, int k) {
        const int j = k & 15;
        return b(r, k).q[(k >> 4 & 3) * 8 + (j & 7)] >> (j & 8 ? 4 : 0) & 15;
    }
    DEV int whole(int i) { // four times the number
        const int m = i & 7, v = m < 5 ? 2 * m : m == 5 ? 12 : m == 6 ? 16 : 24;
        return i & 8 ? -v : v;
    }
    DEV float level(int i) { return (float)whole(i) * 0x1p-7f; }
    DEV uint32_t d(const uint8_t *, int, int) { return 0x5c00; } // 256
    DEV uint32_t byte_of(int s) {
        return s == 0x7f ? 0 : (uint32_t)(s & 127) << 1;
    } // three bits behind the point become four
    DEV uint32_t group(const uint8_t *r, int k, uint32_t) {
        const uint8_t *s = b(r, k).s + (k >> 4 & 3);
        return byte_of(s[0]) | byte_of(s[1]) << 8;
    }
};
