// Q6_K: codes of six bits with a sign, a scale of eight bits for 16 columns, d for 256.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_Q6_K> { // code in two's complement of 6 bits
    DEV const block_Q6_K &b(const uint8_t *r, int k) { return ((const block_Q6_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        const block_Q6_K &x = b(r, k);
        int i = k & 255, half = i >> 7, quarter = (i >> 5) & 3, l = i & 31;
        int lo = x.ql[half * 64 + (quarter & 1) * 32 + l], hi = x.qh[half * 32 + l];
        return ((quarter & 2 ? lo >> 4 : lo & 15) | (hi >> (2 * quarter) & 3) << 4) - 32;
    }
    DEV int scale(const uint8_t *r, int k) { return b(r, k).sc[(k & 255) >> 4]; }
    DEV uint32_t d(const uint8_t *r, int k) { return b(r, k).d; }
};

// A scale for 16 columns, row * 16 + tig * 4: scale + 128 of groups (tig, e = 0, 1), (tig + 4, e = 0, 1); then d[row]. Codes come
// out as halves of code + OFF.
template <int CODES, int MORE, int OFF> struct sixteen_format : unit_format<CODES, MORE> {
    static constexpr bool whole_units = true, whole = true;
    static constexpr int n_scale = 4, at = (CODES + MORE) * 512;
    template <class S> DEV void put_scales(uint8_t *u, int row, const uint8_t *s, int k0) {
        for (int g = 0; g < 8; g++)
            for (int e = 0; e < 2; e++)
                u[at + row * 16 + (g & 3) * 4 + (g >> 2) * 2 + e] =
                    (uint8_t)(S::scale(s, k0 + g * 32 + e * 16) + 128);
        *(uint16_t *)(u + at + 256 + row * 2) = S::d(s, k0);
    }
    DEV float scale(const uint8_t *u, int row, int k) {
        int sc = (int)u[at + row * 16 + group_place(k) + (k >> 4 & 1)] - 128;
        return half_bits(load_u16(u + at + 256 + row * 2)) * (float)sc;
    }
    DEV float range(const uint8_t *u, int i) {
        return i < 16 ? 128 * fabsf(half_bits(*(const uint16_t *)(u + 256 + i * 2))) : 0;
    }
    // pairs {scale of the first 16 columns, of the last}
    DEV void factors(uint32_t (&own)[2], const uint8_t *u, int row, int tig, float up) {
        u += at;
        const uint32_t w = *(const uint32_t *)(u + row * 16 + tig * 4);
        const float k = half_bits(*(const uint16_t *)(u + 256 + row * 2)) * up;
        float s[4];
#pragma unroll
        for (int i = 0; i < 4; i++) s[i] = byte_float_less_128(w, i) * k;
        own[0] = pack_half2(s[0], s[1]);
        own[1] = pack_half2(s[2], s[3]);
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[2], int g, int from) {
        const __half2 w = as_half2(__shfl_sync(~0u, own[g >> 2], from)),
                      n = __hmul2(w, as_half2(OFF == 32 ? 0x80208020u : 0x80048004u)); // -OFF * 2^-24
        s[0] = __low2half2(w), s[1] = __high2half2(w);
        m[0] = __low2half2(n), m[1] = __high2half2(n);
    }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&m)[2], const uint8_t *u, int gid, int tig) {
        u += at;
#pragma unroll
        for (int r = 0; r < 2; r++) s[r].x = *(const uint32_t *)(u + (gid + 8 * r) * 16 + tig * 4);
        m[0] = *(const uint16_t *)(u + 256 + gid * 2) | *(const uint16_t *)(u + 272 + gid * 2) << 16;
    }
    DEV void row_scale(float (&k)[4], uint32_t w) {
#pragma unroll
        for (int i = 0; i < 4; i++) k[i] = byte_float_less_128(w, i);
    }
    DEV float row_d(const uint4 &, const uint32_t (&m)[2], int r) {
        return half_bits(r ? m[0] >> 16 : m[0] & 0xffff);
    }
};
// C: prompt_piece, prompt_word(word, low word, g): four codes + OFF.
template <class C, int OFF> struct sixteen_operands {
    static constexpr int order = ORDER_CODES, unit = C::scales + 288, at_scale = C::scales;
    struct raw {
        words w, low;
    };
    struct scales {
        uint4 v[2];
        float d[2];
    }; // scale + 128: byte tig * 4 + (g / 4) * 2 + e
    static constexpr int n_piece = 2, piece_bytes = 512;
    DEV int piece(int p, int i) { return C::prompt_piece(p, i); }
    DEV void load(raw &r, const slab &s, uint32_t at) {
        r.w.load(s, at);
        r.low.load(s, at + 512);
    }
    DEV void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at;
            c.v[h] = ldg16(u + at_scale + slab_row(h) * 16);
            c.d[h] = half_bits(__ldg((const unsigned short *)(u + at_scale + 256 + slab_row(h) * 2)));
        }
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t word = t < 2 ? (t ? c.v[h].y : c.v[h].x) : (t & 1 ? c.v[h].w : c.v[h].z);
            int sc = (int)((word >> (16 * (g >> 2) + 8 * e)) & 255u) - 128;
            uint32_t w = C::prompt_word(r.w.get(h, e), g);
            w |= (r.low.get(h, e) >> (2 * t)) & 0x03030303u;
            scaled(w, biased(OFF), __float2half2_rn(c.d[h] * (float)sc), a[h], a[h + 2]);
        }
    }
};

template <> struct format<LAYOUT_Q6K> : sixteen_format<4, 2, 32> {
    static constexpr int slots = 1, glu_slots = 1;
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_nibbles(u, row, [&](int j) { return code(j) >> 2; });
        put_planes<2, 4>(u + 2048, row, code);
        put_scales<S>(u, row, s, k0);
    }
    DEV float value(const uint8_t *u, int row, int k) {
        const int g = k >> 5;
        int lo = u[2048 + (g >> 2) * 512 + unit_code_byte(row, k)] >> (2 * (g & 3)) & 3;
        int c = ((unit_nibble(u, row, k) << 2 | lo) ^ 32) - 32;
        return scale(u, row, k) * (float)c;
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t x, int g) {
        return lop3<LOP_AND_XOR>(g & 1 ? v >> 2 : v << 2, 0x003c003cu,
                                 lop3<LOP_AND_XOR>(x >> 2 * (g & 3), 0x00030003u, 0x00200020u));
    }
    DEV uint32_t int_code(uint32_t w, uint32_t x, int g) { // 4 times the code
        const int q = g & 3;
        const uint32_t lo = (q == 0 ? x << 2 : q == 1 ? x : q == 2 ? x >> 2 : x >> 4) & 0x0c0c0c0cu;
        return lop3<LOP_AND_OR>(g & 1 ? w : w << 4, 0xf0f0f0f0u, lo);
    }
    DEV float code_factor(int) { return 0.25f; }
    DEV int prompt_piece(int p, int i) { return i ? 2048 + (p >> 1) * 512 : p * 512; }
    DEV uint32_t prompt_word(uint32_t w, int g) {
        return (((w >> (4 * (g & 1))) & 0x0f0f0f0fu) ^ 0x08080808u) << 2;
    }
};
template <> struct operands<LAYOUT_Q6K> : sixteen_operands<format<LAYOUT_Q6K>, 32> {};
