// Sums and columns of rows that all ranks have left for the others to read, when their events say so.
#include "cuda/common/util.cuh"
#include "cuda/ranks/rank_wires.h"

enum { THREADS = 256, MOST_BLOCKS = 1024 };

DEV float4 add4(float4 a, float4 b) {
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}
__global__ void __launch_bounds__(THREADS)
    rank_sum_kernel(const __grid_constant__ rank_rows j, rows x, bool adds, int n) {
    const size_t all = (size_t)n * x.width;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (size_t)gridDim.x * THREADS) {
        float sum = __ldcv(j.from[0] + i), *to = x.p + i / x.width * x.stride + i % x.width;
        for (int r = 1; r < j.n; r++) sum = __fadd_rn(sum, __ldcv(j.from[r] + i));
        *to = adds ? __fadd_rn(*to, sum) : sum;
    }
}
// Four numbers at once, two of them so, for more on its way.
__global__ void __launch_bounds__(THREADS)
    rank_sum4_kernel(const __grid_constant__ rank_rows j, rows x, bool adds, int n) {
    const size_t all = (size_t)n * x.width / 4, step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += 2 * step) {
        const size_t k = i + step < all ? i + step : i;
        float4 sum = __ldcv((const float4 *)j.from[0] + i), more = __ldcv((const float4 *)j.from[0] + k);
        for (int r = 1; r < j.n; r++) {
            const float4 a = __ldcv((const float4 *)j.from[r] + i), b = __ldcv((const float4 *)j.from[r] + k);
            sum = add4(sum, a);
            more = add4(more, b);
        }
        float4 *to = (float4 *)(x.p + i * 4 / x.width * x.stride + i * 4 % x.width),
               *to_more = (float4 *)(x.p + k * 4 / x.width * x.stride + k * 4 % x.width);
        const float4 old = adds ? *to_more : float4{};
        *to = adds ? add4(*to, sum) : sum;
        if (k != i) *to_more = adds ? add4(old, more) : more;
    }
}
static int blocks_for(size_t n) {
    const size_t blocks = (n + THREADS - 1) / THREADS;
    return (int)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}
cudaError_t rank_sum_launch(const rank_rows &j, rows x, bool adds, int n, cudaStream_t s) {
    const size_t all = (size_t)n * x.width;
    if (x.width % 4 || (size_t)x.p % 16 || x.stride % 4)
        rank_sum_kernel<<<blocks_for(all), THREADS, 0, s>>>(j, x, adds, n);
    else
        rank_sum4_kernel<<<blocks_for(all / 4), THREADS, 0, s>>>(j, x, adds, n);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(THREADS)
    rank_parts_kernel(const __grid_constant__ rank_parts j, rows x, bool adds) {
    const int r = blockIdx.y;
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t i = j.at[r] + (size_t)blockIdx.x * THREADS + threadIdx.x; i < j.at[r + 1]; i += step) {
        const float v = __ldcv(j.from[r] + i);
        float *to = x.p + i / x.width * x.stride + i % x.width;
        *to = adds ? __fadd_rn(*to, v) : v;
    }
}
// Four numbers at once; parts begin at multiples of four.
__global__ void __launch_bounds__(THREADS)
    rank_parts4_kernel(const __grid_constant__ rank_parts j, rows x, bool adds) {
    const int r = blockIdx.y;
    const size_t end = j.at[r + 1] / 4, step = (size_t)gridDim.x * THREADS;
    for (size_t i = j.at[r] / 4 + (size_t)blockIdx.x * THREADS + threadIdx.x; i < end; i += step) {
        const float4 v = __ldcv((const float4 *)j.from[r] + i);
        float4 *to = (float4 *)(x.p + i * 4 / x.width * x.stride + i * 4 % x.width);
        *to = adds ? add4(*to, v) : v;
    }
}
cudaError_t rank_parts_launch(const rank_parts &j, rows x, bool adds, int n, cudaStream_t s) {
    const size_t part = (size_t)n * x.width / j.n + 4;
    if (x.width % 4 || (size_t)x.p % 16 || x.stride % 4)
        rank_parts_kernel<<<dim3(blocks_for(part), j.n), THREADS, 0, s>>>(j, x, adds);
    else
        rank_parts4_kernel<<<dim3(blocks_for(part / 4), j.n), THREADS, 0, s>>>(j, x, adds);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(THREADS)
    rank_columns_kernel(const __grid_constant__ rank_rows j, rows out, int n) {
    const int r = blockIdx.y, width = j.col[r + 1] - j.col[r];
    const size_t all = (size_t)n * width;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (size_t)gridDim.x * THREADS)
        out.p[i / width * out.stride + j.col[r] + i % width] = __ldcv(j.from[r] + i);
}
cudaError_t rank_columns_launch(const rank_rows &j, rows out, int n, cudaStream_t s) {
    rank_columns_kernel<<<dim3(blocks_for((size_t)n * out.width / j.n), j.n), THREADS, 0, s>>>(j, out, n);
    return cudaGetLastError();
}
