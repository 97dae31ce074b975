// The sums of a unit of weights for 8 pairs, whose halves are in registers (experts_batch.cuh).
//
// Codes are multiplied as they are, as halves; the sum of a group of columns is then multiplied by its scale in float32, and the groups'
// addends are multiplied by the sums of their columns. So a code takes an operation or two, and no product rounds.
#pragma once
#include "cuda/formats/unit_halves.cuh"

template <int L> struct batch_groups {
    static constexpr int E = format<L>::n_scale == 4 ? 2 : 1; // scales of 32 columns
    static constexpr bool addends = format<L>::addends;
};

// ---- a pair's columns of a unit: lane (gid, tig) has tig's of pair gid, and the sums of groups tig and tig + 4, or of 16 columns
template <int L> struct batch_x {
    static constexpr int E = batch_groups<L>::E;
    uint4 v[8];
    float sum[2][E];

    // x: halves in the order of codes (act_tile.cuh), n columns of them, a multiple of 32; zeros behind them
    MEM void load(const uint8_t *x, int n) {
        const int tig = threadIdx.x & 3;
#pragma unroll
        for (int g = 0; g < 8; g++)
            v[g] = g * 32 < n ? __ldcg((const uint4 *)(x + g * 64 + tig * 16)) : make_uint4(0, 0, 0, 0);
        if constexpr (batch_groups<L>::addends) {
            // times ones in column 2 (g & 3) + g / 4 of a product, so that the sums come where they belong
            float d[E][4] = {};
#pragma unroll
            for (int g = 0; g < 8; g++) {
                const uint32_t one = (threadIdx.x >> 2 & 7) == 2 * (g & 3) + (g >> 2) ? 0x3c003c00u : 0;
                mma_f16(d[0], v[g].x, 0, v[g].y, 0, one, one);
                mma_f16(d[E - 1], v[g].z, 0, v[g].w, 0, one, one);
            }
#pragma unroll
            for (int e = 0; e < E; e++) sum[0][e] = d[e][0], sum[1][e] = d[e][1];
        }
    }
};

// ---- scales and addends of a unit: lane (gid, tig) has groups tig and tig + 4 of rows gid and gid + 8
template <int L> struct batch_factors {
    static constexpr int E = batch_groups<L>::E;
    float s[2][2][E], m[2][2][E]; // [row][group / 4]
    MEM void any(const uint8_t *u, float up) {
        const int lane = threadIdx.x & 31;
        unit_factors<L> f;
        f.load(u, lane, up);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            __half2 a[2], b[2];
            format<L>::spread(a, b, f.own[i & 1], i & 2 ? 4 : 0, lane);
#pragma unroll
            for (int e = 0; e < E; e++)
                s[i & 1][i >> 1][e] = __low2float(a[e]), m[i & 1][i >> 1][e] = __low2float(b[e]);
        }
    }
    MEM void super(const uint8_t *u, float up) { // of super_format; drawn there
        const int gid = threadIdx.x >> 2 & 7, tig = threadIdx.x & 3;
        // what is added is cut to 11 bits (batch_addends): half of the last one more
        const float place = up * nibble_place(tig), less = up * (-0x1p-24f * (1 + 0x1p-11f));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint4 w = *(const uint4 *)(u + format<L>::scales + (gid + 8 * r) * 16);
            // byte tig of s1 and of s2 in the low bytes of halves; that of h, times 4 there
            const uint32_t v = __byte_perm(w.y, w.z, 0x4400 + 0x1101 * tig),
                           h = (w.w >> 8 * tig & 255) * 0x4004u;
            const uint32_t most = lop3<LOP_AND_OR>(h, 0x003c003cu, 0x43004300u);
            const float2 d = half2_bits(w.x),
                         a = bf16x2_bits(less_128(lop3<LOP_AND_OR>(v >> 6, 0x00030003u, most))),
                         b = bf16x2_bits(less_128(lop3<LOP_AND_OR>(v, 0x003f003fu, 0x43004300u)));
            const float k = d.x * place, n = d.y * less;
            s[r][0][0] = a.x * k, s[r][1][0] = a.y * k;
            m[r][0][0] = b.x * n, m[r][1][0] = b.y * n;
        }
    }
    MEM void six(const uint8_t *u, float up) { // of LAYOUT_Q6K, codes as batch_code has them
        const int gid = threadIdx.x >> 2 & 7, tig = threadIdx.x & 3;
        const float place = tig == 0 ? 1.f : tig == 2 ? 0.0625f : 0.25f;
        u += format<L>::scales;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t w = *(const uint32_t *)(u + (gid + 8 * r) * 16 + tig * 4);
            const float d = half_bits(*(const uint16_t *)(u + 256 + (gid + 8 * r) * 2)) * up, k = d * place,
                        n = d * (-0x1p-19f * (1 + 0x1p-11f));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float c = byte_float_less_128(w, i);
                s[r][i >> 1][i & 1] = c * k;
                m[r][i >> 1][i & 1] = c * n; // codes have 32 more: 32 * 2^-24
            }
        }
    }
    MEM void load(const uint8_t *u, float up) {
        if constexpr (L == LAYOUT_Q4K || L == LAYOUT_Q5K)
            super(u, up);
        else if constexpr (L == LAYOUT_Q6K)
            six(u, up);
        else
            any(u, up);
    }
};

// Two codes of group g as halves, HIGH: out of the high bytes of v's halves; x: their other bits.
template <int L> DEV uint32_t batch_code(uint32_t v, uint32_t x, int g, bool high) {
    if constexpr (L != LAYOUT_Q6K)
        return high ? format<L>::code_halves(v >> 8, x >> 8, g) : format<L>::code_halves(v, x, g);
    // where the bits lie already: code + 32, times 1, 4, 16 or 4
    uint32_t n, to, most, low, from;
    if ((g & 3) == 0)
        n = high ? v >> 6 : v << 2, to = 0x003c003cu, most = 0x00200020u, low = high ? x >> 8 : x,
        from = 0x00030003u;
    else if ((g & 3) == 2)
        n = high ? v >> 2 : v << 6, to = 0x03c003c0u, most = 0x02000200u, low = high ? x >> 8 : x,
        from = 0x00300030u;
    else
        n = high ? v >> 8 : v, to = 0x00f000f0u, most = 0x00800080u,
        low = (g & 3) == 1 ? (high ? x >> 8 : x)
              : high       ? x >> 12
                           : x >> 4,
        from = 0x000c000cu;
    return lop3<LOP_AND_OR>(low, from, lop3<LOP_AND_XOR>(n, to, most));
}
template <int L> DEV void batch_codes(uint32_t (&a)[2][4], const tile_codes<L> &t, int g) {
    using W = format<L>;
    const uint4 c = t.c[W::wide ? g & 1 : 0];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int e = i >> 1, r = i & 1;
        if constexpr (W::pairs) {
            W::pair(a[e][r], a[e][2 + r], word_of(c, i), t.table, g);
        } else {
            const uint32_t v = W::word(word_of(c, i), g), x = W::NX ? word_of(t.x, i) : 0;
            a[e][r] = batch_code<L>(v, x, g, false);
            a[e][2 + r] = batch_code<L>(v, x, g, true);
        }
    }
}

// ---- products
DEV void batch_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { // from zero
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
DEV void batch_scale(float (&acc)[4], const float (&d)[4], float s0, float s1) {
    acc[0] = fmaf(d[0], s0, acc[0]);
    acc[1] = fmaf(d[1], s0, acc[1]);
    acc[2] = fmaf(d[2], s1, acc[2]);
    acc[3] = fmaf(d[3], s1, acc[3]);
}
// Addends of a lane's groups times the sums of columns, those in two parts of 11 bits.
template <int L> DEV void batch_addends(float (&acc)[4], const batch_factors<L> &f, const batch_x<L> &x) {
#pragma unroll
    for (int e = 0; e < batch_groups<L>::E; e++) {
        const uint32_t m[4] = {__float_as_uint(f.m[0][0][e]), __float_as_uint(f.m[1][0][e]),
                               __float_as_uint(f.m[0][1][e]), __float_as_uint(f.m[1][1][e])};
        const uint32_t b0 = __float_as_uint(x.sum[0][e]) & 0xffffe000u,
                       b1 = __float_as_uint(x.sum[1][e]) & 0xffffe000u;
        mma_tf32(acc, m[0], m[1], m[2], m[3], b0, b1);
        mma_tf32(acc, m[0], m[1], m[2], m[3], __float_as_uint(x.sum[0][e] - __uint_as_float(b0)),
                 __float_as_uint(x.sum[1][e] - __uint_as_float(b1)));
    }
}
// u: the unit, in shared memory; up: see unit_halves.cuh
template <int L> DEV void batch_unit(float (&acc)[4], const uint8_t *u, const batch_x<L> &x, float up) {
    using G = batch_groups<L>;
    const int lane = threadIdx.x & 31;
    batch_factors<L> f;
    f.load(u, up);
    if (G::addends) batch_addends<L>(acc, f, x);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        tile_codes<L> t;
        t.load(u, q, lane);
#pragma unroll
        for (int g = 2 * q; g < 2 * q + 2; g++) {
            uint32_t a[2][4];
            float s[2][G::E], d[4];
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int e = 0; e < G::E; e++)
                    s[r][e] = __shfl_sync(~0u, f.s[r][g >> 2][e], (lane & ~3) | (g & 3));
            batch_codes<L>(a, t, g);
            batch_mma(d, a[0], x.v[g].x, x.v[g].y);
            if (G::E == 2) {
                batch_scale(acc, d, s[0][0], s[1][0]);
                batch_mma(d, a[1], x.v[g].z, x.v[g].w);
            } else
                mma_f16(d, a[1][0], a[1][1], a[1][2], a[1][3], x.v[g].z, x.v[g].w);
            batch_scale(acc, d, s[0][G::E - 1], s[1][G::E - 1]);
        }
    }
}
