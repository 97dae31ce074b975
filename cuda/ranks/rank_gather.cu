// Columns of decode rows to all cards that reach each other's memory. A block and those of its number on the other cards tell each other
// that the rows are theirs to write, write, and tell that it is done.
#include "cuda/common/launch.h"
#include "cuda/ranks/rank_wires.cuh"

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
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += GATHER_BLOCKS * 256) {
        const int row = i / width, col = i % width;
        const float v = __ldcg(j.x.p + row * j.x.stride + col);
        for (int r = 0; r < j.w.n; r++) j.to[r][row * j.stride + j.col + col] = v;
    }
    meet(j.w, 1, tag);
}
cudaError_t rank_gather_launch(const rank_gather_job &j, bool overlap, cudaStream_t s) {
    return launch_overlapped(rank_gather_kernel, dim3(GATHER_BLOCKS), 256, 0, overlap, s, j);
}
