// A unit of weights in registers: codes as the operand of an int8 product, and the work with scales.
#pragma once
#include "util.cuh"

template <bool B, class X, class Y> struct conditional_type { using type = X; };
template <class X, class Y> struct conditional_type<false, X, Y> { using type = Y; };
template <bool B, class X, class Y> using conditional_t = typename conditional_type<B, X, Y>::type;

enum { MAGIC = 0x4b400000 }; // 1.5 * 2^23: an int32 accumulator that starts here reads as a float

// ---- one unit of weights in registers
template <int L> struct frag {
    static constexpr bool half = L == LAYOUT_F16 || L == LAYOUT_BF16;
    static constexpr bool wide = L == LAYOUT_Q8 || L == LAYOUT_Q8M;
    static constexpr bool mins = L == LAYOUT_Q4M || L == LAYOUT_Q8M;
    static constexpr bool super = L == LAYOUT_Q4K || L == LAYOUT_Q5K;
    static constexpr bool six = L == LAYOUT_Q6K || L == LAYOUT_Q3K; // a scale of 8 bits for 16 columns
    static constexpr bool is_signed = wide || six || L == LAYOUT_Q4 || L == LAYOUT_IQ4;
    static constexpr int NC = half              ? 16
                              : wide            ? 8
                              : L == LAYOUT_Q3K ? 2
                                                : 4,
                         NX = L == LAYOUT_Q6K                      ? 2
                              : L == LAYOUT_Q5K || L == LAYOUT_Q3K ? 1
                                                                   : 0;
    uint4 c[NC], x[NX ? NX : 1], s[2];
    uint4 m[mins ? 2 : 1]; // minimums, or d of Q6K and Q3K in m[0].x
};
// Part of the codes that group g is in.
template <int L> DEV constexpr int code_part(int g) {
    return frag<L>::wide ? g : L == LAYOUT_Q3K ? g >> 2 : g >> 1;
}
template <int L> DEV void load_part(frag<L> &f, const uint8_t *u, int part, int lane) {
    f.c[part] = *(const uint4 *)(u + part * 512 + lane * 16);
}
// All but the codes. ONE: for one row, where a lane needs the scales of groups tig and tig + 4 alone: they come as word 0.
template <int L, bool ONE> DEV void load_scales(frag<L> &f, const uint8_t *u, int lane) {
    using F = frag<L>;
    const int gid = lane >> 2, tig = lane & 3;
    constexpr int X = F::NC * 512, S = X + F::NX * 512;
#pragma unroll
    for (int i = 0; i < F::NX; i++) f.x[i] = *(const uint4 *)(u + X + i * 512 + lane * 16);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if constexpr (F::mins && ONE) {
            const uint2 a = *(const uint2 *)(u + S + (gid + 8 * r) * 32 + tig * 8);
            f.s[r].x = a.x;
            f.m[r].x = a.y;
        } else if constexpr (F::mins) {
            const uint4 a = *(const uint4 *)(u + S + (gid + 8 * r) * 32),
                        b = *(const uint4 *)(u + S + (gid + 8 * r) * 32 + 16);
            f.s[r] = make_uint4(a.x, a.z, b.x, b.z);
            f.m[r] = make_uint4(a.y, a.w, b.y, b.w);
        } else if constexpr (ONE && !F::super)
            f.s[r].x = *(const uint32_t *)(u + S + (gid + 8 * r) * 16 + tig * 4);
        else
            f.s[r] = *(const uint4 *)(u + S + (gid + 8 * r) * 16);
    }
    if constexpr (F::six)
        f.m[0].x = *(const uint16_t *)(u + S + 256 + gid * 2) |
                   *(const uint16_t *)(u + S + 256 + gid * 2 + 16) << 16;
}
template <int L, bool ONE> DEV void frag_load(frag<L> &f, const uint8_t *u, int lane) {
#pragma unroll
    for (int i = 0; i < frag<L>::NC; i++) load_part<L>(f, u, i, lane);
    if constexpr (!frag<L>::half) load_scales<L, ONE>(f, u, lane);
}
DEV uint32_t word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
// int8 operand of group g; 16 times the code where fac below says so
template <int L> DEV void codes(uint32_t (&a)[4], const frag<L> &f, int g) {
    using F = frag<L>;
    const uint4 c = f.c[code_part<L>(g)];
    const uint32_t w[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (F::wide)
            a[i] = w[i];
        else if constexpr (L == LAYOUT_Q4)
            a[i] = (g & 1 ? w[i] : w[i] << 4) & 0xf0f0f0f0u;
        else if constexpr (L == LAYOUT_Q4M || L == LAYOUT_Q4K)
            a[i] = w[i] & (g & 1 ? 0xf0f0f0f0u : 0x0f0f0f0fu);
        else if constexpr (L == LAYOUT_Q5K) {
            const uint32_t x = word_of(f.x[0], i);
            a[i] = lop3<LOP_AND_OR>(g < 4 ? x << (4 - g) : x >> (g - 4), 0x10101010u,
                                    (g & 1 ? w[i] >> 4 : w[i]) & 0x0f0f0f0fu);
        } else if constexpr (L == LAYOUT_IQ4)
            a[i] = iq4_levels(g & 1 ? w[i] >> 16 : w[i]);
        else if constexpr (L == LAYOUT_Q3K) { // 32 times the code
            const int q = g & 3;
            const uint32_t lo = (q == 3 ? w[i] >> 1 : w[i] << (5 - 2 * q)) & 0x60606060u;
            a[i] = lop3<LOP_AND_OR>(word_of(f.x[0], i) << (7 - g), 0x80808080u, lo);
        } else { // Q6K: 4 times the code
            const uint32_t x = word_of(f.x[g >> 2], i);
            const int q = g & 3;
            const uint32_t lo = (q == 0 ? x << 2 : q == 1 ? x : q == 2 ? x >> 2 : x >> 4) & 0x0c0c0c0cu;
            a[i] = lop3<LOP_AND_OR>(g & 1 ? w[i] : w[i] << 4, 0xf0f0f0f0u, lo);
        }
    }
}
// what the sums of partial p must be multiplied by
template <int L> DEV float code_factor(int p) {
    return L == LAYOUT_Q4                       ? 0.0625f
           : L == LAYOUT_Q4M || L == LAYOUT_Q4K ? (p & 1 ? 0.0625f : 1.f)
           : L == LAYOUT_Q6K                    ? 0.25f
           : L == LAYOUT_Q3K                    ? 0.03125f
                                                : 1.f;
}
template <int L> DEV void mma_int(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (frag<L>::is_signed)
        mma_s8(d, a[0], a[1], a[2], a[3], b0, b1);
    else
        mma_u8(d, a[0], a[1], a[2], a[3], b0, b1);
}
DEV uint32_t less_128(uint32_t v) { // two bfloat16
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(0x3f803f80u), "r"(0xc300c300u));
    return r;
}
// scales of groups tig and tig + 4 of a row of Q4K, Q5K as two bfloat16
DEV uint32_t super_scales(const uint4 &s, int tig) {
    const uint32_t n = s.w >> (8 * tig);
    return less_128((s.y >> (8 * tig + 6) & 3) | (n & 15) << 2 | (s.z >> (8 * tig + 6) & 3) << 16 |
                    (n & 0xf0) << 14 | 0x43004300u); // 128 + s
}
// minimums of groups tig and tig + 4 as two bfloat16
DEV uint32_t super_mins(const uint4 &s, int tig) {
    return less_128((s.y >> (8 * tig) & 63) | (s.z >> (8 * tig) & 63) << 16 | 0x43004300u);
}

// ---- scale work of one lane, for partial p of a row: groups p and p + 4
template <int L> struct row_scales {
    static constexpr int N = frag<L>::six ? 4 : 2;
    float s[N]; // exact: d has 11 bits, a sub-block's scale 8
};
// w: the row's word of scales, for Q4K and Q5K of super_scales; d: where sub-blocks have scales of their own
template <int L> DEV row_scales<L> row_scale(uint32_t w, float d) {
    row_scales<L> k;
    if constexpr (frag<L>::six) {
#pragma unroll
        for (int i = 0; i < 4; i++) // 2^23 + 128
            k.s[i] = (__uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540 + i)) - 8388736.f) * d;
    } else if constexpr (frag<L>::super) {
        k.s[0] = __uint_as_float(w << 16) * d;
        k.s[1] = __uint_as_float(w & 0xffff0000u) * d;
    } else {
        const float2 s = half2_bits(w);
        k.s[0] = s.x, k.s[1] = s.y;
    }
    return k;
}
template <int L> DEV float row_d(const frag<L> &f, int r) {
    if constexpr (frag<L>::six)
        return half_bits(r ? f.m[0].x >> 16 : f.m[0].x & 0xffff);
    else
        return frag<L>::super ? half_bits(f.s[r].x & 0xffff) : 1.f;
}
// Sums v (as accumulators that start at MAGIC; [h * 2 + e], or [h * 2] where a group has one) into acc: the sum of codes
// times the scale of the row's group is exact (20 bits; MAGIC has two, the scale four), then times the weight's scale.
template <int L, int GA>
DEV void add_scaled(float &acc, const row_scales<L> &k, const int (&v)[4], const float (&dx)[4]) {
    constexpr bool halves = GA == 16 || frag<L>::six;
#pragma unroll
    for (int i = 0; i < 4; i += halves ? 1 : 2)
        acc = fmaf(k.s[frag<L>::six ? i : i >> 1],
                   fmaf(dx[i], __int_as_float(v[i]), __fmul_rn(-12582912.f, dx[i])), acc);
}
template <bool G, class V> DEV V load_x(const uint8_t *p) { // G: global memory, written by the kernel before
    if constexpr (G)
        return __ldcg((const V *)p);
    else
        return *(const V *)p;
}
template <bool G>
DEV float sum_value(const uint8_t *sum, int e, int p, int h) // high + low part
{
    const uint32_t hi = load_x<G, uint32_t>(sum + e * 32 + p * 4),
                   lo = load_x<G, uint32_t>(sum + e * 32 + 16 + p * 4);
    return h ? __uint_as_float(hi & 0xffff0000u) + __uint_as_float(lo & 0xffff0000u)
             : bf16_bits(hi & 0xffff) + bf16_bits(lo & 0xffff);
}
template <int GA, bool G = false> DEV void group_sums(const uint8_t *sum, int p, float &s0, float &s1) {
    s0 = sum_value<G>(sum, 0, p, 0);
    s1 = sum_value<G>(sum, 0, p, 1);
    if (GA == 16) {
        s0 += sum_value<G>(sum, 1, p, 0);
        s1 += sum_value<G>(sum, 1, p, 1);
    }
}
template <int GA, bool G = false>
DEV void group_scales(const uint8_t *scale, int p, float (&dx)[4]) // h * 2 + e
{
    if (GA == 32) {
        const float2 v = load_x<G, float2>(scale + p * 8);
        dx[0] = dx[1] = v.x;
        dx[2] = dx[3] = v.y;
    } else {
        const float4 v = load_x<G, float4>(scale + p * 16);
        dx[0] = v.x, dx[1] = v.y, dx[2] = v.z, dx[3] = v.w;
    }
}
