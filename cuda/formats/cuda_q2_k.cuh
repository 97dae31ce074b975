// Q2_K: codes of two bits, scale and minimum of four bits for 16 columns, d and dmin for 256.
#pragma once
#include "cuda/formats/unit.cuh"

template <> struct src<QUANT_Q2_K> {
    DEV const block_Q2_K &b(const uint8_t *r, int k) { return ((const block_Q2_K *)r)[k >> 8]; }
    DEV int code(const uint8_t *r, int k) {
        int i = k & 255;
        return b(r, k).q[(i >> 7) * 32 + (i & 31)] >> (2 * ((i >> 5) & 3)) & 3;
    }
};

// row * 16 + tig * 4: sc | m << 4 of groups (tig, e = 0, 1), (tig + 4, e = 0, 1); then d, dmin of each row
template <> struct format<LAYOUT_Q2K> : unit_format<2, 0> {
    static constexpr bool whole_units = true, is_signed = false, whole = true;
    static constexpr unit_mins mins = MINS_FOUR;
    static constexpr int glu_slots = 4; // small units: twice as many of them
    static constexpr int n_scale = 4, n_factor = 4;
    template <class S, class F> DEV void repack(uint8_t *u, int row, const uint8_t *s, int k0, int, F code) {
        put_planes<2, 4>(u, row, code);
        const block_Q2_K &b = S::b(s, k0);
        for (int j = 0; j < 16; j++) // group j / 2, e = j & 1
            u[1024 + row * 16 + (j >> 1 & 3) * 4 + (j >> 3) * 2 + (j & 1)] = b.sc[j];
        ((uint16_t *)(u + 1280 + row * 4))[0] = b.d;
        ((uint16_t *)(u + 1280 + row * 4))[1] = b.dmin;
    }
    DEV float value(const uint8_t *u, int row, int k) {
        const int g = k >> 5;
        int c = u[(g >> 2) * 512 + unit_code_byte(row, k)] >> (2 * (g & 3)) & 3,
            s = u[1024 + row * 16 + group_place(k) + (k >> 4 & 1)];
        const uint8_t *d = u + 1280 + row * 4;
        return half_bits(load_u16(d)) * (float)(s & 15) * (float)c -
               half_bits(load_u16(d + 2)) * (float)(s >> 4);
    }
    DEV float range(const uint8_t *u, int i) {
        if (i >= 16) return 0;
        const float2 d = half2_bits(*(const uint32_t *)(u + 256 + i * 4));
        return 15 * fmaxf(fabsf(d.x), fabsf(d.y) * 0x1p-24f);
    }
    DEV void factors(uint32_t (&own)[4], const uint8_t *u, int row, int tig, float up) {
        u += scales;
        const float2 d = half2_bits(*(const uint32_t *)(u + 256 + row * 4));
        const float k = d.x * (up * __uint_as_float((127 - 2 * tig) << 23)), n = d.y * (up * -0x1p-24f);
        const uint32_t w = *(const uint32_t *)(u + row * 16 + tig * 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t b = w >> (8 * i) & 255;
            own[i] = pack_half2((float)(b & 15) * k, (float)(b >> 4) * n);
        }
    }
    DEV void spread(__half2 (&s)[2], __half2 (&m)[2], const uint32_t (&own)[4], int g, int from) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const __half2 w = as_half2(__shfl_sync(~0u, own[(g >> 2) * 2 + e], from));
            s[e] = __low2half2(w), m[e] = __high2half2(w);
        }
    }
    DEV uint32_t code_halves(uint32_t v, uint32_t, int g) { return v & 0x00030003u << 2 * (g & 3); }
    DEV void int_scales(uint4 (&s)[2], uint32_t (&m)[2], const uint8_t *u, int gid, int tig) {
        u += scales;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            s[r].x = *(const uint32_t *)(u + (gid + 8 * r) * 16 + tig * 4);
            m[r] = *(const uint32_t *)(u + 256 + (gid + 8 * r) * 4); // d, dmin
        }
    }
    DEV uint32_t int_code(uint32_t w, uint32_t, int g) { return w & 0x03030303u << 2 * (g & 3); }
    DEV float code_factor(int p) { return __uint_as_float((127 - 2 * p) << 23); }
    DEV void row_scale(float (&k)[4], uint32_t w) {
#pragma unroll
        for (int i = 0; i < 4; i++) k[i] = byte_float(w & 0x0f0f0f0fu, i);
    }
    DEV float row_d(const uint4 &, const uint32_t (&m)[2], int r) { return half_bits(m[r] & 0xffff); }
};

template <> struct operands<LAYOUT_Q2K> {
    static constexpr int order = ORDER_CODES, unit = 1344;
    struct raw {
        words w;
    };
    struct scales {
        uint4 v[2];
        uint32_t d[2];
    }; // sc | m << 4: byte 4 (g & 3) + 2 (g >> 2) + e
    static constexpr int n_piece = 1, piece_bytes = 512;
    DEV int piece(int p, int) { return (p >> 1) * 512; }
    DEV void load(raw &r, const slab &s, uint32_t at) { r.w.load(s, at); }
    DEV void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at;
            c.v[h] = ldg16(u + 1024 + slab_row(h) * 16);
            c.d[h] = __ldg((const uint32_t *)(u + 1280 + slab_row(h) * 4));
        }
    }
    DEV void step(const raw &r, const scales &c, const slab &, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t word = t < 2 ? (t ? c.v[h].y : c.v[h].x) : (t == 2 ? c.v[h].z : c.v[h].w);
            uint32_t b = (word >> (16 * (g >> 2) + 8 * e)) & 255u;
            float2 d = half2_bits(c.d[h]);
            uint32_t w = (r.w.get(h, e) >> (2 * t)) & 0x03030303u;
            shifted(w, __float2half2_rn(d.x * (float)(b & 15u)), __float2half2_rn(-d.y * (float)(b >> 4)),
                    a[h], a[h + 2]);
        }
    }
};

template <> struct few_lane<LAYOUT_Q2K> { // the words of the int8 operand: rows lane / 4 and + 8
    template <class F> static MEM void unit(const uint8_t *u, int lane, F add) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int r = row(lane, i);
            float2 d = half2_bits(*(const uint32_t *)(u + 1280 + r * 4));
            uint4 sc = *(const uint4 *)(u + 1024 + r * 16);
            const uint32_t scale[4] = {sc.x, sc.y, sc.z, sc.w};
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    uint32_t w = *(const uint32_t *)(u + h * 512 + lane * 16 + (2 * e + i) * 4);
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        int g = 4 * h + q;
                        uint32_t s = scale[q] >> (16 * h + 8 * e);
                        float a = d.x * (float)(s & 15u), m = -d.y * (float)(s >> 4 & 15u);
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            add(i, 32 * g + 16 * e + 4 * (lane & 3) + j,
                                fmaf(a, (float)(w >> (8 * j + 2 * q) & 3u), m));
                    }
                }
        }
    }
    static MEM int row(int lane, int i) { return (lane >> 2) + 8 * i; }
    static constexpr int n_row = 2, share = 4;
};
