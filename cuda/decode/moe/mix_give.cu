// A block 256 columns of a row; each finds the shared part's gate for itself.
#include "cuda/decode/moe/mix_give.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/formats/unit_value.cuh"

// A part of the gate's row of weights times its input.
template <bool FLOATS> DEV float mix_part(const mix_give_job &j, const float *x) {
    const int row = j.gate_w.base & 15, bytes = layout_unit_bytes(FLOATS ? LAYOUT_F32 : j.gate_w.layout);
    const uint8_t *u = j.gate_w.region + (size_t)(j.gate_w.base >> 4) * j.gate_w.u * bytes;
    float sum = 0;
#pragma unroll(FLOATS ? 8 : 1)
    for (int k = threadIdx.x; k < j.gate_w.k; k += 256, u += bytes)
        sum = fmaf(FLOATS ? format<LAYOUT_F32>::value(u, row, threadIdx.x)
                          : unit_value(j.gate_w.layout, u, row, threadIdx.x),
                   __ldcg(x + k), sum);
    return sum;
}
// The gate's row of weights times its input: of all threads.
DEV float mix_gate(const mix_give_job &j, int row) {
    __shared__ float part[8];
    const float *x = j.gate_x.p + row * j.gate_x.stride;
    float sum = j.gate_w.layout == LAYOUT_F32 ? mix_part<true>(j, x) : mix_part<false>(j, x);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < 8; i++) sum += part[i];
    return fmaf(sum, j.gate_w.factor, j.gate_w.bias ? *j.gate_w.bias : 0.f);
}
__global__ void __launch_bounds__(256) mix_give_kernel(const __grid_constant__ mix_give_job j) {
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    pdl_trigger();
    const float norm = j.next.norm && col < j.out.width ? j.next.norm[col] : 0.f;
    pdl_wait();
    if (row >= *j.n_row) return;
    float gate = 0, y = 0;
    if (j.gate_w.region)
        gate = mix_gate(j, row);
    else if (j.gate.p)
        gate = __ldcg(j.gate.p + row * j.gate.stride);
    if (col >= j.out.width) return; // of 32 columns, all or none
    const float *x = j.x.p + row * j.x.stride + col, *w = j.w.p + row * j.w.stride;
    float *out = j.out.p + row * j.out.stride + col;
    const float add = __ldcg(out);
    if (j.shared.p) {
        y = __ldcg(j.shared.p + row * j.shared.stride + col);
        if (j.gate_w.region || j.gate.p) y *= 1.f / (1.f + expf(-gate));
    }
#pragma unroll 8
    for (int c = 0; c < j.n_used; c++)
        y = fmaf(j.w.p ? __ldcg(w + c) : 1.f, __ldcg(x + (size_t)c * j.out.width), y);
    y += add;
    *out = y;
    if (!j.next.norm) return;
    const float ss = sum16(__fmul_rn(y, y));
    if ((threadIdx.x & 15) == 0) j.next.square[row * j.next.square_row + (col >> 4)] = ss;
    y = __fmul_rn(y, norm);
    if (j.next.give == GIVE_RECORD)
        put_act_int8<32>(j.next, col, y);
    else
        put_column<true>(j.next, row, row, col, __fmul_rn(y, __ldcg(j.next.scale + row)));
}
cudaError_t mix_give_launch(const mix_give_job &j, int n, cudaStream_t s) {
    return launch_overlapped(mix_give_kernel, dim3((j.out.width + 255) / 256, n), 256, 0, true, s, j);
}
