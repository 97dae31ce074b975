// Q8_0: codes of eight bits with a sign, a scale for 32 columns.
#pragma once
#include "cuda/formats/cuda_q4_0.cuh"

template <> struct src<QUANT_Q8_0> {
    DEV const block_Q8_0 &b(const uint8_t *r, int k) { return ((const block_Q8_0 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k & 31]; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};

template <> struct format<LAYOUT_Q8> : scaled_format<8, false> {
    static constexpr int slots = 1, glu_slots = 1;
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_bytes(u, row, code);
        put_scales<S>(u, row, s, k0, k);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        int c = (int8_t)u[(k >> 5) * 512 + unit_code_byte(row, k)];
        return scale(u, row, k) * (float)c;
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int) {
        return lop3<LOP_AND_XOR>(v, 0x00ff00ffu, 0x00800080u);
    }
    DEV uint32_t int_code(uint32_t w, uint32_t, int) { return w; }
    DEV uint32_t prompt_word(uint32_t w, int) { return w ^ 0x80808080u; }
};
template <> struct operands<LAYOUT_Q8> : scaled_operands<format<LAYOUT_Q8>, 128> {};
