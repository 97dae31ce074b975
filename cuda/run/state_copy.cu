#include "cuda/run/state_copy.h"

enum { COPY_THREADS = 256, COPY_BLOCKS = 16, COPY_AHEAD = 8 };

// blockIdx.y: a store. T: as many bytes as all slots of the store are aligned to.
template <class T> static __device__ void copy_slot(T *to, const T *from, size_t n) {
    const size_t stride = (size_t)gridDim.x * COPY_THREADS;
    size_t i = (size_t)blockIdx.x * COPY_THREADS + threadIdx.x;
    for (; i + (COPY_AHEAD - 1) * stride < n; i += COPY_AHEAD * stride) {
        T x[COPY_AHEAD];
#pragma unroll
        for (int k = 0; k < COPY_AHEAD; k++) x[k] = from[i + k * stride];
#pragma unroll
        for (int k = 0; k < COPY_AHEAD; k++) to[i + k * stride] = x[k];
    }
    for (; i < n; i += stride) to[i] = from[i];
}
static __global__ void __launch_bounds__(COPY_THREADS)
    state_copy_kernel(const __grid_constant__ state_copy_job j) {
    const size_t n = j.store[blockIdx.y].n_elem;
    float *slot0 = j.store[blockIdx.y].slot0, *to = slot0 + (size_t)j.to * n,
          *from = slot0 + (size_t)j.from * n;
    if (n % 4 == 0)
        copy_slot((float4 *)to, (const float4 *)from, n / 4);
    else
        copy_slot(to, (const float *)from, n);
}
cudaError_t state_copy_run(const state_copy_job &j, cudaStream_t s) {
    if (!j.n || j.from == j.to) return cudaSuccess;
    state_copy_kernel<<<dim3(COPY_BLOCKS, j.n), COPY_THREADS, 0, s>>>(j);
    return cudaGetLastError();
}
