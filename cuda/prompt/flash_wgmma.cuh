// Causal attention of prompt rows on sm_90a over pages of the cache: online softmax over tiles of 128 keys at absolute
// positions, so a row's bits do not depend on chunks, tiles or neighbours.
//
// A block takes 128 rows of one query head: a warpgroup of loaders (cp.async into swizzled tiles), two of 64 rows each with
// the probabilities in registers. source: Dao 2023 (arXiv 2307.08691); Shah et al. 2024 (arXiv 2407.08608).
#pragma once
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_kernels.h"
#include "cuda/prompt/flash_softmax.cuh"
#include "cuda/common/wgmma.cuh"

enum { ATTEND_KEYS = 128, ATTEND_STAGES = 2 };

template <int D, class J>
__global__ void __launch_bounds__(384, 1) flash_wgmma_kernel(const __grid_constant__ J j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int BLOCK = ATTEND_KEYS * 128, TENSOR = D / 64 * BLOCK, STAGE = 2 * TENSOR, QUERY = D * 64 * 2;
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[4 * ATTEND_STAGES];
    uint32_t ring = (smem_address(smem_raw) + 1023) & ~1023u;
    uint32_t full_k = smem_address(bars), full_v = full_k + 8 * ATTEND_STAGES,
             empty_k = full_v + 8 * ATTEND_STAGES, empty_v = empty_k + 8 * ATTEND_STAGES;
    pdl_wait();
    int n_row = *j.n_row, n_tile = (n_row + ATTEND_ROWS - 1) / ATTEND_ROWS;
    int qt = n_tile - 1 - (int)blockIdx.y, head = blockIdx.x, kv_head = head / (j.n_head / j.n_kv_head);
    if (qt < 0) return; // the grid is as large as the largest step
    int t0 = qt * ATTEND_ROWS, n = min(ATTEND_ROWS, n_row - t0);
    if (threadIdx.x == 0)
        for (int i = 0; i < ATTEND_STAGES; i++) {
            barrier_init(full_k + i * 8, 128);
            barrier_init(full_v + i * 8, 128);
            barrier_init(empty_k + i * 8, 2);
            barrier_init(empty_v + i * 8, 2);
        }
    barrier_fence();
    __shared__ attend_run run[ATTEND_ROWS];
    int n_run = attend_runs<ATTEND_KEYS>(j, t0, n, run);
    int group = threadIdx.x >> 7, stage = 0;
    uint32_t phase = 0;

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        uint32_t last = 0; // barriers of the copies that may still be under way
        for (int w = 0; w < n_run; w++) {
            const attend_run walk = run[w];
            const int32_t *table = j.pages + (size_t)walk.slot * j.max_pages;
            for (int tile = walk.tile; tile < walk.tile_end; tile++) {
                uint32_t at = ring + stage * STAGE;
                barrier_wait(empty_k + stage * 8, phase ^ 1);
                attend_load<D, ATTEND_KEYS>(at, j.k, j, table, kv_head, tile, walk.end, j.dk);
                cp_commit();
                if (last) { // the V tile before this K tile
                    cp_wait<1>();
                    barrier_fence();
                    barrier_arrive(last);
                }
                barrier_wait(empty_v + stage * 8, phase ^ 1);
                attend_load<D, ATTEND_KEYS>(at + TENSOR, j.v, j, table, kv_head, tile, walk.end, j.dv);
                cp_commit();
                cp_wait<1>();
                barrier_fence();
                barrier_arrive(full_k + stage * 8);
                last = full_v + stage * 8;
                if (++stage == ATTEND_STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        if (last) {
            cp_wait<0>();
            barrier_fence();
            barrier_arrive(last);
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    bool leader = (threadIdx.x & 127) == 0;
    int warp = (threadIdx.x >> 5) & 3;
    uint32_t query = ring + ATTEND_STAGES * STAGE + (group - 1) * QUERY;
    attend_rows st = attend_start(j, (group - 1) * 64 + warp * 16, t0, n, head);
    attend_query<D>(j, st, t0, head, query, warp * 16 + ((threadIdx.x & 31) >> 2), 64);
    barrier_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
    float o[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.f;
    for (int w = 0; w < n_run; w++) {
        const attend_run walk = run[w];
        for (int tile = walk.tile; tile < walk.tile_end; tile++) {
            float s[ATTEND_KEYS / 2];
#pragma unroll
            for (int i = 0; i < ATTEND_KEYS / 2; i++) s[i] = 0.f;
            uint32_t at = ring + stage * STAGE;
            barrier_wait(full_k + stage * 8, phase);
            wgmma_pin(s);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                wgmma_ss(s, wgmma_descriptor(query + (i >> 2) * 8192) + 2 * (i & 3),
                         wgmma_descriptor(at + (i >> 2) * BLOCK) + 2 * (i & 3));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(s);
            if (leader) barrier_arrive(empty_k + stage * 8);
            uint32_t p[ATTEND_KEYS / 16][4];
            attend_softmax<D, ATTEND_KEYS>(j, walk, tile * ATTEND_KEYS, st, s, p, o);
            barrier_wait(full_v + stage * 8, phase);
            wgmma_pin(o);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < ATTEND_KEYS / 16; i++)
                wgmma_rs<1>(o, p[i], wgmma_descriptor_n(at + TENSOR + i * 2048, BLOCK));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(o);
            if (leader) barrier_arrive(empty_v + stage * 8);
            if (++stage == ATTEND_STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
    }
    attend_finish<D>(j, st, t0, head, o);
#endif
}
