// A block 256 columns of a row; each works out the row's moments by itself.
#include "cuda/decode/gemv/act_front.h"
#include "cuda/common/front.cuh"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"

__global__ void __launch_bounds__(256)
    act_front_kernel(const __grid_constant__ act_rows_job j, const __grid_constant__ front_job f) {
    __shared__ float tmp[16];
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    pdl_trigger();
    pdl_wait();
    if (row >= *j.n_row) return;
    const float *x = j.x.p + row * j.x.stride;
    const float2 moments = f.norm ? front_moments(f, x, j.x.width, tmp) : make_float2(0, 1);
    if ((col & ~31) >= j.x.width) return;
    const float y = col < j.x.width ? front_value(f, moments, __ldcg(x + col), col) : 0.f;
    if (j.give == GIVE_RECORD)
        put_act_int8<32>(j, col, y);
    else
        put_column<true>(j, row, row, col, y);
}
cudaError_t act_front_give(const act_rows_job &j, const front_job &f, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(act_front_kernel, dim3((j.x.width + 255) / 256, n), 256, 0, overlap, s, j, f);
}
