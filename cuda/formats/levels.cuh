// Codes of four bits that name one of 16 levels of their type, which lie in the unit: NVFP4, NF4, FP4, IQ1 to IQ3.
//
//   2048  row * 16 + tig * 4: scales of groups tig, tig + 4, for each a half, or for each 16 columns a byte: four bits of exponent, four
//         behind the point, 2^8 of the half that it becomes
//   2304  half d[row]
//   2336  levels as int8: of codes 8 to 15 halves of them, in seven bits; of codes 0 to 7
//   2352  levels as halves, 2^-7 of these and exact: high bytes of codes 0 to 15, low bytes
//   2384  how a word of scales becomes halves: two choices of its bytes, by how much they are moved
//
// A weight is level * scale * d / 4. Levels as int8 of codes 8 to 15 are even, those of 0 to 7 not negative: so a code is looked up by
// two instructions (bytes_or_signs), whose results are added. A unit has rows of one type (cuda_plan.c).
#pragma once
#include "cuda/formats/cuda_q4_0.cuh"
#include "cuda/formats/level_codes.cuh"

enum { LEVELS_D = 2304, LEVELS_INT = 2336, LEVELS_HALF = 2352, LEVELS_FORM = 2384 };

// What a type's src<> gives beside code(row, k), 0 .. 15, and d(row, k, end), a half for 256 columns: group(row, k, d), the scale of 32
// columns; level(code), 2^-7 of it exactly; whole(code), what int8 products take; by_bytes, which form scales have.
// Levels with signs: code() of S is the number itself, and magnitude(i) those of them that have i in the bits from SHIFT on.
template <class S, int SHIFT, int TIMES> struct signed_levels : S {
    static constexpr bool by_bytes = true;
    DEV int code(const uint8_t *r, int k) {
        const int v = S::code(r, k);
        return v < 0 ? (-v >> SHIFT) | 8 : v >> SHIFT;
    }
    DEV int whole(int i) { return i & 8 ? -2 * S::magnitude(i & 7) : 2 * S::magnitude(i); }
    DEV float level(int i) { return (float)whole(i) * 0x1p-7f; }
    DEV uint32_t d(const uint8_t *r, int k, int) {
        return __half_as_ushort(__float2half_rn(64.f * half_bits(S::d(r, k))));
    }
    DEV uint32_t group(const uint8_t *r, int k, uint32_t) {
        return byte_of(TIMES * S::scale(r, k)) | byte_of(TIMES * S::scale(r, k + 16)) << 8;
    }
    DEV uint32_t byte_of(int n) { // below 32 times a power of two
        const uint32_t f = __float_as_uint((float)n);
        return n ? (f >> 19) - (120u << 4) : 0;
    }
};
// Blocks of 64 whose scale is a float32, where the largest level is so many HUNDREDTHS: scales are halves, and d a power of two for 256
// columns, below which no scale is a half too small to be exact.
template <class B, int HUNDREDTHS> struct float_blocks {
    static constexpr bool by_bytes = false;
    static constexpr float down = 400.f / HUNDREDTHS;
    DEV const B &b(const uint8_t *r, int k) { return ((const B *)r)[k >> 6]; }
    DEV int code(const uint8_t *r, int k) { return b(r, k).q[k >> 1 & 31] >> (4 * (k & 1)) & 15; }
    DEV uint32_t d(const uint8_t *r, int k, int end) {
        float most = 0;
        for (int i = k; i < k + 256 && i < end; i += 64) most = fmaxf(most, fabsf(b(r, i).s));
        const int e = (int)(__float_as_uint(most * down) >> 23) - 127 - 13;
        const int at = e < -24 ? -24 : e > 15 ? 15 : e;
        return __half_as_ushort(__float2half_rn(__uint_as_float((uint32_t)(at + 127) << 23)));
    }
    DEV uint32_t group(const uint8_t *r, int k, uint32_t d) {
        return __half_as_ushort(__float2half_rn(b(r, k).s * down / half_bits(d)));
    }
};

// Two halves of a word of scales.
DEV __half2 level_scales(uint32_t word, uint32_t choice, uint32_t by) {
    return as_half2(__byte_perm(word, 0, choice) << by);
}
// The bytes of a table of 16 that the nibbles of v's low half name.
DEV uint32_t bytes_of_16(const uint4 &t, uint32_t v) {
    const uint32_t at = v & 0x7777u, pick = (v >> 1 & 0x4444u) | 0x3210u;
    return __byte_perm(__byte_perm(t.x, t.y, at), __byte_perm(t.z, t.w, at), pick);
}

// A factor of the whole matrix, into d of a row.
DEV void levels_fold(uint8_t *u, int row, float factor) {
    uint16_t *d = (uint16_t *)(u + LEVELS_D + row * 2);
    *d = __half_as_ushort(__float2half_rn(half_bits(*d) * factor));
}

template <> struct format<LAYOUT_LEV> : unit_format<4, 0> {
    static constexpr bool levels = true, pairs = true, addends = false, whole = true;
    static constexpr int n_scale = 4;
    template <class S> DEV void put_levels(uint8_t *u) {
        uint8_t *i = u + LEVELS_INT, *h = u + LEVELS_HALF;
        for (int c = 0; c < 16; c++) {
            const uint32_t v =
                pack_half2(S::level(c), 0.f); // (bytes of a half made alone: nvcc 13.0 converts its value)
            i[c ^ 8] = (uint8_t)(c & 8 ? S::whole(c) >> 1 & 127 : S::whole(c));
            h[c] = (uint8_t)(v >> 8), h[c + 16] = (uint8_t)v;
        }
        uint32_t *form = (uint32_t *)(u + LEVELS_FORM);
        form[0] = S::by_bytes ? 0x43424140u : 0x32321010u;
        form[1] = S::by_bytes ? 6 : 0;
        form[2] = form[3] = 0;
    }
    template <class S, class F>
    DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int k, F code) {
        put_level_indices(u, row, code);
        const uint32_t d = S::d(s, k0, k);
        for (int g = 0; g < 8; g++)
            *(uint16_t *)(u + scales + row * 16 + (g & 3) * 4 + (g >> 2) * 2) =
                (uint16_t)(k0 + g * 32 < k ? S::group(s, k0 + g * 32, d) : 0);
        *(uint16_t *)(u + LEVELS_D + row * 2) = (uint16_t)d;
        if (row == 0) put_levels<S>(u);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        const uint8_t *w = u + (k >> 6) * 512 + (unit_code_byte(row, k) & ~3);
        const uint32_t c = load_u16(w + 2 * (k >> 5 & 1)) >> (4 * (k & 3)) & 15,
                       v = (uint32_t)u[LEVELS_HALF + c] << 8 | u[LEVELS_HALF + 16 + c],
                       *form = (const uint32_t *)(u + LEVELS_FORM);
        const __half2 s = level_scales(*(const uint32_t *)(u + scales + row * 16 + (k >> 5 & 3) * 4),
                                       k >> 7 ? form[0] >> 16 : form[0], form[1]);
        return half_bits(load_u16(u + LEVELS_D + row * 2)) * 32.f *
               (k >> 4 & 1 ? __high2float(s) : __low2float(s)) * half_bits(v);
    }
    DEV float range(const uint8_t *u, int i) {
        if (i >= 16) return 0;
        const uint32_t *form = (const uint32_t *)(u + LEVELS_FORM - scales);
        float most = 0;
        for (int w = 0; w < 8; w++) {
            const float2 s = __half22float2(level_scales(*(const uint32_t *)(u + i * 16 + (w >> 1) * 4),
                                                         w & 1 ? form[0] >> 16 : form[0], form[1]));
            most = fmaxf(most, fmaxf(fabsf(s.x), fabsf(s.y)));
        }
        return most * fabsf(half_bits(*(const uint16_t *)(u + LEVELS_D - scales + i * 2))) * 0x1p-19f;
    }
    // pairs {scale of the first 16 columns, of the last}
    DEV void factors(uint32_t (&own)[2], const uint8_t *u, int row, int tig, float up) {
        const uint2 form = *(const uint2 *)(u + LEVELS_FORM);
        const uint32_t w = *(const uint32_t *)(u + scales + row * 16 + tig * 4);
        const float k = half_bits(*(const uint16_t *)(u + LEVELS_D + row * 2)) * 0x1p-19f * up;
        const float2 a = __half22float2(level_scales(w, form.x, form.y)),
                     b = __half22float2(level_scales(w, form.x >> 16, form.y));
        own[0] = pack_half2(a.x * k, a.y * k);
        own[1] = pack_half2(b.x * k, b.y * k);
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[2], int g, int from) {
        const __half2 w = as_half2(__shfl_sync(~0u, own[g >> 2], from));
        s[0] = __low2half2(w), s[1] = __high2half2(w);
        m[0] = m[1] = as_half2(0);
    }
    // what 64 columns need beside the codes; codes 0 and 2, 1 and 3 of a word
    DEV void load_table(uint4 (&t)[2], const uint8_t *u) {
        t[0] = *(const uint4 *)(u + LEVELS_HALF);
        t[1] = *(const uint4 *)(u + LEVELS_HALF + 16);
    }
    DEV void pair(uint32_t &a, uint32_t &b, uint32_t v, const uint4 (&t)[2], int g) {
        if (g & 1) v >>= 16;
        const uint32_t h = bytes_of_16(t[0], v), l = bytes_of_16(t[1], v);
        a = __byte_perm(l, h, 0x6240);
        b = __byte_perm(l, h, 0x7351);
    }
    // s[0], s[1]: a row's word of scales, two words of levels, a word of the form
    DEV void int_scales(uint4 (&s)[2], uint32_t (&m)[2], const uint8_t *u, int gid, int tig) {
        const uint4 t = *(const uint4 *)(u + LEVELS_INT);
        const uint2 form = *(const uint2 *)(u + LEVELS_FORM);
#pragma unroll
        for (int r = 0; r < 2; r++) s[r].x = *(const uint32_t *)(u + scales + (gid + 8 * r) * 16 + tig * 4);
        s[0].y = t.x, s[0].z = t.y, s[1].y = t.z, s[1].z = t.w;
        s[0].w = form.x, s[1].w = form.y;
        m[0] = *(const uint16_t *)(u + LEVELS_D + gid * 2) | *(const uint16_t *)(u + LEVELS_D + 16 + gid * 2)
                                                                 << 16;
    }
    DEV uint32_t int_code(uint32_t w, const uint4 (&s)[2], int g) {
        const uint32_t n = w ^ 0x88888888u;
        return 2 * bytes_or_signs(s[0].y, s[0].z, g & 1 ? n >> 16 : n) +
               bytes_or_signs(s[1].y, s[1].z, g & 1 ? w >> 16 : w);
    }
    DEV void row_scale(float (&k)[4], const uint4 (&s)[2], int r) {
        const float2 a = __half22float2(level_scales(s[r].x, s[0].w, s[1].w)),
                     b = __half22float2(level_scales(s[r].x, s[0].w >> 16, s[1].w));
        k[0] = a.x, k[1] = a.y, k[2] = b.x, k[3] = b.y;
    }
    DEV float row_d(const uint4 &, const uint32_t (&m)[2], int r) {
        return 0.25f * half_bits(r ? m[0] >> 16 : m[0] & 0xffff);
    }
};
template <> struct operands<LAYOUT_LEV> {
    static constexpr int order = ORDER_CODES, unit = layout_unit_bytes(LAYOUT_LEV);
    struct raw {
        words w;
    };
    struct scales {
        uint4 v[2], t[2];
        float d[2];
        uint2 form;
    };
    static constexpr int n_piece = 1, piece_bytes = 512;
    DEV int piece(int p, int) { return p * 512; }
    DEV void load(raw &r, const slab &s, uint32_t at) { r.w.load(s, at); }
    DEV void scale(scales &c, const slab &s, size_t at) {
        // (levels and form are those of all units of a row tile)
        c.t[0] = __ldg((const uint4 *)(s.first + LEVELS_HALF));
        c.t[1] = __ldg((const uint4 *)(s.first + LEVELS_HALF + 16));
        c.form = __ldg((const uint2 *)(s.first + LEVELS_FORM));
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at;
            c.v[h] = ldg16(u + 2048 + slab_row(h) * 16);
            c.d[h] = 32.f * half_bits(__ldg((const unsigned short *)(u + LEVELS_D + slab_row(h) * 2)));
        }
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        const int q = st >> 1, e = st & 1, g = 2 * p + q;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const __half2 s = level_scales(word_of(c.v[h], g & 3), g >> 2 ? c.form.x >> 16 : c.form.x,
                                           c.form.y),
                          d = __float2half2_rn(c.d[h] * (e ? __high2float(s) : __low2float(s)));
            const uint32_t w = r.w.get(h, e) >> (16 * q), hi = bytes_of_16(c.t[0], w),
                           lo = bytes_of_16(c.t[1], w);
            a[h] = half2_word(__hmul2(as_half2(__byte_perm(lo, hi, 0x5140)), d));
            a[h + 2] = half2_word(__hmul2(as_half2(__byte_perm(lo, hi, 0x7362)), d));
        }
    }
};
