// The sums of a unit of weights times one row or 8 rows. Both sum in one order, see stream.cuh.
#pragma once
#include "stream_frag.cuh"

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
