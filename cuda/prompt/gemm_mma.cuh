// Matmul of prompt rows with mma.sync: every chip from sm_80 on, and what --kernels mma runs on any. A block takes 128
// rows of W and TOK tokens, a warp a slab of 16 rows; cp.async brings a tile of activations and the codes that meet it at a
// time into a ring. Sums run in the order of k, whatever T, tile or neighbour.
#pragma once
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/prompt/gemm_epilogue.cuh"

enum { MMA_ROWS = 128 };
template <int L, int TOK> struct mma_ring {
    static constexpr int x = TOK * 128, tile = operands<L>::n_piece * operands<L>::piece_bytes,
                         stage = x + 8 * tile, fit = 98 * 1024 / stage, stages = fit > 4 ? 4 : fit,
                         smem = stages * stage;
};

// Tile k of everything the block reads, 256 threads.
template <int L, int TOK> DEV void mma_load(const prompt_job &j, uint32_t at, int slab0, int t0, int k) {
    using F = operands<L>;
    using R = mma_ring<L, TOK>;
    const uint8_t *x = j.x + ((size_t)(t0 >> 8) * j.k_tiles + k) * PROMPT_TILE_BYTES + (t0 & 255) * 128;
#pragma unroll
    for (int i = 0; i < R::x; i += 4096) cp_async16(at + i + threadIdx.x * 16, x + i + threadIdx.x * 16, 16);
    constexpr int CHUNKS = F::piece_bytes / 16; // of a piece
#pragma unroll
    for (int i = threadIdx.x; i < 8 * F::n_piece * CHUNKS; i += 256) {
        int c = i % CHUNKS, piece = i / CHUNKS % F::n_piece, tile = i / CHUNKS / F::n_piece;
        const uint8_t *w = j.w + ((size_t)slab_tile(j, slab0 + tile) * j.u + k / tiles_per_unit<L>)*F::unit;
        cp_async16(at + R::x + tile * R::tile + piece * F::piece_bytes + c * 16,
                   w + F::piece(k % tiles_per_unit<L>, piece) + c * 16, 16);
    }
}

// One tile of activations at x times a warp's weights: 4 steps of 16 columns (TF32: of 8).
template <int TOK, class STEP> DEV void mma_tile(float (&d)[TOK / 2], uint32_t x, STEP step) {
    // a lane's row and 16-byte chunk of ldmatrix: two groups of 8 tokens, two halves of a step
    int lane = threadIdx.x & 31, row = (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
#pragma unroll
    for (int st = 0; st < 4; st++) {
        uint32_t a[4];
        step(st, a);
#pragma unroll
        for (int i = 0; i < TOK / 16; i++) {
            uint32_t b[4];
            ldmatrix4(b, x + (i * 16 + row) * 128 + (((st * 2 + half) ^ (row & 7)) << 4));
            step.mma(*(float(*)[4])(d + 8 * i), a, b[0], b[1]);
            step.mma(*(float(*)[4])(d + 8 * i + 4), a, b[2], b[3]);
        }
    }
}
template <class F> struct mma_codes {
    const typename F::raw &raw;
    const typename F::scales &sc;
    const slab &s;
    int p;
    MEM void operator()(int st, uint32_t (&a)[4]) const { F::step(raw, sc, s, p, st, a); }
    DEV void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
    }
};
struct mma_floats {
    uint32_t at; // 16 rows of 128 bytes
    MEM void operator()(int st, uint32_t (&a)[4]) const {
        int lane = threadIdx.x & 31, row = lane & 15;
        ldmatrix4(a, at + row * 128 + (((st * 2 + (lane >> 4)) ^ (row & 7)) << 4));
    }
    DEV void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        mma_tf32(d, a[0], a[1], a[2], a[3], b0, b1);
    }
};

template <int L, int EPI, int TOK>
__global__ void __launch_bounds__(256) gemm_mma_kernel(const __grid_constant__ prompt_job j) {
    using F = operands<L>;
    using R = mma_ring<L, TOK>;
    extern __shared__ __align__(1024) uint8_t mma_smem[];
    uint32_t ring = smem_address(mma_smem);
    int n_row = *j.n_row, t0 = blockIdx.x * TOK, slab0 = blockIdx.y * 8, warp = threadIdx.x >> 5;
    if (t0 >= n_row) return;
    struct slab s = slab_of<L>(j, slab0, warp, R::x, R::tile);
    float d[TOK / 2];
#pragma unroll
    for (int i = 0; i < TOK / 2; i++) d[i] = 0.f;
    for (int k = 0; k < R::stages - 1; k++) {
        if (k < j.k_tiles) mma_load<L, TOK>(j, ring + k * R::stage, slab0, t0, k);
        cp_commit();
    }
    auto stage_of = [&](int k) { // waits for tile k, asks for the one behind the ring
        cp_wait<R::stages - 2>();
        __syncthreads();
        int next = k + R::stages - 1;
        if (next < j.k_tiles) mma_load<L, TOK>(j, ring + next % R::stages * R::stage, slab0, t0, next);
        cp_commit();
        return ring + k % R::stages * R::stage;
    };
    if constexpr (L == LAYOUT_F32) {
        for (int k = 0; k < j.k_tiles; k++) {
            uint32_t at = stage_of(k);
            mma_tile<TOK>(d, at, mma_floats{at + s.at});
        }
    } else {
        typename F::scales sc, sc_next;
        F::scale(sc, s, 0);
        for (int unit = 0; unit < j.u; unit++) {
            if (unit + 1 < j.u) F::scale(sc_next, s, (size_t)(unit + 1) * F::unit);
#pragma unroll
            for (int p = 0; p < 4; p++) {
                if (unit * 4 + p >= j.k_tiles) break;
                uint32_t at = stage_of(unit * 4 + p);
                typename F::raw raw;
                F::load(raw, s, at);
                mma_tile<TOK>(d, at, mma_codes<F>{raw, sc, s, p});
            }
            sc = sc_next;
        }
    }
    prompt_store<EPI, TOK>(j, d, slab0 + warp, t0, n_row);
}

template <int L, int EPI, int TOK> cudaError_t mma_start(const prompt_job &j, int n, cudaStream_t s) {
    auto kernel = gemm_mma_kernel<L, EPI, TOK>;
    constexpr int smem = mma_ring<L, TOK>::smem;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    if (e != cudaSuccess) return e;
    kernel<<<dim3((n + TOK - 1) / TOK, (j.n_slab + 7) / 8), 256, smem, s>>>(j);
    return cudaGetLastError();
}
template <int L, int EPI> cudaError_t mma_tokens(const prompt_job &j, int tokens, int n, cudaStream_t s) {
    return tokens == 128 ? mma_start<L, EPI, 128>(j, n, s) : mma_start<L, EPI, 64>(j, n, s);
}
template <int L>
cudaError_t mma_layout(const prompt_job &j, enum prompt_epilogue e, int tokens, int n, cudaStream_t s) {
    switch (e) {
    case EPILOGUE_STORE:
        return mma_tokens<L, EPILOGUE_STORE>(j, tokens, n, s);
    case EPILOGUE_ADD:
        return mma_tokens<L, EPILOGUE_ADD>(j, tokens, n, s);
    case EPILOGUE_GLU:
        return mma_tokens<L, EPILOGUE_GLU>(j, tokens, n, s);
    }
    return cudaErrorInvalidValue;
}
