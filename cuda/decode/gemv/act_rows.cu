// A block 256 columns of a row, no shared memory; all wait for the kernels in front.
#include "cuda/decode/gemv/act_rows.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"

__global__ void __launch_bounds__(256) act_give_kernel(const __grid_constant__ act_rows_job j) {
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    pdl_trigger();
    pdl_wait();
    if (row >= *j.n_row || (col & ~31) >= j.x.width) return;
    float y = col < j.x.width ? __ldcg(j.x.p + row * j.x.stride + col) : 0.f;
    if (j.norm) {
        const float ss = sum16(__fmul_rn(y, y));
        if ((threadIdx.x & 15) == 0) j.square[row * j.square_row + (col >> 4)] = ss;
        y = __fmul_rn(y, j.norm[col]);
    }
    if (j.give == GIVE_RECORD)
        put_act_int8<32>(j, col, y);
    else
        put_column<true>(j, row, row, col, j.norm ? __fmul_rn(y, __ldcg(j.scale + row)) : y);
}
cudaError_t act_rows_give(const act_rows_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(act_give_kernel, dim3((j.x.width + 255) / 256, n), 256, 0, overlap, s, j);
}

__global__ void __launch_bounds__(256) act_take_kernel(const __grid_constant__ act_rows_job j) {
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    pdl_trigger();
    pdl_wait();
    if (row >= *j.n_row || col >= j.x.width) return;
    const __nv_bfloat16 *from =
        (const __nv_bfloat16 *)(j.xo + row * j.xo_row + blockIdx.x * 1024) + threadIdx.x;
    j.x.p[row * j.x.stride + col] = __bfloat162float(from[0]) + __bfloat162float(from[256]);
}
cudaError_t act_rows_take(const act_rows_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(act_take_kernel, dim3((j.x.width + 255) / 256, n), 256, 0, overlap, s, j);
}
