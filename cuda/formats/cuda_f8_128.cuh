// F8_128: floats of eight bits (e4m3) whose scale is a float32. As halves they are exact; int8 products do not take them.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_F8_128> {
    DEV const block_F8_128 &b(const uint8_t *r, int k) { return ((const block_F8_128 *)r)[k >> 7]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k & 127]; }
    DEV float s(const uint8_t *r, int k) { return b(r, k).s; }
};

// Codes of 8 bits, but of two neighbours (16 bits) the second's sign is bit 15 and its rest bits 13 .. 7, where a half has them; the
// first's sign is bit 14 and its rest bits 6 .. 0. Such a half is 2^-8 of the number (and a number where the file has NaN). Then row * 8: the
// scales of columns 0 .. 127 and 128 .. 255.
template <> struct format<LAYOUT_F8> : unit_format<8, 0> {
    static constexpr bool pairs = true, addends = false;
    static constexpr int n_factor = 1, slots = 1, glu_slots = 1;
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_bytes(u, row, [&](int j) {
            const uint32_t a = (uint32_t)code(j & ~1), b = (uint32_t)code(j | 1),
                           v = (b & 128) << 8 | (b & 127) << 7 | (a & 128) << 7 | (a & 127);
            return (int)(j & 1 ? v >> 8 : v & 255);
        });
        float *to = (float *)(u + scales + row * 8);
        for (int h = 0; h < 2; h++) to[h] = k0 + h * 128 < k ? S::s(s, k0 + h * 128) : 0.f;
    }
    // codes 0 and 2, 1 and 3 of a word
    DEV void halves(uint32_t &a, uint32_t &b, uint32_t v) {
        a = lop3<LOP_AND_OR>(v << 7, 0x3f803f80u, v << 1 & 0x80008000u);
        b = v & 0xbf80bf80u;
    }
    DEV void pair(uint32_t &a, uint32_t &b, uint32_t v, const uint4 (&)[2], int) { halves(a, b, v); }
    DEV float value(const uint8_t *u, int row, int k) {
        uint32_t a, b;
        halves(a, b, *(const uint32_t *)(u + (k >> 5) * 512 + (unit_code_byte(row, k) & ~3)));
        const uint32_t v = k & 1 ? b : a;
        return *(const float *)(u + scales + row * 8 + (k >> 7) * 4) *
               (256.f * half_bits(k & 2 ? v >> 16 : v & 0xffff));
    }
    // as halves are up to 1.75: so weights stay below 2^15
    DEV float range(const uint8_t *u, int i) {
        if (i >= 16) return 0;
        const float2 s = *(const float2 *)(u + i * 8);
        return fmaxf(fmaxf(fabsf(s.x), fabsf(s.y)) * 0x1p-14f, 0x1p-100f);
    }
    DEV void factors(uint32_t (&own)[1], const uint8_t *u, int row, int, float up) {
        const float2 s = *(const float2 *)(u + scales + row * 8);
        const float k = up * 0x1p-16f;
        own[0] = pack_half2(s.x * k, s.y * k);
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[1], int g, int) {
        const __half2 w = as_half2(own[0]);
        s[0] = s[1] = g >> 2 ? __high2half2(w) : __low2half2(w);
        m[0] = m[1] = as_half2(0);
    }
};
template <> struct operands<LAYOUT_F8> {
    static constexpr int order = ORDER_CODES, unit = layout_unit_bytes(LAYOUT_F8);
    struct raw {
        words w[2];
    };
    struct scales {
        uint2 v[2];
    };
    static constexpr int n_piece = 1, piece_bytes = 1024;
    DEV int piece(int p, int) { return p * 1024; }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        r.w[1].load(s, at + 512);
    }
    DEV void scale(scales &c, const slab &s, size_t at) {
        c.v[0] = ldg8(s.first + at + 4096 + slab_row(0) * 8);
        c.v[1] = ldg8(s.first + at + 4096 + slab_row(1) * 8);
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        const int q = st >> 1, e = st & 1;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t x, y;
            format<LAYOUT_F8>::halves(x, y, r.w[q].get(h, e));
            const __half2 d = __float2half2_rn(256.f * __uint_as_float(p >> 1 ? c.v[h].y : c.v[h].x));
            a[h] = half2_word(__hmul2(as_half2(__byte_perm(x, y, 0x5410)), d));
            a[h + 2] = half2_word(__hmul2(as_half2(__byte_perm(x, y, 0x7632)), d));
        }
    }
};
