// Codes as halves: the sums of a unit of quantised weights times 8 NT rows of a slab, by mma.sync or by a warpgroup.
#pragma once
#include "stream_sums.cuh"
#include "wgmma.cuh"

DEV uint32_t half2_add(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
enum { LOP_AND_XOR = 0x6a }; // (a & b) ^ c
// Two codes of group g as halves, out of the low bytes of v's halves; x: their high or low bits, likewise. Codes without
// sign are subnormal halves, in units of 2^-24; others are taken from 1024 + 2^n.
template <int L> DEV uint32_t code_halves(uint32_t v, uint32_t x, int g) {
    const bool odd = g & 1;
    if constexpr (L == LAYOUT_Q4K || L == LAYOUT_Q4M)
        return v & (odd ? 0x00f000f0u : 0x000f000fu);
    else if constexpr (L == LAYOUT_Q5K)
        return odd ? lop3<LOP_AND_OR>(x << (8 - g), 0x01000100u, v & 0x00f000f0u)
                   : lop3<LOP_AND_OR>(g < 4 ? x << (4 - g) : x >> (g - 4), 0x00100010u, v & 0x000f000fu);
    else if constexpr (L == LAYOUT_Q4)
        return odd ? half2_add(lop3<LOP_AND_XOR>(v, 0x00f000f0u, 0x64806480u), 0xe480e480u)
                   : half2_add(lop3<LOP_AND_XOR>(v, 0x000f000fu, 0x64086408u), 0xe408e408u);
    else if constexpr (frag<L>::wide)
        return half2_add(lop3<LOP_AND_XOR>(v, 0x00ff00ffu, 0x64806480u), 0xe480e480u);
    else { // Q6K
        const uint32_t low = lop3<LOP_AND_XOR>(x >> (2 * (g & 3)), 0x00030003u, 0x64206420u);
        return half2_add(lop3<LOP_AND_XOR>(odd ? v >> 2 : v << 2, 0x003c003cu, low), 0xe420e420u);
    }
}
// What a sum with these halves must be multiplied by, to be the sum with the codes of one row.
template <int L> DEV constexpr float halves_factor(int g) {
    return L == LAYOUT_Q4K || L == LAYOUT_Q4M ? 0x1p24f
           : L == LAYOUT_Q5K                  ? (g & 1 ? 0x1p20f : 0x1p24f)
           : L == LAYOUT_Q4                   ? (g & 1 ? 1.f : 16.f)
           : L == LAYOUT_Q6K                  ? 4.f
                                              : 1.f;
}
// Operands of the two products of group g: columns 16 e ..; the even ones of 16 columns first.
template <int L> DEV void group_halves(uint32_t (&a)[2][4], const frag<L> &f, int g) {
    const uint4 c = f.c[code_part<L>(g)];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t v = word_of(c, i),
                       x = frag<L>::NX ? word_of(f.x[frag<L>::NX == 2 ? g >> 2 : 0], i) : 0;
        a[i >> 1][i & 1] = code_halves<L>(v, x, g);
        a[i >> 1][2 + (i & 1)] = code_halves<L>(v >> 8, x >> 8, g);
    }
}
DEV void mma_f16_from_0(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
// 8 NT rows of a stage: the first column tile, x as a lane of ldmatrix addresses its row of it, sums of the first row.
struct slab_rows {
    uint32_t first, x, tile; // tile: bytes of a column tile
    const uint8_t *sums;
    float whole; // what makes a half a code times its scale
};
template <int L, int GA, int NT, bool GROUP> struct slab_sums {
    float acc[NT][4][4]; // [8 rows][partial][output]
    MEM void clear() {
#pragma unroll
        for (int i = 0; i < NT * 16; i++) (&acc[0][0][0])[i] = 0;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    // The products of a warpgroup, four row tiles.
    MEM void group_wgmma(int p, int g, const uint32_t (&a)[2][4], const float (&s)[2][2],
                         const slab_rows &x) {
        constexpr bool halves = by_halves<L, GA>();
        const uint64_t b = wgmma_descriptor(x.first + (g >> 1) * x.tile) + (g & 1) * 4;
        float d[NT * 4];
#pragma unroll
        for (int e = 0; e < (halves ? 2 : 1); e++) {
            wgmma_fence();
            wgmma_rs_from_0(d, a[e], b + 2 * e);
            if (!halves) wgmma_rs(d, a[1], b + 2);
            wgmma_commit();
            wgmma_wait<0>(); // the other warpgroup keeps the tensor cores busy meanwhile
            wgmma_pin(d);
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int o = 0; o < 4; o++) acc[n][p][o] = fmaf(s[o >> 1][e], d[n * 4 + o], acc[n][p][o]);
        }
    }
#endif
    MEM void group(int p, int g, const uint32_t (&a)[2][4], const float (&s)[2][2], const slab_rows &x) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t b[4];
            float d[2][4];
            ldmatrix4(b, (x.x ^ (g & 1) << 6) + (g >> 1) * x.tile + n * 1024);
            mma_f16_from_0(d[0], a[0], b[0], b[1]);
            if constexpr (by_halves<L, GA>())
                mma_f16_from_0(d[1], a[1], b[2], b[3]);
            else
                mma_f16(d[0], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
#pragma unroll
            for (int e = 0; e < (by_halves<L, GA>() ? 2 : 1); e++)
#pragma unroll
                for (int o = 0; o < 4; o++) acc[n][p][o] = fmaf(s[o >> 1][e], d[e][o], acc[n][p][o]);
        }
    }
    MEM void mins(const frag<L> &f, int p, const slab_rows &x, int tig) { // Q4M, Q8M
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                float s0, s1;
                group_sums<GA>(x.sums + (n * 8 + 2 * tig + (o & 1)) * SLAB_SUM_ROW, p, s0, s1);
                const float2 m = half2_bits(word_of(f.m[o >> 1], p));
                acc[n][p][o] = fmaf(m.x, s0 * min_factor<L>(p), acc[n][p][o]);
                acc[n][p][o] = fmaf(m.y, s1 * min_factor<L>(p), acc[n][p][o]);
            }
    }
    MEM void unit(const uint8_t *u, const slab_rows &x, int lane) {
        using F = frag<L>;
        const int tig = lane & 3;
        F f;
        load_scales<L, false>(f, u, lane);
        unit_scales<L> scales;
        scales.start(f, lane);
        if constexpr (F::super)
#pragma unroll
            for (int n = 0; n < NT; n++)
                many_mins<L, GA, false>(acc[n][0], f, x.sums + (n * 8 + (lane >> 2)) * SLAB_SUM_ROW, tig);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            if (!p || code_part<L>(p) != code_part<L>(p - 1)) {
                asm volatile("" ::: "memory"); // not earlier: registers are scarce
                load_part<L>(f, u, code_part<L>(p), lane);
                load_part<L>(f, u, code_part<L>(p + 4), lane);
            }
            const row_scales<L> k[2] = {scales.of(f, 0, p, lane), scales.of(f, 1, p, lane)};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int g = p + 4 * i;
                uint32_t a[2][4];
                float s[2][2];
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        s[r][e] = k[r].s[F::six ? 2 * i + e : i] * (halves_factor<L>(g) * x.whole);
                group_halves<L>(a, f, g);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
                if constexpr (GROUP) {
                    group_wgmma(p, g, a, s, x);
                    continue;
                }
#endif
                group(p, g, a, s, x);
            }
            if constexpr (F::mins) mins(f, p, x, tig);
        }
    }
    MEM float value(int n, int o) const {
        float v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) v[p] = acc[n][p][o] * code_factor<L>(p);
        return (v[0] + v[1]) + (v[2] + v[3]);
    }
};
