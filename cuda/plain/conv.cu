// The causal convolution of each channel over time, and the state that it leaves: two kernels, since the last row of a sequence replaces
// what its first ones read. x, out [rows][width], state [slot][K - 1][width]; a block 256 channels of a row, a thread a channel of it.
#include "cuda/common/dev.h"
#include "cuda/common/launch.h"
#include "cuda/common/util.cuh"

enum { CONV_THREADS = 256 };

// Rows of the same sequence right before row r, at most so many.
DEV int rows_before(const dev_tables &t, int r, int most) {
    int n = 0;
    while (n < most && n < r && t.slot[r - n - 1] == t.slot[r]) n++;
    return n;
}
// Channel c's input back positions before row r, which has before rows of its own sequence in front of it in the step.
DEV float conv_input(const dev_tables &t, const conv_job &j, int r, int c, int before, int back) {
    if (t.pos[r] < back) return 0;
    if (back <= before) return __ldcg(j.x.p + (r - back) * j.x.stride + c);
    return __ldcg(j.state + (size_t)t.slot[r] * j.n_elem + (size_t)(j.K - 1 - (back - before)) * j.x.width +
                  c);
}

__global__ void conv_kernel(dev_tables t, conv_job j) {
    const int r = blockIdx.y, c = blockIdx.x * CONV_THREADS + threadIdx.x;
    pdl_trigger();
    pdl_wait();
    if (r >= t.step->n_row || c >= j.x.width) return;
    const int before = rows_before(t, r, j.K - 1);
    float y = j.bias ? j.bias[c] : 0.f;
    for (int i = 0; i < j.K; i++) y = fmaf(j.w[c * j.K + i], conv_input(t, j, r, c, before, j.K - 1 - i), y);
    j.out.p[r * j.out.stride + c] = j.silu ? y / (1.f + expf(-y)) : y;
}

// The same of many rows, with K known: a thread has a channel of CONV_RUN rows, and its last inputs in registers.
enum { CONV_RUN = 16 };
template <int K> __global__ void __launch_bounds__(CONV_THREADS) conv_rows_kernel(dev_tables t, conv_job j) {
    const int c = blockIdx.x * CONV_THREADS + threadIdx.x, n = t.step->n_row;
    int r = blockIdx.y * CONV_RUN, slot = -1;
    if (r >= n || c >= j.x.width) return;
    const int end = min(n, r + CONV_RUN);
    const float bias = j.bias ? j.bias[c] : 0.f, *x = j.x.p + r * j.x.stride + c;
    float w[K], past[K - 1] = {}, next = __ldcg(x);
    for (int i = 0; i < K; i++) w[i] = j.w[c * K + i];
    for (; r < end; r++) {
        const float now = next;
        x += j.x.stride;
        if (r + 1 < end) next = __ldcg(x);
        if (t.slot[r] != slot) {
            const int before = rows_before(t, r, K - 1);
            slot = t.slot[r];
            for (int i = 0; i < K - 1; i++) past[i] = conv_input(t, j, r, c, before, K - 1 - i);
        }
        float y = bias;
        for (int i = 0; i < K - 1; i++) y = fmaf(w[i], past[i], y);
        y = fmaf(w[K - 1], now, y);
        j.out.p[r * j.out.stride + c] = j.silu ? y / (1.f + expf(-y)) : y;
        for (int i = 0; i < K - 2; i++) past[i] = past[i + 1];
        past[K - 2] = now;
    }
}

// After it: the last row of each sequence keeps the last inputs.
__global__ void conv_keep_kernel(dev_tables t, conv_job j) {
    const int r = blockIdx.y, c = blockIdx.x * CONV_THREADS + threadIdx.x, n = t.step->n_row;
    pdl_trigger();
    pdl_wait();
    if (r >= n || c >= j.x.width || (r + 1 < n && t.slot[r + 1] == t.slot[r])) return;
    const int before = rows_before(t, r, j.K - 1);
    float *state = j.state + (size_t)t.slot[r] * j.n_elem + c;
    // place i takes the input of place i + before + 1 or later: upwards, nothing is replaced before it was read
    for (int i = 0; i < j.K - 1; i++)
        state[(size_t)i * j.x.width] = conv_input(t, j, r, c, before, j.K - 2 - i);
}

cudaError_t op_conv_run(dev_tables t, conv_job j, int n, op_queue s) {
    const int columns = (j.x.width + CONV_THREADS - 1) / CONV_THREADS;
    const dim3 grid(columns, n), many(columns, (n + CONV_RUN - 1) / CONV_RUN);
    cudaError_t e;
    if (s.overlap || n < 4 * CONV_RUN || j.K < 3 || j.K > 4)
        e = launch_overlapped(conv_kernel, grid, CONV_THREADS, 0, s.overlap, s.stream, t, j);
    else
        e = launch_overlapped(j.K == 3 ? conv_rows_kernel<3> : conv_rows_kernel<4>, many, CONV_THREADS, 0,
                              false, s.stream, t, j);
    if (e != cudaSuccess) return e;
    return launch_overlapped(conv_keep_kernel, grid, CONV_THREADS, 0, s.overlap, s.stream, t, j);
}
