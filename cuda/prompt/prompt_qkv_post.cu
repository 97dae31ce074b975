// Norm, rotation and cache write of prompt rows in every order, and what stands between a product and the residual stream.
#include "cuda/common/kv_pages.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_qkv_post.h"

enum { MORE_HEAD = 512, MORE_WARPS = 8 };

// A warp a head of q, k or v, which lies in shared memory on its way. TURNED: the cache is of a type that is.
template <bool TURNED>
__global__ void __launch_bounds__(MORE_WARPS * 32)
    prompt_qkv_post_kernel(const __grid_constant__ prompt_qkv_post_job m) {
    __shared__ float heads[MORE_WARPS][MORE_HEAD];
    const prompt_put_job &j = m.put;
    const int t = blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, half = j.n_rot / 2,
              n_kv = j.kv.n_kv_head;
    if (t >= j.t.step->n_row) return;
    float *row = j.qkv + (size_t)t * j.stride, *x = heads[warp];
    const int slot = j.t.slot[t], pos = j.t.pos[t];
    const float by =
        m.temp_beta != 0 ? 1.f + m.temp_beta * logf((float)(1 + (pos + m.temp_offset) / m.temp_len)) : 1.f;
    for (int i = warp; i < j.n_head + 2 * n_kv; i += MORE_WARPS) {
        const bool is_q = i < j.n_head, is_v = i >= j.n_head + n_kv;
        const int h = is_q ? i : (i - j.n_head) % n_kv, dim = is_v ? j.kv.dv : j.kv.dk;
        float *p = row + (is_q ? j.q_col : is_v ? j.v_col : j.k_col) + (size_t)h * dim;
        const float *w = is_q ? j.q_norm : is_v ? NULL : j.k_norm;
        float sum = 0;
        for (int d = lane; d < dim; d += 32) {
            x[d] = p[d];
            sum += x[d] * x[d];
        }
        const bool normed = w || (is_v && m.v_norm);
        const float scale = normed ? rsqrtf(warp_sum(sum) / (float)dim + j.eps) : 1.f;
        if (normed && !m.late)
            for (int d = lane; d < dim; d += 32) x[d] *= scale * (w ? w[d] : 1.f);
        __syncwarp();
        for (int d = lane; !is_v && d < half; d += 32) {
            const int a = j.neox ? d : 2 * d, b = j.neox ? d + half : 2 * d + 1;
            const float2 c = j.rope[(size_t)t * half + d];
            const float u = x[a], v = x[b];
            x[a] = u * c.x - v * c.y;
            x[b] = v * c.x + u * c.y;
        }
        __syncwarp();
        if (normed && m.late)
            for (int d = lane; d < dim; d += 32) x[d] *= scale * (w ? w[d] : 1.f);
        if (is_q)
            for (int d = lane; d < dim; d += 32) p[d] = x[d] * by;
        else {
            const size_t bytes = kv_bytes(j.kv.type, dim);
            uint8_t *to = (is_v ? j.kv.v : j.kv.k) + kv_row(j.kv, slot, pos, h) * bytes;
            kv_put_row<TURNED>(j.kv.type, to, dim, x);
        }
        __syncwarp();
    }
}
cudaError_t prompt_qkv_post_launch(const prompt_qkv_post_job &j, int n, cudaStream_t s) {
    if (kv_turned(j.put.kv.type))
        prompt_qkv_post_kernel<true><<<n, MORE_WARPS * 32, 0, s>>>(j);
    else
        prompt_qkv_post_kernel<false><<<n, MORE_WARPS * 32, 0, s>>>(j);
    return cudaGetLastError();
}

// A block a row; sums in one order whatever the number of rows.
__global__ void __launch_bounds__(256) prompt_post_kernel(const __grid_constant__ prompt_post_job j) {
    __shared__ float part[8];
    const int t = blockIdx.x, n = j.x.width;
    if (t >= *j.n_row) return;
    float *x = j.x.p + (size_t)t * j.x.stride;
    const float *y = j.y.p + (size_t)t * j.y.stride;
    float by = j.factor;
    if (j.normed) {
        float sum = 0;
        for (int k = threadIdx.x * 4; k < n; k += 1024) {
            const float4 v = *(const float4 *)(y + k);
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
        sum = warp_sum(sum);
        if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = sum;
        __syncthreads();
        sum = 0;
        for (int i = 0; i < 8; i++) sum += part[i];
        by *= rsqrtf(sum / (float)n + j.eps);
    }
    for (int k = threadIdx.x * 4; k < n; k += 1024) {
        const float4 v = *(const float4 *)(y + k), a = *(const float4 *)(x + k),
                     w = j.norm ? *(const float4 *)(j.norm + k) : make_float4(1.f, 1.f, 1.f, 1.f);
        *(float4 *)(x + k) = make_float4((a.x + v.x * by * w.x) * j.scale, (a.y + v.y * by * w.y) * j.scale,
                                         (a.z + v.z * by * w.z) * j.scale, (a.w + v.w * by * w.w) * j.scale);
    }
}
cudaError_t prompt_post_launch(const prompt_post_job &j, int n, cudaStream_t s) {
    prompt_post_kernel<<<n, 256, 0, s>>>(j);
    return cudaGetLastError();
}
