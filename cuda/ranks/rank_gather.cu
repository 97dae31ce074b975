// Columns of decode rows to all cards that reach each other's memory. A block and those of its number on the other cards tell each other
// that the rows are theirs to write, write, and tell that it is done.
#include "cuda/common/launch.h"
#include "cuda/ranks/rank_wires.cuh"

enum { AT_ONCE = 4 };
// All threads come here. False: a rank left.
DEV bool meet(const rank_wires &w, int which, uint32_t tag) {
    const int r = threadIdx.x;
    bool there = true;
    __syncthreads();
    if (r < w.n && r != w.rank) {
        const int at = which * w.n * GATHER_BLOCKS + blockIdx.x;
        __threadfence_system();
        rank_flag_set(w.flag[r] + at + w.rank * GATHER_BLOCKS, tag);
        rank_patience p;
        while (there && rank_flag(w.flag[w.rank] + at + r * GATHER_BLOCKS) != tag) there = !p.ends(w, r);
    }
    return __syncthreads_and(there);
}
__global__ void __launch_bounds__(256) rank_gather_kernel(const __grid_constant__ rank_gather_job j) {
    pdl_trigger();
    pdl_wait();
    const uint32_t tag = rank_epoch(j.w, j.nth) + 1;
    const int width = j.x.width, n = *j.n_row * width;
    if (!meet(j.w, 0, tag)) return;
    const int step = gridDim.x * 256;
    for (int i0 = blockIdx.x * 256 + threadIdx.x; i0 < n; i0 += AT_ONCE * step) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = i0 + k * step;
            v[k] = i < n ? __ldcg(j.x.p + i / width * j.x.stride + i % width) : 0.f;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = i0 + k * step;
            for (int r = 0; i < n && r < j.w.n; r++) j.to[r][i / width * j.stride + j.col + i % width] = v[k];
        }
    }
    meet(j.w, 1, tag);
}
cudaError_t rank_gather_launch(const rank_gather_job &j, int n, bool overlap, cudaStream_t s) {
    const int blocks = n > RANK_FEW_ROWS ? (int)GATHER_BLOCKS : 32;
    return launch_overlapped(rank_gather_kernel, dim3(blocks), 256, 0, overlap, s, j);
}

// What the stream did before is there for all when its flags are.
__global__ void __launch_bounds__(32) rank_meet_kernel(const __grid_constant__ rank_wires w, uint32_t tag) {
    const int r = threadIdx.x;
    if (r >= w.n || r == w.rank) return;
    rank_flag_set(w.meet[r] + w.rank, tag);
    rank_patience p;
    while ((int)(rank_flag(w.meet[w.rank] + r) - tag) < 0 && !p.ends(w, r)) {
    }
}
cudaError_t rank_meet_launch(const rank_wires &w, uint32_t tag, cudaStream_t s) {
    rank_meet_kernel<<<1, 32, 0, s>>>(w, tag);
    return cudaGetLastError();
}
