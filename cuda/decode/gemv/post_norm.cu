// A block 256 columns of a row, no shared memory; each warp works out the row's root by itself, in one order.
#include "cuda/decode/gemv/post_norm.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"

// 1 / rms of the row.
DEV float post_root(const post_job &j, int row, int width) {
    const float *from = j.squares + row * j.give.square_row;
    float s = 0;
    for (int i = threadIdx.x & 31; i < width / 16; i += 32) s += __ldcg(from + i);
    return rsqrtf(fmaf(warp_sum(s), 1.f / (float)width, j.eps));
}
__global__ void __launch_bounds__(256) post_norm_kernel(const __grid_constant__ post_job j) {
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x, width = j.give.x.width;
    const bool in = col < width;
    pdl_trigger();
    const float w = j.norm && in ? j.norm[col] : 1.f, next = j.give.norm && in ? j.give.norm[col] : 1.f;
    pdl_wait();
    if (row >= *j.give.n_row || !in) return; // whole warps: widths are multiples of 32
    float *at = j.give.x.p + row * j.give.x.stride + col, *product = j.y + (size_t)row * width + col;
    const float x = __ldcg(at), y = __ldcg(product), scale = j.give.norm ? __ldcg(j.give.scale + row) : 1.f,
                root = j.normed ? post_root(j, row, width) : 1.f;
    const float v = (x + y * j.factor * root * w) * j.scale;
    *at = v;
    *product = 0;
    if (!j.gives) return;
    if (j.give.norm) {
        const float ss = sum16(__fmul_rn(v, v));
        if ((threadIdx.x & 15) == 0) j.give.square[row * j.give.square_row + (col >> 4)] = ss;
    }
    const float g = __fmul_rn(v, next);
    if (j.give.give == GIVE_RECORD)
        put_act_int8<32>(j.give, col, g);
    else
        put_column<true>(j.give, row, row, col, __fmul_rn(g, scale));
}
cudaError_t post_norm_launch(const post_job &j, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(post_norm_kernel, dim3((j.give.x.width + 255) / 256, n), 256, 0, overlap, s, j);
}
