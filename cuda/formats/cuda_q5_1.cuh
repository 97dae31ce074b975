// Q5_1: codes of five bits, scale and minimum for 32 columns; on the card codes of eight bits.
#pragma once
#include "cuda/formats/cuda_q4_1.cuh"

template <> struct src<QUANT_Q5_1> {
    DEV const block_Q5_1 &b(const uint8_t *r, int k) { return ((const block_Q5_1 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q5_1 &x = b(r, k);
        int v = x.q[k & 15], i = k & 31;
        return (k & 16 ? v >> 4 : v & 15) | (x.h[i >> 3] >> (i & 7) & 1) << 4;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *r, int k) { return b(r, k).m; }
};

template <> struct format<LAYOUT_Q8M> : mins_format<8> {
    static constexpr int slots = 1, glu_slots = 1;
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_bytes(u, row, code);
        put_scales<S>(u, row, s, k0, k);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        return of_code(u, row, k, (int8_t)u[(k >> 5) * 512 + unit_code_byte(row, k)]);
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int) { return v & 0x00ff00ffu; }
    DEV uint32_t int_code(uint32_t w, uint32_t, int) { return w; }
};
template <> struct operands<LAYOUT_Q8M> : mins_operands<true> {};
