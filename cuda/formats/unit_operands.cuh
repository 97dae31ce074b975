// Weights of prompt rows as A operands: units of unit_layout.h to half fragments of mma.m16n8k16 / wgmma.m64k16 in registers.
// Codes come through shared memory (64 columns of a row tile at a time, as they lie in the unit), scales from global memory
// a unit ahead.
//
// A warp's slab is 16 rows: fragment rows 0..7 ("lo") and 8..15 ("hi"). Plain: both from one row tile. Paired (gate
// and up interleaved by tiles of 16): lo is half h of the gate tile, hi is half h of the up tile, so that one thread
// ends up with both factors of a gated unit. Halves interleave gate and up by 8 rows inside a tile: plain there.
//
// Columns: a step is 16 columns; a lane's logical columns 2t, 2t+1, 2t+8, 2t+9 (t = lane & 3) of step e are whichever four
// neighbours its words hold. Activations are stored in that order.
#pragma once
#include "cuda/common/prompt_tiles.cuh"
#define DEV_ __device__ __forceinline__

// bytes 0,1 (or 2,3) of w, below 1024, as halves minus bias: exact
DEV __half2 bytes_half(uint32_t w, int pair, uint32_t bias) {
    return __hsub2(as_half2(__byte_perm(w, 0x64646464u, pair ? 0x4342 : 0x4140)), as_half2(bias));
}
DEV uint32_t biased(int b) // 1024 + b, twice
{
    uint32_t h = 0x6400u + (uint32_t)b;
    return h | h << 16;
}
// Volatile: a load stays where it is written, ahead of the products that hide its latency.
DEV uint4 ldg16(const uint8_t *p) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
DEV uint2 ldg8(const uint8_t *p) {
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
DEV uint32_t pick(const uint4 &v, int e, int h) { return e ? (h ? v.w : v.z) : (h ? v.y : v.x); }

// Where a warp reads.
struct slab {
    const uint8_t *first; // unit of the row tile
    int at;               // bytes from the start of a stage to the row tile's codes
};

// Tiles of activations that one unit of weights meets.
template <int L> constexpr int tiles_per_unit = L == LAYOUT_F32 ? 8 : 4;
// frag<L>: raw registers of 64 columns, scales of a unit, conversion of one step of 16 columns.
//   pieces, piece(p, i)   what 64 columns p = 0..3 of a unit are: n_piece runs of piece_bytes at these offsets
//   load(raw, slab, stage)   scale(scales, slab, unit offset)   step(raw, scales, slab, p, s = 0..3, a[4])
template <int L> struct frag;
DEV uint4 lds16(uint32_t p) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(p));
    return v;
}

struct words { // 16 bytes of code words
    uint4 v;
    DEV_ uint32_t get(int hi_row, int e) const { return pick(v, e, hi_row); }
    DEV_ void load(const slab &s, uint32_t at) { v = lds16(at + s.at + (threadIdx.x & 31) * 16); }
};
DEV int slab_row(int hi_row) { return ((threadIdx.x & 31) >> 2) + 8 * hi_row; }

struct prompt_halves {
    static constexpr int unit = 8192, order = ORDER_HALVES;
    struct raw {
        uint4 v[2][2];
    }; // [group of 32][row half]
    struct scales {};
    static constexpr int n_piece = 1, piece_bytes = 2048;
    DEV_ static int piece(int p, int) { return p * 2048; }
    DEV_ static void load(raw &r, const slab &s, uint32_t at) {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int q = 0; q < 2; q++)
#pragma unroll
            for (int h = 0; h < 2; h++) r.v[q][h] = lds16(at + s.at + (2 * q + h) * 512 + lane * 16);
    }
    DEV_ static void scale(scales &, const slab &, size_t) {}
    DEV_ static void step(const raw &r, const scales &, const slab &, int, int s, uint32_t a[4]) {
        int e = s & 1;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 &v = r.v[s >> 1][h];
            a[h] = e ? v.z : v.x;
            a[h + 2] = e ? v.w : v.y;
        }
    }
};
template <> struct frag<LAYOUT_F16> : prompt_halves {};
// bfloat16 as halves: exact but below 2^-14, where 2^-25 is lost, and above 65504, which becomes infinite
DEV uint32_t half2_of_bf16(uint32_t w) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;"
        : "=r"(r)
        : "f"(__uint_as_float(w & 0xffff0000u)), "f"(__uint_as_float(w << 16)));
    return r;
}
template <> struct frag<LAYOUT_BF16> : prompt_halves {
    using base = prompt_halves;
    DEV_ static void step(const base::raw &r, const base::scales &c, const slab &s, int p, int st,
                          uint32_t a[4]) {
        base::step(r, c, s, p, st, a);
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = half2_of_bf16(a[i]);
    }
};
// float32 goes to the tensor cores as it lies in shared memory: only where its pieces are
template <> struct frag<LAYOUT_F32> {
    static constexpr int unit = 16384, order = ORDER_FLOATS, n_piece = 1, piece_bytes = 2048;
    DEV_ static int piece(int p, int) { return p * 2048; }
};

// four codes of one row as two registers: (code - bias) * d, or code * d + m
DEV void scaled(uint32_t w, uint32_t bias, __half2 d, uint32_t &a, uint32_t &b) {
    a = half2_word(__hmul2(bytes_half(w, 0, bias), d));
    b = half2_word(__hmul2(bytes_half(w, 1, bias), d));
}
DEV void shifted(uint32_t w, __half2 d, __half2 m, uint32_t &a, uint32_t &b) {
    a = half2_word(__hfma2(bytes_half(w, 0, biased(0)), d, m));
    b = half2_word(__hfma2(bytes_half(w, 1, biased(0)), d, m));
}
DEV __half2 half_of(const uint4 &v, int i) // half i of 8, twice
{
    uint32_t w = i < 4 ? (i < 2 ? v.x : v.y) : (i < 6 ? v.z : v.w);
    return as_half2(__byte_perm(w, 0, i & 1 ? 0x3232 : 0x1010));
}
DEV int group_index(int g) { return (g & 3) * 2 + (g >> 2); } // order of scales in unit_layout.h

// Q4, IQ4 and Q8: one scale a group
template <int L, bool WIDE> struct frag_d {
    static constexpr int order = ORDER_CODES, unit = WIDE ? 4352 : 2304, codes = WIDE ? 4096 : 2048;
    struct raw {
        words w[WIDE ? 2 : 1];
    };
    struct scales {
        uint4 v[2];
    };
    static constexpr int n_piece = 1, piece_bytes = WIDE ? 1024 : 512;
    DEV_ static int piece(int p, int) { return p * piece_bytes; }
    DEV_ static void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        if (WIDE) r.w[WIDE].load(s, at + 512);
    }
    DEV_ static void scale(scales &c, const slab &s, size_t at) {
        c.v[0] = ldg16(s.first + at + codes + slab_row(0) * 16);
        c.v[1] = ldg16(s.first + at + codes + slab_row(1) * 16);
    }
    DEV_ static void step(const raw &r, const scales &c, const slab &s, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w;
            if (WIDE)
                w = r.w[WIDE ? q : 0].get(h, e) ^ 0x80808080u;
            else if (L == LAYOUT_IQ4)
                w = iq4_levels(r.w[0].get(h, e) >> (16 * q)) ^ 0x80808080u;
            else
                w = ((r.w[0].get(h, e) >> (4 * q)) & 0x0f0f0f0fu) ^ 0x08080808u;
            scaled(w, biased(WIDE || L == LAYOUT_IQ4 ? 128 : 8), half_of(c.v[h], group_index(2 * p + q)),
                   a[h], a[h + 2]);
        }
    }
};
template <> struct frag<LAYOUT_Q4> : frag_d<LAYOUT_Q4, false> {};
template <> struct frag<LAYOUT_Q8> : frag_d<LAYOUT_Q8, true> {};
template <> struct frag<LAYOUT_IQ4> : frag_d<LAYOUT_IQ4, false> {};

// Q4M and Q8M: scale and minimum a group; row * 32 + tig * 8: d[tig] d[tig + 4] m[tig] m[tig + 4]
template <int L, bool WIDE> struct frag_dm {
    static constexpr int order = ORDER_CODES, unit = WIDE ? 4608 : 2560, codes = WIDE ? 4096 : 2048;
    struct raw {
        words w[WIDE ? 2 : 1];
    };
    struct scales {
        uint2 v[2][4];
    }; // [row half][tig]
    static constexpr int n_piece = 1, piece_bytes = WIDE ? 1024 : 512;
    DEV_ static int piece(int p, int) { return p * piece_bytes; }
    DEV_ static void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        if (WIDE) r.w[WIDE].load(s, at + 512);
    }
    DEV_ static void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *p = s.first + at + codes + slab_row(h) * 32;
#pragma unroll
            for (int t = 0; t < 4; t++) c.v[h][t] = ldg8(p + t * 8);
        }
    }
    DEV_ static void step(const raw &r, const scales &c, const slab &s, int p, int st, uint32_t a[4]) {
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
template <> struct frag<LAYOUT_Q4M> : frag_dm<LAYOUT_Q4M, false> {};
template <> struct frag<LAYOUT_Q8M> : frag_dm<LAYOUT_Q8M, true> {};

// Q4K and Q5K: d sc q - dmin m
template <int L> struct frag_k {
    static constexpr bool FIFTH = L == LAYOUT_Q5K;
    static constexpr int order = ORDER_CODES, unit = FIFTH ? 2816 : 2304;
    struct raw {
        words w[FIFTH ? 2 : 1];
    };
    struct scales {
        uint4 v[2];
    }; // d dmin | s1[4] | s2[4] | h[4]
    static constexpr int n_piece = FIFTH ? 2 : 1, piece_bytes = 512;
    DEV_ static int piece(int p, int i) { return i ? 2048 : p * 512; }
    DEV_ static void load(raw &r, const slab &s, uint32_t at) {
        r.w[0].load(s, at);
        if (FIFTH) r.w[FIFTH].load(s, at + 512);
    }
    DEV_ static void scale(scales &c, const slab &s, size_t at) {
        c.v[0] = ldg16(s.first + at + (FIFTH ? 2560 : 2048) + slab_row(0) * 16);
        c.v[1] = ldg16(s.first + at + (FIFTH ? 2560 : 2048) + slab_row(1) * 16);
    }
    DEV_ static void step(const raw &r, const scales &c, const slab &s, int p, int st, uint32_t a[4]) {
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
template <> struct frag<LAYOUT_Q4K> : frag_k<LAYOUT_Q4K> {};
template <> struct frag<LAYOUT_Q5K> : frag_k<LAYOUT_Q5K> {};

// Q6K and Q3K: d sc q, a scale for 16 columns
template <int L> struct frag_six {
    static constexpr bool THREE = L == LAYOUT_Q3K;
    static constexpr int order = ORDER_CODES, unit = THREE ? 1824 : 3360, at_scale = THREE ? 1536 : 3072;
    struct raw {
        words w, low;
    };
    struct scales {
        uint4 v[2];
        float d[2];
    }; // scale + 128: byte tig * 4 + (g / 4) * 2 + e
    static constexpr int n_piece = 2, piece_bytes = 512;
    DEV_ static int piece(int p, int i) {
        return THREE ? (i ? (p >> 1) * 512 : 1024) : i ? 2048 + (p >> 1) * 512 : p * 512;
    }
    DEV_ static void load(raw &r, const slab &s, uint32_t at) {
        r.w.load(s, at);
        r.low.load(s, at + 512);
    }
    DEV_ static void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at;
            c.v[h] = ldg16(u + at_scale + slab_row(h) * 16);
            c.d[h] = half_bits(__ldg((const unsigned short *)(u + at_scale + 256 + slab_row(h) * 2)));
        }
    }
    DEV_ static void step(const raw &r, const scales &c, const slab &s, int p, int st, uint32_t a[4]) {
        int q = st >> 1, e = st & 1, g = 2 * p + q, t = g & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t word = t < 2 ? (t ? c.v[h].y : c.v[h].x) : (t & 1 ? c.v[h].w : c.v[h].z);
            int sc = (int)((word >> (16 * (g >> 2) + 8 * e)) & 255u) - 128;
            uint32_t w = THREE ? ((r.w.get(h, e) >> g & 0x01010101u) ^ 0x01010101u) << 2
                               : (((r.w.get(h, e) >> (4 * q)) & 0x0f0f0f0fu) ^ 0x08080808u) << 2;
            w |= (r.low.get(h, e) >> (2 * t)) & 0x03030303u;
            scaled(w, biased(THREE ? 4 : 32), __float2half2_rn(c.d[h] * (float)sc), a[h], a[h + 2]);
        }
    }
};
template <> struct frag<LAYOUT_Q6K> : frag_six<LAYOUT_Q6K> {};
template <> struct frag<LAYOUT_Q3K> : frag_six<LAYOUT_Q3K> {};

template <> struct frag<LAYOUT_Q2K> {
    static constexpr int order = ORDER_CODES, unit = 1344;
    struct raw {
        words w;
    };
    struct scales {
        uint4 v[2];
        uint32_t d[2];
    }; // sc | m << 4: byte 4 (g & 3) + 2 (g >> 2) + e
    static constexpr int n_piece = 1, piece_bytes = 512;
    DEV_ static int piece(int p, int) { return (p >> 1) * 512; }
    DEV_ static void load(raw &r, const slab &s, uint32_t at) { r.w.load(s, at); }
    DEV_ static void scale(scales &c, const slab &s, size_t at) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint8_t *u = s.first + at;
            c.v[h] = ldg16(u + 1024 + slab_row(h) * 16);
            c.d[h] = __ldg((const uint32_t *)(u + 1280 + slab_row(h) * 4));
        }
    }
    DEV_ static void step(const raw &r, const scales &c, const slab &s, int p, int st, uint32_t a[4]) {
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
