// Q3_K: as Q6_K with codes of three bits: two parts of bits 0 and 1, one of bit 2.
#pragma once
#include "cuda/formats/cuda_q6_k.cuh"

template <> struct src<QUANT_Q3_K> {
    DEV const block_Q3_K &b(const uint8_t *r, int k) { return ((const block_Q3_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q3_K &x = b(r, k);
        int i = k & 255, half = i >> 7, quarter = (i >> 5) & 3, l = i & 31;
        int lo = x.q[half * 32 + l] >> (2 * quarter) & 3, hi = x.h[l] >> (half * 4 + quarter) & 1;
        return lo - (hi ? 0 : 4);
    }
    DEV int scale(const uint8_t *r, int k) {
        const block_Q3_K &x = b(r, k);
        int s = (k & 255) >> 4, lo = s < 8 ? x.sc[s] & 15 : x.sc[s - 8] >> 4,
            hi = x.sc[8 + (s & 3)] >> (2 * (s >> 2)) & 3;
        return (lo | hi << 4) - 32;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};

template <> struct format<LAYOUT_Q3K> : sixteen_format<2, 1, 4> {
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_planes<2, 4>(u, row, code);
        put_planes<1, 8>(u + 1024, row, [&](int j) { return code(j) >> 2; });
        put_scales<S>(u, row, s, k0);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        const int g = k >> 5;
        int c = u[(g >> 2) * 512 + unit_code_byte(row, k)] >> (2 * (g & 3)) & 3,
            hi = u[1024 + unit_code_byte(row, k)] >> g & 1;
        return scale(u, row, k) * (float)(c - 4 * hi);
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t x, int g) {
        return lop3<LOP_AND_XOR>(g < 2 ? x << (2 - g) : x >> (g - 2), 0x00040004u,
                                 lop3<LOP_AND_XOR>(v >> 2 * (g & 3), 0x00030003u, 0x00040004u));
    }
    DEV uint32_t int_code(uint32_t w, uint32_t x, int g) { // 32 times the code
        const int q = g & 3;
        const uint32_t lo = (q == 3 ? w >> 1 : w << (5 - 2 * q)) & 0x60606060u;
        return lop3<LOP_AND_OR>(x << (7 - g), 0x80808080u, lo);
    }
    DEV float code_factor(int) { return 0.03125f; }
    DEV int prompt_piece(int p, int i) { return i ? (p >> 1) * 512 : 1024; }
    DEV uint32_t prompt_word(uint32_t w, int g) { return ((w >> g & 0x01010101u) ^ 0x01010101u) << 2; }
};
template <> struct operands<LAYOUT_Q3K> : sixteen_operands<format<LAYOUT_Q3K>, 4> {};
