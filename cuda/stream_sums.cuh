// The sums of a unit of weights times one row or 8 rows. Both sum in one order, see stream.cuh.
#pragma once
#include "stream_frag.cuh"

template <int L, int GA> DEV constexpr bool by_halves() { return GA == 16 || frag<L>::six; }
// Power of two by which partial p's minimums are larger, as its sums are.
template <int L> DEV float min_factor(int p) { return L == LAYOUT_Q4M && (p & 1) ? 16.f : 1.f; }
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
    MEM void unit(const frag<L> (&f)[R], const uint8_t *rec, int lane) {
        using F = frag<L>;
        constexpr bool halves = by_halves<L, GA>();
        const int tig = lane & 3;
        // subgroups lane / 4 and 8 more: codes of 16 columns
        const uint8_t *own = rec + ((lane >> 3) * 4 + tig) * 8 + (lane >> 2 & 1) * 4;
        const uint32_t b[2] = {*(const uint32_t *)own, *(const uint32_t *)(own + 128)};
        float dx[4], sx[2] = {};
        group_scales<GA>(rec + REC_SCALE, tig, dx);
        if constexpr (F::mins) {
            group_sums<GA>(rec + REC_SUM, tig, sx[0], sx[1]);
            sx[0] *= min_factor<L>(tig);
            sx[1] *= min_factor<L>(tig);
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
                        mma_i8_from<F::is_signed>(d[h][i], a, b0, b1, MAGIC, halves ? MAGIC : 0);
                }
            }
        if constexpr (F::super) { // minimums: one mma, column 0 alone holds sums, so partial 0 gets them
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
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int v[4] = {d[h][0][2 * r], d[h][0][2 * r + 1], d[h][1][2 * r], d[h][1][2 * r + 1]};
                if (!halves) v[0] += v[1], v[2] += v[3];
                const uint32_t w = F::super ? super_scales(f[h].s[r], tig) : f[h].s[r].x;
                add_scaled<L, GA>(acc[h][r], row_scale<L>(w, row_d<L>(f[h], r)), v, dx);
                if constexpr (F::mins) {
                    const float2 m = half2_bits(f[h].m[r].x);
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
                float v = acc[h][r] * code_factor<L>(tig);
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
// Where 8 n .. 8 n + 7 of the rows of a unit have their codes, scales and sums. G: in global memory.
template <int GA, bool G> struct record_rows { // stride bytes apart
    const uint8_t *x;
    size_t stride;
    MEM const uint8_t *row(int n, int r) const { return x + (n * 8 + r) * stride; }
    MEM uint2 codes(int n, int r, int g, int tig) const {
        return load_x<G, uint2>(row(n, r) + (g * 4 + tig) * 8);
    }
    MEM void scales(int n, int tig, int p, float (&dx)[2][4]) const { // of rows 2 tig and 2 tig + 1
        group_scales<GA, G>(row(n, 2 * tig) + REC_SCALE, p, dx[0]);
        group_scales<GA, G>(row(n, 2 * tig + 1) + REC_SCALE, p, dx[1]);
    }
    MEM const uint8_t *sums(int n, int r) const { return row(n, r) + REC_SUM; }
};
// Groups p and p + 4 of a unit, a: their codes, times rows 8 n ..: sums of half a group each, [h * 2 + e][output], or
// of a group, [h * 2][output].
template <int L, int GA, class X>
DEV void many_mma(int (&d)[4][4], int p, const uint32_t (&a)[2][4], const X &x, int n, int lane) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint2 b = x.codes(n, lane >> 2, p + 4 * i, lane & 3);
        constexpr bool S = frag<L>::is_signed;
        if constexpr (by_halves<L, GA>()) {
            mma_i8_k16_from<S>(d[2 * i], a[i][0], a[i][1], b.x, MAGIC);
            mma_i8_k16_from<S>(d[2 * i + 1], a[i][2], a[i][3], b.y, MAGIC);
        } else
            mma_i8_from<S>(d[2 * i], a[i], b.x, b.y, MAGIC, MAGIC);
    }
}
// The scales of a unit's rows gid and gid + 8. For Q4K and Q5K each lane unpacks its own partial for its neighbours.
template <int L> struct unit_scales {
    uint32_t own[2];
    float d[2];
    MEM void start(const frag<L> &f, int lane) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            own[r] = frag<L>::super ? super_scales(f.s[r], lane & 3) : 0;
            d[r] = row_d<L>(f, r);
        }
    }
    MEM row_scales<L> of(const frag<L> &f, int r, int p, int lane) const {
        const uint32_t w = frag<L>::super ? __shfl_sync(~0u, own[r], (lane & ~3) | p) : word_of(f.s[r], p);
        return row_scale<L>(w, d[r]);
    }
};
// The sums times their scales into acc.
template <int L, int GA, bool G, class X>
DEV void many_scale(float (&acc)[4], const frag<L> &f, const row_scales<L> (&k)[2], int p,
                    const int (&d)[4][4], const X &x, int n, int tig) {
    using F = frag<L>;
    float dx[2][4], sx[2][2] = {};
    x.scales(n, tig, p, dx);
    if constexpr (F::mins) {
        group_sums<GA, G>(x.sums(n, 2 * tig), p, sx[0][0], sx[0][1]);
        group_sums<GA, G>(x.sums(n, 2 * tig + 1), p, sx[1][0], sx[1][1]);
    }
#pragma unroll
    for (int o = 0; o < 4; o++) {
        const int r = o >> 1, c = o & 1;
        constexpr bool halves = by_halves<L, GA>();
        const int v[4] = {d[0][o], halves ? d[1][o] : 0, d[2][o], halves ? d[3][o] : 0};
        add_scaled<L, GA>(acc[o], k[r], v, dx[c]);
        if constexpr (F::mins) {
            const float2 m = half2_bits(word_of(f.m[r], p));
            acc[o] = fmaf(m.x, sx[c][0] * min_factor<L>(p), acc[o]);
            acc[o] = fmaf(m.y, sx[c][1] * min_factor<L>(p), acc[o]);
        }
    }
}
// The minimums of a unit of Q4K, Q5K, into partial 0; sum: of the row of this lane's operand.
template <int L, int GA, bool G>
DEV void many_mins(float (&acc)[4], const frag<L> &f, const uint8_t *sum, int tig) {
    const uint32_t m0 = super_mins(f.s[0], tig), m1 = super_mins(f.s[1], tig);
    float mi[4] = {};
#pragma unroll
    for (int e = 0; e < (GA == 16 ? 2 : 1); e++)
        mma_bf16(mi, m0, m1, m0, m1, load_x<G, uint32_t>(sum + e * 32 + tig * 4),
                 load_x<G, uint32_t>(sum + e * 32 + 16 + tig * 4));
#pragma unroll
    for (int o = 0; o < 4; o++) acc[o] = fmaf(-half_bits(f.s[o >> 1].x >> 16), mi[o], acc[o]);
}
// NT times 8 rows
template <int L, int GA, int NT, bool G> struct many_sums {
    float acc[NT][4][4]; // [8 rows][partial][output]
    MEM void clear() {
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int p = 0; p < 4; p++) acc[n][p][0] = acc[n][p][1] = acc[n][p][2] = acc[n][p][3] = 0;
    }
    // u: the unit, whose codes are read where they are needed; NULL: f has them
    template <bool LATE, class X> MEM void unit(frag<L> &f, const uint8_t *u, const X &x, int lane) {
        const int tig = lane & 3;
        constexpr int N = NT > 2 ? 2 : NT; // products under way
        unit_scales<L> scales;
        scales.start(f, lane);
        if constexpr (frag<L>::super)
#pragma unroll
            for (int n = 0; n < NT; n++) many_mins<L, GA, G>(acc[n][0], f, x.sums(n, lane >> 2), tig);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t a[2][4];
            if (LATE && (!p || code_part<L>(p) != code_part<L>(p - 1))) {
                asm volatile("" ::: "memory"); // not earlier: registers are scarce
                load_part<L>(f, u, code_part<L>(p), lane);
                load_part<L>(f, u, code_part<L>(p + 4), lane);
            }
            codes<L>(a[0], f, p);
            codes<L>(a[1], f, 4 + p);
            const row_scales<L> k[2] = {scales.of(f, 0, p, lane), scales.of(f, 1, p, lane)};
#pragma unroll
            for (int n0 = 0; n0 < NT; n0 += N) {
                int d[N][4][4];
#pragma unroll
                for (int n = 0; n < N; n++) many_mma<L, GA>(d[n], p, a, x, n0 + n, lane);
#pragma unroll
                for (int n = 0; n < N; n++)
                    many_scale<L, GA, G>(acc[n0 + n][p], f, k, p, d[n], x, n0 + n, tig);
            }
        }
    }
    MEM float value(int n, int o) const {
        float v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) v[p] = acc[n][p][o] * code_factor<L>(p);
        return (v[0] + v[1]) + (v[2] + v[3]);
    }
};
template <int L, int GA, bool G> struct many_rows {
    many_sums<L, GA, 1, G> m;
    MEM void clear() { m.clear(); }
    MEM void unit(frag<L> (&f)[1], const uint8_t *x, size_t stride, int lane) {
        m.template unit<false>(f[0], NULL, record_rows<GA, G>{x, stride}, lane);
    }
    MEM void leave(float *red, int lane) // red[column][RED_STRIDE]
    {
        const int tig = lane & 3, gid = lane >> 2;
#pragma unroll
        for (int o = 0; o < 4; o++)
            red[(2 * tig + (o & 1)) * RED_STRIDE + gid + 8 * (o >> 1)] = m.value(0, o);
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
