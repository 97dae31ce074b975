// IQ4_XS: codes as IQ4_NL, a scale of six bits with a sign for 32 columns, d for 256.
#pragma once
#include "cuda/formats/cuda_iq4_nl.cuh"

template <> struct src<QUANT_IQ4_XS> {
    DEV const block_IQ4_XS &b(const uint8_t *r, int k) { return ((const block_IQ4_XS *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        int v = b(r, k).q[(k >> 5 & 7) * 16 + (k & 15)];
        return k & 16 ? v >> 4 : v & 15;
    }
    DEV int scale(const uint8_t *r, int k) {
        const block_IQ4_XS &x = b(r, k);
        const int g = k >> 5 & 7;
        return ((x.sl[g >> 1] >> (4 * (g & 1)) & 15) | (x.sh >> (2 * g) & 3) << 4) - 32;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};

// row * 8 + tig * 2: scale + 128 of groups tig, tig + 4; then d[row]
template <> struct format<LAYOUT_IQ4X> : level_format<unit_format<4, 0>> {
    static constexpr bool whole_units = true, whole = true;
    static constexpr int n_factor = 1;
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_level_indices(u, row, code);
        for (int g = 0; g < 8; g++)
            u[2048 + row * 8 + (g & 3) * 2 + (g >> 2)] = (uint8_t)(S::scale(s, k0 + g * 32) + 128);
        *(uint16_t *)(u + 2176 + row * 2) = (uint16_t)S::d(s, k0);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        int sc = (int)u[2048 + row * 8 + (k >> 5 & 3) * 2 + (k >> 7)] - 128;
        return half_bits(load_u16(u + 2176 + row * 2)) * (float)sc * unit_level(u, row, k);
    }
    DEV float range(const uint8_t *u, int i) {
        return i < 16 ? 32 * fabsf(half_bits(*(const uint16_t *)(u + 128 + i * 2))) : 0;
    }
    // scales of both groups
    DEV void factors(uint32_t (&own)[1], const uint8_t *u, int row, int tig, float up) {
        u += scales;
        const uint32_t w = *(const uint16_t *)(u + row * 8 + tig * 2);
        const float k = half_bits(*(const uint16_t *)(u + 128 + row * 2)) * up;
        own[0] = pack_half2(byte_float_less_128(w, 0) * k, byte_float_less_128(w, 1) * k);
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[1], int g, int from) {
        const __half2 w = as_half2(__shfl_sync(~0u, own[0], from));
        s[0] = s[1] = g >> 2 ? __high2half2(w) : __low2half2(w);
        m[0] = m[1] = __hmul2(s[0], as_half2(0x80808080u)); // -128 * 2^-24
    }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&m)[2], const uint8_t *u, int gid, int tig) {
        u += scales;
#pragma unroll
        for (int r = 0; r < 2; r++) s[r].x = *(const uint16_t *)(u + (gid + 8 * r) * 8 + tig * 2);
        m[0] = *(const uint16_t *)(u + 128 + gid * 2) | *(const uint16_t *)(u + 144 + gid * 2) << 16;
    }
    DEV void row_scale(float (&k)[2], uint32_t w) {
        k[0] = byte_float_less_128(w, 0), k[1] = byte_float_less_128(w, 1);
    }
    DEV float row_d(const uint4 &, const uint32_t (&m)[2], int r) {
        return half_bits(r ? m[0] >> 16 : m[0] & 0xffff);
    }
};
template <> struct operands<LAYOUT_IQ4X> {
    static constexpr int order = ORDER_CODES, unit = 2208;
    struct raw {
        words w;
    };
    struct scales {
        uint2 v[2];
        float d[2];
    };
    static constexpr int n_piece = 1, piece_bytes = 512;
    DEV int piece(int p, int) { return p * 512; }
    DEV void load(raw &r, const slab &s, uint32_t at) { r.w.load(s, at); }
    DEV void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at + 2048;
            c.v[h] = ldg8(u + slab_row(h) * 8);
            c.d[h] = half_bits(__ldg((const unsigned short *)(u + 128 + slab_row(h) * 2)));
        }
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int sc = (int)((t < 2 ? c.v[h].x : c.v[h].y) >> (16 * (t & 1) + 8 * (g >> 2)) & 255u) - 128;
            scaled(format<LAYOUT_IQ4X>::prompt_word(r.w.get(h, e), q), biased(128),
                   __float2half2_rn(c.d[h] * (float)sc), a[h], a[h + 2]);
        }
    }
};
