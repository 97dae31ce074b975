// Q4_K: codes of four bits, scale and minimum of six bits for 32 columns, d and dmin for 256.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_Q4_K> {
    DEV const block_Q4_K &b(const uint8_t *r, int k) { return ((const block_Q4_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        int g = (k >> 5) & 7, v = b(r, k).q[(g >> 1) * 32 + (k & 31)];
        return g & 1 ? v >> 4 : v & 15;
    }
};
DEV void k4_scale(const uint8_t *s, int g, int *sc,
                  int *m) // six-bit scale and minimum of group g of the file
{
    if (g < 4) {
        *sc = s[g] & 63;
        *m = s[g + 4] & 63;
    } else {
        *sc = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        *m = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
    }
}
// scales of groups tig and tig + 4 of a row as two bfloat16
DEV uint32_t super_scales(const uint4 &s, int tig) {
    const uint32_t n = s.w >> (8 * tig);
    return less_128((s.y >> (8 * tig + 6) & 3) | (n & 15) << 2 | (s.z >> (8 * tig + 6) & 3) << 16 |
                    (n & 0xf0) << 14 | 0x43004300u); // 128 + s
}
// minimums of groups tig and tig + 4 as two bfloat16
DEV uint32_t super_mins(const uint4 &s, int tig) {
    return less_128((s.y >> (8 * tig) & 63) | (s.z >> (8 * tig) & 63) << 16 | 0x43004300u);
}
// row * 16: d, dmin, then bytes s1[4] s2[4] h[4]: s1[t] = m[t] | (sc[t] & 3) << 6, s2 the same of group t + 4, h[t] = sc[t] >> 2 |
// (sc[t + 4] >> 2) << 4. FIFTH: bits of codes behind the nibbles.
template <bool FIFTH> struct super_format : unit_format<4, FIFTH> {
    static constexpr bool whole_units = true, is_signed = false, whole = true;
    static constexpr unit_mins mins = MINS_SIX;
    static constexpr int at = FIFTH ? 2560 : 2048;
    template <class S> DEV void put_scales(uint8_t *u, int row, const uint8_t *s, int k0) {
        const auto &b = S::b(s, k0);
        uint8_t *q = u + at + row * 16;
        ((uint16_t *)q)[0] = b.d;
        ((uint16_t *)q)[1] = b.dmin;
        for (int t = 0; t < 4; t++) {
            int a, am, c, cm;
            k4_scale(b.sc, t, &a, &am);
            k4_scale(b.sc, t + 4, &c, &cm);
            q[4 + t] = (uint8_t)(am | (a & 3) << 6);
            q[8 + t] = (uint8_t)(cm | (c & 3) << 6);
            q[12 + t] = (uint8_t)(a >> 2 | (c >> 2) << 4);
        }
    }
    DEV float of_code(const uint8_t *u, int row, int k, int c) {
        const int g = k >> 5, t = g & 3, h = g >> 2;
        const uint8_t *s = u + at + row * 16;
        int b = s[4 + h * 4 + t], n = s[12 + t] >> (4 * h) & 15;
        return half_bits(load_u16(s)) * (float)((b >> 6) | n << 2) * (float)c -
               half_bits(load_u16(s + 2)) * (float)(b & 63);
    }
    DEV float range(const uint8_t *u, int i) {
        if (i >= 16) return 0;
        const float2 d = half2_bits(*(const uint32_t *)(u + i * 16));
        return 63 * fmaxf(fabsf(d.x), fabsf(d.y) * 0x1p-24f);
    }
    DEV void factors(uint32_t (&own)[2], const uint8_t *u, int row, int tig, float up) {
        u += at;
        const uint4 s = *(const uint4 *)(u + row * 16);
        const float2 d = half2_bits(s.x), sc = bf16x2_bits(super_scales(s, tig)),
                     m = bf16x2_bits(super_mins(s, tig));
        const float k = d.x * (up * nibble_place(tig)), n = d.y * (up * -0x1p-24f);
        own[0] = pack_half2(sc.x * k, m.x * n);
        own[1] = pack_half2(sc.y * k, m.y * n);
    }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&)[2], const uint8_t *u, int gid, int) {
        u += at;
#pragma unroll
        for (int r = 0; r < 2; r++) s[r] = *(const uint4 *)(u + (gid + 8 * r) * 16);
    }
    DEV uint32_t scale_word(const uint4 &s, int tig) { return super_scales(s, tig); }
    DEV void row_scale(float (&k)[2], uint32_t w) {
        k[0] = __uint_as_float(w << 16);
        k[1] = __uint_as_float(w & 0xffff0000u);
    }
};
template <bool FIFTH> struct super_operands {
    static constexpr int order = ORDER_CODES, unit = FIFTH ? 2816 : 2304;
    struct raw {
        words w[FIFTH ? 2 : 1];
    };
    struct scales {
        uint4 v[2];
    }; // d dmin | s1[4] | s2[4] | h[4]
    static constexpr int n_piece = FIFTH ? 2 : 1, piece_bytes = 512;
    DEV int piece(int p, int i) { return i ? 2048 : p * 512; }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        if (FIFTH) r.w[FIFTH].load(s, at + 512);
    }
    DEV void scale(scales &c, const slab &s, size_t at) {
        c.v[0] = ldg16(s.first + at + (FIFTH ? 2560 : 2048) + slab_row(0) * 16);
        c.v[1] = ldg16(s.first + at + (FIFTH ? 2560 : 2048) + slab_row(1) * 16);
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t b = ((g >> 2 ? c.v[h].z : c.v[h].y) >> (8 * t)) & 255u;
            uint32_t n = (c.v[h].w >> (8 * t + 4 * (g >> 2))) & 15u;
            float2 d = half2_bits(c.v[h].x);
            __half2 sc = __float2half2_rn(d.x * (float)(b >> 6 | n << 2)),
                    m = __float2half2_rn(-d.y * (float)(b & 63u));
            uint32_t w = (r.w[0].get(h, e) >> (4 * q)) & 0x0f0f0f0fu;
            if (FIFTH) w |= ((r.w[FIFTH].get(h, e) >> g) & 0x01010101u) << 4;
            shifted(w, sc, m, a[h], a[h + 2]);
        }
    }
};

template <> struct format<LAYOUT_Q4K> : super_format<false> {
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_nibbles(u, row, code);
        put_scales<S>(u, row, s, k0);
    }
    DEV float value(const uint8_t *u, int row, int k) { return of_code(u, row, k, unit_nibble(u, row, k)); }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int g) { return v & (g & 1 ? 0x00f000f0u : 0x000f000fu); }
    DEV uint32_t int_code(uint32_t w, uint32_t, int g) { return w & (g & 1 ? 0xf0f0f0f0u : 0x0f0f0f0fu); }
    DEV float code_factor(int p) { return nibble_place(p); }
};
template <> struct operands<LAYOUT_Q4K> : super_operands<false> {};
