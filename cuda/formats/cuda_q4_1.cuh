// Q4_1: codes of four bits, scale and minimum for 32 columns.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_Q4_1> {
    DEV const block_Q4_1 &b(const uint8_t *r, int k) { return ((const block_Q4_1 *)r)[k >> 5]; }
    DEV int code(const uint8_t *r, int k) {
        int v = b(r, k).q[k & 15];
        return k & 16 ? v >> 4 : v & 15;
    }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
    DEV uint32_t m(const uint8_t *r, int k) { return b(r, k).m; }
};

// Scale and minimum for 32 columns, row * 32 + tig * 8: d[tig] d[tig + 4] m[tig] m[tig + 4].
template <int CODES> struct mins_format : unit_format<CODES, 0> {
    static constexpr int at = CODES * 512;
    static constexpr unit_mins mins = MINS_HALF;
    template <class S> DEV void put_scales(uint8_t *u, int row, const uint8_t *s, int k0, int k) {
        for (int g = 0; g < 8; g++) {
            bool in = k0 + g * 32 < k;
            uint16_t *h = (uint16_t *)(u + at + row * 32 + (g & 3) * 8 + (g >> 2) * 2);
            h[0] = in ? S::d(s, k0 + g * 32) : 0;
            h[2] = in ? S::m(s, k0 + g * 32) : 0;
        }
    }
    DEV float of_code(const uint8_t *u, int row, int k, int c) {
        const uint8_t *s = u + at + row * 32 + (k >> 5 & 3) * 8 + (k >> 7) * 2;
        return half_bits(load_u16(s)) * (float)c + half_bits(load_u16(s + 4));
    }
    DEV float range(const uint8_t *u, int i) {
        const uint2 w = *(const uint2 *)(u + i * 8);
        const float2 d = half2_bits(w.x), m = half2_bits(w.y);
        return fmaxf(fmaxf(fabsf(d.x), fabsf(d.y)), fmaxf(fabsf(m.x), fabsf(m.y)) * 0x1p-24f);
    }
    DEV void factors(uint32_t (&own)[2], const uint8_t *u, int row, int tig, float up) {
        u += at;
        const uint2 s = *(const uint2 *)(u + row * 32 + tig * 8);
        const float2 d = half2_bits(s.x), m = half2_bits(s.y);
        const float k = up * (CODES == 4 ? nibble_place(tig) : 1.f), n = up * 0x1p-24f;
        own[0] = pack_half2(d.x * k, m.x * n);
        own[1] = pack_half2(d.y * k, m.y * n);
    }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&m)[2], const uint8_t *u, int gid, int tig) {
        u += at;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint2 a = *(const uint2 *)(u + (gid + 8 * r) * 32 + tig * 8);
            s[r].x = a.x;
            m[r] = a.y;
        }
    }
    DEV void row_scale(float (&k)[2], uint32_t w) {
        const float2 s = half2_bits(w);
        k[0] = s.x, k[1] = s.y;
    }
};
template <bool WIDE> struct mins_operands {
    static constexpr int order = ORDER_CODES, unit = WIDE ? 4608 : 2560, codes = WIDE ? 4096 : 2048;
    struct raw {
        words w[WIDE ? 2 : 1];
    };
    struct scales {
        uint2 v[2][4];
    }; // [row half][tig]
    static constexpr int n_piece = 1, piece_bytes = WIDE ? 1024 : 512;
    DEV int piece(int p, int) { return p * piece_bytes; }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        if (WIDE) r.w[WIDE].load(s, at + 512);
    }
    DEV void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *p = s.first + at + codes + slab_row(h) * 32;
#pragma unroll
            for (int t = 0; t < 4; t++) c.v[h][t] = ldg8(p + t * 8);
        }
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q;
        uint32_t sel = g >> 2 ? 0x3232 : 0x1010;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            __half2 d = as_half2(__byte_perm(c.v[h][g & 3].x, 0, sel)),
                    m = as_half2(__byte_perm(c.v[h][g & 3].y, 0, sel));
            uint32_t w = r.w[WIDE ? q : 0].get(h, e);
            if (WIDE) { // signed codes
                w ^= 0x80808080u;
                a[h] = half2_word(__hfma2(bytes_half(w, 0, biased(128)), d, m));
                a[h + 2] = half2_word(__hfma2(bytes_half(w, 1, biased(128)), d, m));
            } else
                shifted((w >> (4 * q)) & 0x0f0f0f0fu, d, m, a[h], a[h + 2]);
        }
    }
};

template <> struct format<LAYOUT_Q4M> : mins_format<4> {
    static constexpr bool is_signed = false;
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_nibbles(u, row, code);
        put_scales<S>(u, row, s, k0, k);
    }
    DEV float value(const uint8_t *u, int row, int k) { return of_code(u, row, k, unit_nibble(u, row, k)); }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int g) { return v & (g & 1 ? 0x00f000f0u : 0x000f000fu); }
    DEV uint32_t int_code(uint32_t w, uint32_t, int g) { return w & (g & 1 ? 0xf0f0f0f0u : 0x0f0f0f0fu); }
    DEV float code_factor(int p) { return nibble_place(p); }
    DEV float min_factor(int p) { return p & 1 ? 16.f : 1.f; }
};
template <> struct operands<LAYOUT_Q4M> : mins_operands<false> {};
