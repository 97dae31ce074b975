// Matmul of prompt rows on sm_90a: out[t][n] = sum_k W[n][k] x[t][k], weights in registers (unit_operands.cuh), activations in
// shared memory, both halves, sums in float32 in the order of k, whatever T, tile or neighbour.
//
// A cluster of CL blocks takes 128 CL rows of W and BN tokens. In each block four warps stream its 128
// rows' codes and its share of every activation tile of 64 columns, multicast to all, and two warpgroups of 64 rows each
// consume them.
#pragma once
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/prompt/gemm_epilogue.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/wgmma_wide.cuh"

// Bytes of a stage: activations, then codes of 8 row tiles; stages that fit beside each other and beside the block's gated
// units (64 columns of BN tokens).
template <int L, int BN, int EPI> struct prompt_ring {
    static constexpr int x = BN * 128, tile = operands<L>::n_piece * operands<L>::piece_bytes,
                         stage = x + 8 * tile, out = EPI == EPILOGUE_GLU ? BN * 128 : 0;
    static constexpr int fit = (225 * 1024 - out) / stage, stages = fit > 6 ? 6 : fit,
                         smem = stages * stage + out + 1024;
};

// A piece of shared memory to global memory; whether those sent before have been read, and written.
DEV void bulk_store(void *dst, uint32_t src, uint32_t bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(dst),
        "r"(src), "r"(bytes)
        : "memory");
}
DEV void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// The same of n tokens from t0 on, to where they lie in a column of activation tiles that begins at to.
template <int BN> DEV void prompt_send(uint8_t *to, int k_tiles, int t0, int n, uint32_t src) {
    to += (size_t)(t0 >> 8) * k_tiles * PROMPT_TILE_BYTES + (t0 & 255) * 128;
    const int first = PROMPT_TILE_ROWS % BN ? min(n, prompt_before_next<BN>(t0)) : n;
    bulk_store(to, src, (uint32_t)first * 128);
    if (n > first)
        bulk_store(to + (size_t)(k_tiles - 1) * PROMPT_TILE_BYTES + first * 128, src + first * 128,
                   (uint32_t)(n - first) * 128);
}
DEV void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// A ring's barriers, of all blocks of the cluster.
template <class R, int CL> DEV void prompt_barriers(uint32_t full, uint32_t empty) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::stages; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 2 * CL);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
}

template <class R, int L, int BN, int CL>
DEV void prompt_consume(const prompt_job &j, float (&d)[BN / 2], int slab0, int warp, uint32_t ring,
                        uint32_t full, uint32_t empty, int &stage, uint32_t &phase, int lane) {
    using F = operands<L>;
    struct slab s = slab_of<L>(j, slab0, warp, R::x, R::tile);
#pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0.f;
    typename F::scales sc, sc_next;
    F::scale(sc, s, 0);
    for (int unit = 0; unit < j.u; unit++) {
        if (unit + 1 < j.u) F::scale(sc_next, s, (size_t)(unit + 1) * F::unit);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            if (unit * 4 + p >= j.k_tiles) break;
            typename F::raw raw;
            uint32_t a[4][4], at = ring + stage * R::stage;
            barrier_wait(full + stage * 8, phase);
            F::load(raw, s, at);
#pragma unroll
            for (int st = 0; st < 4; st++) F::step(raw, sc, s, p, st, a[st]);
            uint32_t b = wgmma_descriptor(at);
            wgmma_pin(d);
            wgmma_fence();
#pragma unroll
            for (int st = 0; st < 4; st++) wgmma_rs(d, a[st], b + 2 * st);
            wgmma_commit();
            wgmma_wait<0>(); // the other warpgroup keeps the tensor cores busy meanwhile
            wgmma_pin(d);
            if (lane < CL) cluster_arrive(empty + stage * 8, lane);
            if (++stage == R::stages) {
                stage = 0;
                phase ^= 1;
            }
        }
        sc = sc_next;
    }
}

// float32: weights too from shared memory, as TF32. The next product starts before the last one ends.
template <class R, int BN, int CL>
DEV void prompt_consume_tf32(const prompt_job &j, float (&d)[BN / 2], int warpgroup, uint32_t ring,
                             uint32_t full, uint32_t empty, int &stage, uint32_t &phase, int lane) {
#pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0.f;
    wgmma_pin(d);
    int last = -1;
    for (int k = 0; k < j.k_tiles; k++) {
        uint32_t at = ring + stage * R::stage;
        barrier_wait(full + stage * 8, phase);
        wgmma_fence();
        uint32_t a = wgmma_descriptor(at + R::x + warpgroup * 4 * R::tile), b = wgmma_descriptor(at);
#pragma unroll
        for (int st = 0; st < 4; st++) wgmma_tf32(d, a + 2 * st, b + 2 * st);
        wgmma_commit();
        wgmma_wait<1>();
        if (last >= 0 && lane < CL) cluster_arrive(empty + last * 8, lane);
        last = stage;
        if (++stage == R::stages) {
            stage = 0;
            phase ^= 1;
        }
    }
    wgmma_wait<0>();
    wgmma_pin(d);
    if (lane < CL) cluster_arrive(empty + last * 8, lane);
}

// A block's share of a tile's activations, BN / CL tokens: in one piece, or two where they go on in the next tile of activations; no
// more than there are, to whole blocks of 8, where a tile may end behind the last activations.
struct prompt_share {
    const uint8_t *x;  // of the first piece
    int first, n, all; // bytes of the first piece, of both, of the tile
};
template <int BN, int CL> DEV prompt_share prompt_share_of(const prompt_job &j, int t0, int n_row, int rank) {
    constexpr int most = BN * 128 / CL;
    const uint8_t *x =
        j.x + (size_t)(t0 >> 8) * j.k_tiles * PROMPT_TILE_BYTES + (t0 & 255) * 128 + rank * most;
    if (PROMPT_TILE_ROWS % BN == 0) return prompt_share{x, most, most, BN * 128};
    const int before = prompt_before_next<BN>(t0) * 128 - rank * most,
              all = min(BN, (n_row - t0 + 7) & ~7) * 128, n = min(most, all - rank * most);
    if (before <= 0) x += (size_t)(j.k_tiles - 1) * PROMPT_TILE_BYTES;
    return prompt_share{x, before <= 0 ? n : min(n, before), n, all};
}
template <int BN, int CL>
DEV void prompt_share_copy(const prompt_job &j, const prompt_share &s, int k, uint32_t to, uint32_t bar) {
    constexpr bool whole = PROMPT_TILE_ROWS % BN == 0;
    const uint8_t *x = s.x + (size_t)k * PROMPT_TILE_BYTES;
    if (whole || s.first > 0) bulk_multicast(to, x, s.first, bar, (1 << CL) - 1);
    if (!whole && s.n > s.first)
        bulk_multicast(to + s.first, x + s.first + (size_t)(j.k_tiles - 1) * PROMPT_TILE_BYTES, s.n - s.first,
                       bar, (1 << CL) - 1);
}

// WARPS warps, their part of eight row tiles' codes each: a warp begins its lanes' copies one after the other, and one warp takes longer for
// eight of them than few tokens take. Thread 0 copies this block's share of the activations, too.
template <class R, int L, int BN, int CL, int WARPS>
DEV void prompt_produce(const prompt_job &j, int slab0, int t0, int n_row, uint32_t ring, uint32_t full,
                        uint32_t empty, int rank, int &stage, uint32_t &phase) {
    using F = operands<L>;
    constexpr int TILES = 8 / WARPS; // of a warp
    const int lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * TILES + (lane & (TILES - 1));
    const prompt_share x = prompt_share_of<BN, CL>(j, t0, n_row, rank);
    const uint8_t *w = j.w + (size_t)slab_tile(j, slab0 + mine) * j.u * F::unit;
    for (int k = 0; k < j.k_tiles; k++) {
        uint32_t at = ring + stage * R::stage, bar = full + stage * 8;
        barrier_wait(empty + stage * 8, phase ^ 1);
        if (threadIdx.x == 0) {
            barrier_expect(bar, x.all + 8 * R::tile);
            prompt_share_copy<BN, CL>(j, x, k, at + rank * (BN * 128 / CL), bar);
        }
        __syncwarp();
        if (lane < TILES)
#pragma unroll
            for (int i = 0; i < F::n_piece; i++)
                bulk_copy(at + R::x + mine * R::tile + i * F::piece_bytes,
                          w + (size_t)(k / tiles_per_unit<L>)*F::unit + F::piece(k % tiles_per_unit<L>, i),
                          F::piece_bytes, bar);
        if (++stage == R::stages) {
            stage = 0;
            phase ^= 1;
        }
    }
}

// Gated units of the block, 64 columns of BN tokens: put together in shared memory at out as they lie in an activation tile,
// then sent as one piece. By both warpgroups; thread 128 waits until the piece before was read, and sends.
template <int BN>
DEV void prompt_finish_gated(const prompt_job &j, float (&d)[BN / 2], int slab0, int warp, int t0, int n_row,
                             uint32_t out) {
    const int lane = threadIdx.x & 31;
    prompt_gate(d, j.act);
    if (j.glu_order == ORDER_FLOATS || (slab0 + 8) * 8 > j.member[0].n)
        return prompt_store_gated<BN>(j, d, slab0 + warp, t0, n_row);
    if (threadIdx.x == 128) bulk_wait_read();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    const prompt_column col = prompt_column_of(warp * 8 + (lane >> 2), j.glu_order);
#pragma unroll
    for (int q = 0; q < 2; q++) {
        uint32_t at = out + (uint32_t)prompt_offset(2 * (lane & 3) + q, col, 1);
#pragma unroll
        for (int i = 0; i < BN / 8; i++) prompt_put_shared(at + i * 1024, d[4 * i + q]);
    }
    barrier_fence();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (threadIdx.x == 128)
        prompt_send<BN>(j.glu + (size_t)(slab0 / 8) * PROMPT_TILE_BYTES, j.glu_k_tiles, t0,
                        min(BN, n_row - t0), out);
}

template <int L, int EPI, int BN, int CL>
__global__ void __launch_bounds__(384, 1) gemm_wgmma_kernel(const __grid_constant__ prompt_job j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using R = prompt_ring<L, BN, EPI>;
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[2 * R::stages];
    uint32_t ring = (smem_address(smem_raw) + 1023) & ~1023u, full = smem_address(bars),
             empty = full + 8 * R::stages;
    int rank = (int)cluster_rank(), group = threadIdx.x >> 7, stage = 0;
    uint32_t phase = 0;
    prompt_barriers<R, CL>(full, empty);
    pdl_wait();
    int n_row = *j.n_row, n_tok = (n_row + BN - 1) / BN, n_tile = (j.n_slab + 8 * CL - 1) / (8 * CL) * n_tok;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int tile = blockIdx.x / CL; tile < n_tile; tile += gridDim.x / CL)
            prompt_produce<R, L, BN, CL, 4>(j, tile / n_tok * (8 * CL) + rank * 8, tile % n_tok * BN, n_row,
                                            ring, full, empty, rank, stage, phase);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int warp = (threadIdx.x >> 5) - 4;
        for (int tile = blockIdx.x / CL; tile < n_tile; tile += gridDim.x / CL) {
            const int slab0 = tile / n_tok * (8 * CL) + rank * 8, t0 = tile % n_tok * BN;
            float d[BN / 2];
            if constexpr (L == LAYOUT_F32)
                prompt_consume_tf32<R, BN, CL>(j, d, warp >> 2, ring, full, empty, stage, phase,
                                               threadIdx.x & 127);
            else
                prompt_consume<R, L, BN, CL>(j, d, slab0, warp, ring, full, empty, stage, phase,
                                             threadIdx.x & 127);
            if constexpr (EPI == EPILOGUE_GLU)
                prompt_finish_gated<BN>(j, d, slab0, warp, t0, n_row, ring + R::stages * R::stage);
            else
                prompt_store<EPI, BN, prompt_step(BN)>(j, d, slab0 + warp, t0, n_row);
        }
        if (EPI == EPILOGUE_GLU && threadIdx.x == 128) bulk_wait();
    }
    cluster_sync();
#endif
}

template <int L, int EPI, int BN>
cudaError_t prompt_start(const prompt_job &j, int n, int sm_count, cudaStream_t s) {
    constexpr int CL = 2;
    int clusters = (n + BN - 1) / BN * ((j.n_slab + 8 * CL - 1) / (8 * CL));
    if (clusters > sm_count / CL) clusters = sm_count / CL;
    auto kernel = gemm_wgmma_kernel<L, EPI, BN, CL>;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         prompt_ring<L, BN, EPI>::smem);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute a = {};
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = CL;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(clusters * CL));
    c.blockDim = dim3(384);
    c.dynamicSmemBytes = prompt_ring<L, BN, EPI>::smem;
    c.stream = s;
    c.attrs = &a;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, j);
}
template <int L, int EPI>
cudaError_t prompt_tile(const prompt_job &j, int tokens, int n, int sm_count, cudaStream_t s) {
    if constexpr (L != LAYOUT_F32) switch (tokens) {
        case 320:
            return prompt_start<L, EPI, 320>(j, n, sm_count, s);
        case 288:
            return prompt_start<L, EPI, 288>(j, n, sm_count, s);
        case 224:
            return prompt_start<L, EPI, 224>(j, n, sm_count, s);
        case 192:
            return prompt_start<L, EPI, 192>(j, n, sm_count, s);
        }
    return tokens == 256   ? prompt_start<L, EPI, 256>(j, n, sm_count, s)
           : tokens == 128 ? prompt_start<L, EPI, 128>(j, n, sm_count, s)
                           : prompt_start<L, EPI, 64>(j, n, sm_count, s);
}
template <int L>
cudaError_t prompt_layout(const prompt_job &j, enum prompt_epilogue e, int tokens, int n, int sm_count,
                          cudaStream_t s) {
    switch (e) {
    case EPILOGUE_STORE:
        return prompt_tile<L, EPILOGUE_STORE>(j, tokens, n, sm_count, s);
    case EPILOGUE_ADD:
        return prompt_tile<L, EPILOGUE_ADD>(j, tokens, n, sm_count, s);
    case EPILOGUE_GLU:
        return prompt_tile<L, EPILOGUE_GLU>(j, tokens, n, sm_count, s);
    }
    return cudaErrorInvalidValue;
}
