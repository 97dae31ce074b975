// Attention by a latent on plain kernels, for any sizes: the product of each head with its own matrix, and attention to a store whose
// values are the first numbers of its keys.
#include "cuda/plain/mla.h"
#include "cuda/common/kv_pages.cuh"
#include "cuda/plain/plain.cuh"

// What a head has behind its columns goes behind its outputs.
DEV void copy_rest(const stack_job &j, int r, int h) {
    const float *x = j.x.p + r * j.x.stride + (size_t)h * (j.w.k + j.rest) + j.w.k;
    float *out = j.out.p + r * j.out.stride + (size_t)h * (j.w.n + j.rest) + j.w.n;
    for (int i = threadIdx.x; i < j.rest; i += blockDim.x) out[i] = __ldcg(x + i);
}

// ---- decode rows: a warp a row tile of a head's matrix, T rows of the step a block
enum { STACK_WARPS = 4 };
template <int L, int T>
__global__ void __launch_bounds__(STACK_WARPS * 32)
    stack_few_kernel(dev_tables t, const __grid_constant__ stack_job j) {
    using lane_of = few_lane<L>;
    __shared__ float xs[T][256];
    const int h = blockIdx.y, row0 = blockIdx.z * T, lane = threadIdx.x & 31, u = j.w.u,
              tile = blockIdx.x * STACK_WARPS + (threadIdx.x >> 5), n_tile = (j.w.n + 15) / 16,
              bytes = u * layout_unit_bytes((enum layout)L);
    const uint8_t *w = j.w.region + ((size_t)((j.w.base + h * j.step) / 16) + min(tile, n_tile - 1)) * bytes;
    pdl_trigger();
    for (int i = lane * 128; i < bytes; i += 32 * 128) prefetch_l2_line(w + i); // weights depend on nothing
    pdl_wait();
    const int n_row = min(T, t.step->n_row - row0);
    if (n_row <= 0) return;
    float acc[lane_of::n_row][T] = {};
    for (int i = 0; i < u; i++) {
        __syncthreads();
        for (int c = threadIdx.x; c < T * 256; c += STACK_WARPS * 32) {
            const int r = c / 256, k = i * 256 + c % 256;
            xs[r][c % 256] = r < n_row && k < j.w.k
                                 ? __ldcg(j.x.p + (row0 + r) * j.x.stride + (size_t)h * (j.w.k + j.rest) + k)
                                 : 0.f;
        }
        __syncthreads();
        lane_of::unit(w + (size_t)i * layout_unit_bytes((enum layout)L), lane, [&](int n, int k, float v) {
            if (i * 256 + k < j.w.k)
#pragma unroll
                for (int r = 0; r < T; r++) acc[n][r] = fmaf(v, xs[r][k], acc[n][r]);
        });
    }
#pragma unroll
    for (int n = 0; n < lane_of::n_row; n++)
#pragma unroll
        for (int r = 0; r < T; r++) {
            float v = acc[n][r];
#pragma unroll
            for (int o = 1; o < lane_of::share; o <<= 1) v += __shfl_xor_sync(~0u, v, o);
            const int y = tile * 16 + lane_of::row(lane, n);
            if (lane % lane_of::share == 0 && y < j.w.n && r < n_row)
                j.out.p[(row0 + r) * j.out.stride + (size_t)h * (j.w.n + j.rest) + y] = v * j.w.factor;
        }
    if (blockIdx.x == 0)
        for (int r = 0; r < n_row; r++) copy_rest(j, row0 + r, h);
}

// ---- prompt rows: 64 x 64 outputs of a head a block, 4 x 4 a thread
enum { TILE = 64, TILE_K = 32 };
template <int L> __global__ void __launch_bounds__(256) stack_tile_kernel(dev_tables t, stack_job j) {
    __shared__ float ws[TILE_K][TILE + 4], xs[TILE_K][TILE + 4];
    const int n_row = t.step->n_row, n0 = blockIdx.x * TILE, t0 = blockIdx.y * TILE, h = blockIdx.z,
              tn = threadIdx.x & 15, tt = threadIdx.x >> 4;
    if (t0 >= n_row) return;
    dev_matrix w = j.w;
    w.layout = (enum layout)L;
    w.base += h * j.step;
    const float *x = j.x.p + (size_t)h * (w.k + j.rest);
    float acc[4][4] = {};
    for (int k0 = 0; k0 < w.k; k0 += TILE_K) {
        for (int i = threadIdx.x; i < TILE * TILE_K; i += 256) {
            const int n = i / TILE_K, k = i % TILE_K;
            ws[k][n] = n0 + n < w.n && k0 + k < w.k ? matrix_value(w, n0 + n, k0 + k) : 0.f;
            xs[k][n] = t0 + n < n_row && k0 + k < w.k ? x[(t0 + n) * j.x.stride + k0 + k] : 0.f;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < TILE_K; k++) {
            const float4 a = *(const float4 *)&ws[k][tn * 4], b = *(const float4 *)&xs[k][tt * 4];
            const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int m = 0; m < 4; m++) acc[i][m] = fmaf(av[i], bv[m], acc[i][m]);
        }
        __syncthreads();
    }
    float *out = j.out.p + (size_t)h * (w.n + j.rest);
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < 4; i++) {
            const int n = n0 + tn * 4 + i, r = t0 + tt * 4 + m;
            if (n < w.n && r < n_row) out[r * j.out.stride + n] = acc[i][m] * w.factor;
        }
    if (blockIdx.x == 0)
        for (int r = t0; r < min(t0 + (int)TILE, n_row); r++) copy_rest(j, r, h);
}
template <int L>
static cudaError_t stack_run(dev_tables t, const stack_job &j, int n, bool decode, op_queue s) {
    if (decode)
        return op_launch(n > 1 ? stack_few_kernel<L, 8> : stack_few_kernel<L, 1>,
                         dim3(((j.w.n + 15) / 16 + STACK_WARPS - 1) / STACK_WARPS, j.n_head, (n + 7) / 8),
                         STACK_WARPS * 32, s, t, j);
    const unsigned h = (unsigned)j.n_head;
    stack_tile_kernel<L>
        <<<dim3((j.w.n + TILE - 1) / TILE, (n + TILE - 1) / TILE, h), 256, 0, s.stream>>>(t, j);
    return cudaGetLastError();
}
cudaError_t op_stack_run(dev_tables t, stack_job j, int n, bool decode, op_queue s) {
    switch (j.w.layout) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        return stack_run<LAYOUT_##id>(t, j, n, decode, s);
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
}
// ---- attend: a block a (row, head); running softmax over 128 keys at a time. Scores: a warp every fourth key, its lanes the key's
// numbers; outputs: a thread every 128th number. q and the sums lie in shared memory of the sizes that there are.
enum { LATENT_KEYS = 128, LATENT_WARPS = LATENT_KEYS / 32 };
template <int T>
__global__ void __launch_bounds__(LATENT_KEYS)
    attend_mla_kernel(dev_tables t, dev_kv kv, int dv, rows q, rows out, attend_rule o) {
    extern __shared__ float qs[]; // [dk], then the sums [dv]
    __shared__ float ps[LATENT_KEYS];
    __shared__ size_t place[LATENT_KEYS];
    const int r = blockIdx.y, h = blockIdx.x, g = h / (o.n_head / kv.n_kv_head), tid = threadIdx.x,
              w = tid >> 5, lane = tid & 31;
    op_begin();
    if (r >= t.step->n_row) return;
    float *acc = qs + kv.dk;
    const int slot = t.slot[r], pos = t.pos[r];
    const int begin = o.window <= 0 ? 0 : o.chunked ? pos - pos % o.window : max(0, pos - o.window + 1);
    float scale = o.scale;
    if (o.temp_beta != 0.f)
        scale *= 1.f + o.temp_beta * logf((float)(1 + (pos + o.temp_offset) / o.temp_len));
    for (int i = tid; i < kv.dk; i += LATENT_KEYS)
        qs[i] = __ldcg(q.p + r * q.stride + (size_t)h * kv.dk + i) * scale;
    for (int d = tid; d < dv; d += LATENT_KEYS) acc[d] = 0;
    float m = o.sinks ? o.sinks[h] : -INFINITY, l = o.sinks ? 1.f : 0.f;
    if constexpr (T > KV_Q8_0) {
        __syncthreads();
        kv_turn_runs(qs, kv.dk, kv_block(kv.dk | dv), w, LATENT_WARPS);
    } // (a barrier follows before it is read)
    const size_t bytes = kv_bytes((enum kv_type)T, kv.dk);
    for (int p0 = begin; p0 <= pos; p0 += LATENT_KEYS) {
        const int n = min((int)LATENT_KEYS, pos - p0 + 1);
        if (tid < n) place[tid] = kv_row(kv, slot, p0 + tid, g) * bytes;
        __syncthreads();
        for (int k = w; k < n; k += LATENT_WARPS) {
            float s = 0;
            for (int i = lane; i < kv.dk; i += 32)
                s = fmaf(qs[i], kv_load((enum kv_type)T, kv.k + place[k], i), s);
            s = warp_sum(s);
            if (lane == 0) ps[k] = o.softcap > 0 ? o.softcap * tanhf(s / o.softcap) : s;
        }
        __syncthreads();
        float mn = m;
        for (int k = 0; k < n; k++) mn = fmaxf(mn, ps[k]);
        const float f = m == -INFINITY ? 0.f : expf(m - mn);
        __syncthreads();
        if (tid < n) ps[tid] = expf(ps[tid] - mn);
        __syncthreads();
        l *= f;
        for (int k = 0; k < n; k++) l += ps[k];
        m = mn;
        for (int d = tid; d < dv; d += LATENT_KEYS) {
            float s = acc[d] * f;
#pragma unroll 4
            for (int k = 0; k < n; k++) s = fmaf(ps[k], kv_load((enum kv_type)T, kv.k + place[k], d), s);
            acc[d] = s;
        }
        __syncthreads();
    }
    if constexpr (T > KV_Q8_0) {
        kv_turn_runs(acc, dv, kv_block(kv.dk | dv), w, LATENT_WARPS);
        __syncthreads();
    }
    for (int d = tid; d < dv; d += LATENT_KEYS) out.p[r * out.stride + (size_t)h * dv + d] = acc[d] / l;
}
cudaError_t op_attend_mla_run(dev_tables t, dev_kv kv, int dv, rows q, rows out, attend_rule a, int n,
                              op_queue s) {
    static void (*const kernels[])(dev_tables, dev_kv, int, rows, rows, attend_rule) = {
        attend_mla_kernel<KV_F32>, attend_mla_kernel<KV_F16>,  attend_mla_kernel<KV_Q8_0>,
        attend_mla_kernel<KV_F8>,  attend_mla_kernel<KV_Q5_0>, attend_mla_kernel<KV_Q4_0>};
    return launch_overlapped(kernels[kv.type], dim3(a.n_head, n), LATENT_KEYS, (size_t)(kv.dk + dv) * 4,
                             s.overlap, s.stream, t, kv, dv, q, out, a);
}
