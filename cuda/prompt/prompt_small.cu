// Norm, rotation and cache write of prompt rows.
#include "cuda/common/kv_pages.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_kernels.h"

// A block a row; sums in one order whatever the number of rows.
__global__ void prompt_norm_kernel(rows x, const float *w, float eps, const int *n_row, uint8_t *tiles,
                                   int k_tiles, int order) {
    __shared__ float part[8];
    int t = blockIdx.x, n = x.width;
    if (t >= *n_row) return;
    const float *p = x.p + (size_t)t * x.stride;
    float sum = 0.f, scale = 1.f;
    if (w) {
        for (int k = threadIdx.x * 4; k < n; k += 1024) {
            float4 v = *(const float4 *)(p + k);
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
        sum = warp_sum(sum);
        if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = sum;
        __syncthreads();
        sum = 0.f;
        for (int i = 0; i < 8; i++) sum += part[i];
        scale = rsqrtf(sum / (float)n + eps);
    }
    for (int k = threadIdx.x * 4; k < n; k += 1024) {
        float4 v = *(const float4 *)(p + k),
               g = w ? *(const float4 *)(w + k) : make_float4(1.f, 1.f, 1.f, 1.f);
        prompt_put2(tiles, t, k, k_tiles, order, v.x * scale * g.x, v.y * scale * g.y);
        prompt_put2(tiles, t, k + 2, k_tiles, order, v.z * scale * g.z, v.w * scale * g.w);
    }
}
cudaError_t prompt_norm_launch(rows x, const float *w, float eps, const int *n_row, uint8_t *tiles,
                               int k_tiles, int order, int n, cudaStream_t s) {
    prompt_norm_kernel<<<n, 256, 0, s>>>(x, w, eps, n_row, tiles, k_tiles, order);
    return cudaGetLastError();
}

__global__ void prompt_rows_kernel(const uint8_t *tiles, int k_tiles, int order, const int *n_row, rows out) {
    const int t = blockIdx.y, k = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= *n_row || k >= out.width) return;
    out.p[(size_t)t * out.stride + k] =
        __half2float(*(const __half *)(tiles + prompt_offset(t, k, k_tiles, order)));
}
cudaError_t prompt_rows_launch(const uint8_t *tiles, int k_tiles, int order, const int *n_row, rows out,
                               int n, cudaStream_t s) {
    prompt_rows_kernel<<<dim3((out.width + 255) / 256, n), 256, 0, s>>>(tiles, k_tiles, order, n_row, out);
    return cudaGetLastError();
}

// The values of a row, of all heads: a thread a number, a warp a block of 32 or, TURNED (of a type that is turned), a head.
template <bool TURNED> DEV void put_values(const prompt_put_job &j, float *x, int slot, int pos) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, dv = j.kv.dv, blocks = (dv + 31) / 32;
    if constexpr (TURNED) {
        for (int h = warp; h < j.kv.n_kv_head; h += 8)
            kv_put_row<true>(j.kv.type, j.kv.v + kv_row(j.kv, slot, pos, h) * kv_bytes(j.kv.type, dv), dv,
                             x + h * dv);
    } else if (j.kv.type == KV_F16) {
        for (int i = threadIdx.x; i < j.kv.n_kv_head * dv; i += 256) {
            int h = i / dv, d = i % dv;
            ((__half *)j.kv.v)[kv_row(j.kv, slot, pos, h) * dv + d] = __float2half_rn(x[i]);
        }
    } else
        for (int i = warp; i < j.kv.n_kv_head * blocks; i += 8) {
            int h = i / blocks, b = i % blocks, d = b * 32 + lane;
            uint8_t *v = j.kv.v + kv_row(j.kv, slot, pos, h) * kv_bytes(j.kv.type, dv);
            kv_put32(j.kv.type, v, b, dv, d < dv ? x[h * dv + d] : 0.f);
        }
}
// A warp a head; a lane holds pairs of dims that rotate together, then dims that do not rotate.
template <bool TURNED> __global__ void prompt_put_kernel(const __grid_constant__ prompt_put_job j) {
    int t = blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, dk = j.kv.dk, half = j.n_rot / 2;
    if (t >= j.t.step->n_row) return;
    float *row = j.qkv + (size_t)t * j.stride;
    int slot = j.t.slot[t], pos = j.t.pos[t];
    for (int i = warp; i < j.n_head + j.kv.n_kv_head; i += 8) {
        bool key = i >= j.n_head;
        int h = key ? i - j.n_head : i;
        float *p = row + (key ? j.k_col : j.q_col) + (size_t)h * dk;
        const float *g = key ? j.k_norm : j.q_norm;
        uint8_t *k = j.kv.k + (key ? kv_row(j.kv, slot, pos, h) * kv_bytes(j.kv.type, dk) : 0);
        const bool halves = key && j.kv.type == KV_F16; // stored as they are made; others want whole blocks
        float scale = 1.f;
        if (g) {
            float sum = 0.f;
            for (int d = lane; d < dk; d += 32) sum += p[d] * p[d];
            scale = rsqrtf(warp_sum(sum) / (float)dk + j.eps);
        }
        for (int d = lane; d < half; d += 32) {
            int a = j.neox ? d : 2 * d, b = j.neox ? d + half : 2 * d + 1;
            float2 c = j.rope[(size_t)t * half + d];
            float u = p[a] * (g ? scale * g[a] : 1.f), v = p[b] * (g ? scale * g[b] : 1.f);
            float ru = u * c.x - v * c.y, rv = v * c.x + u * c.y;
            if (halves) {
                ((__half *)k)[a] = __float2half_rn(ru);
                ((__half *)k)[b] = __float2half_rn(rv);
            } else {
                p[a] = ru;
                p[b] = rv;
            }
        }
        for (int d = j.n_rot + lane; d < dk; d += 32) {
            float u = p[d] * (g ? scale * g[d] : 1.f);
            if (halves)
                ((__half *)k)[d] = __float2half_rn(u);
            else
                p[d] = u;
        }
        if (!key || halves) continue;
        __syncwarp();
        kv_put_row<TURNED>(j.kv.type, k, dk, p);
    }
    put_values<TURNED>(j, row + j.v_col, slot, pos);
}
cudaError_t prompt_put_launch(const prompt_put_job &j, int n, cudaStream_t s) {
    if (kv_turned(j.kv.type))
        prompt_put_kernel<true><<<n, 256, 0, s>>>(j);
    else
        prompt_put_kernel<false><<<n, 256, 0, s>>>(j);
    return cudaGetLastError();
}
