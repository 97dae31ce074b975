// A thread a channel of a sequence: its past is in registers through all rows of the sequence in the step.
#include "cuda/decode/state/shortconv_decode.h"
#include "cuda/common/launch.h"
#include "cuda/decode/state/state_decode.cuh"

enum { SHORTCONV_THREADS = 128 };

template <int K>
__global__ void __launch_bounds__(SHORTCONV_THREADS)
    shortconv_decode_kernel(const __grid_constant__ shortconv_decode_job j) {
    const int c = blockIdx.x * SHORTCONV_THREADS + threadIdx.x;
    int r = blockIdx.z;
    if (j.wait)
        pdl_wait(); // and only then may those behind begin: they look at the step without waiting for it
    pdl_trigger();
    const int n = j.t.step->n_row;
    if (r >= n || c >= j.width || (r && j.t.slot[r - 1] == j.t.slot[r]))
        return; // a sequence's first row does all
    const int slot = j.t.slot[r];
    float *state = j.state + slot * j.state_elem + c, past[K - 1], w[K];
    const bool none = j.t.pos[r] == 0;
#pragma unroll
    for (int i = 0; i < K - 1; i++) past[i] = none ? 0.f : __ldcg(state + (size_t)i * j.width);
#pragma unroll
    for (int i = 0; i < K; i++) w[i] = j.w[c * K + i];
    const float bias = j.bias ? j.bias[c] : 0.f;
    if (!j.wait) pdl_wait();
    for (bool more = true; more; r++) {
        more = r + 1 < n && j.t.slot[r + 1] == slot;
        const float in = j.before * __ldcg(j.b + r * j.b_row + c) * __ldcg(j.x + r * j.x_row + c);
        float y = bias;
#pragma unroll
        for (int i = 0; i < K - 1; i++) y = fmaf(w[i], past[i], y);
        y = fmaf(w[K - 1], in, y);
        if (j.silu) y = state_silu(y);
#pragma unroll
        for (int i = 0; i < K - 2; i++) past[i] = past[i + 1];
        past[K - 2] = in;
        state_give(j, r, c, j.behind * y * __ldcg(j.c + r * j.c_row + c));
    }
#pragma unroll
    for (int i = 0; i < K - 1; i++) state[(size_t)i * j.width] = past[i];
}

cudaError_t shortconv_decode_launch(const shortconv_decode_job &j, int rows, bool overlap, cudaStream_t s) {
    const dim3 grid((j.width + SHORTCONV_THREADS - 1) / SHORTCONV_THREADS, 1, rows);
    return launch_overlapped(j.taps == 3 ? shortconv_decode_kernel<3>
                                         : shortconv_decode_kernel<SHORTCONV_TAPS>,
                             grid, SHORTCONV_THREADS, 0, overlap, s, j);
}
