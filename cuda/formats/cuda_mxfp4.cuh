// MXFP4: codes that are floats of four bits, a power of two for 32 columns.
#pragma once
#include "cuda/formats/cuda_iq4_nl.cuh"

template <> struct src<QUANT_MXFP4> : nibble_blocks<block_MXFP4, 0> { // code: its four bits
    DEV uint32_t e(const uint8_t *r, int k) { return b(r, k).e; }
};

// The four codes of the nibbles of v's low half: bytes, four times the number. Of those without a sign, and of those with one
// half as much in seven bits; what is not meant is 0 in either, as no byte's highest bit is set.
DEV uint32_t mxfp4_bytes(uint32_t v) {
    return 2 * bytes_or_signs(0x7d7e7f00u, 0x74787a7cu, v ^ 0x8888u) +
           bytes_or_signs(0x06040200u, 0x18100c08u, v);
}
// The same as high bytes of halves, 2^-14 times the number.
DEV uint32_t mxfp4_half_bytes(uint32_t v) {
    return 2 * bytes_or_signs(0x43424140u, 0x47464544u, v ^ 0x8888u) +
           bytes_or_signs(0x06040200u, 0x0e0c0a08u, v);
}
DEV float power_of_two(uint32_t e) { return __uint_as_float(e << 23); } // 2^(e - 127), 0 for 0

// Indices as IQ4_NL; row * 8 + tig * 2: e of groups tig, tig + 4
template <> struct format<LAYOUT_MX4> : unit_format<4, 0> {
    static constexpr int n_factor = 1;
    static constexpr bool addends = false;
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_level_indices(u, row, code);
        for (int g = 0; g < 8; g++)
            u[2048 + row * 8 + (g & 3) * 2 + (g >> 2)] =
                (uint8_t)(k0 + g * 32 < k ? S::e(s, k0 + g * 32) : 0);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        const uint8_t *w = u + (k >> 6) * 512 + (unit_code_byte(row, k) & ~3);
        const uint32_t codes = mxfp4_bytes(load_u16(w + 2 * (k >> 5 & 1)));
        return power_of_two(u[2048 + row * 8 + (k >> 5 & 3) * 2 + (k >> 7)]) *
               (0.25f * (float)(int8_t)(codes >> (8 * (k & 3))));
    }
    // As code_halves are normal halves already, 2^10 less than the others' factors: so weights 24 powers of two below the
    // largest scale are exact.
    DEV float range(const uint8_t *u, int i) {
        return fmaxf(power_of_two(max(u[2 * i], u[2 * i + 1])) * 0x1p-10f, 0x1p-100f);
    }
    DEV void factors(uint32_t (&own)[1], const uint8_t *u, int row, int tig, float up) {
        const uint32_t w = *(const uint16_t *)(u + scales + row * 8 + tig * 2);
        const float k = up * 0x1p-10f;
        own[0] = pack_half2(power_of_two(w & 255) * k, power_of_two(w >> 8) * k);
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[1], int g, int from) {
        const __half2 w = as_half2(__shfl_sync(~0u, own[0], from));
        s[0] = s[1] = g >> 2 ? __high2half2(w) : __low2half2(w);
        m[0] = m[1] = as_half2(0);
    }
    DEV uint32_t word(uint32_t v, int g) { return mxfp4_half_bytes(g & 1 ? v >> 16 : v); }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int) { return (v << 8) & 0xff00ff00u; }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&)[2], const uint8_t *u, int gid, int tig) {
#pragma unroll
        for (int r = 0; r < 2; r++) s[r].x = *(const uint16_t *)(u + scales + (gid + 8 * r) * 8 + tig * 2);
    }
    DEV void row_scale(float (&k)[2], uint32_t w) {
        k[0] = power_of_two(w & 255), k[1] = power_of_two(w >> 8);
    }
    DEV uint32_t int_code(uint32_t w, uint32_t, int g) { return mxfp4_bytes(g & 1 ? w >> 16 : w); }
    DEV float code_factor(int) { return 0.25f; }
};
// Codes as whole numbers: so weights are exact as far as halves are.
template <> struct operands<LAYOUT_MX4> {
    static constexpr int order = ORDER_CODES, unit = 2176;
    struct raw {
        words w;
    };
    struct scales {
        uint2 v[2];
    };
    static constexpr int n_piece = 1, piece_bytes = 512;
    DEV int piece(int p, int) { return p * 512; }
    DEV void load(raw &r, const slab &s, uint32_t at) { r.w.load(s, at); }
    DEV void scale(scales &c, const slab &s, size_t at) {
        c.v[0] = ldg8(s.first + at + 2048 + slab_row(0) * 8);
        c.v[1] = ldg8(s.first + at + 2048 + slab_row(1) * 8);
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        const int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = (t < 2 ? c.v[h].x : c.v[h].y) >> (16 * (t & 1) + 8 * (g >> 2)) & 255u;
            scaled(mxfp4_bytes(r.w.get(h, e) >> (16 * q)) ^ 0x80808080u, biased(128),
                   __float2half2_rn(0.25f * power_of_two(at)), a[h], a[h + 2]);
        }
    }
};

template <> struct few_lane<LAYOUT_MX4> { // the words of the int8 operand: rows lane / 4 and + 8
    template <class F> static MEM void unit(const uint8_t *u, int lane, F add) {
        const uint2 e[2] = {*(const uint2 *)(u + 2048 + row(lane, 0) * 8),
                            *(const uint2 *)(u + 2048 + row(lane, 1) * 8)};
#pragma unroll
        for (int g = 0; g < 8; g++) {
            const uint4 v = *(const uint4 *)(u + (g >> 1) * 512 + lane * 16);
#pragma unroll
            for (int i = 0; i < 4; i++) { // 16 columns i / 2, row i % 2
                const uint32_t at = (g & 2 ? e[i & 1].y : e[i & 1].x) >> (16 * (g & 1) + 8 * (g >> 2)) & 255u,
                               w = word_of(v, i), b = mxfp4_bytes(g & 1 ? w >> 16 : w) ^ 0x80808080u;
                const float d = 0.25f * power_of_two(at);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    add(i & 1, 32 * g + 16 * (i >> 1) + 4 * (lane & 3) + j, d * byte_float_less_128(b, j));
            }
        }
    }
    static MEM int row(int lane, int i) { return (lane >> 2) + 8 * i; }
    static constexpr int n_row = 2, share = 4;
};
