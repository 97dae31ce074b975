// What the prompt matmuls share: which rows a warp's slab reads, and where its sums go.
#pragma once
#include "prompt_frag.cuh"
#include "prompt_ops.h"

// Row tile that a slab reads; slabs beyond the last read the last and store nothing.
DEV int slab_tile(const prompt_job &j, int slab) { return slab < j.n_slab ? slab : j.n_slab - 1; }
// What warp of a block that starts at slab0 reads; a stage holds codes of 8 row tiles from at on, tile bytes each.
template <int L, bool PAIRED> DEV slab slab_of(const prompt_job &j, int slab0, int warp, int at, int tile) {
    size_t tile_bytes = (size_t)j.u * frag<L, PAIRED>::unit;
    int lo = PAIRED ? warp & ~1 : warp, hi = PAIRED ? warp | 1 : warp;
    return slab{j.w + (size_t)slab_tile(j, slab0 + lo) * tile_bytes,
                j.w + (size_t)slab_tile(j, slab0 + hi) * tile_bytes,
                at + lo * tile,
                at + hi * tile,
                PAIRED ? warp & 1 : 0,
                PAIRED ? warp & 1 : 1};
}

// Member that holds a slab; the launcher has checked that there is one.
DEV const prompt_member &member_of(const prompt_job &j, int slab) {
    int i = 0;
    while (i + 1 < j.n_member && slab >= j.member[i + 1].slab) i++;
    return j.member[i];
}

template <int EPI, int BN>
DEV void prompt_store(const prompt_job &j, const float (&d)[BN / 2], int slab, int t0, int n_row) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    if (slab >= j.n_slab) return;
    if (EPI == EPILOGUE_GLU) {
        int c = slab * 8 + g;
        if (c >= j.member[0].n) return;
        const bool wide = j.glu_order == ORDER_FLOATS;
        const prompt_column col = prompt_column_of(c, j.glu_order);
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
#pragma unroll
            for (int q = 0; q < 2; q++) {
                int row = t0 + 8 * i + 2 * t + q;
                if (row < n_row)
                    prompt_put(j.glu + prompt_offset(row, col, j.glu_k_tiles), wide,
                               act_apply(j.act, d[4 * i + q]) * d[4 * i + 2 + q]);
            }
        return;
    }
    const prompt_member &m = member_of(j, slab);
    int r = (slab - m.slab) * 16 + g;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int n = r + 8 * h;
        if (n >= m.n) continue;
        float b = m.bias ? m.bias[n] : 0.f;
        float *o = j.out + m.col + n;
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
#pragma unroll
            for (int q = 0; q < 2; q++) {
                int row = t0 + 8 * i + 2 * t + q;
                if (row >= n_row) continue;
                float v = d[4 * i + 2 * h + q] + b;
                float *p = o + (size_t)row * j.stride;
                *p = EPI == EPILOGUE_ADD ? *p + v : v;
            }
    }
}
