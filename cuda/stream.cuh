// Decode rows: matrix times few vectors as one stream of weights.
//
// Every warp owns a ring of bulk copies and takes units w, w + W, .. of each row tile of its block; the sum over the
// warps goes through shared memory. R row tiles are done in one step; the warp that sums a step finishes it: scale by
// 1/rms, bias, residual, gate, quantisation for the reader that follows (epilogue). Weights never depend on the
// kernel before, so the ring starts before the dependency wait.
//
// One row: the 8 columns of the int8 mma are 8 subgroups of 16 columns of K (block-diagonal B), so no lane repeats
// another's work with scales. Up to 8 rows: the columns are rows. Both sum in one order: partial p of a row holds the
// groups p and p + 4 of each unit, the partials are added as (0 + 1) + (2 + 3), then the warps in order. A row's bits
// do not depend on the number of rows.
#pragma once
#include "packet.cuh"
#include "stream.h"

template <bool B, class X, class Y> struct conditional_type { using type = X; };
template <class X, class Y> struct conditional_type<false, X, Y> { using type = Y; };
template <bool B, class X, class Y> using conditional_t = typename conditional_type<B, X, Y>::type;

enum { MAGIC = 0x4b400000 }; // 1.5 * 2^23: an int32 accumulator that starts here reads as a float
DEV float from_magic(int v) { return __int_as_float(v) - 12582912.f; }

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
// ONE: for one row, where a lane needs the scales of groups tig and tig + 4 alone: they come as word 0.
template <int L, bool ONE> DEV void frag_load(frag<L> &f, const uint8_t *u, int lane) {
    using F = frag<L>;
    const int gid = lane >> 2, tig = lane & 3;
#pragma unroll
    for (int i = 0; i < F::NC; i++) f.c[i] = *(const uint4 *)(u + i * 512 + lane * 16);
    if constexpr (F::half) return;
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
DEV uint32_t word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
// int8 operand of group g; 16 times the code where fac below says so
template <int L> DEV void codes(uint32_t (&a)[4], const frag<L> &f, int g) {
    using F = frag<L>;
    const uint4 c = f.c[F::wide ? g : L == LAYOUT_Q3K ? g >> 2 : g >> 1];
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
template <int L> DEV void mma_int16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    if constexpr (frag<L>::is_signed)
        mma_s8_k16(d, a0, a1, b);
    else
        mma_u8_k16(d, a0, a1, b);
}
DEV float small_uint(uint32_t v) { return __uint_as_float(v | 0x4b000000u) - 8388608.f; } // v < 2^23
// Scales of groups p and p + 4 of a row of Q4K, Q5K; b1, b2, n: bytes p of its words 1, 2, 3 in the low bits
DEV void super_scale(const uint4 &s, int p, float &s0, float &s1) {
    const uint32_t b1 = s.y >> (8 * p), b2 = s.z >> (8 * p), n = s.w >> (8 * p);
    s0 = small_uint((b1 >> 6 & 3) | (n & 15) << 2);
    s1 = small_uint((b2 >> 6 & 3) | (n >> 2 & 60));
}
// minimums of groups tig and tig + 4 as two bfloat16
DEV uint32_t super_mins(const uint4 &s, int tig) {
    const uint32_t v = (s.y >> (8 * tig) & 63) | (s.z >> (8 * tig) & 63) << 16 | 0x43004300u; // 128 + m
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(0x3f803f80u), "r"(0xc300c300u));
    return r;
}

// ---- scale work of one lane: sums t0, t1 (activation scale applied) of groups p and p + 4 of row r into acc
template <int L> DEV void scale_pair(float &acc, const frag<L> &f, int r, int p, float t0, float t1) {
    if constexpr (frag<L>::super) {
        float s0, s1;
        super_scale(f.s[r], p, s0, s1);
        float in = s0 * t0;
        in = fmaf(s1, t1, in);
        acc = fmaf(half_bits(f.s[r].x & 0xffff), in, acc);
    } else {
        const float2 s = half2_bits(word_of(f.s[r], p));
        acc = fmaf(s.x, t0, acc);
        acc = fmaf(s.y, t1, acc);
    }
}
// Q6K: sums f[h][e] with their activation scales
template <int L>
DEV void scale_six(float &acc, const frag<L> &f, int r, int p, const float (&v)[4], const float (&dx)[4]) {
    const uint32_t w = word_of(f.s[r], p);
    float in = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float s = __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540 + i)) - 8388736.f; // 2^23 + 128
        in = i ? fmaf(s * dx[i], v[i], in) : (s * dx[0]) * v[0];
    }
    acc = fmaf(half_bits(r ? f.m[0].x >> 16 : f.m[0].x & 0xffff), in, acc);
}
template <bool G, class V> DEV V load_x(const uint8_t *p) { // G: global memory, written by the kernel before
    if constexpr (G)
        return __ldcg((const V *)p);
    else
        return *(const V *)p;
}
template <bool G>
DEV float sum_value(const uint8_t *rec, int e, int p, int h) // high + low part
{
    const uint32_t hi = load_x<G, uint32_t>(rec + REC_SUM + e * 32 + p * 4),
                   lo = load_x<G, uint32_t>(rec + REC_SUM + e * 32 + 16 + p * 4);
    return h ? __uint_as_float(hi & 0xffff0000u) + __uint_as_float(lo & 0xffff0000u)
             : bf16_bits(hi & 0xffff) + bf16_bits(lo & 0xffff);
}
template <int GA, bool G = false> DEV void group_sums(const uint8_t *rec, int p, float &s0, float &s1) {
    s0 = sum_value<G>(rec, 0, p, 0);
    s1 = sum_value<G>(rec, 0, p, 1);
    if (GA == 16) {
        s0 += sum_value<G>(rec, 1, p, 0);
        s1 += sum_value<G>(rec, 1, p, 1);
    }
}
template <int GA, bool G = false>
DEV void group_scales(const uint8_t *rec, int p, float (&dx)[4]) // h * 2 + e
{
    if (GA == 32) {
        const float2 v = load_x<G, float2>(rec + REC_SCALE + p * 8);
        dx[0] = dx[1] = v.x;
        dx[2] = dx[3] = v.y;
    } else {
        const float4 v = load_x<G, float4>(rec + REC_SCALE + p * 16);
        dx[0] = v.x, dx[1] = v.y, dx[2] = v.z, dx[3] = v.w;
    }
}

// ---- a unit times one row: acc[r][0] sums, acc[r][1] minimums, of partial tig
template <int L, int GA, int R> struct one_row {
    float acc[R][2][2];
    uint32_t mask[8];
    MEM void start(int lane) {
#pragma unroll
        for (int i = 0; i < 8; i++) mask[i] = lane >> 2 == i ? ~0u : 0u;
    }
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][0][0] = acc[h][0][1] = acc[h][1][0] = acc[h][1][1] = 0;
    }
    MEM void unit(const frag<L> (&f)[R], const uint8_t *rec, int lane) {
        using F = frag<L>;
        const int tig = lane & 3;
        const uint2 b = *(const uint2 *)(rec + lane * 8);
        float dx[4], sx[2] = {};
        group_scales<GA>(rec, tig, dx);
        if constexpr (F::mins) group_sums<GA>(rec, tig, sx[0], sx[1]);
        int d[R][2][4];
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int i = 0; i < 4; i++) d[h][0][i] = d[h][1][i] = MAGIC;
#pragma unroll
        for (int q = 0; q < 4; q++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t bw = i ? b.y : b.x, b0 = bw & mask[2 * q], b1 = bw & mask[2 * q + 1];
#pragma unroll
                for (int h = 0; h < R; h++) {
                    uint32_t a[4];
                    codes<L>(a, f[h], i * 4 + q);
                    mma_int<L>(d[h][i], a, b0, b1);
                }
            }
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float v[4] = {from_magic(d[h][0][2 * r]), from_magic(d[h][0][2 * r + 1]),
                                    from_magic(d[h][1][2 * r]), from_magic(d[h][1][2 * r + 1])};
                if constexpr (F::six)
                    scale_six(acc[h][r][0], f[h], r, 0, v, dx);
                else {
                    const float t0 = GA == 32 ? dx[0] * (v[0] + v[1]) : fmaf(dx[1], v[1], dx[0] * v[0]);
                    const float t1 = GA == 32 ? dx[2] * (v[2] + v[3]) : fmaf(dx[3], v[3], dx[2] * v[2]);
                    scale_pair(acc[h][r][0], f[h], r, F::super ? tig : 0, t0, t1);
                }
                if constexpr (F::mins) {
                    const float2 m = half2_bits(f[h].m[r].x);
                    acc[h][r][1] = fmaf(m.x, sx[0], acc[h][r][1]);
                    acc[h][r][1] = fmaf(m.y, sx[1], acc[h][r][1]);
                }
            }
        if constexpr (F::super) { // minimums: one mma, column 0 alone holds sums
            uint32_t s[4] = {};
#pragma unroll
            for (int e = 0; e < (GA == 16 ? 2 : 1); e++) {
                s[2 * e] = *(const uint32_t *)(rec + REC_SUM + e * 32 + tig * 4) & mask[0];
                s[2 * e + 1] = *(const uint32_t *)(rec + REC_SUM + e * 32 + 16 + tig * 4) & mask[0];
            }
#pragma unroll
            for (int h = 0; h < R; h++) {
                const uint32_t m0 = super_mins(f[h].s[0], tig), m1 = super_mins(f[h].s[1], tig);
                float mi[4] = {};
                mma_bf16(mi, m0, m1, m0, m1, s[0], s[1]);
                if (GA == 16) mma_bf16(mi, m0, m1, m0, m1, s[2], s[3]);
                acc[h][0][1] = fmaf(half_bits(f[h].s[0].x >> 16), mi[0], acc[h][0][1]);
                acc[h][1][1] = fmaf(half_bits(f[h].s[1].x >> 16), mi[2], acc[h][1][1]);
            }
        }
    }
    // sums of this warp to red[16 R]
    MEM void leave(float *red, int lane) {
        const int tig = lane & 3, gid = lane >> 2;
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float v = acc[h][r][0] * code_factor<L>(tig);
                if constexpr (frag<L>::super)
                    v -= acc[h][r][1];
                else if constexpr (frag<L>::mins)
                    v += acc[h][r][1];
                v += __shfl_xor_sync(~0u, v, 1);
                v += __shfl_xor_sync(~0u, v, 2);
                if (tig == 0) red[h * 16 + gid + 8 * r] = v;
            }
    }
};
// halves, one row: every column of the mma holds the row (bfloat16: even columns its high part, odd the low)
template <int L, int GA, int R> struct one_half {
    float acc[R][4];
    MEM void start(int) {}
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][0] = acc[h][1] = acc[h][2] = acc[h][3] = 0;
    }
    MEM void unit(const frag<L> (&f)[R], const uint8_t *x, int lane) {
        if (L == LAYOUT_BF16 && (lane >> 2 & 1)) x += 512;
#pragma unroll
        for (int g = 0; g < 8; g++) {
            const uint4 b = *(const uint4 *)(x + g * 64 + (lane & 3) * 16);
#pragma unroll
            for (int h = 0; h < R; h++) {
                const uint4 lo = f[h].c[2 * g], hi = f[h].c[2 * g + 1];
                if constexpr (L == LAYOUT_F16) {
                    mma_f16(acc[h], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
                    mma_f16(acc[h], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
                } else {
                    mma_bf16(acc[h], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
                    mma_bf16(acc[h], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
                }
            }
        }
    }
    MEM void leave(float *red, int lane) {
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if ((lane & 3) == 0)
                    red[h * 16 + (lane >> 2) + 8 * r] =
                        L == LAYOUT_BF16 ? acc[h][2 * r] + acc[h][2 * r + 1] : acc[h][2 * r];
    }
};
// ---- a unit times 8 rows: columns are rows; x + c * stride is column c's record
enum { RED_STRIDE = 36 }; // floats of one column's sums: 32 rows and a pad against bank conflicts
// Groups p and p + 4 of a unit, a: their codes, times 8 rows, mine being the one of this lane's operand: sums of half a
// group each, [h * 2 + e][output].
template <int L, int GA> DEV constexpr bool by_halves() { return GA == 16 || frag<L>::six; }
template <int L, int GA, bool G>
DEV void many_mma(int (&d)[4][4], int p, const uint32_t (&a)[2][4], const uint8_t *mine, int tig) {
    const uint2 be0 = load_x<G, uint2>(mine + (8 * p + tig) * 8),
                be1 = load_x<G, uint2>(mine + (8 * p + 4 + tig) * 8);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t b0 = i ? be0.y : be0.x, b1 = i ? be1.y : be1.x;
#pragma unroll
        for (int o = 0; o < 4; o++) d[2 * i][o] = d[2 * i + 1][o] = MAGIC;
        if constexpr (by_halves<L, GA>()) {
            mma_int16<L>(d[2 * i], a[i][0], a[i][1], b0);
            mma_int16<L>(d[2 * i + 1], a[i][2], a[i][3], b1);
        } else
            mma_int<L>(d[2 * i], a[i], b0, b1);
    }
}
// The sums times their scales into acc and lowp (minimums); c0, c1: the rows of this lane's outputs.
template <int L, int GA, bool G>
DEV void many_scale(float (&acc)[4], float (&lowp)[4], const frag<L> &f, int p, const int (&d)[4][4],
                    const uint8_t *c0, const uint8_t *c1) {
    using F = frag<L>;
    float dx[2][4], sx[2][2] = {};
    group_scales<GA, G>(c0, p, dx[0]);
    group_scales<GA, G>(c1, p, dx[1]);
    if constexpr (F::mins) {
        group_sums<GA, G>(c0, p, sx[0][0], sx[0][1]);
        group_sums<GA, G>(c1, p, sx[1][0], sx[1][1]);
    }
#pragma unroll
    for (int o = 0; o < 4; o++) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = by_halves<L, GA>() || !(i & 1) ? from_magic(d[i][o]) : 0.f;
        const int r = o >> 1, c = o & 1;
        if constexpr (F::six) {
            scale_six(acc[o], f, r, p, v, dx[c]);
        } else {
            const float t0 = GA == 32 ? dx[c][0] * v[0] : fmaf(dx[c][1], v[1], dx[c][0] * v[0]);
            const float t1 = GA == 32 ? dx[c][2] * v[2] : fmaf(dx[c][3], v[3], dx[c][2] * v[2]);
            scale_pair(acc[o], f, r, p, t0, t1);
        }
        if constexpr (F::mins) {
            const float2 m = half2_bits(word_of(f.m[r], p));
            // one sum over the groups p and p + 4 of every unit, as for one row: kept per partial
            lowp[o] = fmaf(m.x, sx[c][0], lowp[o]);
            lowp[o] = fmaf(m.y, sx[c][1], lowp[o]);
        }
    }
}
// The minimums of a unit of Q4K, Q5K.
template <int L, int GA, bool G>
DEV void many_mins(float (&low)[4], const frag<L> &f, const uint8_t *mine, int tig) {
    const uint32_t m0 = super_mins(f.s[0], tig), m1 = super_mins(f.s[1], tig);
    float mi[4] = {};
#pragma unroll
    for (int e = 0; e < (GA == 16 ? 2 : 1); e++)
        mma_bf16(mi, m0, m1, m0, m1, load_x<G, uint32_t>(mine + REC_SUM + e * 32 + tig * 4),
                 load_x<G, uint32_t>(mine + REC_SUM + e * 32 + 16 + tig * 4));
#pragma unroll
    for (int o = 0; o < 4; o++) low[o] = fmaf(half_bits(f.s[o >> 1].x >> 16), mi[o], low[o]);
}
template <int L, int GA, int R, bool G> struct many_rows {
    float acc[R][4][4], low[R][4];
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                low[h][i] = acc[h][0][i] = acc[h][1][i] = acc[h][2][i] = acc[h][3][i] = 0;
    }
    MEM void unit(const frag<L> (&f)[R], const uint8_t *x, size_t stride, int lane) {
        using F = frag<L>;
        const int tig = lane & 3, gid = lane >> 2;
        const uint8_t *mine = x + gid * stride, *c0 = x + 2 * tig * stride, *c1 = c0 + stride;
#pragma unroll
        for (int p = 0; p < 4; p++)
#pragma unroll
            for (int h = 0; h < R; h++) {
                uint32_t a[2][4];
                codes<L>(a[0], f[h], p);
                codes<L>(a[1], f[h], 4 + p);
                int d[4][4];
                many_mma<L, GA, G>(d, p, a, mine, tig);
                many_scale<L, GA, G>(acc[h][p], lowp[F::mins ? h : 0][p], f[h], p, d, c0, c1);
            }
        if constexpr (F::super)
#pragma unroll
            for (int h = 0; h < R; h++) many_mins<L, GA, G>(low[h], f[h], mine, tig);
    }
    float lowp[frag<L>::mins ? R : 1][4][4];
    MEM void clear_mins() {
        if constexpr (frag<L>::mins)
#pragma unroll
            for (int h = 0; h < R; h++)
#pragma unroll
                for (int p = 0; p < 4; p++)
#pragma unroll
                    for (int o = 0; o < 4; o++) lowp[h][p][o] = 0;
    }
    MEM void leave(float *red, int lane) // red[column][RED_STRIDE]
    {
        const int tig = lane & 3, gid = lane >> 2;
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                float v[4];
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    v[p] = acc[h][p][o] * code_factor<L>(p);
                    if constexpr (frag<L>::super) v[p] -= p ? 0.f : low[h][o];
                    if constexpr (frag<L>::mins) v[p] += lowp[h][p][o];
                }
                red[(2 * tig + (o & 1)) * RED_STRIDE + h * 16 + gid + 8 * (o >> 1)] =
                    (v[0] + v[1]) + (v[2] + v[3]);
            }
    }
};
template <int L, int GA, int R, bool G> struct many_half {
    float acc[R][L == LAYOUT_BF16 ? 2 : 1][4];
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int b = 0; b < (L == LAYOUT_BF16 ? 2 : 1); b++)
                acc[h][b][0] = acc[h][b][1] = acc[h][b][2] = acc[h][b][3] = 0;
    }
    MEM void clear_mins() {}
    // columns 32 g .. of a row tile, from x as lane (gid, tig) reads it
    MEM void group(const uint4 &lo, const uint4 &hi, const uint8_t *x, int h, int g) {
        const uint4 b = load_x<G, uint4>(x + g * 64);
        if constexpr (L == LAYOUT_F16) {
            mma_f16(acc[h][0], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
            mma_f16(acc[h][0], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
        } else {
            const uint4 c = load_x<G, uint4>(x + 512 + g * 64);
            mma_bf16(acc[h][0], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
            mma_bf16(acc[h][0], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
            mma_bf16(acc[h][1], lo.x, hi.x, lo.y, hi.y, c.x, c.y);
            mma_bf16(acc[h][1], lo.z, hi.z, lo.w, hi.w, c.z, c.w);
        }
    }
    MEM void unit(const frag<L> (&f)[R], const uint8_t *x, size_t stride, int lane) {
        x += (lane >> 2) * stride + (lane & 3) * 16;
#pragma unroll
        for (int g = 0; g < 8; g++)
#pragma unroll
            for (int h = 0; h < R; h++) group(f[h].c[2 * g], f[h].c[2 * g + 1], x, h, g);
    }
    MEM void leave(float *red, int lane) {
        const int tig = lane & 3, gid = lane >> 2;
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int o = 0; o < 4; o++)
                red[(2 * tig + (o & 1)) * RED_STRIDE + h * 16 + gid + 8 * (o >> 1)] =
                    L == LAYOUT_BF16 ? acc[h][0][o] + acc[h][L == LAYOUT_BF16][o] : acc[h][0][o];
    }
};

// ---- the ring: S slots of R units a warp
template <int L, int R, int W, int S> struct ring {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    const uint8_t *p, *slots;
    uint64_t policy;
    uint32_t base, bar, phase;
    long jump;
    size_t hop;
    int left, units, steps, slot; // steps: still to fetch
    MEM void issue(int s) {
        if (steps <= 0) return;
        if (elect_one()) {
            const uint32_t b = bar + 8 * s;
            barrier_expect(b, R * UB);
#pragma unroll
            for (int h = 0; h < R; h++) bulk_copy(base + (s * R + h) * UB, p + h * hop, UB, b, policy);
        }
        p += W * UB;
        if (--left == 0) {
            left = units;
            p += jump;
            steps--;
        }
    }
    // steps cta, cta + n_cta, .. of n_step steps of rt row tiles, from row tile h on; u units a row tile
    MEM void start(uint8_t *smem, uint64_t *bars, const uint8_t *w, int n_step, int u, int cta, int n_cta,
                   int rt = R, int h = 0) {
        const int all = threadIdx.x >> 5, warp = all % W;
        slots = smem + (size_t)all * S * R * UB;
        base = smem_address(slots);
        bar = smem_address(bars + all * S);
        slot = 0;
        phase = 0;
        policy = policy_evict_first();
        if (elect_one()) {
            for (int s = 0; s < S; s++) barrier_init(bar + 8 * s, 1);
            barrier_fence();
        }
        __syncwarp();
        units = left = (u - warp + W - 1) / W;
        steps = units > 0 ? (n_step - cta + n_cta - 1) / n_cta : 0;
        hop = (size_t)u * UB;
        p = w + ((size_t)cta * rt + h) * hop + (size_t)warp * UB;
        jump = (long)((size_t)n_cta * rt * hop) - (long)units * W * UB;
#pragma unroll
        for (int s = 0; s < S; s++) issue(s);
    }
    template <bool ONE> MEM void next(frag<L> (&f)[R]) {
        barrier_wait(bar + 8 * slot, phase);
#pragma unroll
        for (int h = 0; h < R; h++) frag_load<L, ONE>(f[h], slots + (slot * R + h) * UB, threadIdx.x & 31);
        __syncwarp();
        issue(slot);
        if (++slot == S) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// ---- what follows a sum: lane = row of the step (R = 2), lane & 15 (R = 1); all lanes of a warp come here
struct best_value {
    float v;
    int i;
};
DEV bool better(const best_value &a, const best_value &b) { return a.v > b.v || (a.v == b.v && a.i < b.i); }
DEV best_value best_of_warp(best_value b) {
    for (int o = 16; o; o >>= 1) {
        const best_value c = {__shfl_xor_sync(~0u, b.v, o), __shfl_xor_sync(~0u, b.i, o)};
        if (better(c, b)) b = c;
    }
    return b;
}
// q = round(y * 127 / max) over the group of G lanes with k0 = first column; lanes beyond a group of 16 repeat it
template <int G> DEV void put_record(uint8_t *rec_row, int col, float y) {
    const int lane = threadIdx.x & 31, k = col & 255, s = k >> 4, g = k >> 5, p = g & 3, h = g >> 2,
              e = s & 1;
    uint8_t *rec = rec_row + (size_t)(col >> 8) * (G == 16 ? REC_BYTES_16 : REC_BYTES_32);
    const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(y))));
    const int q = __float2int_rn(y * (m > 1e-30f ? __fdividef(127.f, m) : 0.f));
    const float d = m * (1.f / 127.f);
    int sum = __reduce_add_sync(~0u, q);
    if (G == 16) sum >>= 1; // every column twice
    if (lane < G) rec[((s & 7) * 4 + ((k >> 2) & 3)) * 8 + (s >> 3) * 4 + (k & 3)] = (uint8_t)q;
    if (lane == 0) {
        const float v = d * (float)sum;
        const __nv_bfloat16 hi = __float2bfloat16(v);
        const int at = REC_SUM + (G == 16 ? e * 32 : 0) + p * 4 + h * 2;
        *(__nv_bfloat16 *)(rec + at) = hi;
        *(__nv_bfloat16 *)(rec + at + 16) = __float2bfloat16(v - __bfloat162float(hi));
        *(float *)(rec + REC_SCALE + (G == 16 ? p * 16 + h * 8 + e * 4 : p * 8 + h * 4)) = d;
    }
}
DEV void put_half(uint8_t *row, int col, float y) {
    *(__half *)(row + (size_t)col * 2) = __float2half(fminf(fmaxf(y, -65504.f), 65504.f));
}
DEV void put_bf16(uint8_t *row, int col, float y) {
    const __nv_bfloat16 hi = __float2bfloat16(y);
    uint8_t *u = row + (size_t)(col >> 8) * 1024 + (col & 255) * 2;
    *(__nv_bfloat16 *)u = hi;
    *(__nv_bfloat16 *)(u + 512) = __float2bfloat16(y - __bfloat162float(hi));
}
// What EPI_ADD reads, fetched before the sums it waits for.
struct ahead {
    float x, norm;
};
template <int R, int EPI> DEV ahead look_ahead(const mm_job &j, int step, int t) {
    const int lane = threadIdx.x & 31, row = step * 16 * R + (R == 1 ? lane & 15 : lane);
    ahead a = {0, 0};
    if (EPI == EPI_ADD) {
        a.x = __ldcg(j.res + t * j.res_row + row) + (j.bias ? j.bias[row] : 0.f);
        a.norm = j.next_norm[row];
    }
    return a;
}
template <int R, int EPI>
DEV void finish(const mm_job &j, int region, int step, int t, float v, float rs, const ahead &a,
                best_value &best) {
    const int lane = threadIdx.x & 31, row = step * 16 * R + (R == 1 ? lane & 15 : lane);
    if constexpr (EPI == EPI_STORE || EPI == EPI_HEAD) {
        v *= rs;
        for (int i = 0; i < j.n_seg; i++) {
            const int o = row - j.seg[i].row;
            if (j.seg[i].region != region || o < 0 || o >= j.seg[i].n) continue;
            const int col = j.seg[i].col + o;
            if (j.bias) v += j.bias[col];
            if (lane < 16 * R) j.y[t * j.y_row + col] = v;
            if (EPI == EPI_HEAD && (v > best.v || (v == best.v && col < best.i))) best = {v, col};
        }
    } else if constexpr (EPI == EPI_ADD) {
        v += a.x;
        if (lane < 16 * R) j.res[t * j.res_row + row] = v;
        const float ss = warp_sum(R == 1 && lane >= 16 ? 0.f : v * v);
        if (lane == 0) j.square_out[t * j.square_row + step] = ss;
        if (j.give == GIVE_RECORD) put_record<16 * R>(j.xo + t * j.xo_row, row, v * a.norm);
    } else { // gate rows first, then up rows of the same columns
        constexpr int H = 8 * R;
        v *= rs;
        const float gate = __shfl_sync(~0u, v, lane & ~H), up = __shfl_sync(~0u, v, lane | H);
        const int col = step * H + (lane & (H - 1));
        const float y = col < j.n_out ? act_apply(j.act, gate) * up : 0.f;
        if (j.give_packets) {
            const uint32_t tag = packet_tag(j.seq, j.tag);
            if (j.give == GIVE_RECORD)
                give_codes(j.give_packets, step * H, y, tag);
            else if (j.give == GIVE_HALF)
                give_halves<false>(j.give_packets, step * H, y, tag);
            else
                give_halves<true>(j.give_packets, step * H, y, tag);
        } else if (j.give == GIVE_RECORD) {
            if (R == 2) put_record<16>(j.xo + t * j.xo_row, col, y);
        } else if (lane < H && col < j.n_out) {
            if (j.give == GIVE_HALF)
                put_half(j.xo + t * j.xo_row, col, y);
            else
                put_bf16(j.xo + t * j.xo_row, col, y);
        }
    }
}

// ---- one region of a job by n_cta blocks
template <int N>
DEV float rms_factor(const mm_job &j, int row) // of one warp
{
    const float *s = j.square + row * j.square_row;
    const int lane = threadIdx.x & 31;
    float v = 0;
    for (int i0 = 0; i0 < j.n_square; i0 += 32 * N) {
        float a[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            a[i] = i0 + i * 32 + lane < j.n_square ? __ldcg(s + i0 + i * 32 + lane) : 0.f;
#pragma unroll
        for (int i = 0; i < N; i++) v += a[i];
    }
    return rsqrtf(warp_sum(v) * j.inv_k + j.eps);
}
// 8 columns c * 8 .. of a row times the norm's weights and factor, as the halves that the mma takes
template <int L>
DEV void norm_half8(const float4 &a0, const float4 &a1, const float4 *w, int c, float rs, uint8_t *x) {
    const float4 w0 = w[0], w1 = w[1];
    const float v[8] = {a0.x * w0.x * rs, a0.y * w0.y * rs, a0.z * w0.z * rs, a0.w * w0.w * rs,
                        a1.x * w1.x * rs, a1.y * w1.y * rs, a1.z * w1.z * rs, a1.w * w1.w * rs};
    if (L == LAYOUT_F16) {
        *(uint4 *)(x + c * 16) = make_uint4(pack_half2(v[0], v[1]), pack_half2(v[2], v[3]),
                                            pack_half2(v[4], v[5]), pack_half2(v[6], v[7]));
    } else {
        for (int i = 0; i < 8; i++) put_bf16(x, c * 8 + i, v[i]);
    }
}

template <int L> DEV constexpr int x_unit(int ga) {
    return L == LAYOUT_F16 ? 512 : L == LAYOUT_BF16 ? 1024 : ga == 16 ? REC_BYTES_16 : REC_BYTES_32;
}

template <int L, int GA, int R, int W, int S, int EPI>
DEV void stream_one(const mm_job &j, int region, int cta, int n_cta) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr bool half = frag<L>::half;
    constexpr int XU = x_unit<L>(GA), ROWS = 16 * R;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, U = j.u;
    uint64_t *bars = (uint64_t *)smem, *done = bars + W * S, *xbar = done + W;
    float *rs_at = (float *)(smem + 896), *red = (float *)(smem + 1024);
    uint8_t *x = smem + 1024 + W * W * ROWS * 4, *slots = x + j.x_bytes;

    ring<L, R, W, S> r;
    r.start(slots, bars, j.w[region], j.steps[region], U, cta, n_cta);
    if (threadIdx.x < 2 * W) barrier_init(smem_address(done + threadIdx.x), threadIdx.x < W ? W : 1);
    if (threadIdx.x < 2 * W) barrier_fence();
    __syncthreads();
    // Packets say by themselves when they are there. What a taker reads beside them is older than the giver's wait.
    constexpr bool takes = EPI == EPI_ADD && (half || GA == 16);
    const bool beside = takes && j.take_packets;
    if (EPI == EPI_STORE && j.first) {
        pdl_wait();
        pdl_trigger();
    } else {
        pdl_trigger();
        if (!beside) pdl_wait();
    }

    const int row = j.rowmap ? j.rowmap[0] : 0;
    auto factor = [&] {
        if (!j.n_square || w) return;
        const float v = rms_factor<4>(j, row);
        if (lane == 0) *rs_at = v;
    };
    if (half && j.norm) {
        constexpr int PRE = 4; // chunks of 8 columns a thread asks for before it knows the factor
        const int n = U * 32, tail = j.k / 8;
        const float4 *a = (const float4 *)(j.res_in + row * j.res_row);
        float4 v[PRE][2];
#pragma unroll
        for (int i = 0; i < PRE; i++) {
            const int c = threadIdx.x + i * W * 32;
            v[i][0] = v[i][1] = make_float4(0, 0, 0, 0);
            if (c < tail) v[i][0] = __ldcg(a + c * 2), v[i][1] = __ldcg(a + c * 2 + 1);
        }
        factor();
        __syncthreads();
        const float rs = *rs_at;
#pragma unroll
        for (int i = 0; i < PRE; i++) {
            const int c = threadIdx.x + i * W * 32;
            if (c < tail)
                norm_half8<L>(v[i][0], v[i][1], (const float4 *)j.norm + c * 2, c, rs, x);
            else if (c < n)
                norm_half8<L>(v[i][0], v[i][1], (const float4 *)j.norm, c, 0.f, x);
        }
        for (int c = threadIdx.x + PRE * W * 32; c < n; c += W * 32) {
            const bool in = c < tail;
            norm_half8<L>(in ? __ldcg(a + c * 2) : make_float4(0, 0, 0, 0),
                          in ? __ldcg(a + c * 2 + 1) : make_float4(0, 0, 0, 0),
                          (const float4 *)j.norm + (in ? c * 2 : 0), c, rs, x);
        }
        __syncthreads();
    } else if (!beside) { // each warp takes the records of its own units
        const uint32_t b = smem_address(xbar + w);
        if (w < U && elect_one()) {
            const uint8_t *src = j.x + row * j.x_row;
            barrier_expect(b, (U - w + W - 1) / W * XU);
            for (int u = w; u < U; u += W)
                bulk_copy(smem_address(x + (size_t)u * XU), src + (size_t)u * XU, XU, b);
        }
        __syncwarp();
        factor();
        if (w < U) barrier_wait(b, 0);
    }

    conditional_t<half, one_half<L, GA, R>, one_row<L, GA, R>> m;
    m.start(lane);
    best_value best = {-INFINITY, 0x7fffffff};
    packet_reader<L> in;
    if (beside && w < U) {
        in.at = j.take_packets;
        in.tag = packet_tag(j.seq, j.tag);
        in.columns = j.take_columns;
        in.ask(w, lane);
    }
    int ti = 0;
    for (int step = cta; step < j.steps[region]; step += n_cta, ti++) {
        m.clear();
        ahead a = {0, 0};
        if (!beside && ti % W == w) a = look_ahead<R, EPI>(j, step, 0);
        for (int u = w; u < U; u += W) {
            frag<L> f[R];
            if (beside && ti == 0) {
                in.take(u, x + (size_t)u * XU, lane);
                if (u + W < U) in.ask(u + W, lane);
            }
            // (a packet of this step says that the kernels before its writer are done)
            if (beside && u == w && ti % W == w) a = look_ahead<R, EPI>(j, step, 0);
            r.template next<true>(f);
            m.unit(f, x + (size_t)u * XU, lane);
        }
        const int buf = ti % W;
        float *part = red + buf * W * ROWS;
        m.leave(part + w * ROWS, lane);
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(done + buf));
        if (buf != w) continue;
        barrier_wait(smem_address(done + buf), (ti / W) & 1);
        float v = 0;
#pragma unroll
        for (int k = 0; k < W; k++) v += part[k * ROWS + (R == 1 ? lane & 15 : lane)];
        finish<R, EPI>(j, region, step, 0, v, !half && j.n_square ? *rs_at : 1.f, a, best);
    }
    if (EPI == EPI_HEAD) {
        best = best_of_warp(best);
        if (lane == 0) j.cand[blockIdx.x * W + w] = make_float2(best.v, __int_as_float(best.i));
    }
    if (beside) pdl_wait(); // what follows this kernel follows the one before, too
}

// The steps of a block; G: the input lies in global memory.
template <int L, int GA, int R, int W, int S, int EPI, bool G>
DEV void many_steps(const mm_job &j, ring<L, 1, W, S> &r, int region, int cta, int n_cta, int n_col,
                    const uint8_t *x, size_t stride, size_t unit, float *red, uint64_t *done, uint64_t *freed,
                    const float *rs_at) {
    constexpr bool half = frag<L>::half;
    constexpr int PART = 8 * RED_STRIDE, TOKENS = 8 / W; // rows that a warp finishes
    const int w = (threadIdx.x >> 5) % W, h = (threadIdx.x >> 5) / W, lane = threadIdx.x & 31, U = j.u;
    conditional_t<half, many_half<L, GA, 1, G>, many_rows<L, GA, 1, G>> m;
    best_value best[TOKENS];
    for (int i = 0; i < TOKENS; i++) best[i] = {-INFINITY, 0x7fffffff};
    // Buffer ti % n of sums: all warps leave theirs, one set of W warps (the sets take turns) adds and finishes them.
    int ti = 0;
    for (int step = cta; step < j.steps[region]; step += n_cta, ti++) {
        const int buf = ti % j.buffers, use = ti / j.buffers;
        const bool mine = R == 1 || (ti & 1) == h;
        m.clear();
        m.clear_mins();
        ahead a[TOKENS];
#pragma unroll
        for (int i = 0; i < TOKENS; i++)
            a[i] = mine && w + i * W < n_col ? look_ahead<R, EPI>(j, step, w + i * W) : ahead{0, 0};
        for (int u = w; u < U; u += W) {
            frag<L> f[1];
            r.template next<false>(f);
            m.unit(f, x + u * unit, stride, lane);
        }
        float *part = red + buf * W * PART;
        if (use) barrier_wait(smem_address(freed + buf), (use - 1) & 1);
        m.leave(part + w * PART + h * 16, lane);
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(done + buf));
        if (!mine) continue;
        barrier_wait(smem_address(done + buf), use & 1);
        float v[TOKENS];
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            v[i] = 0;
#pragma unroll
            for (int k = 0; k < W; k++)
                v[i] += part[k * PART + (w + i * W) * RED_STRIDE + (R == 1 ? lane & 15 : lane)];
        }
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(freed + buf));
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            const int t = w + i * W;
            if (t < n_col)
                finish<R, EPI>(j, region, step, t, v[i], !half && j.n_square ? rs_at[t] : 1.f, a[i], best[i]);
        }
    }
    if (EPI == EPI_HEAD)
        for (int i = 0; i < TOKENS; i++) {
            const best_value b = best_of_warp(best[i]);
            if (lane == 0 && w + i * W < n_col)
                j.cand[(size_t)(w + i * W) * j.n_cand + blockIdx.x * R + h] =
                    make_float2(b.v, __int_as_float(b.i));
        }
}

// Up to 8 rows. W warps share K as for one row; with R = 2 a second set of W warps has the second row tile.
template <int L, int GA, int R, int W, int S, int EPI>
DEV void stream_many(const mm_job &j, int region, int cta, int n_cta) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr bool half = frag<L>::half;
    constexpr int XU = x_unit<L>(GA), XC = !half && GA == 16 ? XU - 32 : XU; // XC: without the pad
    constexpr bool far = half || GA == 16; // the input may be too large for shared memory
    constexpr int PART = 8 * RED_STRIDE;
    const int w = (threadIdx.x >> 5) % W, h = (threadIdx.x >> 5) / W, lane = threadIdx.x & 31, U = j.u;
    uint64_t *bars = (uint64_t *)smem, *xbar = bars + W * R * S, *done = xbar + W, *freed = done + 2;
    float *rs_at = (float *)(smem + 896), *red = (float *)(smem + 1024);
    uint8_t *xs = smem + 1024 + j.buffers * W * PART * 4, *slots = xs + j.x_bytes;

    ring<L, 1, W, S> r;
    r.start(slots, bars, j.w[region], j.steps[region], U, cta, n_cta, R, h);
    if (threadIdx.x < W) {
        barrier_init(smem_address(xbar + threadIdx.x), 1);
        if (threadIdx.x < 2) {
            barrier_init(smem_address(done + threadIdx.x), W * R);
            barrier_init(smem_address(freed + threadIdx.x), W);
        }
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    pdl_wait();

    const int n_col = min(j.columns, *j.n_row - j.row0);
    for (int t = w; t < 8 && h == R - 1; t += W)
        if (j.n_square && t < n_col) {
            const float v = rms_factor<4>(j, j.rowmap ? j.rowmap[t] : t);
            if (lane == 0) rs_at[t] = v;
        }
    // columns of rows that are not there repeat the first row
    const uint8_t *x = xs;
    size_t stride, unit;
    if (j.x_bytes) {
        stride = half ? XU + 64 : XU;
        unit = 8 * stride - (half ? 64 : XU - XC);
        if (w < U && n_col > 0) {
            const uint32_t b = smem_address(xbar + w);
            if (h == 0 && elect_one()) {
                barrier_expect(b, (U - w + W - 1) / W * 8 * XC);
                for (int t = 0; t < 8; t++) {
                    const int at = t < n_col ? t : 0, row = j.rowmap ? j.rowmap[at] : at;
                    for (int u = w; u < U; u += W)
                        bulk_copy(smem_address(xs + u * unit + t * stride),
                                  j.x + row * j.x_row + (size_t)u * XU, XC, b);
                }
            }
            barrier_wait(b, 0);
        }
    } else { // read where it lies
        x = j.x;
        stride = j.x_row;
        unit = XU;
    }
    __syncthreads();

    if (j.x_bytes)
        many_steps<L, GA, R, W, S, EPI, false>(j, r, region, cta, n_cta, n_col, x, stride, unit, red, done,
                                               freed, rs_at);
    else if constexpr (far)
        many_steps<L, GA, R, W, S, EPI, true>(j, r, region, cta, n_cta, n_col, x, stride, unit, red, done,
                                              freed, rs_at);
}

// L2 < 0: one region
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI>
__global__ void __launch_bounds__(W * 32, frag<L>::half ? 1 : 2)
    stream_one_kernel(const __grid_constant__ mm_job j) {
    if (L2 < 0 || (int)blockIdx.x < j.split)
        stream_one<L, GA, R, W, S, EPI>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split);
    else if constexpr (L2 >= 0)
        stream_one<L2, GA, R, W, S2, EPI>(j, 1, blockIdx.x - j.split, gridDim.x - j.split);
}
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI>
__global__ void __launch_bounds__(W *R * 32, 1) stream_many_kernel(const __grid_constant__ mm_job j) {
    if (L2 < 0 || (int)blockIdx.x < j.split)
        stream_many<L, GA, R, W, S, EPI>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split);
    else if constexpr (L2 >= 0)
        stream_many<L2, GA, R, W, S2, EPI>(j, 1, blockIdx.x - j.split, gridDim.x - j.split);
}
