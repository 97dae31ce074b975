// Residual streams on plain kernels.
#include "cuda/plain/streams.h"
#include "cuda/plain/plain.cuh"
#include "seam/balance.h"

// ---- balance: a warp a row; a lane a row of the matrix, then a column, in the order of balance_row
__global__ void __launch_bounds__(32)
    balance_kernel(dev_tables t, rows x, rows out, const __grid_constant__ struct op_balance o,
                   bool out_rows) {
    __shared__ float y[2 * STREAMS_MAX + STREAMS_MAX * STREAMS_MAX];
    const int r = blockIdx.x, lane = threadIdx.x, n = o.n;
    op_begin();
    if (r >= row_count(t, out_rows)) return;
    for (int i = lane; i < x.width; i += 32) y[i] = balance_value(&o, i, __ldcg(x.p + r * x.stride + i));
    __syncwarp();
    float *M = y + 2 * n;
    if (x.width > n) {
        if (lane < n) balance_softmax(M + lane * n, n, o.eps);
        for (int i = 0; i < o.n_round; i++) {
            __syncwarp();
            if (i && lane < n) balance_divide(M + lane * n, n, 1, o.eps);
            __syncwarp();
            if (lane < n) balance_divide(M + lane, n, n, o.eps);
        }
        __syncwarp();
    }
    for (int i = lane; i < x.width; i += 32) out.p[r * out.stride + i] = y[i];
}
cudaError_t op_balance_run(dev_tables t, rows x, rows out, struct op_balance o, int n, bool out_rows,
                           op_queue s) {
    return op_launch(balance_kernel, n, 32, s, t, x, out, o, out_rows);
}

// ---- streams: a thread a place of all streams of a row, which it reads before it writes
__global__ void __launch_bounds__(256) streams_kernel(dev_tables t, const __grid_constant__ streams_job j) {
    const int r = blockIdx.y, i = blockIdx.x * 256 + threadIdx.x, d = j.x.width / j.n, m = j.out.width / d;
    op_begin();
    if (r >= row_count(t, j.out_rows) || i >= d) return;
    const float *x = j.x.p + r * j.x.stride + i, *M = j.M.p + r * j.M.stride,
                *write = j.write.p + r * j.write.stride;
    const float y = j.write.p ? __ldcg(j.y.p + r * j.y.stride + i) : 0.f;
    float sum[STREAMS_MAX];
#pragma unroll
    for (int k = 0; k < STREAMS_MAX; k++) sum[k] = j.write.p && k < m ? __ldcg(write + k) * y : 0.f;
    for (int from = 0; from < j.n; from++) {
        const float v = __ldcg(x + (size_t)from * d);
#pragma unroll
        for (int k = 0; k < STREAMS_MAX; k++)
            if (k < m) sum[k] = fmaf(__ldcg(M + from * m + k), v, sum[k]);
    }
#pragma unroll
    for (int k = 0; k < STREAMS_MAX; k++)
        if (k < m) j.out.p[r * j.out.stride + (size_t)k * d + i] = sum[k];
}
cudaError_t op_streams_run(dev_tables t, const streams_job &j, int n, op_queue s) {
    const int d = j.x.width / j.n;
    return op_launch(streams_kernel, dim3((d + 255) / 256, n), 256, s, t, j);
}
