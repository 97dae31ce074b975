// Q5_K: as Q4_K with a fifth bit: 512 bytes of them after the codes, lane * 16 + (2 e + row / 8) * 4 + j, bit g.
#pragma once
#include "cuda/formats/cuda_q4_k.cuh"

template <> struct src<QUANT_Q5_K> {
    DEV const block_Q5_K &b(const uint8_t *r, int k) { return ((const block_Q5_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q5_K &x = b(r, k);
        int g = (k >> 5) & 7, v = x.q[(g >> 1) * 32 + (k & 31)];
        return (g & 1 ? v >> 4 : v & 15) | (x.h[k & 31] >> g & 1) << 4;
    }
};

template <> struct format<LAYOUT_Q5K> : super_format<true> {
    static constexpr int slots = 1, glu_slots = 1;
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_nibbles(u, row, code);
        put_planes<1, 8>(u + 2048, row, [&](int j) { return code(j) >> 4; });
        put_scales<S>(u, row, s, k0);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        return of_code(u, row, k,
                       unit_nibble(u, row, k) | (u[2048 + unit_code_byte(row, k)] >> (k >> 5) & 1) << 4);
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t x, int g) {
        return g & 1 ? lop3<LOP_AND_OR>(x << (8 - g), 0x01000100u, v & 0x00f000f0u)
                     : lop3<LOP_AND_OR>(g < 4 ? x << (4 - g) : x >> (g - 4), 0x00100010u, v & 0x000f000fu);
    }
    DEV uint32_t int_code(uint32_t w, uint32_t x, int g) {
        return lop3<LOP_AND_OR>(g < 4 ? x << (4 - g) : x >> (g - 4), 0x10101010u,
                                (g & 1 ? w >> 4 : w) & 0x0f0f0f0fu);
    }
};
template <> struct operands<LAYOUT_Q5K> : super_operands<true> {};
