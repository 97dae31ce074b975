// The sums of a unit of weights times one row. Every column of the products holds the row; many rows take the same products in
// the same order, see skinny.cuh.
#pragma once
#include "cuda/formats/unit_halves.cuh"

// A unit in registers.
template <int L> struct frag {
    tile_codes<L> t[4];
    unit_factors<L> f;
    MEM void load(const uint8_t *u, int lane, float up) {
#pragma unroll
        for (int q = 0; q < 4; q++) t[q].load(u, q, lane);
        f.load(u, lane, up);
    }
};
struct frag_halves {
    uint4 c[16];
    MEM void load(const uint8_t *u, int lane, float) {
#pragma unroll
        for (int i = 0; i < 16; i++) c[i] = *(const uint4 *)(u + i * 512 + lane * 16);
    }
};
template <> struct frag<LAYOUT_F16> : frag_halves {};
template <> struct frag<LAYOUT_BF16> : frag_halves {};

// Codes as halves; x: halves in the order of codes (act_tile.cuh), 512 bytes.
template <int L, int R> struct one_codes {
    float acc[R][4];
    MEM void start(int) {}
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][0] = acc[h][1] = acc[h][2] = acc[h][3] = 0;
    }
    MEM void unit(const frag<L> (&f)[R], const uint8_t *x, int lane) {
#pragma unroll
        for (int g = 0; g < 8; g++) {
            const uint4 b = *(const uint4 *)(x + g * 64 + (lane & 3) * 16);
#pragma unroll
            for (int h = 0; h < R; h++) {
                group_factors<L> k;
                uint32_t a[2][4];
                k.get(f[h].f, g, lane);
                group_halves<L>(a, f[h].t[g >> 1], g, k);
                mma_f16(acc[h], a[0][0], a[0][1], a[0][2], a[0][3], b.x, b.y);
                mma_f16(acc[h], a[1][0], a[1][1], a[1][2], a[1][3], b.z, b.w);
            }
        }
    }
    MEM void leave(float *red, int lane) {
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if ((lane & 3) == 0) red[h * 16 + (lane >> 2) + 8 * r] = acc[h][2 * r];
    }
};
// Halves; bfloat16: even columns hold the row's high part, odd ones the low.
template <int L, int R> struct one_half {
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
