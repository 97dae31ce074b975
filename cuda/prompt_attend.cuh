// Causal attention of prompt rows on sm_90a over pages of the cache (F16): online softmax over tiles of 128 keys at absolute
// positions, so a row's bits do not depend on chunks, tiles or neighbours.
//
// A block takes 128 rows of one query head: a warpgroup of loaders (cp.async into swizzled tiles), two of 64 rows each with
// the probabilities in registers. source: Dao 2023 (arXiv 2307.08691); Shah et al. 2024 (arXiv 2407.08608).
#pragma once
#include "prompt_frag.cuh"
#include "prompt_ops.h"
#include "wgmma.cuh"
#include <limits.h>

enum { ATTEND_ROWS = 128, ATTEND_KEYS = 128, ATTEND_STAGES = 2 };

DEV void cp_async16(uint32_t dst, const void *src, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
DEV void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
DEV float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The sequences whose rows a block holds, each with its range of key tiles.
struct attend_run {
    int slot, tile, tile_end, end; // keys from end on have not been written
};
// Fills run[] and returns how many there are; called by all threads.
DEV int attend_runs(const prompt_attend_job &j, int t0, int n, attend_run *run) {
    __shared__ int slot[ATTEND_ROWS], pos[ATTEND_ROWS], lo, hi, n_run;
    int r = threadIdx.x;
    if (r < n) {
        slot[r] = j.slot[t0 + r];
        pos[r] = j.pos[t0 + r];
    }
    if (r == 0) {
        lo = INT_MAX;
        hi = 0;
        n_run = 1;
    }
    __syncthreads();
    bool one = __syncthreads_and(r >= n || slot[r] == slot[0]);
    if (one) {
        if (r < n) {
            atomicMin(&lo, pos[r]);
            atomicMax(&hi, pos[r]);
        }
        __syncthreads();
        if (r == 0)
            run[0] = {slot[0], j.window ? max(0, lo - j.window + 1) / ATTEND_KEYS : 0, hi / ATTEND_KEYS + 1,
                      hi + 1};
    } else if (r == 0) { // several sequences: rare, and a block's rows are few
        int k = 0;
        for (int i = 0; i < n; i++) {
            int at = 0;
            while (at < k && run[at].slot != slot[i]) at++;
            int first = j.window ? max(0, pos[i] - j.window + 1) / ATTEND_KEYS : 0,
                end = pos[i] / ATTEND_KEYS + 1;
            if (at == k) run[k++] = {slot[i], first, end, pos[i] + 1};
            run[at].tile = min(run[at].tile, first);
            run[at].tile_end = max(run[at].tile_end, end);
            run[at].end = max(run[at].end, pos[i] + 1);
        }
        n_run = k;
    }
    __syncthreads();
    return n_run;
}

// Loads 128 keys of one tensor into [D / 64][128][128 bytes], swizzled; dims beyond dim and keys from end on are zero. A thread keeps its chunk of
// 16 bytes and goes down the rows, eight at least a time, so the swizzle stays the same.
template <int D>
DEV void attend_load(uint32_t dst, const uint8_t *pool, const prompt_attend_job &j, const int32_t *table,
                     int head, int tile, int end, int dim) {
    constexpr int CHUNKS = D / 8, ROWS = 128 / CHUNKS;
    int c = threadIdx.x % CHUNKS, r = threadIdx.x / CHUNKS;
    uint32_t bytes = c * 8 < dim ? 16 : 0,
             at = dst + (c >> 3) * (ATTEND_KEYS * 128) + r * 128 + (((c & 7) ^ (r & 7)) << 4);
#pragma unroll
    for (int p = 0; p < ATTEND_KEYS / 64; p++) {
        int index = tile * (ATTEND_KEYS / 64) + p, page = index * 64 < end ? __ldg(table + index) : 0,
            key = index * 64 + r;
        const uint8_t *src =
            pool + ((((size_t)page * j.n_kv_head + head) * 64 + r) * dim + (bytes ? c * 8 : 0)) * 2;
#pragma unroll
        for (int i = 0; i < 64; i += ROWS) {
            cp_async16(at, src, key + i < end ? bytes : 0);
            at += ROWS * 128;
            src += ROWS * dim * 2;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(384, 1) prompt_attend_kernel(const __grid_constant__ prompt_attend_job j) {
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
    int n_run = attend_runs(j, t0, n, run);
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
                attend_load<D>(at, j.k, j, table, kv_head, tile, walk.end, j.dk);
                cp_commit();
                if (last) { // the V tile before this K tile
                    cp_wait<1>();
                    barrier_fence();
                    barrier_arrive(last);
                }
                barrier_wait(empty_v + stage * 8, phase ^ 1);
                attend_load<D>(at + TENSOR, j.v, j, table, kv_head, tile, walk.end, j.dv);
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
    int warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int row[2], pos[2], slot[2];
    uint32_t query = ring + ATTEND_STAGES * STAGE + (group - 1) * QUERY; // [D / 64][64][128 bytes], swizzled
    const float log2e = 1.4426950408889634f, unit = j.softcap > 0 ? j.scale : j.scale * log2e;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = warp * 16 + g + 8 * h;
        row[h] = (group - 1) * 64 + r;
        bool in = row[h] < n;
        pos[h] = in ? j.pos[t0 + row[h]] : -1;
        slot[h] = in ? j.slot[t0 + row[h]] : -1;
        const float *p = j.q + (size_t)(t0 + row[h]) * j.q_stride + (size_t)head * j.dk;
#pragma unroll 4
        for (int c = 2 * t; c < D; c += 8) {
            float a = in && c < j.dk ? p[c] : 0.f, b = in && c + 1 < j.dk ? p[c + 1] : 0.f;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(query + (c >> 6) * 8192 + r * 128 +
                                                         ((((c >> 3) & 7) ^ (r & 7)) << 4) + (c & 7) * 2),
                         "r"(pack_half2(a * unit, b * unit))
                         : "memory");
        }
    }
    barrier_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
    float o[D / 2], m[2], l[2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        m[h] = j.sinks ? j.sinks[head] * log2e : -INFINITY;
        l[h] = j.sinks && t == 0 ? 1.f : 0.f;
    }
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
            if (j.softcap > 0)
#pragma unroll
                for (int i = 0; i < ATTEND_KEYS / 2; i++) s[i] = j.softcap * log2e * tanhf(s[i] / j.softcap);
            // keys that a row may not see: beyond it, before its window, of another sequence
            int k0 = tile * ATTEND_KEYS;
            float top[2];
            uint32_t p[ATTEND_KEYS / 16][4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int hi = slot[h] == walk.slot ? pos[h] - k0 : -1,
                    lo = j.window ? pos[h] - j.window + 1 - k0 : -1;
                if (hi < ATTEND_KEYS - 1 || lo > 0) {
#pragma unroll
                    for (int i = 0; i < ATTEND_KEYS / 8; i++)
#pragma unroll
                        for (int c = 0; c < 2; c++) {
                            int key = 8 * i + 2 * t + c;
                            if (key > hi || key < lo) s[4 * i + 2 * h + c] = -INFINITY;
                        }
                }
                top[h] = m[h];
#pragma unroll
                for (int i = 0; i < ATTEND_KEYS / 8; i++)
                    top[h] = fmaxf(top[h], fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
                float base = top[h] == -INFINITY ? 0.f : top[h], alpha = exp2_fast(m[h] - base);
                m[h] = top[h];
                float sum = 0.f;
#pragma unroll
                for (int i = 0; i < ATTEND_KEYS / 8; i++) {
                    float a = exp2_fast(s[4 * i + 2 * h] - base), b = exp2_fast(s[4 * i + 2 * h + 1] - base);
                    sum += a + b;
                    p[i >> 1][h + 2 * (i & 1)] = pack_half2(a, b);
                }
                l[h] = l[h] * alpha + sum;
#pragma unroll
                for (int i = 0; i < D / 8; i++) {
                    o[4 * i + 2 * h] *= alpha;
                    o[4 * i + 2 * h + 1] *= alpha;
                }
            }
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
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = l[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        float inv = 1.f / sum;
        if (row[h] >= n) continue;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            int c = 8 * i + 2 * t;
            if (c < j.dv) // dv is even
                *(uint32_t *)(j.out +
                              prompt_offset(t0 + row[h], head * j.dv + c, j.out_k_tiles, j.out_order)) =
                    pack_half2(o[4 * i + 2 * h] * inv, o[4 * i + 2 * h + 1] * inv);
        }
    }
#endif
}
