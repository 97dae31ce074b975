// What the prompt matmuls share: which rows a warp's slab reads, and where its sums go.
#pragma once
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_kernels.h"

// Row tile that a slab reads; slabs beyond the last read the last and store nothing.
DEV int slab_tile(const prompt_job &j, int slab) { return slab < j.n_slab ? slab : j.n_slab - 1; }
// What warp of a block that starts at slab0 reads; a stage holds codes of 8 row tiles from at on, tile bytes each.
template <int L> DEV slab slab_of(const prompt_job &j, int slab0, int warp, int at, int tile) {
    return slab{j.w + (size_t)slab_tile(j, slab0 + warp) * ((size_t)j.u * operands<L>::unit),
                at + warp * tile};
}

// Of BN tokens from t0 on, those before the next tile of activations.
template <int BN> DEV int prompt_before_next(int t0) {
    return PROMPT_TILE_ROWS % BN ? PROMPT_TILE_ROWS - (t0 & 255) : BN;
}

// Member that holds a slab; the launcher has checked that there is one.
DEV const prompt_member &member_of(const prompt_job &j, int slab) {
    int i = 0;
    while (i + 1 < j.n_member && slab >= j.member[i + 1].slab) i++;
    return j.member[i];
}

// Sums of gate (fragment rows 0..7) and up (8..15) to gated units in d[4 i + q]; which activation is asked once.
template <int N, class A> DEV void prompt_gate(float (&d)[N], A act) {
#pragma unroll
    for (int i = 0; i < N / 4; i++)
#pragma unroll
        for (int q = 0; q < 2; q++) d[4 * i + q] = act(d[4 * i + q]) * d[4 * i + 2 + q];
}
template <int N> DEV void prompt_gate(float (&d)[N], int act) {
    if (act == 0)
        prompt_gate(d, [](float g) { return act_apply(0, g); });
    else if (act == 1)
        prompt_gate(d, [](float g) { return act_apply(1, g); });
    else
        prompt_gate(d, [](float g) { return act_apply(2, g); });
}
// One column of gated units to the activation tiles; 8 rows further lie 1024 bytes on, in the same chunk.
template <bool WIDE, int BN>
DEV void prompt_put_gated(const prompt_job &j, const float (&d)[BN / 2], const prompt_column &col, int row,
                          int n_row) {
    const int before = prompt_before_next<BN>(row & ~7);
#pragma unroll
    for (int q = 0; q < 2; q++) {
        uint8_t *at = j.glu + prompt_offset(row + q, col, j.glu_k_tiles);
        int left = n_row - row - q;
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
            if (8 * i == before) at += (size_t)(j.glu_k_tiles - 1) * PROMPT_TILE_BYTES;
            if (8 * i < left) prompt_put(at + i * 1024, WIDE, d[4 * i + q]);
        }
    }
}
// One column of sums, rows 8 i + q: loads of STEP blocks of 8 rows go ahead of their stores, which the compiler may not
// exchange. STEP: as many as registers are left.
template <int EPI, int BN, int STEP>
DEV void prompt_put_sums(float *out, size_t stride, const float (&d)[BN / 2], int h, float bias, int left) {
    float *p = out;
#pragma unroll
    for (int i0 = 0; i0 < BN / 8; i0 += STEP) {
        float v[2 * STEP], *from = p;
#pragma unroll
        for (int i = 0; i < 2 * STEP; i++) {
            if (EPI == EPILOGUE_ADD) v[i] = 8 * (i0 + i / 2) + i % 2 < left ? from[i % 2 * stride] : 0.f;
            if (i % 2) from += 8 * stride;
        }
#pragma unroll
        for (int i = 0; i < 2 * STEP; i++) {
            float sum = d[4 * (i0 + i / 2) + 2 * h + i % 2] + bias;
            if (8 * (i0 + i / 2) + i % 2 < left) p[i % 2 * stride] = EPI == EPILOGUE_ADD ? v[i] + sum : sum;
            if (i % 2) p += 8 * stride;
        }
    }
}

// Gated units d[4 i + q] of rows t0 + 8 i + 2 t + q.
template <int BN>
DEV void prompt_store_gated(const prompt_job &j, const float (&d)[BN / 2], int slab, int t0, int n_row) {
    int lane = threadIdx.x & 31, c = slab * 8 + (lane >> 2), row = t0 + 2 * (lane & 3);
    if (slab >= j.n_slab || c >= j.member[0].n) return;
    const prompt_column col = prompt_column_of(c, j.glu_order);
    if (j.glu_order == ORDER_FLOATS)
        prompt_put_gated<true, BN>(j, d, col, row, n_row);
    else
        prompt_put_gated<false, BN>(j, d, col, row, n_row);
}
// Blocks of 8 rows whose loads go ahead: up to 16, in equal parts of a tile's tokens.
static __host__ __device__ constexpr int prompt_step(int tokens) {
    int step = 16;
    while (tokens / 8 % step) step--;
    return step;
}
// Sums d[4 i + 2 h + q] of rows t0 + 8 i + 2 t + q.
template <int EPI, int BN, int STEP = BN == 256 ? 16 : 4>
DEV void prompt_store(const prompt_job &j, float (&d)[BN / 2], int slab, int t0, int n_row) {
    if (EPI == EPILOGUE_GLU) {
        prompt_gate(d, j.act);
        prompt_store_gated<BN>(j, d, slab, t0, n_row);
        return;
    }
    if (slab >= j.n_slab) return;
    const prompt_member &m = member_of(j, slab);
    int lane = threadIdx.x & 31, row = t0 + 2 * (lane & 3), r = (slab - m.slab) * 16 + (lane >> 2);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int n = r + 8 * h;
        if (n < m.n)
            prompt_put_sums<EPI, BN, STEP>(j.out + m.col + n + (size_t)row * j.stride, j.stride, d, h,
                                           m.bias ? m.bias[n] : 0.f, n_row - row);
    }
}
