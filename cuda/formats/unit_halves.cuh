// A unit of weights as halves: codes become halves on their way to the tensor cores, code * scale + minimum in one rounding.
#pragma once
#include "cuda/common/util.cuh"

template <bool B, class X, class Y> struct conditional_type { using type = X; };
template <class X, class Y> struct conditional_type<false, X, Y> { using type = Y; };
template <bool B, class X, class Y> using conditional_t = typename conditional_type<B, X, Y>::type;

// What a unit of unit_layout.h has beside its scales: codes, and bits that do not fit beside them.
template <int L> struct coded {
    static constexpr bool half = L == LAYOUT_F16 || L == LAYOUT_BF16; // as they are
    static constexpr bool wide = L == LAYOUT_Q8 || L == LAYOUT_Q8M;
    static constexpr bool mins = L == LAYOUT_Q4M || L == LAYOUT_Q8M;
    static constexpr bool super = L == LAYOUT_Q4K || L == LAYOUT_Q5K;
    static constexpr bool six = L == LAYOUT_Q6K || L == LAYOUT_Q3K; // a scale of 8 bits for 16 columns
    // parts of 512 bytes
    static constexpr int NC = half                                 ? 16
                              : wide                               ? 8
                              : L == LAYOUT_Q3K || L == LAYOUT_Q2K ? 2
                                                                   : 4,
                         NX = L == LAYOUT_Q6K                      ? 2
                              : L == LAYOUT_Q5K || L == LAYOUT_Q3K ? 1
                                                                   : 0;
    static constexpr int scales = (NC + NX) * 512; // byte of the scales
};
DEV uint32_t word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// ---- scales
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
DEV float2 bf16x2_bits(uint32_t v) {
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}
// Codes without sign are halves below the normal ones: code * 2^-24, times 16 for a nibble that stays in the high bits of its
// byte. So a scale is multiplied by up, a power of two of the matrix, which makes the largest one of it close to the largest
// half; the weights come out as w * up * 2^-24, and the sums are divided by that.
// What lane (gid, tig) knows of groups tig and tig + 4 of rows gid and gid + 8: pairs {scale, what is added}; of six
// {scale of the first 16 columns, of the last}; of Q2K four pairs.
template <int L> struct unit_factors {
    using W = coded<L>;
    static constexpr int N = L == LAYOUT_Q2K ? 4 : 2;
    uint32_t own[2][N];
    MEM void load(const uint8_t *u, int lane, float up) {
        const int gid = lane >> 2, tig = lane & 3;
        const float place = L == LAYOUT_Q2K ? __uint_as_float((127 - 2 * tig) << 23)
                            : W::super || L == LAYOUT_Q4 || L == LAYOUT_Q4M ? (tig & 1 ? 0.0625f : 1.f)
                                                                            : 1.f;
        u += W::scales;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = gid + 8 * r;
            if constexpr (W::super) {
                const uint4 s = *(const uint4 *)(u + row * 16);
                const float2 d = half2_bits(s.x), sc = bf16x2_bits(super_scales(s, tig)),
                             m = bf16x2_bits(super_mins(s, tig));
                const float k = d.x * (up * place), n = d.y * (up * -0x1p-24f);
                own[r][0] = pack_half2(sc.x * k, m.x * n);
                own[r][1] = pack_half2(sc.y * k, m.y * n);
            } else if constexpr (W::six) {
                const uint32_t w = *(const uint32_t *)(u + row * 16 + tig * 4);
                const float k = half_bits(*(const uint16_t *)(u + 256 + row * 2)) * up;
                float s[4];
#pragma unroll
                for (int i = 0; i < 4; i++) // 2^23 + 128
                    s[i] = (__uint_as_float(__byte_perm(w, 0x4b000000u, 0x7540 + i)) - 8388736.f) * k;
                own[r][0] = pack_half2(s[0], s[1]);
                own[r][1] = pack_half2(s[2], s[3]);
            } else if constexpr (L == LAYOUT_Q2K) {
                const float2 d = half2_bits(*(const uint32_t *)(u + 256 + row * 4));
                const float k = d.x * (up * place), n = d.y * (up * -0x1p-24f);
                const uint32_t w = *(const uint32_t *)(u + row * 16 + tig * 4);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const uint32_t b = w >> (8 * i) & 255;
                    own[r][i] = pack_half2((float)(b & 15) * k, (float)(b >> 4) * n);
                }
            } else if constexpr (W::mins) {
                const uint2 s = *(const uint2 *)(u + row * 32 + tig * 8);
                const float2 d = half2_bits(s.x), m = half2_bits(s.y);
                const float k = up * place, n = up * 0x1p-24f;
                own[r][0] = pack_half2(d.x * k, m.x * n);
                own[r][1] = pack_half2(d.y * k, m.y * n);
            } else {
                const float2 d = half2_bits(*(const uint32_t *)(u + row * 16 + tig * 4));
                const float k = up * place, n = up * (L == LAYOUT_Q4 ? -0x1p-21f : -0x1p-17f);
                own[r][0] = pack_half2(d.x * k, d.x * n);
                own[r][1] = pack_half2(d.y * k, d.y * n);
            }
        }
    }
};
// The same of group g for all lanes: [row][16 columns] scale and addend, each twice.
template <int L> struct group_factors {
    __half2 s[2][2], m[2][2];
    MEM void get(const unit_factors<L> &f, int g, int lane) {
        using W = coded<L>;
        const int from = (lane & ~3) | (g & 3);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (W::six) {
                const __half2 w = as_half2(__shfl_sync(~0u, f.own[r][g >> 2], from)),
                              n = __hmul2(w, as_half2(L == LAYOUT_Q6K ? 0x80208020u : 0x80048004u));
                s[r][0] = __low2half2(w), s[r][1] = __high2half2(w);
                m[r][0] = __low2half2(n), m[r][1] = __high2half2(n);
            } else
#pragma unroll
                for (int e = 0; e < unit_factors<L>::N / 2; e++) {
                    const __half2 w =
                        as_half2(__shfl_sync(~0u, f.own[r][(g >> 2) * (unit_factors<L>::N / 2) + e], from));
                    s[r][e] = __low2half2(w), m[r][e] = __high2half2(w);
                    if (unit_factors<L>::N == 2) s[r][1] = s[r][0], m[r][1] = m[r][0];
                }
        }
    }
};

// ---- codes
enum { LOP_AND_XOR = 0x6a }; // (a & b) ^ c
// Codes of 64 columns of a unit as a lane has them: column tile q.
template <int L> struct tile_codes {
    uint4 c[coded<L>::wide ? 2 : 1], x;
    MEM void load(const uint8_t *u, int q, int lane) {
        using W = coded<L>;
        u += lane * 16;
        if constexpr (W::wide) {
            c[0] = *(const uint4 *)(u + 2 * q * 512);
            c[1] = *(const uint4 *)(u + 2 * q * 512 + 512);
        } else
            c[0] = *(const uint4 *)(u + (W::NC == 2 ? q >> 1 : q) * 512);
        if constexpr (W::NX) x = *(const uint4 *)(u + (W::NC + (W::NX == 2 ? q >> 1 : 0)) * 512);
    }
};
// Two codes of group g as halves, out of the low bytes of v's halves; x: their other bits, likewise.
template <int L> DEV uint32_t code_halves(uint32_t v, uint32_t x, int g) {
    const bool odd = g & 1;
    const int q = 2 * (g & 3);
    if constexpr (L == LAYOUT_Q4K || L == LAYOUT_Q4M)
        return v & (odd ? 0x00f000f0u : 0x000f000fu);
    else if constexpr (L == LAYOUT_Q5K)
        return odd ? lop3<LOP_AND_OR>(x << (8 - g), 0x01000100u, v & 0x00f000f0u)
                   : lop3<LOP_AND_OR>(g < 4 ? x << (4 - g) : x >> (g - 4), 0x00100010u, v & 0x000f000fu);
    else if constexpr (L == LAYOUT_Q4)
        return odd ? lop3<LOP_AND_XOR>(v, 0x00f000f0u, 0x00800080u)
                   : lop3<LOP_AND_XOR>(v, 0x000f000fu, 0x00080008u);
    else if constexpr (L == LAYOUT_Q8 || L == LAYOUT_IQ4)
        return lop3<LOP_AND_XOR>(v, 0x00ff00ffu, 0x00800080u);
    else if constexpr (L == LAYOUT_Q8M)
        return v & 0x00ff00ffu;
    else if constexpr (L == LAYOUT_Q2K)
        return v & 0x00030003u << q;
    else if constexpr (L == LAYOUT_Q3K)
        return lop3<LOP_AND_XOR>(g < 2 ? x << (2 - g) : x >> (g - 2), 0x00040004u,
                                 lop3<LOP_AND_XOR>(v >> q, 0x00030003u, 0x00040004u));
    else // Q6K
        return lop3<LOP_AND_XOR>(odd ? v >> 2 : v << 2, 0x003c003cu,
                                 lop3<LOP_AND_XOR>(x >> q, 0x00030003u, 0x00200020u));
}
// Operands of the two products of group g: columns 16 e ..; the even ones of 16 columns first.
template <int L>
DEV void group_halves(uint32_t (&a)[2][4], const tile_codes<L> &t, int g, const group_factors<L> &f) {
    const uint4 c = t.c[coded<L>::wide ? g & 1 : 0];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int e = i >> 1, r = i & 1;
        uint32_t v = word_of(c, i);
        if (L == LAYOUT_IQ4) v = iq4_levels(g & 1 ? v >> 16 : v);
        const uint32_t x = coded<L>::NX ? word_of(t.x, i) : 0;
        a[e][r] = half2_word(__hfma2(as_half2(code_halves<L>(v, x, g)), f.s[r][e], f.m[r][e]));
        a[e][2 + r] = half2_word(__hfma2(as_half2(code_halves<L>(v >> 8, x >> 8, g)), f.s[r][e], f.m[r][e]));
    }
}
