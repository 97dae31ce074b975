// IQ2_XXS: points of a codebook; on the card codes of eight bits with a sign, a whole scale for 16 columns and d for 256. That is what
// the other types of IQ2, IQ3_XXS and IQ1 become, too.
#pragma once
#include "cuda/formats/cuda_q6_k.cuh"
#include "cuda/formats/grids.cuh"

template <> struct src<QUANT_IQ2_XXS> {
    DEV const block_IQ2_XXS &b(const uint8_t *r, int k) { return ((const block_IQ2_XXS *)r)[k >> 8]; }
    DEV uint32_t a(const uint8_t *r, int k) {
        const uint16_t *q = b(r, k).q + (k >> 5 & 7) * 4 + 2;
        return q[0] | (uint32_t)q[1] << 16;
    }
    DEV int code(const uint8_t *r, int k) {
        const int l = k >> 3 & 3, index = ((const uint8_t *)(b(r, k).q + (k >> 5 & 7) * 4))[l];
        return with_even_sign(level_iq2(grid_iq2_xxs(index), k & 7), a(r, k) >> (7 * l) & 127, k & 7);
    }
    DEV int scale(const uint8_t *r, int k) { return 2 * (int)(a(r, k) >> 28) + 1; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};

// The scales as Q6_K has them; a value is an eighth of d * scale * code.
template <> struct format<LAYOUT_C8> : sixteen_format<8, 0, 32> {
    using base = sixteen_format<8, 0, 32>;
    static constexpr int slots = 1, glu_slots = 1;
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_bytes(u, row, code);
        base::template put_scales<S>(u, row, s, k0);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        int c = (int8_t)u[(k >> 5) * 512 + unit_code_byte(row, k)];
        return 0.125f * base::scale(u, row, k) * (float)c;
    }
    DEV float range(const uint8_t *u, int i) { return 0.125f * base::range(u, i); }
    DEV void factors(uint32_t (&own)[2], const uint8_t *u, int row, int tig, float up) {
        base::factors(own, u, row, tig, 0.125f * up);
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[2], int g, int from) {
        const __half2 w = as_half2(__shfl_sync(~0u, own[g >> 2], from)),
                      n = __hmul2(w, as_half2(0x80808080u)); // -128 * 2^-24
        s[0] = __low2half2(w), s[1] = __high2half2(w);
        m[0] = __low2half2(n), m[1] = __high2half2(n);
    }
    DEV float row_d(const uint4 &s, const uint32_t (&m)[2], int r) { return 0.125f * base::row_d(s, m, r); }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int) {
        return lop3<LOP_AND_XOR>(v, 0x00ff00ffu, 0x00800080u);
    }
    DEV uint32_t int_code(uint32_t w, uint32_t, int) { return w; }
};
template <> struct operands<LAYOUT_C8> {
    static constexpr int order = ORDER_CODES, unit = 4384;
    struct raw {
        words w[2];
    };
    struct scales {
        uint4 v[2];
        float d[2];
    }; // scale + 128: byte tig * 4 + (g / 4) * 2 + e
    static constexpr int n_piece = 1, piece_bytes = 1024;
    DEV int piece(int p, int) { return p * piece_bytes; }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        r.w[1].load(s, at + 512);
    }
    DEV void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at + 4096;
            c.v[h] = ldg16(u + slab_row(h) * 16);
            c.d[h] = 0.125f * half_bits(__ldg((const unsigned short *)(u + 256 + slab_row(h) * 2)));
        }
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t word = t < 2 ? (t ? c.v[h].y : c.v[h].x) : (t & 1 ? c.v[h].w : c.v[h].z);
            int sc = (int)((word >> (16 * (g >> 2) + 8 * e)) & 255u) - 128;
            scaled(r.w[q].get(h, e) ^ 0x80808080u, biased(128), __float2half2_rn(c.d[h] * (float)sc), a[h],
                   a[h + 2]);
        }
    }
};
