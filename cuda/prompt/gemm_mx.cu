// Block-scaled products of prompt rows: activations to blocks, kernels, and the test that a card must pass before they are
// used on it.
#include <math.h>
#include "cuda/common/cuda_error.h"
#include "cuda/prompt/gemm_mx.cuh"
#include "cuda/formats/unit_value.cuh"

// ---- activations: one thread a group of 32 columns of a row
template <int KIND> __global__ void mx_quantise_kernel(const __grid_constant__ prompt_job j) {
    constexpr int ROW = KIND == MX_FP8 ? 64 : 32;
    int t = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, q = blockIdx.z, r = t & 255;
    if (t >= *j.n_row) return;
    const uint8_t *tile = j.x + ((size_t)(t >> 8) * j.k_tiles + k) * PROMPT_TILE_BYTES + r * 128;
    float v[32], top[2] = {0.f, 0.f};
#pragma unroll
    for (int c = 0; c < 4; c++) {
        uint4 w = *(const uint4 *)(tile + (((q * 4 + c) ^ (r & 7)) << 4));
        uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4;
             i++) { // positions 8 c + 2 i, + 1: lane i of the quad, e = c / 2, two of its four columns
            float2 two = half2_bits(words[i]);
            int at = i * 8 + (c >> 1) * 4 + (c & 1) * 2;
            v[at] = two.x * mx_x_factor<KIND>;
            v[at + 1] = two.y * mx_x_factor<KIND>;
            float m = fmaxf(fabsf(v[at]), fabsf(v[at + 1]));
            top[i >> 1] = fmaxf(top[i >> 1], m);
        }
    }
    if (KIND != NV_FP4) top[0] = top[1] = fmaxf(top[0], top[1]);
    float inverse[2];
    uint32_t s[2] = {mx_scale<KIND>(top[0], inverse[0]), mx_scale<KIND>(top[1], inverse[1])};
    size_t row = (size_t)k * j.mx_rows + t;
    uint8_t *out = (uint8_t *)j.mx + row * ROW + q * (ROW / 2), *scale = (uint8_t *)j.mx_scale + row * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float lane[8];
        uint32_t w[2];
#pragma unroll
        for (int c = 0; c < 8; c++) lane[c] = v[i * 8 + c];
        mx_codes<KIND>(lane, inverse[i >> 1], w);
        if (KIND == MX_FP8) {
            *(uint32_t *)(out + 4 * i) = w[0];
            *(uint32_t *)(out + 16 + 4 * i) = w[1];
        } else
            *(uint32_t *)(out + 4 * i) = w[0];
    }
    if (KIND == NV_FP4)
        *(uint16_t *)(scale + 2 * q) = (uint16_t)(s[0] | s[1] << 8);
    else
        scale[q] = (uint8_t)s[0];
}
cudaError_t prompt_mx_quantise(const prompt_job &j, int kind, int n, cudaStream_t s) {
    dim3 grid((unsigned)((n + 127) / 128), (unsigned)j.k_tiles, 2);
    if (kind == MX_FP8)
        mx_quantise_kernel<MX_FP8><<<grid, 128, 0, s>>>(j);
    else if (kind == MX_FP4)
        mx_quantise_kernel<MX_FP4><<<grid, 128, 0, s>>>(j);
    else
        mx_quantise_kernel<NV_FP4><<<grid, 128, 0, s>>>(j);
    return cudaGetLastError();
}

cudaError_t prompt_mx_launch(const prompt_job &j, enum layout l, int kind, enum prompt_epilogue e, int n,
                             cudaStream_t s) {
    switch (l) {
#define SCALED(layout)                                                                                       \
    case LAYOUT_##layout:                                                                                    \
        return mx_layout<LAYOUT_##layout>(j, (enum mx_kind)kind, e, n, s);
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
}

// ---- the first-start test: halves W[N][K], x[T][K]; every output by the definition of the format, one thread each
enum {
    TEST_N = 144,
    TEST_K = 320,
    TEST_T = 136,
    TEST_U = (TEST_K + 255) / 256,
    TEST_TILES = (TEST_K + 63) / 64
};
DEV float test_random(uint32_t i, float scale) {
    i = i * 747796405u + 2891336453u;
    i = ((i >> ((i >> 28) + 4)) ^ i) * 277803737u;
    return ((float)((i >> 22 ^ i) >> 8) * 0x1p-23f - 1.f) * scale * (1.f + (float)(i & 7u));
}
__global__ void test_fill_kernel(uint8_t *w, uint8_t *tiles, int *n_row) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / TEST_K, k = i % TEST_K;
    if (i == 0) *n_row = TEST_T;
    if (row < TEST_N) {
        int g = (k >> 5) & 7, r = row & 15;
        __half *at = (__half *)(w + ((size_t)(row >> 4) * TEST_U + (k >> 8)) * 8192 +
                                ((2 * g + (r >> 3)) * 32 + (r & 7) * 4 + ((k & 31) >> 3)) * 16 + (k & 7) * 2);
        *at = __float2half_rn(test_random((uint32_t)i, 0.02f));
    }
    if (row < TEST_T)
        *(__half *)(tiles + prompt_offset(row, k, TEST_TILES, ORDER_HALVES)) =
            __float2half_rn(test_random((uint32_t)i + 0x10000u, 0.5f));
}
// Value of element k of a row of halves after rounding to the format; value(k): the row.
template <int KIND, class ROW> DEV double test_value(int k, float factor, ROW value) {
    int first = k & ~31, count = 32;
    if (KIND == NV_FP4) first = k & ~15, count = 16;
    float top = 0.f, inverse;
    for (int i = 0; i < count; i++) top = fmaxf(top, fabsf(value(first + i) * factor));
    uint32_t s = mx_scale<KIND>(top, inverse);
    float v = value(k) * factor * inverse, scale = KIND == NV_FP4 ? e4m3_floats(s).x : ue8m0_float(s);
    return (double)(KIND == MX_FP8 ? e4m3_floats(e4m3_pair(v, 0.f)).x : e2m1_float(e2m1_code(v))) *
           (double)scale / (double)factor;
}
template <int KIND>
__global__ void test_product_kernel(const uint8_t *w, const uint8_t *tiles, const float *out, double *sum) {
    int n = blockIdx.x, t = threadIdx.x;
    if (t >= TEST_T) return;
    auto weight = [&](int k) {
        return k < TEST_K ? unit_value(LAYOUT_F16, w + ((size_t)(n >> 4) * TEST_U + (k >> 8)) * 8192, n & 15,
                                       k & 255)
                          : 0.f;
    };
    auto x = [&](int k) {
        return k < TEST_K
                   ? __half2float(*(const __half *)(tiles + prompt_offset(t, k, TEST_TILES, ORDER_HALVES)))
                   : 0.f;
    };
    double v = 0;
    for (int k = 0; k < TEST_K; k++)
        v += test_value<KIND>(k, mx_weight_factor<KIND>, weight) * test_value<KIND>(k, mx_x_factor<KIND>, x);
    double e = (double)out[(size_t)t * TEST_N + n] - v;
    sum[2 * (n * TEST_T + t)] = e * e;
    sum[2 * (n * TEST_T + t) + 1] = v * v;
}
template <int KIND> static cudaError_t test_product(const prompt_job &j, double *sum, cudaStream_t s) {
    test_product_kernel<KIND><<<TEST_N, 160, 0, s>>>(j.w, j.x, j.out, sum);
    return cudaGetLastError();
}

static enum infer_status self_test(int kind, uint8_t *memory, double *error, cudaStream_t s) {
    constexpr size_t W = (size_t)TEST_N / 16 * TEST_U * 8192, X = TEST_TILES * (size_t)PROMPT_TILE_BYTES,
                     OUT = (size_t)TEST_T * TEST_N * 4, SUM = (size_t)TEST_T * TEST_N * 16;
    static thread_local double sum[TEST_T * TEST_N * 2]; // ranks are threads
    prompt_job j = {};
    int *n_row = (int *)memory;
    j.w = memory + 256;
    j.x = j.w + W;
    j.mx = j.x + X;
    j.mx_rows = 256;
    j.mx_scale = j.mx + prompt_mx_bytes(256, TEST_TILES);
    double *sums = (double *)(j.mx_scale + prompt_mx_scale_bytes(256, TEST_TILES));
    j.out = (float *)((uint8_t *)sums + SUM);
    j.u = TEST_U;
    j.n_slab = TEST_N / 16;
    j.k_tiles = TEST_TILES;
    j.n_row = n_row;
    j.stride = TEST_N;
    j.member[0].n = TEST_N;
    j.n_member = 1;
    CU(cudaMemsetAsync(memory, 0, 256 + W + X, s));
    CU(cudaMemsetAsync(j.out, 0xff, OUT, s));
    test_fill_kernel<<<(TEST_N * TEST_K + 255) / 256, 256, 0, s>>>((uint8_t *)j.w, (uint8_t *)j.x, n_row);
    CU(cudaGetLastError());
    CU(prompt_mx_quantise(j, kind, TEST_T, s));
    CU(prompt_mx_launch(j, LAYOUT_F16, kind, EPILOGUE_STORE, TEST_T, s));
    CU(kind == MX_FP8   ? test_product<MX_FP8>(j, sums, s)
       : kind == MX_FP4 ? test_product<MX_FP4>(j, sums, s)
                        : test_product<NV_FP4>(j, sums, s));
    CU(cudaMemcpyAsync(sum, sums, SUM, cudaMemcpyDeviceToHost, s));
    CU(cudaStreamSynchronize(s));
    double e = 0, v = 0;
    for (int i = 0; i < TEST_T * TEST_N; i++) e += sum[2 * i], v += sum[2 * i + 1];
    *error = sqrt(e / v);
    return INFER_OK;
}
enum infer_status prompt_mx_self_test(int kind, bool *agree, double *error, cudaStream_t s) {
    uint8_t *memory;
    CU(cudaMalloc((void **)&memory, 4 << 20));
    enum infer_status st = self_test(kind, memory, error, s);
    cudaFree(memory);
    *agree = !st && *error < 1e-5;
    return st;
}
