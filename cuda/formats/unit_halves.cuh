// A unit of weights as halves: codes become halves on their way to the tensor cores, code * scale + minimum in one rounding.
#pragma once
#include "made/cuda_formats.cuh"

template <bool B, class X, class Y> struct conditional_type { using type = X; };
template <class X, class Y> struct conditional_type<false, X, Y> { using type = Y; };
template <bool B, class X, class Y> using conditional_t = typename conditional_type<B, X, Y>::type;

// Codes without sign are halves below the normal ones: code * 2^-24, times 16 for a nibble that stays in the high bits of its
// byte. So a scale is multiplied by up, a power of two of the matrix, which makes the largest one of it close to the largest
// half; the weights come out as w * up * 2^-24, and the sums are divided by that.
// What lane (gid, tig) knows of groups tig and tig + 4 of rows gid and gid + 8: pairs {scale, what is added}, or what the format
// makes of them.
template <int L> struct unit_factors {
    uint32_t own[2][format<L>::n_factor];
    MEM void load(const uint8_t *u, int lane, float up) {
#pragma unroll
        for (int r = 0; r < 2; r++) format<L>::factors(own[r], u, (lane >> 2) + 8 * r, lane & 3, up);
    }
};
// The same of group g for all lanes: [row][16 columns] scale and addend, each twice.
template <int L> struct group_factors {
    __half2 s[2][2], m[2][2];
    MEM void get(const unit_factors<L> &f, int g, int lane) {
        const int from = (lane & ~3) | (g & 3);
#pragma unroll
        for (int r = 0; r < 2; r++) format<L>::spread(s[r], m[r], f.own[r], g, from);
    }
};

// ---- codes
// Codes of 64 columns of a unit as a lane has them: column tile q.
template <int L> struct tile_codes {
    uint4 c[format<L>::wide ? 2 : 1], x, table[2];
    MEM void load(const uint8_t *u, int q, int lane) {
        using W = format<L>;
        u += lane * 16;
        if constexpr (W::wide) {
            c[0] = *(const uint4 *)(u + 2 * q * 512);
            c[1] = *(const uint4 *)(u + 2 * q * 512 + 512);
        } else
            c[0] = *(const uint4 *)(u + (W::NC == 2 ? q >> 1 : q) * 512);
        if constexpr (W::NX) x = *(const uint4 *)(u + (W::NC + (W::NX == 2 ? q >> 1 : 0)) * 512);
        if constexpr (W::levels) W::load_table(table, u - lane * 16);
    }
};
// Operands of the two products of group g: columns 16 e ..; the even ones of 16 columns first. code_halves of a format: two
// codes of group g as halves, out of the low bytes of v's halves; x: their other bits, likewise.
template <int L>
DEV void group_halves(uint32_t (&a)[2][4], const tile_codes<L> &t, int g, const group_factors<L> &f) {
    using W = format<L>;
    const uint4 c = t.c[W::wide ? g & 1 : 0];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int e = i >> 1, r = i & 1;
        if constexpr (W::pairs) {
            W::pair(a[e][r], a[e][2 + r], word_of(c, i), t.table, g);
            a[e][r] = half2_word(__hmul2(as_half2(a[e][r]), f.s[r][e]));
            a[e][2 + r] = half2_word(__hmul2(as_half2(a[e][2 + r]), f.s[r][e]));
        } else {
            const uint32_t v = W::word(word_of(c, i), g), x = W::NX ? word_of(t.x, i) : 0;
            a[e][r] = half2_word(__hfma2(as_half2(W::code_halves(v, x, g)), f.s[r][e], f.m[r][e]));
            a[e][2 + r] =
                half2_word(__hfma2(as_half2(W::code_halves(v >> 8, x >> 8, g)), f.s[r][e], f.m[r][e]));
        }
    }
}
