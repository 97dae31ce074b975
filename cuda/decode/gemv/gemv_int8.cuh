// The sums of a unit of codes times one row of codes: int8 products, whose sums for a group are exact.
//
// The 8 columns of a product are 8 subgroups of 16 columns of K (block-diagonal B), so no lane repeats another's work with
// scales. This takes half the instructions that codes as halves take (gemv_mma.cuh; 8B Q4_K_M: 1,459 us a token instead of
// 1,628 on an H200), but only for one row: many rows want a plain product. So an engine has it if it never has more than
// one decode row; then bits do not depend on rows either.
#pragma once
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/formats/unit_halves.cuh"

enum { MAGIC = 0x4b400000 }; // 1.5 * 2^23: an int32 accumulator that starts here reads as a float

// ---- a unit of weights in registers
template <int L> struct int_frag {
    using C = format<L>;
    uint4 c[C::NC], x[C::NX ? C::NX : 1];
    uint4 s[2];    // scales of rows gid and gid + 8, and
    uint32_t m[2]; // what else is with them, as the format likes
    MEM void load(const uint8_t *u, int lane, float) {
#pragma unroll
        for (int i = 0; i < C::NC; i++) c[i] = *(const uint4 *)(u + i * 512 + lane * 16);
#pragma unroll
        for (int i = 0; i < C::NX; i++) x[i] = *(const uint4 *)(u + (C::NC + i) * 512 + lane * 16);
        C::int_scales(s, m, u, lane >> 2, lane & 3);
    }
};
// Part of the codes that group g is in.
template <int L> DEV constexpr int code_part(int g) {
    return format<L>::wide ? g : format<L>::NC == 2 ? g >> 2 : g >> 1;
}
// int8 operand of group g: codes, or 1 / code_factor as much
template <int L> DEV void codes(uint32_t (&a)[4], const int_frag<L> &f, int g) {
    using F = format<L>;
    const uint4 c = f.c[code_part<L>(g)];
    const uint32_t w[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if constexpr (F::levels)
            a[i] = F::int_code(w[i], f.s, g);
        else
            a[i] = F::int_code(w[i], F::NX ? word_of(f.x[F::NX == 2 ? g >> 2 : 0], i) : 0, g);
}
template <int L> DEV void mma_int(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (format<L>::is_signed)
        mma_s8(d, a[0], a[1], a[2], a[3], b0, b1);
    else
        mma_u8(d, a[0], a[1], a[2], a[3], b0, b1);
}
// ---- scale work of one lane, for partial p of a row: groups p and p + 4
template <int L> struct row_scales {
    static constexpr int N = format<L>::n_scale;
    static constexpr bool whole = format<L>::whole; // whole numbers, times the row's d
    float s[N];
};
// w: the row's word of scales
template <int L> DEV row_scales<L> row_scale(uint32_t w) {
    row_scales<L> k;
    format<L>::row_scale(k.s, w);
    return k;
}
template <int L> DEV row_scales<L> row_scale(const int_frag<L> &f, int r, int tig) {
    if constexpr (format<L>::levels) {
        row_scales<L> k;
        format<L>::row_scale(k.s, f.s, r);
        return k;
    } else
        return row_scale<L>(format<L>::scale_word(f.s[r], tig));
}
template <int L, int GA> DEV constexpr bool by_halves() { return GA == 16 || row_scales<L>::N == 4; }
// A sum that started at MAGIC, times its group's scale.
DEV float magic_scaled(int v, float dx) { return fmaf(dx, __int_as_float(v), __fmul_rn(-12582912.f, dx)); }
// Sums v (as accumulators that start at MAGIC; [h * 2 + e], or [h * 2] where a group has one) into acc: the sum of codes
// times the scale of the row's group is exact (20 bits; MAGIC has two, the scale four), then times the weight's scale.
template <int L, int GA>
DEV void add_scaled(float &acc, const row_scales<L> &k, float d, const int (&v)[4], const float (&dx)[4]) {
    float sum = row_scales<L>::whole ? 0 : acc;
#pragma unroll
    for (int i = 0; i < 4; i += by_halves<L, GA>() ? 1 : 2)
        sum = fmaf(k.s[row_scales<L>::N == 4 ? i : i >> 1], magic_scaled(v[i], dx[i]), sum);
    acc = row_scales<L>::whole ? fmaf(d, sum, acc) : sum;
}
DEV float sum_value(const uint8_t *sum, int e, int p, int h) // high + low part
{
    const uint32_t hi = *(const uint32_t *)(sum + e * 32 + p * 4),
                   lo = *(const uint32_t *)(sum + e * 32 + 16 + p * 4);
    return h ? __uint_as_float(hi & 0xffff0000u) + __uint_as_float(lo & 0xffff0000u)
             : bf16_bits(hi & 0xffff) + bf16_bits(lo & 0xffff);
}
template <int GA> DEV void group_sums(const uint8_t *sum, int p, float &s0, float &s1) {
    s0 = sum_value(sum, 0, p, 0);
    s1 = sum_value(sum, 0, p, 1);
    if (GA == 16) {
        s0 += sum_value(sum, 1, p, 0);
        s1 += sum_value(sum, 1, p, 1);
    }
}
template <int GA>
DEV void group_scales(const uint8_t *scale, int p, float (&dx)[4]) // h * 2 + e
{
    if (GA == 32) {
        const float2 v = *(const float2 *)(scale + p * 8);
        dx[0] = dx[1] = v.x;
        dx[2] = dx[3] = v.y;
    } else {
        const float4 v = *(const float4 *)(scale + p * 16);
        dx[0] = v.x, dx[1] = v.y, dx[2] = v.z, dx[3] = v.w;
    }
}
// ---- a unit times one row: partial tig
template <int L, int GA, int R> struct one_row {
    float acc[R][2];
    uint32_t mask[8];
    MEM void start(int lane) {
#pragma unroll
        for (int i = 0; i < 8; i++) mask[i] = lane >> 2 == i ? ~0u : 0u;
    }
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][0] = acc[h][1] = 0;
    }
    // Where minimums are for 16 columns: leaves n records of groups of 32, hop bytes apart, the sums of 16 at REC_HALF_SUM.
    template <int N> MEM void prepare(uint8_t *rec, size_t hop, int n, int lane) {
        if constexpr (format<L>::mins == MINS_FOUR && GA == 32) {
            const int g = lane >> 2, e = lane >> 1 & 1, p = g & 3, h = g >> 2;
            float v[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                const uint8_t *at = rec + (i < n ? i : 0) * hop, *c = at + g * 32 + e * 4 + (lane & 1) * 16;
                int sum = __dp4a(*(const int *)c, 0x01010101, __dp4a(*(const int *)(c + 8), 0x01010101, 0));
                sum += __shfl_xor_sync(~0u, sum, 1);
                v[i] = *(const float *)(at + REC_SCALE + (p * 2 + h) * 4) * (float)sum;
            }
            __syncwarp(); // until here somebody needs what lies at REC_HALF_SUM
#pragma unroll
            for (int i = 0; i < N; i++)
                if (!(lane & 1) && i < n)
                    put_sum(rec + i * hop + REC_HALF_SUM + e * 32 + p * 4 + h * 2, v[i]);
            __syncwarp();
        }
    }
    MEM void unit(const int_frag<L> (&f)[R], const uint8_t *rec, int lane) {
        using F = format<L>;
        constexpr bool halves = by_halves<L, GA>();
        const int tig = lane & 3;
        // subgroups lane / 4 and 8 more: codes of 16 columns
        const uint8_t *own = rec + ((lane >> 3) * 4 + tig) * 8 + (lane >> 2 & 1) * 4;
        const uint32_t b[2] = {*(const uint32_t *)own, *(const uint32_t *)(own + 128)};
        float dx[4], sx[2] = {};
        group_scales<GA>(rec + REC_SCALE, tig, dx);
        if constexpr (F::mins == MINS_HALF) {
            group_sums<GA>(rec + REC_SUM, tig, sx[0], sx[1]);
            sx[0] *= format<L>::min_factor(tig);
            sx[1] *= format<L>::min_factor(tig);
        }
        int d[R][2][4];
#pragma unroll
        for (int q = 0; q < 4; q++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t b0 = b[i] & mask[2 * q], b1 = b[i] & mask[2 * q + 1];
#pragma unroll
                for (int h = 0; h < R; h++) {
                    uint32_t a[4];
                    codes<L>(a, f[h], i * 4 + q);
                    if (q)
                        mma_int<L>(d[h][i], a, b0, b1);
                    else
                        mma_i8_from<format<L>::is_signed>(d[h][i], a, b0, b1, MAGIC, halves ? MAGIC : 0);
                }
            }
        if constexpr (F::mins ==
                      MINS_SIX) { // minimums: one mma, column 0 alone holds sums, so partial 0 gets them
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
                acc[h][0] = fmaf(-half_bits(f[h].s[0].x >> 16), mi[0], acc[h][0]);
                acc[h][1] = fmaf(-half_bits(f[h].s[1].x >> 16), mi[2], acc[h][1]);
            }
        }
        if constexpr (F::mins == MINS_FOUR) { // the same, for 16 columns
            const uint8_t *sum = rec + (GA == 16 ? REC_SUM : REC_HALF_SUM) + tig * 4;
            uint32_t s[4];
#pragma unroll
            for (int i = 0; i < 4; i++) s[i] = *(const uint32_t *)(sum + i * 16) & mask[0];
#pragma unroll
            for (int h = 0; h < R; h++) {
                uint32_t m[2][2];
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        m[r][e] =
                            less_128(lop3<LOP_AND_OR>(f[h].s[r].x >> (4 + 8 * e), 0x000f000fu, 0x43004300u));
                float mi[4] = {};
                mma_bf16(mi, m[0][0], m[1][0], m[0][1], m[1][1], s[0], s[2]);
                mma_bf16(mi, m[0][0], m[1][0], m[0][1], m[1][1], s[1], s[3]);
                acc[h][0] = fmaf(-half_bits(f[h].m[0] >> 16), mi[0], acc[h][0]);
                acc[h][1] = fmaf(-half_bits(f[h].m[1] >> 16), mi[2], acc[h][1]);
            }
        }
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int v[4] = {d[h][0][2 * r], d[h][0][2 * r + 1], d[h][1][2 * r], d[h][1][2 * r + 1]};
                if (!halves) v[0] += v[1], v[2] += v[3];
                add_scaled<L, GA>(acc[h][r], row_scale<L>(f[h], r, tig), F::row_d(f[h].s[r], f[h].m, r), v,
                                  dx);
                if constexpr (F::mins == MINS_HALF) {
                    const float2 m = half2_bits(f[h].m[r]);
                    acc[h][r] = fmaf(m.x, sx[0], acc[h][r]);
                    acc[h][r] = fmaf(m.y, sx[1], acc[h][r]);
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
                float v = acc[h][r] * format<L>::code_factor(tig);
                v += __shfl_xor_sync(~0u, v, 1);
                v += __shfl_xor_sync(~0u, v, 2);
                if (tig == 0) red[h * 16 + gid + 8 * r] = v;
            }
    }
};
