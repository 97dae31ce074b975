// Attention to chosen positions: a block a row and H heads of one key head, the list in runs of CHOSEN_KEYS. Scores: a warp every fourth
// key, its lanes the key's numbers; softmax: a warp a head; sums: a thread every 128th number. Queries and sums lie in shared memory.
#include "cuda/plain/attend_chosen.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/plain/plain.cuh"

enum { CHOSEN_KEYS = 128, CHOSEN_WARPS = CHOSEN_KEYS / 32, CHOSEN_HEADS = 4 };
template <int H> struct chosen_space {
    float p[H][CHOSEN_KEYS], by[H], sum[H];
    size_t place[CHOSEN_KEYS];
};
// The places of the list's positions from i on, and how many there are. (A row that is measured alone may find anything in its list.)
template <int H>
DEV int chosen_places(const attend_chosen_job &j, chosen_space<H> &m, const float *list, int i, int slot,
                      int pos, int g) {
    const float c = i < j.room ? __ldcg(list + i) : -1.f;
    m.place[threadIdx.x] = kv_row(j.kv, slot, c >= 0 && c <= (float)pos ? (int)c : 0, g);
    return __syncthreads_count(c >= 0);
}
template <int T, int H>
DEV void chosen_scores(const attend_chosen_job &j, chosen_space<H> &m, const float *q, int n) {
    const int lane = threadIdx.x & 31, dk = j.kv.dk;
    const size_t bytes = kv_bytes((enum kv_type)T, dk);
    for (int k = threadIdx.x >> 5; k < n; k += CHOSEN_WARPS) {
        float s[H] = {};
        const uint8_t *row = j.kv.k + m.place[k] * bytes;
        for (int i = lane; i < dk; i += 32) {
            const float x = kv_load((enum kv_type)T, row, i);
#pragma unroll
            for (int h = 0; h < H; h++) s[h] = fmaf(q[h * dk + i], x, s[h]);
        }
#pragma unroll
        for (int h = 0; h < H; h++) {
            s[h] = warp_sum(s[h]);
            if (lane == 0) m.p[h][k] = j.softcap > 0 ? j.softcap * tanhf(s[h] / j.softcap) : s[h];
        }
    }
}
// Of the head that the warp has: top and sum so far.
template <int H> DEV void chosen_softmax(chosen_space<H> &m, int n, float &top, float &sum) {
    const int lane = threadIdx.x & 31, h = threadIdx.x >> 5;
    if (h >= H) return;
    float best = top, all = 0;
    for (int k = lane; k < n; k += 32) best = fmaxf(best, m.p[h][k]);
    best = warp_max(best);
    const float f = top == -INFINITY ? 0.f : expf(top - best);
    for (int k = lane; k < n; k += 32) all += m.p[h][k] = expf(m.p[h][k] - best);
    sum = sum * f + warp_sum(all);
    top = best;
    if (lane == 0) m.by[h] = f, m.sum[h] = sum;
}
template <int T, int H>
DEV void chosen_sums(const attend_chosen_job &j, const chosen_space<H> &m, float *acc, int n) {
    const int dv = j.dv;
    const size_t bytes = kv_bytes((enum kv_type)T, j.in_k ? j.kv.dk : dv);
    const uint8_t *v = j.in_k ? j.kv.k : j.kv.v;
    for (int d = threadIdx.x; d < dv; d += CHOSEN_KEYS) {
        float s[H];
#pragma unroll
        for (int h = 0; h < H; h++) s[h] = acc[h * dv + d] * m.by[h];
#pragma unroll 4
        for (int k = 0; k < n; k++) {
            const float x = kv_load((enum kv_type)T, v + m.place[k] * bytes, d);
#pragma unroll
            for (int h = 0; h < H; h++) s[h] = fmaf(m.p[h][k], x, s[h]);
        }
#pragma unroll
        for (int h = 0; h < H; h++) acc[h * dv + d] = s[h];
    }
}
template <int T, int H>
__global__ void __launch_bounds__(CHOSEN_KEYS, 6)
    attend_chosen_kernel(dev_tables t, const __grid_constant__ attend_chosen_job j) {
    extern __shared__ float q[]; // [H][dk], then the sums [H][dv]
    __shared__ chosen_space<H> m;
    const int r = blockIdx.y, h0 = blockIdx.x * H, g = h0 / (j.n_head / j.kv.n_kv_head), tid = threadIdx.x,
              w = tid >> 5, dk = j.kv.dk, dv = j.dv;
    op_begin();
    if (r >= t.step->n_row) return;
    float *acc = q + H * dk;
    const int slot = t.slot[r], pos = t.pos[r];
    const float *list = j.chosen.p + r * j.chosen.stride + (j.by_head ? (size_t)g * j.room : 0);
    for (int i = tid; i < H * dk; i += CHOSEN_KEYS)
        q[i] = __ldcg(j.q.p + r * j.q.stride + (size_t)h0 * dk + i) * j.scale;
    for (int i = tid; i < H * dv; i += CHOSEN_KEYS) acc[i] = 0;
    float top = j.sinks && w < H ? j.sinks[h0 + w] : -INFINITY, sum = j.sinks ? 1.f : 0.f;
    __syncthreads();
    if constexpr (T > KV_Q8_0)
        for (int h = 0; h < H; h++) kv_turn_runs(q + h * dk, dk, j.turn_k, w, CHOSEN_WARPS);
    for (int i = 0; i < j.room; i += CHOSEN_KEYS) {
        const int n = chosen_places(j, m, list, i + tid, slot, pos, g); // a barrier
        if (!n) break;
        chosen_scores<T>(j, m, q, n);
        __syncthreads();
        chosen_softmax(m, n, top, sum);
        __syncthreads();
        chosen_sums<T>(j, m, acc, n);
        __syncthreads();
    }
    if constexpr (T > KV_Q8_0) {
        for (int h = 0; h < H; h++) kv_turn_runs(acc + h * dv, dv, j.turn_v, w, CHOSEN_WARPS);
        __syncthreads();
    }
    for (int i = tid; i < H * dv; i += CHOSEN_KEYS)
        j.out.p[r * j.out.stride + (size_t)h0 * dv + i] = acc[i] / m.sum[i / dv];
}
template <int H> static cudaError_t run(dev_tables t, const attend_chosen_job &j, int n, op_queue s) {
    static void (*const kernels[])(dev_tables, attend_chosen_job) = {
        attend_chosen_kernel<KV_F32, H>, attend_chosen_kernel<KV_F16, H>,  attend_chosen_kernel<KV_Q8_0, H>,
        attend_chosen_kernel<KV_F8, H>,  attend_chosen_kernel<KV_Q5_0, H>, attend_chosen_kernel<KV_Q4_0, H>};
    return launch_overlapped(kernels[j.kv.type], dim3(j.n_head / H, n), CHOSEN_KEYS,
                             (size_t)H * (size_t)(j.kv.dk + j.dv) * 4, s.overlap, s.stream, t, j);
}
cudaError_t op_attend_chosen_run(dev_tables t, const attend_chosen_job &j, int n, op_queue s) {
    const bool several = j.n_head / j.kv.n_kv_head % CHOSEN_HEADS == 0;
    return several ? run<CHOSEN_HEADS>(t, j, n, s) : run<1>(t, j, n, s);
}
