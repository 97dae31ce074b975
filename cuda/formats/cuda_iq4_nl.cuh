// IQ4_NL: codes of four bits that name one of 16 levels, a scale for 32 columns.
#pragma once
#include "cuda/formats/cuda_q4_0.cuh"
#include "cuda/formats/level_codes.cuh"

template <> struct src<QUANT_IQ4_NL> : nibble_blocks<block_IQ4_NL, 0> {}; // code: index of the level

// The four levels that the nibbles of v's low half name, as bytes. source: engine/quant/formats/quant_iq4_nl.c.
DEV uint32_t iq4_levels(uint32_t v) {
    const uint32_t at = v & 0x7777u,
                   pick = (v >> 1 & 0x4444u) | 0x3210u, // byte j of the low or the high eight levels
        low = __byte_perm(0xbfad9881u, 0xf6eaddcfu, at), high = __byte_perm(0x26190d01u, 0x71594535u, at);
    return __byte_perm(low, high, pick);
}
DEV float unit_level(const uint8_t *u, int row, int k) {
    const uint8_t *w = u + (k >> 6) * 512 + (unit_code_byte(row, k) & ~3);
    uint32_t levels = iq4_levels(load_u16(w + 2 * (k >> 5 & 1)));
    return (float)(int8_t)(levels >> (8 * (k & 3)));
}

// Codes of BASE's unit are indices of levels.
template <class BASE> struct level_format : BASE {
    DEV uint32_t word(uint32_t v, int g) { return iq4_levels(g & 1 ? v >> 16 : v); }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int) {
        return lop3<LOP_AND_XOR>(v, 0x00ff00ffu, 0x00800080u);
    }
    DEV uint32_t int_code(uint32_t w, uint32_t, int g) { return iq4_levels(g & 1 ? w >> 16 : w); }
    DEV uint32_t prompt_word(uint32_t w, int q) { return iq4_levels(w >> (16 * q)) ^ 0x80808080u; }
};

template <> struct format<LAYOUT_IQ4> : level_format<scaled_format<4, false>> {
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_level_indices(u, row, code);
        put_scales<S>(u, row, s, k0, k);
    }
    DEV float value(const uint8_t *u, int row, int k) { return scale(u, row, k) * unit_level(u, row, k); }
};
template <> struct operands<LAYOUT_IQ4> : scaled_operands<format<LAYOUT_IQ4>, 128> {};
