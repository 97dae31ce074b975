#include "cuda/plain/to_host.h"
#include "cuda/plain/plain.cuh"

enum { TO_HOST_THREADS = 256, TO_HOST_BLOCKS = 32 };

DEV void rows_to_host(const rows &from, float *to, int n) {
    const int all = n * from.width;
    for (int i = blockIdx.x * TO_HOST_THREADS + threadIdx.x; i < all; i += gridDim.x * TO_HOST_THREADS)
        to[i] = __ldcg(from.p + i / from.width * from.stride + i % from.width);
}
DEV uint32_t read_word(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// The last block that has left its part asks; all wait, so there are few of them.
__global__ void __launch_bounds__(TO_HOST_THREADS) to_host_kernel(dev_tables t, to_host_job j) {
    op_begin();
    const int n = t.step->n_row;
    const uint32_t turn = __ldcg(j.turn) + 1;
    rows_to_host(j.x, j.to_x, n);
    rows_to_host(j.choice, j.to_choice, n);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        if (atomicAdd(j.arrived, 1) == (int)gridDim.x - 1) {
            *j.arrived = 0;
            *j.turn = turn;
            __threadfence_system();
            *(volatile uint32_t *)&j.turns->asked = turn;
        }
        while (read_word(&j.turns->answered) != turn) {
        }
    }
    __syncthreads();
    const int all = n * j.out.width;
    for (int i = blockIdx.x * TO_HOST_THREADS + threadIdx.x; i < all; i += gridDim.x * TO_HOST_THREADS)
        j.out.p[i / j.out.width * j.out.stride + i % j.out.width] = __ldcv(j.from + i);
}

cudaError_t to_host_run(dev_tables t, to_host_job j, int n, op_queue s) {
    const int parts = (n * j.x.width + 4 * TO_HOST_THREADS - 1) / (4 * TO_HOST_THREADS);
    return op_launch(to_host_kernel, parts < TO_HOST_BLOCKS ? parts : TO_HOST_BLOCKS, TO_HOST_THREADS, s, t,
                     j);
}
