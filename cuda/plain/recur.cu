// The gated delta rule and Mamba-2's recurrence, row after row: a block 32 columns of a head's state, which are independent of the
// others, for all rows of a sequence in the step. A warp has every eighth row of the state, a lane a column of it, in registers.
#include "cuda/plain/recur.h"
#include "cuda/common/launch.h"
#include "cuda/common/util.cuh"

enum { RECUR_WARPS = 8, RECUR_ROWS = STATE_DIM_MAX / RECUR_WARPS };
enum recur_kind { RECUR_SSM, RECUR_DELTA, RECUR_DELTA_ROWS }; // delta with a decay of each row of the state

struct recur_row { // of one row of the step, for all of a head's columns
    float key[STATE_DIM_MAX], query[STATE_DIM_MAX];
    float part[2][RECUR_WARPS][32];
    float square[2][RECUR_WARPS];
};
DEV float soft_plus(float x) { return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)); }

// Key and query of row r; delta: of length 1, the query over sqrt(rows).
template <bool DELTA> DEV void recur_vectors(const recur_job &j, recur_row &m, int r, int h) {
    const int i = threadIdx.x, w = i >> 5, g = j.tiled ? h % j.n_group : h / (j.n_head / j.n_group);
    const float *at = j.x.p + r * j.x.stride + (DELTA ? 0 : j.n_head * j.cols) + g * j.rows + i;
    const float first = i < j.rows ? __ldcg(at) : 0.f,
                second = i < j.rows ? __ldcg(at + j.n_group * j.rows) : 0.f;
    if (!DELTA) {
        m.key[i] = first;
        m.query[i] = second;
        return;
    }
    const float a = warp_sum(first * first), b = warp_sum(second * second);
    if ((i & 31) == 0) {
        m.square[0][w] = a;
        m.square[1][w] = b;
    }
    __syncthreads();
    float qq = 1e-6f, kk = 1e-6f;
    for (int k = 0; k < RECUR_WARPS; k++) {
        qq += m.square[0][k];
        kk += m.square[1][k];
    }
    m.query[i] = first / sqrtf(qq) / sqrtf((float)j.rows);
    m.key[i] = second / sqrtf(kk);
}
// Sum over the warps of what each has of a column.
DEV float recur_sum(recur_row &m, int which, float mine) {
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float sum = 0;
    m.part[which][w][lane] = mine;
    __syncthreads();
    for (int k = 0; k < RECUR_WARPS; k++) sum += m.part[which][k][lane];
    return sum;
}
// The state decays by what its rows decay by: of row e of the warp's, lane e computes it.
DEV void recur_decay(const recur_job &j, float (&s)[RECUR_ROWS], int r, int h) {
    static_assert((int)RECUR_ROWS == 32, "a row of a warp's for each lane");
    const int i = (threadIdx.x & 31) * RECUR_WARPS + (threadIdx.x >> 5), at = h * j.rows + i;
    const float decay =
        i < j.rows ? expf(j.A[h] * soft_plus(__ldcg(j.gate.p + r * j.gate.stride + at) + j.dt_bias[at]))
                   : 1.f;
#pragma unroll
    for (int e = 0; e < RECUR_ROWS; e++) s[e] *= __shfl_sync(~0u, decay, e);
}
template <int K>
DEV void recur_step(const recur_job &j, recur_row &m, float (&s)[RECUR_ROWS], int r, int h, int c) {
    constexpr bool DELTA = K != RECUR_SSM, BY_ROW = K == RECUR_DELTA_ROWS;
    const int w = threadIdx.x >> 5;
    const float *x = j.x.p + r * j.x.stride + (DELTA ? 2 * j.n_group * j.rows : 0) + h * j.cols;
    const float v = c < j.cols ? __ldcg(x + c) : 0.f;
    float step = BY_ROW ? 0.f : soft_plus(__ldcg(j.gate.p + r * j.gate.stride + h) + j.dt_bias[h]), y = 0, in;
    if (!DELTA) step = fminf(fmaxf(step, j.lo), j.hi);
    const float decay = BY_ROW ? 1.f : expf(j.A[h] * step);
    if (BY_ROW) recur_decay(j, s, r, h);
    recur_vectors<DELTA>(j, m, r, h);
    __syncthreads();
    if (DELTA) {
#pragma unroll
        for (int e = 0; e < RECUR_ROWS; e++) y = fmaf(s[e], m.key[e * RECUR_WARPS + w], y);
        y = recur_sum(m, 0, y);
        in = j.beta * (v - decay * y) / (1.f + expf(-__ldcg(j.write.p + r * j.write.stride + h)));
        y = 0;
    } else
        in = step * v;
#pragma unroll
    for (int e = 0; e < RECUR_ROWS; e++) {
        s[e] = fmaf(m.key[e * RECUR_WARPS + w], in, decay * s[e]);
        y = fmaf(s[e], m.query[e * RECUR_WARPS + w], y);
    }
    y = recur_sum(m, 1, y);
    if (w == 0 && c < j.cols)
        j.out.p[r * j.out.stride + h * j.cols + c] = !DELTA && j.skip ? fmaf(j.skip[h], v, y) : y;
    __syncthreads();
}

template <int K>
__global__ void __launch_bounds__(RECUR_WARPS * 32)
    recur_kernel(dev_tables t, const __grid_constant__ recur_job j) {
    __shared__ recur_row m;
    const int h = blockIdx.x, w = threadIdx.x >> 5, c = blockIdx.y * 32 + (threadIdx.x & 31);
    int r = blockIdx.z;
    pdl_trigger();
    pdl_wait();
    const int n = t.step->n_row;
    if (r >= n || (r && t.slot[r - 1] == t.slot[r])) return; // of a row's block: a sequence's first
    const int slot = t.slot[r];
    float *at = j.state + (size_t)slot * j.n_elem + (size_t)h * j.rows * j.cols + c, s[RECUR_ROWS];
#pragma unroll
    for (int e = 0; e < RECUR_ROWS; e++) {
        const int i = e * RECUR_WARPS + w;
        s[e] = i < j.rows && c < j.cols && t.pos[r] ? __ldcg(at + (size_t)i * j.cols) : 0.f;
    }
    do recur_step<K>(j, m, s, r++, h, c);
    while (r < n && t.slot[r] == slot);
#pragma unroll
    for (int e = 0; e < RECUR_ROWS; e++) {
        const int i = e * RECUR_WARPS + w;
        if (i < j.rows && c < j.cols) at[(size_t)i * j.cols] = s[e];
    }
}
static dim3 recur_grid(const recur_job &j, int n) { return dim3(j.n_head, (j.cols + 31) / 32, n); }

cudaError_t op_delta_run(dev_tables t, const recur_job &j, int n, op_queue s) {
    return launch_overlapped(j.by_row ? recur_kernel<RECUR_DELTA_ROWS> : recur_kernel<RECUR_DELTA>,
                             recur_grid(j, n), RECUR_WARPS * 32, 0, s.overlap, s.stream, t, j);
}
cudaError_t op_ssm_run(dev_tables t, const recur_job &j, int n, op_queue s) {
    return launch_overlapped(recur_kernel<RECUR_SSM>, recur_grid(j, n), RECUR_WARPS * 32, 0, s.overlap,
                             s.stream, t, j);
}
