// Matmul of prompt rows with mma.sync: every chip from sm_80 on, and what --kernels mma runs on any. A block takes 128
// rows of W and 128 tokens, a warp a slab of 16 rows; cp.async brings 64 columns of activations and codes at a time into
// a ring. Sums run in the order of k, whatever T, tile or neighbour.
#pragma once
#include "prompt_frag.cuh"
#include "prompt_ops.h"
#include "prompt_store.cuh"

enum { MMA_ROWS = 128, MMA_TOKENS = 128 };
template <int L> struct mma_ring {
    static constexpr int x = MMA_TOKENS * 128, tile = frag<L, false>::n_piece * frag<L, false>::piece_bytes,
                         stage = x + 8 * tile, fit = 98 * 1024 / stage, stages = fit > 4 ? 4 : fit,
                         smem = stages * stage;
};

// 64 columns k of everything the block reads, 256 threads.
template <int L> DEV void mma_load(const prompt_job &j, uint32_t at, int slab0, int t0, int k) {
    using F = frag<L, false>;
    using R = mma_ring<L>;
    const uint8_t *x = j.x + ((size_t)(t0 >> 8) * j.k_tiles + k) * PROMPT_TILE_BYTES + (t0 & 255) * 128;
#pragma unroll
    for (int i = 0; i < R::x; i += 4096) cp_async16(at + i + threadIdx.x * 16, x + i + threadIdx.x * 16, 16);
    constexpr int CHUNKS = F::piece_bytes / 16; // of a piece
#pragma unroll
    for (int i = threadIdx.x; i < 8 * F::n_piece * CHUNKS; i += 256) {
        int c = i % CHUNKS, piece = i / CHUNKS % F::n_piece, tile = i / CHUNKS / F::n_piece;
        const uint8_t *w = j.w + ((size_t)slab_tile(j, slab0 + tile) * j.u + (k >> 2)) * F::unit;
        cp_async16(at + R::x + tile * R::tile + piece * F::piece_bytes + c * 16,
                   w + F::piece(k & 3, piece) + c * 16, 16);
    }
}

template <int L, int EPI>
__global__ void __launch_bounds__(256) prompt_mma_kernel(const __grid_constant__ prompt_job j) {
    constexpr bool PAIRED = EPI == EPILOGUE_GLU && L != LAYOUT_F16;
    using F = frag<L, PAIRED>;
    using R = mma_ring<L>;
    extern __shared__ __align__(1024) uint8_t mma_smem[];
    uint32_t ring = smem_address(mma_smem);
    int n_row = *j.n_row, t0 = blockIdx.x * MMA_TOKENS, slab0 = blockIdx.y * 8, warp = threadIdx.x >> 5,
        lane = threadIdx.x & 31;
    if (t0 >= n_row) return;
    struct slab s = slab_of<L, PAIRED>(j, slab0, warp, R::x, R::tile);
    float d[MMA_TOKENS / 2];
#pragma unroll
    for (int i = 0; i < MMA_TOKENS / 2; i++) d[i] = 0.f;
    for (int k = 0; k < R::stages - 1; k++) {
        if (k < j.k_tiles) mma_load<L>(j, ring + k * R::stage, slab0, t0, k);
        cp_commit();
    }
    typename F::scales sc, sc_next;
    F::scale(sc, s, 0);
    // a lane's row and 16-byte chunk of ldmatrix: two groups of 8 tokens, two halves of 16 columns
    int row = (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
    for (int unit = 0; unit < j.u; unit++) {
        if (unit + 1 < j.u) F::scale(sc_next, s, (size_t)(unit + 1) * F::unit);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            int k = unit * 4 + p;
            if (k >= j.k_tiles) break;
            cp_wait<R::stages - 2>();
            __syncthreads();
            int next = k + R::stages - 1;
            if (next < j.k_tiles) mma_load<L>(j, ring + next % R::stages * R::stage, slab0, t0, next);
            cp_commit();
            uint32_t at = ring + k % R::stages * R::stage;
            typename F::raw raw;
            F::load(raw, s, at);
#pragma unroll
            for (int st = 0; st < 4; st++) {
                uint32_t a[4];
                F::step(raw, sc, s, p, st, a);
#pragma unroll
                for (int i = 0; i < MMA_TOKENS / 16; i++) {
                    uint32_t b[4];
                    ldmatrix4(b, at + (i * 16 + row) * 128 + (((st * 2 + half) ^ (row & 7)) << 4));
                    mma_f16(*(float(*)[4])(d + 8 * i), a[0], a[1], a[2], a[3], b[0], b[1]);
                    mma_f16(*(float(*)[4])(d + 8 * i + 4), a[0], a[1], a[2], a[3], b[2], b[3]);
                }
            }
        }
        sc = sc_next;
    }
    prompt_store<EPI, MMA_TOKENS>(j, d, slab0 + warp, t0, n_row);
}

template <int L, int EPI> cudaError_t mma_start(const prompt_job &j, int n, cudaStream_t s) {
    auto kernel = prompt_mma_kernel<L, EPI>;
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, mma_ring<L>::smem);
    if (e != cudaSuccess) return e;
    kernel<<<dim3((n + MMA_TOKENS - 1) / MMA_TOKENS, (j.n_slab + 7) / 8), 256, mma_ring<L>::smem, s>>>(j);
    return cudaGetLastError();
}
template <int L> cudaError_t mma_layout(const prompt_job &j, enum prompt_epilogue e, int n, cudaStream_t s) {
    switch (e) {
    case EPILOGUE_STORE:
        return mma_start<L, EPILOGUE_STORE>(j, n, s);
    case EPILOGUE_ADD:
        return mma_start<L, EPILOGUE_ADD>(j, n, s);
    case EPILOGUE_GLU:
        return mma_start<L, EPILOGUE_GLU>(j, n, s);
    }
    return cudaErrorInvalidValue;
}
