// What the attention kernels without a mask share: the softmax of a tile of keys, and the output.
#pragma once
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/prompt/encode.h"

// Of a thread's rows g and g + 8: largest score so far, sum of its own probabilities.
struct encode_rows {
    float m[2], l[2];
};
// Scores s of KEYS keys, of which the first n are there, to probabilities p (A fragments); rescales the N / 8 columns of o.
template <int KEYS, int N>
DEV void encode_softmax(encode_rows &r, int n, float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 16][4],
                        float (&o)[N / 2]) {
    if (n < KEYS)
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if ((i >> 2) * 8 + 2 * ((int)threadIdx.x & 3) + (i & 1) >= n) s[i] = -INFINITY;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = r.m[h];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) top = fmaxf(top, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)); // a number: every tile has a key
        const float alpha = exp2_fast(r.m[h] - top);
        r.m[h] = top;
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            const float a = exp2_fast(s[4 * i + 2 * h] - top), b = exp2_fast(s[4 * i + 2 * h + 1] - top);
            sum += a + b;
            p[i >> 1][h + 2 * (i & 1)] = pack_half2(a, b);
        }
        r.l[h] = r.l[h] * alpha + sum;
        if (__any_sync(~0u, alpha != 1.f)) // else they stay what they are
#pragma unroll
            for (int i = 0; i < N / 8; i++) {
                o[4 * i + 2 * h] *= alpha;
                o[4 * i + 2 * h + 1] *= alpha;
            }
    }
}
// o / l of rows row and row + 8 to the activation tiles.
template <int N>
DEV void encode_finish(const encode_job &j, const encode_rows &r, int row, int n_row, int head,
                       const float (&o)[N / 2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.l[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inv = 1.f / sum;
        if (row + 8 * h >= n_row) continue;
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            const int c = 8 * i + 2 * ((int)threadIdx.x & 3);
            if (c < j.dim) // dim is even
                prompt_put2(j.out, row + 8 * h, head * j.dim + c, j.out_k_tiles, j.out_order,
                            o[4 * i + 2 * h] * inv, o[4 * i + 2 * h + 1] * inv);
        }
    }
}
