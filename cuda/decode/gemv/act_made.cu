// A block 256 columns of a row.
#include "cuda/decode/gemv/act_made.h"
#include "cuda/common/launch.h"
#include "cuda/decode/gemv/act_int8.cuh"
#include "seam/backend.h"

DEV float gate_of(int act, float x) {
    return act == ACT_SIGMOID ? 1.f / (1.f + expf(-x)) : act_apply(act, x);
}
__global__ void __launch_bounds__(256)
    act_made_kernel(const __grid_constant__ act_rows_job j, const __grid_constant__ act_made m) {
    const int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    float y = 0, gate = 0;
    pdl_trigger();
    pdl_wait();
    if (row >= *j.n_row || (col & ~31) >= j.x.width) return;
    if (col < j.x.width && m.gate.p) gate = __ldcg(m.gate.p + row * m.gate.stride + col);
    if (col < j.x.width && m.up.p) {
        y = __ldcg(m.up.p + row * m.up.stride + col);
    } else if (col < j.x.width) {
        const __nv_bfloat16 *from =
            (const __nv_bfloat16 *)(m.parts + row * m.parts_row + blockIdx.x * 1024) + threadIdx.x;
        y = __bfloat162float(__ldcg(from)) + __bfloat162float(__ldcg(from + 256));
    }
    if (m.gate.p) y = gate_of(m.act, gate) * y;
    if (col < j.x.width && j.x.p) j.x.p[row * j.x.stride + col] = y;
    if (j.give == GIVE_RECORD)
        put_act_int8<32>(j, col, y);
    else
        put_column<true>(j, row, row, col, y);
}
cudaError_t act_made_give(const act_rows_job &j, const act_made &m, int n, bool overlap, cudaStream_t s) {
    return launch_overlapped(act_made_kernel, dim3((j.x.width + 255) / 256, n), 256, 0, overlap, s, j, m);
}
