// Attention without a store: over all rows of the step that have the row's slot, in float32 (an image's encoder). A block has 16 rows of
// a head, a warp four of them, past tiles of 32 keys in shared memory. Scores: a lane a key. Sums: a lane every 32nd dim. Operations:
// 2 T^2 (dk + dv) a head; a key's row is read from memory once a block.
#include "cuda/plain/attend_rows.h"
#include "cuda/plain/plain.cuh"

enum { TILE = 32, OWN = 4, ROWS = 16, THREADS = 32 * ROWS / OWN };

// Rows p0 .. p0 + TILE of a head to shared memory, `pitch` floats apart; zeros behind the last.
DEV void stage(float *to, int pitch, const rows &from, int head, int dim, int p0, int n) {
    for (int i = threadIdx.x; i < TILE * dim; i += THREADS) {
        const int p = p0 + i / dim, d = i % dim;
        to[i / dim * pitch + d] = p < n ? __ldcg(from.p + p * from.stride + (size_t)head * dim + d) : 0.f;
    }
}

// What a warp has of a head: OWN rows, the largest score so far, the sum of exp, and DIMS dims of the sums a lane.
template <int DIMS> struct own_rows {
    float acc[OWN][DIMS], most[OWN], sum[OWN];
    int slot[OWN];
};

// The scores of a tile's keys, a lane each, become weights in a; at: the key's slot.
template <int DIMS>
DEV void weigh(own_rows<DIMS> &w, float (&a)[OWN], const float *q, const float *key, int dk, int at,
               float softcap) {
    for (int d = 0; d < dk; d++) {
        const float k = key[d];
#pragma unroll
        for (int o = 0; o < OWN; o++) a[o] = fmaf(q[o * dk + d], k, a[o]);
    }
#pragma unroll
    for (int o = 0; o < OWN; o++) {
        if (softcap > 0) a[o] = softcap * tanhf(a[o] / softcap);
        if (at != w.slot[o]) a[o] = -INFINITY;
        const float m = fmaxf(w.most[o], warp_max(a[o])), f = m == -INFINITY ? 1.f : expf(w.most[o] - m);
        a[o] = a[o] == -INFINITY ? 0.f : expf(a[o] - m);
        w.sum[o] = w.sum[o] * f + warp_sum(a[o]);
        w.most[o] = m;
#pragma unroll
        for (int i = 0; i < DIMS; i++) w.acc[o][i] *= f;
    }
}
template <int DIMS> DEV void add_values(own_rows<DIMS> &w, const float (&a)[OWN], const float *vs, int dv) {
    const int lane = threadIdx.x & 31;
    for (int p = 0; p < TILE; p++) {
        float x[OWN];
#pragma unroll
        for (int o = 0; o < OWN; o++) x[o] = __shfl_sync(~0u, a[o], p);
#pragma unroll
        for (int i = 0; i < DIMS; i++) {
            if (lane + 32 * i >= dv) continue;
            const float v = vs[p * dv + lane + 32 * i];
#pragma unroll
            for (int o = 0; o < OWN; o++) w.acc[o][i] = fmaf(x[o], v, w.acc[o][i]);
        }
    }
}

template <int DIMS> // 32 of them each
__global__ void __launch_bounds__(THREADS) attend_rows_kernel(dev_tables t, attend_rows_job j) {
    extern __shared__ float shared[];
    const int dk = j.q.width / j.n_head, dv = j.v.width / j.n_kv_head, lane = threadIdx.x & 31,
              warp = threadIdx.x >> 5, h = blockIdx.x, g = h / (j.n_head / j.n_kv_head), kp = dk + 1;
    float *ks = shared, *vs = ks + TILE * kp, *qs = vs + TILE * dv + warp * OWN * dk;
    op_begin();
    const int n = t.step->n_row, r0 = blockIdx.y * ROWS + warp * OWN;
    const int asks = j.ask ? j.ask : n;
    if ((int)blockIdx.y * ROWS >= asks) return;
    own_rows<DIMS> w = {};
#pragma unroll
    for (int o = 0; o < OWN; o++) {
        w.slot[o] = r0 + o >= asks ? -1 : j.both ? 0 : t.slot[r0 + o];
        w.most[o] = j.sinks ? j.sinks[h] : -INFINITY;
        w.sum[o] = j.sinks ? 1.f : 0.f;
        for (int d = lane; d < dk; d += 32)
            qs[o * dk + d] =
                r0 + o < asks ? __ldcg(j.q.p + (r0 + o) * j.q.stride + (size_t)h * dk + d) * j.scale : 0.f;
    }
    for (int p0 = j.ask; p0 < n; p0 += TILE) {
        const int at = p0 + lane >= n ? -2 : j.both ? 0 : t.slot[p0 + lane];
        bool wanted = false;
        for (int o = 0; o < OWN; o++) wanted |= at == w.slot[o];
        if (!__syncthreads_or(wanted)) continue; // windows: rows of other slots
        stage(ks, kp, j.k, g, dk, p0, n);
        stage(vs, dv, j.v, g, dv, p0, n);
        __syncthreads();
        float a[OWN] = {};
        weigh(w, a, qs, ks + lane * kp, dk, at, j.softcap);
        add_values(w, a, vs, dv);
        __syncthreads();
    }
#pragma unroll
    for (int o = 0; o < OWN; o++)
#pragma unroll
        for (int i = 0; i < DIMS; i++)
            if (r0 + o < asks && lane + 32 * i < dv)
                j.out.p[(r0 + o) * j.out.stride + (size_t)h * dv + lane + 32 * i] = w.acc[o][i] / w.sum[o];
}

static size_t shared_bytes(int dk, int dv) {
    return ((size_t)TILE * (size_t)(dk + 1 + dv) + (size_t)ROWS * (size_t)dk) * sizeof(float);
}
cudaError_t op_attend_rows_run(dev_tables t, const attend_rows_job &j, int n, op_queue s) {
    const int dk = j.q.width / j.n_head, dv = j.v.width / j.n_kv_head;
    const size_t bytes = shared_bytes(dk, dv);
    const dim3 grid(j.n_head, ((j.ask ? j.ask : n) + ROWS - 1) / ROWS);
    auto kernel = dv <= 32    ? attend_rows_kernel<1>
                  : dv <= 64  ? attend_rows_kernel<2>
                  : dv <= 96  ? attend_rows_kernel<3>
                  : dv <= 128 ? attend_rows_kernel<4>
                              : attend_rows_kernel<8>;
    if (dk > ATTEND_ROWS_DIM || dv > ATTEND_ROWS_DIM) return cudaErrorInvalidValue;
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e != cudaSuccess) return e;
    return launch_overlapped(kernel, grid, THREADS, bytes, s.overlap, s.stream, t, j);
}
