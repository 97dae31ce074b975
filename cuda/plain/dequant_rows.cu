#include "cuda/plain/dequant_rows.h"
#include "cuda/formats/unit_value.cuh"

template <int L, class T> __global__ void dequant_rows_kernel(dev_matrix w, int row0, int k_pad, T *out) {
    int n = row0 + blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 2;
    if (k >= k_pad) return;
    int phys = w.base + n / w.inter * w.stride + n % w.inter;
    const uint8_t *u = w.region + ((size_t)(phys >> 4) * w.u + (k >> 8)) * layout_unit_bytes((enum layout)L);
    T *o = out + (size_t)blockIdx.y * k_pad + k;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float v = k + i < w.k ? unit_value((enum layout)L, u, phys & 15, (k + i) & 255) : 0.f;
        if constexpr (sizeof(T) == 2)
            o[i] = __float2half_rn(fminf(fmaxf(v, -65504.f), 65504.f));
        else
            o[i] = v;
    }
}
template <class T>
static cudaError_t panel(const dev_matrix &w, int row0, int n, int k_pad, T *out, cudaStream_t s) {
    dim3 grid((unsigned)((k_pad / 2 + 127) / 128), (unsigned)n);
    switch (w.layout) {
#define LAYOUT(id, name, bytes, kind)                                                                        \
    case LAYOUT_##id:                                                                                        \
        dequant_rows_kernel<LAYOUT_##id, T><<<grid, 128, 0, s>>>(w, row0, k_pad, out);                       \
        break;
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
cudaError_t dequant_rows_run(dev_matrix w, int row0, int n, int k_pad, void *out, bool wide, cudaStream_t s) {
    return wide ? panel(w, row0, n, k_pad, (float *)out, s) : panel(w, row0, n, k_pad, (__half *)out, s);
}

__global__ void dequant_rows_glu_kernel(const float *y, int n, int act, const int *n_row, __half *out,
                                        int out_row) {
    int t = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= *n_row || i >= n) return;
    const float *p = y + (size_t)t * 2 * n;
    float v = act_apply(act, p[i]) * p[n + i];
    out[(size_t)t * out_row + i] = __float2half_rn(fminf(fmaxf(v, -65504.f), 65504.f));
}
cudaError_t dequant_rows_glu_run(const float *y, int n, int act, const int *n_row, void *out, int out_row,
                                 int rows, cudaStream_t s) {
    dequant_rows_glu_kernel<<<dim3((unsigned)((n + 255) / 256), (unsigned)rows), 256, 0, s>>>(
        y, n, act, n_row, (__half *)out, out_row);
    return cudaGetLastError();
}

__global__ void dequant_rows_bias_kernel(float *out, size_t stride, const float *bias, int n,
                                         const int *n_row) {
    int t = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < *n_row && i < n) out[(size_t)t * stride + i] += bias[i];
}
cudaError_t dequant_rows_bias_run(float *out, size_t stride, const float *bias, int n, const int *n_row,
                                  int rows, cudaStream_t s) {
    dequant_rows_bias_kernel<<<dim3((unsigned)((n + 255) / 256), (unsigned)rows), 256, 0, s>>>(
        out, stride, bias, n, n_row);
    return cudaGetLastError();
}
