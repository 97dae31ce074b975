// Q4_0: codes of four bits with a sign, a scale for 32 columns.
#pragma once
#include "cuda/formats/unit.cuh"

// Blocks of 32 columns whose code is a nibble less BIAS, without minimum.
template <class B, int BIAS> struct nibble_blocks {
    DEV const B &b(const uint8_t *r, int k) { return ((const B *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        int v = b(r, k).q[k & 15];
        return BIAS ? ((k & 16 ? v >> 4 : v & 15) - BIAS) & 15 : k & 16 ? v >> 4 : v & 15;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *, int) { return 0; }
};
template <> struct src<QUANT_Q4_0> : nibble_blocks<block_Q4_0, 8> {};

// One scale for 32 columns, row * 16: 8 halves d[0] d[4] d[1] d[5] .. NIBBLE: a code is a nibble of its byte.
template <int CODES, bool NIBBLE> struct scaled_format : unit_format<CODES, 0> {
    static constexpr int at = CODES * 512;
    template <class S> DEV void put_scales(uint8_t *u, int row, const uint8_t *s, int k0, int k) {
        for (int g = 0; g < 8; g++)
            *(uint16_t *)(u + at + row * 16 + (g & 3) * 4 + (g >> 2) * 2) =
                (uint16_t)(k0 + g * 32 < k ? S::d(s, k0 + g * 32) : 0);
    }
    DEV float scale(const uint8_t *u, int row, int k) {
        return half_bits(load_u16(u + at + row * 16 + group_place(k)));
    }
    DEV float range(const uint8_t *u, int i) {
        const float2 d = half2_bits(*(const uint32_t *)(u + i * 4));
        return fmaxf(fabsf(d.x), fabsf(d.y));
    }
    DEV void factors(uint32_t (&own)[2], const uint8_t *u, int row, int tig, float up) {
        u += at;
        const float2 d = half2_bits(*(const uint32_t *)(u + row * 16 + tig * 4));
        const float k = up * (NIBBLE ? nibble_place(tig) : 1.f), n = up * (NIBBLE ? -0x1p-21f : -0x1p-17f);
        own[0] = pack_half2(d.x * k, d.x * n);
        own[1] = pack_half2(d.y * k, d.y * n);
    }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&)[2], const uint8_t *u, int gid, int tig) {
        u += at;
#pragma unroll
        for (int r = 0; r < 2; r++) s[r].x = *(const uint32_t *)(u + (gid + 8 * r) * 16 + tig * 4);
    }
    DEV void row_scale(float (&k)[2], uint32_t w) {
        const float2 s = half2_bits(w);
        k[0] = s.x, k[1] = s.y;
    }
};
// Operands of prompt rows: C::prompt_word gives four codes plus BIAS out of a word.
template <class C, int BIAS> struct scaled_operands {
    static constexpr bool WIDE = C::wide;
    static constexpr int order = ORDER_CODES, unit = C::scales + 256, codes = C::scales;
    struct raw {
        words w[WIDE ? 2 : 1];
    };
    struct scales {
        uint4 v[2];
    };
    static constexpr int n_piece = 1, piece_bytes = WIDE ? 1024 : 512;
    DEV int piece(int p, int) { return p * piece_bytes; }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        if (WIDE) r.w[WIDE].load(s, at + 512);
    }
    DEV void scale(scales &c, const slab &s, size_t at) {
        c.v[0] = ldg16(s.first + at + codes + slab_row(0) * 16);
        c.v[1] = ldg16(s.first + at + codes + slab_row(1) * 16);
    }
    DEV __half2 half_of(const uint4 &v, int i) // half i of 8, twice
    {
        uint32_t w = i < 4 ? (i < 2 ? v.x : v.y) : (i < 6 ? v.z : v.w);
        return as_half2(__byte_perm(w, 0, i & 1 ? 0x3232 : 0x1010));
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q;
#pragma unroll
        for (int h = 0; h < 2; h++)
            scaled(C::prompt_word(r.w[WIDE ? q : 0].get(h, e), q), biased(BIAS),
                   half_of(c.v[h], (g & 3) * 2 + (g >> 2)), a[h], a[h + 2]);
    }
};

template <> struct format<LAYOUT_Q4> : scaled_format<4, true> {
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_nibbles(u, row, code);
        put_scales<S>(u, row, s, k0, k);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        int c = (unit_nibble(u, row, k) ^ 8) - 8;
        return scale(u, row, k) * (float)c;
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int g) {
        return g & 1 ? lop3<LOP_AND_XOR>(v, 0x00f000f0u, 0x00800080u)
                     : lop3<LOP_AND_XOR>(v, 0x000f000fu, 0x00080008u);
    }
    DEV uint32_t int_code(uint32_t w, uint32_t, int g) { return (g & 1 ? w : w << 4) & 0xf0f0f0f0u; }
    DEV float code_factor(int) { return 0.0625f; }
    DEV uint32_t prompt_word(uint32_t w, int q) { return ((w >> (4 * q)) & 0x0f0f0f0fu) ^ 0x08080808u; }
};
template <> struct operands<LAYOUT_Q4> : scaled_operands<format<LAYOUT_Q4>, 8> {};
