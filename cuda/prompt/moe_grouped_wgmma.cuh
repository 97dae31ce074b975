// Grouped GEMM of prompt rows and their experts on sm_90a: out[p][n] = sum_k W[e][n][k] x[p][k] for every pair p = (row, choice) of expert
// e, weights in registers (unit_operands.cuh), pairs' activations in shared memory, both halves, sums in float32 in the order of k,
// whatever the tile or the neighbours.
//
// A cluster of two blocks takes 256 rows of an expert's matrix and a tile of up to 256 of its pairs (moe_grouped.h), multiplied as 64, 128, 192
// or 256 columns; tiles come with the larger ones first, so that taking turns is fair. In each block four warps stream its 128 rows'
// codes and its share of the activations, multicast to both, and two warpgroups of 64 rows each consume them.
#pragma once
#include "cuda/prompt/gemm_wgmma.cuh"
#include "cuda/prompt/moe_grouped.h"

// Bytes of a stage: activations, then codes of 8 row tiles; stages beside each other and beside what leaves the block: gated units, or
// sums of 64 pairs, each warpgroup's 64 of a pair PITCH bytes apart, so that lanes do not meet in a bank.
template <int L, bool GLU> struct moe_grouped_ring {
    static constexpr int x = PAIR_TILE * 128, tile = operands<L>::n_piece * operands<L>::piece_bytes,
                         stage = x + 8 * tile, pitch = 272, sums = PAIR_BLOCK * pitch,
                         out = GLU ? PAIR_TILE * 128 : 2 * sums;
    static constexpr int fit = (221 * 1024 - out) / stage, stages = fit > 6 ? 6 : fit,
                         smem = stages * stage + out + 1024;
};

struct moe_grouped_item {        // of a cluster
    int expert, first, n, slab0; // first position, pairs; first row tile of this block
};
DEV moe_grouped_item moe_grouped_item_of(const pair_gemm &j, int item, int n_block, int rank) {
    const int4 t = __ldg(j.o.tile + 1 + item / n_block);
    return moe_grouped_item{t.x, t.y, t.z, (item % n_block * 2 + rank) * 8};
}
DEV const uint8_t *moe_grouped_row_tile(const pair_gemm &j, const moe_grouped_item &t, int slab,
                                        int unit_bytes) {
    const int at =
        t.expert * j.slabs + min(slab, j.slabs - 1); // rows beyond the last one are read and not stored
    return j.w + (size_t)at * j.u * unit_bytes;
}

// Four warps: lanes 0 and 1 of each copy a row tile's codes, lane 2 this block's half of a block of positions.
template <class R, int L>
DEV void moe_grouped_produce(const pair_gemm &j, const moe_grouped_item &t, uint32_t ring, uint32_t full,
                             uint32_t empty, int rank, int &stage, uint32_t &phase) {
    using F = operands<L>;
    constexpr int HALF = PAIR_BLOCK_BYTES / 2;
    const int lane = threadIdx.x & 31, b = threadIdx.x >> 5, n_block = (t.n + PAIR_BLOCK - 1) / PAIR_BLOCK,
              mine = 2 * b + (lane & 1);
    const bool sends = lane == 2 && b < n_block;
    const uint8_t *x =
        j.x + ((size_t)(t.first / PAIR_BLOCK + b) * j.k_tiles) * PAIR_BLOCK_BYTES + rank * HALF;
    const uint8_t *w = moe_grouped_row_tile(j, t, t.slab0 + mine, F::unit);
    for (int k = 0; k < j.k_tiles; k++) {
        const uint32_t at = ring + stage * R::stage, bar = full + stage * 8;
        barrier_wait(empty + stage * 8, phase ^ 1);
        if (threadIdx.x == 0) barrier_expect(bar, n_block * PAIR_BLOCK_BYTES + 8 * R::tile);
        __syncwarp();
        if (sends)
            bulk_multicast(at + b * PAIR_BLOCK_BYTES + rank * HALF, x + (size_t)k * PAIR_BLOCK_BYTES, HALF,
                           bar, 3);
        if (lane < 2)
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

// N columns, the sums of the first N / 2 of d. Codes of the next 64 columns of K become operands while these are multiplied.
template <class R, int L, int N>
DEV void moe_grouped_consume(const pair_gemm &j, float (&all)[PAIR_TILE / 2], const slab &s, uint32_t ring,
                             uint32_t full, uint32_t empty, int &stage, uint32_t &phase) {
    using F = operands<L>;
    float(&d)[N / 2] = reinterpret_cast<float(&)[N / 2]>(all);
    const int lane = threadIdx.x & 127;
    typename F::scales sc, sc_next;
    uint32_t a[2][4][4];
    auto convert = [&](const typename F::scales &by, int p) {
        typename F::raw raw;
        barrier_wait(full + stage * 8, phase);
        F::load(raw, s, ring + stage * R::stage);
#pragma unroll
        for (int st = 0; st < 4; st++) F::step(raw, by, s, p, st, a[p & 1][st]);
    };
    F::scale(sc, s, 0);
    convert(sc, 0);
    for (int unit = 0; unit < j.u; unit++) {
        if (unit + 1 < j.u) F::scale(sc_next, s, (size_t)(unit + 1) * F::unit);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            if (unit * 4 + p >= j.k_tiles) break;
            const int last = stage;
            const uint32_t b = wgmma_descriptor(ring + stage * R::stage);
            wgmma_pin(d);
            wgmma_fence();
#pragma unroll
            for (int st = 0; st < 4; st++) wgmma_rs(d, a[p & 1][st], b + 2 * st);
            wgmma_commit();
            if (++stage == R::stages) {
                stage = 0;
                phase ^= 1;
            }
            if (unit * 4 + p + 1 < j.k_tiles) convert(p == 3 ? sc_next : sc, (p + 1) & 3);
            wgmma_wait<0>();
            wgmma_pin(d);
            if (lane < 2) cluster_arrive(empty + last * 8, lane);
        }
        sc = sc_next;
    }
}
template <class R, int L>
DEV void moe_grouped_multiply(const pair_gemm &j, float (&d)[PAIR_TILE / 2], const moe_grouped_item &t,
                              int warp, uint32_t ring, uint32_t full, uint32_t empty, int &stage,
                              uint32_t &phase) {
    const slab s = {moe_grouped_row_tile(j, t, t.slab0 + warp, operands<L>::unit),
                    (int)R::x + warp * (int)R::tile};
#pragma unroll
    for (int i = 0; i < PAIR_TILE / 2; i++) d[i] = 0.f;
    if (t.n > 192)
        moe_grouped_consume<R, L, 256>(j, d, s, ring, full, empty, stage, phase);
    else if (t.n > 128)
        moe_grouped_consume<R, L, 192>(j, d, s, ring, full, empty, stage, phase);
    else if (t.n > 64)
        moe_grouped_consume<R, L, 128>(j, d, s, ring, full, empty, stage, phase);
    else
        moe_grouped_consume<R, L, 64>(j, d, s, ring, full, empty, stage, phase);
}

// ---- sums d[4 i + 2 h + q] of rows g + 8 h, columns 8 i + 2 t + q, g = lane / 4, t = lane % 4

// act(gate) * up in d[4 i + q].
template <class A>
DEV void moe_grouped_gate(const pair_gemm &j, float (&d)[PAIR_TILE / 2], float gate, float up, A act) {
#pragma unroll
    for (int i = 0; i < PAIR_TILE / 8; i++)
#pragma unroll
        for (int q = 0; q < 2; q++)
            d[4 * i + q] = act(fmaf(d[4 * i + q], j.factor, gate), fmaf(d[4 * i + 2 + q], j.factor, up));
}
DEV void moe_grouped_gate(const pair_gemm &j, float (&d)[PAIR_TILE / 2], float gate, float up) {
    switch (j.act) {
    case ACT_SILU:
        return moe_grouped_gate(j, d, gate, up, [](float g, float u) { return act_apply(0, g) * u; });
    case ACT_GELU_TANH:
        return moe_grouped_gate(j, d, gate, up, [](float g, float u) { return act_apply(1, g) * u; });
    case ACT_RELU2:
        return moe_grouped_gate(j, d, gate, up, [](float g, float u) { return act_apply(2, g) * u; });
    default: { // ACT_SWIGLU_OAI
        const float limit = j.limit, alpha = j.alpha;
        return moe_grouped_gate(j, d, gate, up, [=](float g, float u) {
            g = fminf(g, limit);
            u = fminf(fmaxf(u, -limit), limit);
            return __fdividef(g, 1.f + __expf(-alpha * g)) * (u + 1.f);
        });
    }
    }
}
// Gated units of the block, a column tile of theirs: put together in shared memory at out as they lie among the tiles, then sent. By
// both warpgroups; thread 128 waits until those before were read, and sends.
DEV void moe_grouped_finish_gated(const pair_gemm &j, float (&d)[PAIR_TILE / 2], const moe_grouped_item &t,
                                  int warp, uint32_t out) {
    const int lane = threadIdx.x & 31, k_tile = t.slab0 / 8, c = (t.slab0 + warp) * 8 + (lane >> 2),
              n_block = (t.n + PAIR_BLOCK - 1) / PAIR_BLOCK;
    if (k_tile >= j.glu_k_tiles) return; // of all threads
    const bool counts = c < j.n;
    const size_t at_bias = (size_t)t.expert * j.n + c;
    moe_grouped_gate(j, d, counts && j.bias[0] ? __ldg(j.bias[0] + at_bias) : 0.f,
                     counts && j.bias[1] ? __ldg(j.bias[1] + at_bias) : 0.f);
    if (threadIdx.x == 128) bulk_wait_read();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    const prompt_column col = prompt_column_of(warp * 8 + (lane >> 2), j.glu_order);
#pragma unroll
    for (int q = 0; q < 2; q++) {
        const uint32_t at = out + (uint32_t)prompt_offset(2 * (lane & 3) + q, col, 1);
#pragma unroll
        for (int i = 0; i < PAIR_TILE / 8; i++)
            if (8 * i < t.n) prompt_put_shared(at + i * 1024, counts ? d[4 * i + q] : 0.f);
    }
    barrier_fence();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (threadIdx.x == 128)
        for (int b = 0; b < n_block; b++)
            bulk_store(j.glu +
                           ((size_t)(t.first / PAIR_BLOCK + b) * j.glu_k_tiles + k_tile) * PAIR_BLOCK_BYTES,
                       out + b * PAIR_BLOCK_BYTES, PAIR_BLOCK_BYTES);
}
// The same of one matrix: each warpgroup has a column tile, and sends it in its turn.
DEV void moe_grouped_finish_single(const pair_gemm &j, float (&d)[PAIR_TILE / 2], const moe_grouped_item &t,
                                   int warp, uint32_t out) {
    const int lane = threadIdx.x & 31, k_tile = t.slab0 / 4;
    for (int g = 0; g < 2 && k_tile + g < j.glu_k_tiles; g++) { // of all threads
        if (threadIdx.x == 128) bulk_wait_read();
        asm volatile("bar.sync 1, 256;" ::: "memory");
        if (warp >> 2 == g) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int c = (t.slab0 + warp) * 16 + 8 * h + (lane >> 2);
                const float bias = j.bias[0] && c < j.n ? __ldg(j.bias[0] + (size_t)t.expert * j.n + c) : 0.f;
                const prompt_column col =
                    prompt_column_of((warp & 3) * 16 + 8 * h + (lane >> 2), j.glu_order);
#pragma unroll
                for (int q = 0; q < 2; q++) {
                    const uint32_t at = out + (uint32_t)prompt_offset(2 * (lane & 3) + q, col, 1);
#pragma unroll
                    for (int i = 0; i < PAIR_TILE / 8; i++) {
                        if (8 * i >= t.n) continue;
                        const float v = act_apply(j.act, fmaf(d[4 * i + 2 * h + q], j.factor, bias));
                        prompt_put_shared(at + i * 1024, c < j.n ? v : 0.f);
                    }
                }
            }
        }
        barrier_fence();
        asm volatile("bar.sync 1, 256;" ::: "memory");
        if (threadIdx.x == 128)
            for (int i = 0; i * PAIR_BLOCK < t.n; i++)
                bulk_store(j.glu + ((size_t)(t.first / PAIR_BLOCK + i) * j.glu_k_tiles + k_tile + g) *
                                       PAIR_BLOCK_BYTES,
                           out + i * PAIR_BLOCK_BYTES, PAIR_BLOCK_BYTES);
    }
}
// Where the pairs of a tile leave their sums: floats from out.p on; by the threads of a warpgroup for themselves.
DEV void moe_grouped_places(const pair_gemm &j, const moe_grouped_item &t, uint32_t (&place)[PAIR_TILE]) {
    for (int i = threadIdx.x & 127; i < t.n; i += 128) {
        const int p = __ldg(j.o.pair + t.first + i), row = p / j.o.n_used;
        place[i] = (uint32_t)((size_t)row * j.out.stride + (size_t)(p - row * j.o.n_used) * j.n);
    }
}
DEV void warpgroup_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }
// The warpgroup's 64 rows of sums, 64 pairs at a time by way of shared memory at to.
template <class R>
DEV void moe_grouped_finish(const pair_gemm &j, const float (&d)[PAIR_TILE / 2], const moe_grouped_item &t,
                            int warp, uint32_t to, const uint32_t (&place)[PAIR_TILE]) {
    const int lane = threadIdx.x & 31, group = warp >> 2, thread = threadIdx.x & 127,
              n0 = (t.slab0 + (warp & 4)) * 16, r = (warp & 3) * 16 + (lane >> 2), n = n0 + r,
              bytes = min(64, j.n - n0) * 4;
    if (bytes <= 0) return; // of all threads
    const float *b = j.bias[0] + (size_t)t.expert * j.n + n;
    const float bias[2] = {j.bias[0] && n < j.n ? __ldg(b) : 0.f,
                           j.bias[0] && n + 8 < j.n ? __ldg(b + 8) : 0.f};
    const uint32_t at = to + 2 * (lane & 3) * R::pitch + r * 4;
#pragma unroll
    for (int c = 0; c < PAIR_TILE / PAIR_BLOCK; c++) {
        if (c * PAIR_BLOCK >= t.n) break;
        bulk_wait_read();
        warpgroup_sync(group); // places are there, what was there is read
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const float v = fmaf(d[4 * (8 * c + i) + q], j.factor, bias[q >> 1]);
                asm volatile(
                    "st.shared.f32 [%0], %1;" ::"r"(at + (8 * i + (q & 1)) * R::pitch + (q >> 1) * 32), "f"(v)
                    : "memory");
            }
        barrier_fence();
        warpgroup_sync(group);
        if (thread < PAIR_BLOCK && c * PAIR_BLOCK + thread < t.n)
            bulk_store(j.out.p + place[c * PAIR_BLOCK + thread] + n0, to + thread * R::pitch,
                       (uint32_t)bytes);
    }
}

template <int L, bool GLU>
__global__ void __launch_bounds__(384, 1) moe_grouped_wgmma_kernel(const __grid_constant__ pair_gemm j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using R = moe_grouped_ring<L, GLU>;
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[2 * R::stages];
    __shared__ uint32_t place[GLU ? 1 : 2][2][PAIR_TILE]; // [turn][warpgroup]
    static_assert(R::smem + sizeof place + sizeof bars <= 227 * 1024, "a block's shared memory");
    const uint32_t ring = (smem_address(smem_raw) + 1023) & ~1023u, full = smem_address(bars),
                   empty = full + 8 * R::stages;
    const int rank = (int)cluster_rank(), group = threadIdx.x >> 7, n_block = (j.slabs + 15) / 16;
    int stage = 0;
    uint32_t phase = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::stages; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    const int n_item = j.o.tile[0].x * n_block;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int item = blockIdx.x / 2; item < n_item; item += gridDim.x / 2)
            moe_grouped_produce<R, L>(j, moe_grouped_item_of(j, item, n_block, rank), ring, full, empty, rank,
                                      stage, phase);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int warp = (threadIdx.x >> 5) - 4;
        int turn = 0;
        for (int item = blockIdx.x / 2; item < n_item; item += gridDim.x / 2, turn ^= 1) {
            const moe_grouped_item t = moe_grouped_item_of(j, item, n_block, rank);
            float d[PAIR_TILE / 2];
            if constexpr (!GLU) moe_grouped_places(j, t, place[turn][group - 1]);
            moe_grouped_multiply<R, L>(j, d, t, warp, ring, full, empty, stage, phase);
            if constexpr (GLU) {
                if (j.single)
                    moe_grouped_finish_single(j, d, t, warp, ring + R::stages * R::stage);
                else
                    moe_grouped_finish_gated(j, d, t, warp, ring + R::stages * R::stage);
            } else
                moe_grouped_finish<R>(j, d, t, warp, ring + R::stages * R::stage + (group - 1) * R::sums,
                                      place[turn][group - 1]);
        }
        bulk_wait();
    }
    cluster_sync();
#endif
}

template <int L, bool GLU>
cudaError_t moe_grouped_start(const pair_gemm &j, int tiles, int sm_count, cudaStream_t s) {
    const long items = (long)tiles * ((j.slabs + 15) / 16);
    const int clusters = items < sm_count / 2 ? (int)items : sm_count / 2;
    auto kernel = moe_grouped_wgmma_kernel<L, GLU>;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               moe_grouped_ring<L, GLU>::smem);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute a = {};
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = 2;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(clusters * 2));
    c.blockDim = dim3(384);
    c.dynamicSmemBytes = moe_grouped_ring<L, GLU>::smem;
    c.stream = s;
    c.attrs = &a;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, j);
}
#define MOE_GROUPED_INSTANCE(id)                                                                             \
    MOE_GROUPED_GEMM(id) {                                                                                   \
        return j.glu ? moe_grouped_start<LAYOUT_##id, true>(j, tiles, sm_count, s)                           \
                     : moe_grouped_start<LAYOUT_##id, false>(j, tiles, sm_count, s);                         \
    }
