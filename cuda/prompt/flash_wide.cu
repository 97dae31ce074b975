// Causal attention of prompt rows with heads above 128 on sm_90a: as flash_wgmma.cuh, with tiles of 64 keys, one page each. A block
// takes ROWS rows of one query head. Up to 256 dims two warpgroups have 64 rows each; above, both have the same 64 rows, work out
// the same scores, and have half of the output's dims each. 384 threads; shared memory: wide_size.
#include "cuda/common/wgmma.cuh"
#include "cuda/prompt/flash_softmax.cuh"
#include "cuda/prompt/prompt_qkv_post.h"

enum { WIDE_KEYS = 64 };
template <int D> struct wide_size {
    static constexpr int rows = D > 256 ? 64 : 128, stages = D > 256 ? 1 : 2, tensor = D * WIDE_KEYS * 2,
                         query = D * 64 * 2, smem = stages * 2 * tensor + (D > 256 ? 1 : 2) * query + 1024;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// D[64][64] += A[64][16] B[16][64], both from shared memory.
DEV void wide_ss(float (&d)[32], uint32_t a, uint32_t b) {
    asm volatile("{\n" WGMMA_DESCRIPTOR("da", "%32")
                     WGMMA_DESCRIPTOR("db", "%33") "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" W32
                                                   "}, da, db, 1, 1, 1, 0, 0;\n}"
                 : D16(d, 0), D16(d, 16)
                 : "r"(a), "r"(b));
}
// A page's keys or values into [D / 64][64][128 bytes], swizzled, with 128 threads, 128 dims at a time; dims beyond dim and keys
// from end on are zero.
template <int D>
DEV void wide_load(uint32_t dst, const uint8_t *pool, const prompt_attend_job &j, const int32_t *table,
                   int head, int tile, int end, int dim) {
    const int c = threadIdx.x % 16, r = threadIdx.x / 16, row = (int)kv_bytes(KV_F16, dim),
              key = tile * WIDE_KEYS + r, page = tile * WIDE_KEYS < end ? __ldg(table + tile) : 0;
    const uint8_t *src = pool + (((size_t)page * j.n_kv_head + head) * KV_PAGE + r) * row;
#pragma unroll 1
    for (int s = 0; s < D / 128; s++) {
        const int chunk = s * 16 + c;
        const bool in = chunk * 8 < dim;
        const uint32_t at = dst + (chunk >> 3) * (WIDE_KEYS * 128) + r * 128 + (((chunk & 7) ^ (r & 7)) << 4);
        const uint8_t *from = src + (in ? chunk * 16 : 0);
#pragma unroll
        for (int i = 0; i < WIDE_KEYS; i += 8)
            cp_async16(at + i * 128, from + (size_t)i * row, in && key + i < end ? 16 : 0);
    }
}
// Columns col0 .. of the head to the activation tiles.
DEV void wide_finish(const prompt_attend_job &j, const attend_rows &r, int t0, int head, int col0,
                     const float (&o)[128]) {
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.l[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inv = 1.f / sum;
        if (r.slot[h] < 0) continue;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int c = col0 + 8 * i + 2 * t;
            if (c < j.dv) // dv is even
                prompt_put2(j.out, t0 + r.row[h], head * j.dv + c, j.out_k_tiles, j.out_order,
                            o[4 * i + 2 * h] * inv, o[4 * i + 2 * h + 1] * inv);
        }
    }
}

// Where the tiles lie and what says that one is there, or read: barriers of each stage.
template <int D> struct wide_ring {
    static constexpr int stages = wide_size<D>::stages, tensor = wide_size<D>::tensor;
    uint32_t at, bars; // of the tiles; full K, full V, empty K, empty V
    MEM uint32_t tile(int stage) const { return at + stage * 2 * tensor; }
    MEM uint32_t full(bool v, int stage) const { return bars + (v * stages + stage) * 8; }
    MEM uint32_t empty(bool v, int stage) const { return bars + ((2 + v) * stages + stage) * 8; }
    MEM void next(int &stage, uint32_t &phase) const {
        if (++stage < stages) return;
        stage = 0;
        phase ^= 1;
    }
};
// The warpgroup that copies.
template <int D>
DEV void wide_copy(const prompt_attend_job &j, const wide_ring<D> &r, const attend_run *run, int n_run,
                   int kv_head) {
    uint32_t last = 0, phase = 0; // last: barrier of the copies that may still be under way
    int stage = 0;
    for (int w = 0; w < n_run; w++) {
        const attend_run walk = run[w];
        const int32_t *table = j.pages + (size_t)walk.slot * j.max_pages;
        for (int tile = walk.tile; tile < walk.tile_end; tile++) {
            const uint32_t at = r.tile(stage);
            barrier_wait(r.empty(false, stage), phase ^ 1);
            wide_load<D>(at, j.k, j, table, kv_head, tile, walk.end, j.dk);
            cp_commit();
            if (last) { // the V tile before this K tile
                cp_wait<1>();
                barrier_fence();
                barrier_arrive(last);
            }
            barrier_wait(r.empty(true, stage), phase ^ 1);
            wide_load<D>(at + r.tensor, j.v, j, table, kv_head, tile, walk.end, j.dv);
            cp_commit();
            cp_wait<1>();
            barrier_fence();
            barrier_arrive(r.full(false, stage));
            last = r.full(true, stage);
            r.next(stage, phase);
        }
    }
    if (!last) return;
    cp_wait<0>();
    barrier_fence();
    barrier_arrive(last);
}
// A warpgroup that multiplies: rows of st, whose queries lie at query; dims col0 .. of the output.
template <int D>
DEV void wide_rows(const prompt_attend_job &j, const wide_ring<D> &r, const attend_run *run, int n_run,
                   attend_rows &st, uint32_t query, int col0, float (&o)[128]) {
    constexpr int BLOCK = WIDE_KEYS * 128;
    const bool leader = (threadIdx.x & 127) == 0;
    int stage = 0;
    uint32_t phase = 0;
    for (int w = 0; w < n_run; w++) {
        const attend_run walk = run[w];
        for (int tile = walk.tile; tile < walk.tile_end; tile++) {
            float s[WIDE_KEYS / 2];
#pragma unroll
            for (int i = 0; i < WIDE_KEYS / 2; i++) s[i] = 0.f;
            const uint32_t at = r.tile(stage);
            barrier_wait(r.full(false, stage), phase);
            wgmma_pin(s);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                wide_ss(s, wgmma_descriptor(query + (i >> 2) * 8192) + 2 * (i & 3),
                        wgmma_descriptor(at + (i >> 2) * BLOCK) + 2 * (i & 3));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(s);
            if (leader) barrier_arrive(r.empty(false, stage));
            uint32_t p[WIDE_KEYS / 16][4];
            attend_softmax<256, WIDE_KEYS>(j, walk, tile * WIDE_KEYS, st, s, p, o);
            barrier_wait(r.full(true, stage), phase);
            wgmma_pin(o);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < WIDE_KEYS / 16; i++)
                wgmma_rs<1>(o, p[i],
                            wgmma_descriptor_n(at + r.tensor + (col0 >> 6) * BLOCK + i * 2048, BLOCK));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(o);
            if (leader) barrier_arrive(r.empty(true, stage));
            r.next(stage, phase);
        }
    }
}
#endif

template <int D, class J>
__global__ void __launch_bounds__(384, 1) flash_wide_kernel(const __grid_constant__ J j) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using size = wide_size<D>;
    extern __shared__ uint8_t smem_raw[];
    __shared__ uint64_t bars[4 * size::stages];
    __shared__ attend_run run[ATTEND_ROWS];
    const wide_ring<D> ring = {(smem_address(smem_raw) + 1023) & ~1023u, smem_address(bars)};
    const int n_row = *j.n_row, n_tile = (n_row + size::rows - 1) / size::rows,
              qt = n_tile - 1 - (int)blockIdx.y, head = blockIdx.x, kv_head = head / (j.n_head / j.n_kv_head);
    if (qt < 0) return; // the grid is as large as the largest step
    const int t0 = qt * size::rows, n = min((int)size::rows, n_row - t0);
    if (threadIdx.x < 4 * size::stages)
        barrier_init(ring.bars + threadIdx.x * 8, threadIdx.x < 2 * size::stages ? 128 : 2);
    barrier_fence();
    const int n_run = attend_runs<WIDE_KEYS>(j, t0, n, run); // has a barrier of all threads
    const int group = threadIdx.x >> 7;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        wide_copy<D>(j, ring, run, n_run, kv_head);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    constexpr bool SHARED = D > 256; // both groups have all rows
    const int warp = (threadIdx.x >> 5) & 3, row0 = SHARED ? 0 : (group - 1) * 64,
              col0 = SHARED ? (group - 1) * 256 : 0;
    const uint32_t query = ring.tile(size::stages) + (SHARED ? 0 : (group - 1) * size::query);
    attend_rows st = attend_start(j, row0 + warp * 16, t0, n, head);
    attend_query<D>(j, st, t0, head, query, warp * 16 + ((threadIdx.x & 31) >> 2), 64);
    barrier_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory"); // (a group writes all that it reads)
    float o[128];
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0.f;
    wide_rows<D>(j, ring, run, n_run, st, query, col0, o);
    wide_finish(j, st, t0, head, col0, o);
#endif
}

template <int D, class J> static cudaError_t flash(const J &j, int n, cudaStream_t s) {
    using size = wide_size<D>;
    cudaError_t e = cudaFuncSetAttribute(flash_wide_kernel<D, J>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         size::smem);
    if (e != cudaSuccess) return e;
    flash_wide_kernel<D, J><<<dim3(j.n_head, (n + size::rows - 1) / size::rows), 384, size::smem, s>>>(j);
    return cudaGetLastError();
}
template <class J> static cudaError_t launch(const J &j, int n, cudaStream_t s) {
    if (j.type != KV_F16) return cudaErrorInvalidValue;
    return j.dk <= 256 && j.dv <= 256 ? flash<256>(j, n, s) : flash<512>(j, n, s);
}
cudaError_t flash_wide_launch(const prompt_attend_job &j, int n, cudaStream_t s) { return launch(j, n, s); }
cudaError_t flash_wide_both_launch(const prompt_attend_both &j, int n, cudaStream_t s) {
    return launch(j, n, s);
}
