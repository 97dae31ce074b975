// Ceilings of the card, measured here and now: a read of memory, and products of halves in registers.
#include "cuda/bench/cuda_bench.cuh"
#include <math.h>
#include <stdlib.h>
#include "base/mem.h"
#include "cuda/common/wgmma.cuh"

enum {
    PRODUCTS = 64,
    COLUMNS = 256
}; // products of a warp or warpgroup between two looks at the count; of each on sm_90

__global__ void read_kernel(const uint4 *p, size_t n, uint32_t *sink) {
    uint32_t v = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
#pragma unroll 8
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        uint4 w = __ldcs(p + i);
        v ^= w.x ^ w.y ^ w.z ^ w.w;
    }
    if (v == 0x12345679u) *sink = v;
}
cudaError_t ceiling_read(const uint8_t *p, size_t n, void *sink, int sm_count, cudaStream_t s) {
    read_kernel<<<sm_count * 8, 512, 0, s>>>((const uint4 *)p, n / 16, (uint32_t *)sink);
    return cudaGetLastError();
}

// Small halves that differ from each other: products of zeros take less power and run at a higher clock.
DEV uint32_t some_halves(uint32_t i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return (i & 0x83ff83ffu) | 0x2c002c00u;
}
// 256 threads a block; 8 warps of 8 sums each, or on sm_90 two warpgroups of 64 x 256.
__global__ void __launch_bounds__(256, 1) product_kernel(int n, float *sink) {
    uint32_t a[4];
    float kept = 0;
    for (int i = 0; i < 4; i++) a[i] = some_halves(threadIdx.x * 4 + i);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ __align__(1024) uint32_t b[COLUMNS * 32]; // K contiguous, 128 bytes a column
    for (int i = threadIdx.x; i < COLUMNS * 32; i += 256) b[i] = some_halves(5000 + i);
    barrier_fence();
    __syncthreads();
    float d[COLUMNS / 2];
    for (int i = 0; i < COLUMNS / 2; i++) d[i] = 0;
    const uint32_t at = wgmma_descriptor(smem_address(b));
    for (int k = 0; k < n; k++) {
        wgmma_pin(d);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++) wgmma_rs(d, a, at + 2 * (i & 3));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(d);
    }
    for (int i = 0; i < COLUMNS / 2; i++) kept += d[i];
#else
    const uint32_t b0 = some_halves(5000 + threadIdx.x), b1 = some_halves(6000 + threadIdx.x);
    float d[8][4] = {};
    for (int k = 0; k < n; k++)
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++) mma_f16(d[i & 7], a[0], a[1], a[2], a[3], b0, b1);
    for (int i = 0; i < 8; i++) kept += d[i][0] + d[i][1] + d[i][2] + d[i][3];
#endif
    if (kept == 1.2345678f) *sink = kept;
}

struct cuda_ceiling {
    struct bench_run b;
    struct pool pool;
    uint8_t *data; // data[n]
    float *sink;
    size_t n; // 0: too little memory is free
};

static enum infer_status ceiling_start(struct cuda_ceiling *c) {
    cudaDeviceProp prop;
    int device;
    size_t left, all, n = (size_t)2 << 30;
    TRY(backend_cuda.probe()); // makes the card current
    CU(cudaGetDevice(&device));
    CU(cudaGetDeviceProperties(&prop, device));
    c->b.sm = prop.major * 10 + prop.minor;
    c->b.sm_count = prop.multiProcessorCount;
    CU(cudaStreamCreateWithFlags(&c->b.stream, cudaStreamNonBlocking));
    CU(cudaEventCreate(&c->b.begin));
    CU(cudaEventCreate(&c->b.end));
    TRY(take(&c->pool, &c->sink, 4));
    CU(cudaMemGetInfo(&left, &all));
    while (n > left / 2) n /= 2;
    if (n < (size_t)prop.l2CacheSize * 8) return INFER_OK; // what the cache holds of it would count
    TRY(take(&c->pool, &c->data, n));
    c->n = n;
    CU(random_fill((float *)c->data, n / 4, 1, c->b.stream));
    CU(cudaStreamSynchronize(c->b.stream));
    return INFER_OK;
}
enum infer_status cuda_ceiling_open(struct cuda_ceiling **out) {
    TRY(mem_new(out, sizeof **out, "the card's ceilings"));
    enum infer_status st = ceiling_start(*out);
    if (st) cuda_ceiling_close(*out), *out = NULL;
    return st;
}
void cuda_ceiling_close(struct cuda_ceiling *c) {
    if (!c) return;
    drop(&c->pool);
    if (c->b.begin) cudaEventDestroy(c->b.begin);
    if (c->b.end) cudaEventDestroy(c->b.end);
    if (c->b.stream) cudaStreamDestroy(c->b.stream);
    mem_free(c);
}
// Milliseconds of one call of f within about so many seconds, all queued at once; NAN: a call failed.
template <class F> static double queued_ms(struct cuda_ceiling *c, double seconds, F f) {
    float ms = 0;
    for (int calls = 1, round = 0;; round++) {
        if (cudaEventRecord(c->b.begin, c->b.stream)) return NAN;
        for (int i = 0; i < calls; i++)
            if (f() != cudaSuccess) return NAN;
        if (cudaEventRecord(c->b.end, c->b.stream) || cudaEventSynchronize(c->b.end) ||
            cudaEventElapsedTime(&ms, c->b.begin, c->b.end) || !(ms > 0))
            return NAN;
        if (round) return ms / calls;
        calls = 1 + (int)(seconds * 1e3 / (double)ms);
    }
}
double cuda_ceiling_read(struct cuda_ceiling *c, double seconds) {
    if (!c->n) return NAN;
    return (double)c->n * 1e-6 / queued_ms(c, seconds, [&] {
               return ceiling_read(c->data, c->n, c->sink, c->b.sm_count, c->b.stream);
           });
}
double cuda_ceiling_products(struct cuda_ceiling *c, double seconds) {
    const int n = 256, blocks = c->b.sm_count * 2;
    const bool groups = c->b.sm == 90; // the image of another chip is as for sm_80
    const double each = groups ? 2. * 64 * COLUMNS * 16 * 2 : 8. * 16 * 8 * 16 * 2;
    return each * PRODUCTS * n * blocks * 1e3 / queued_ms(c, seconds, [&] {
               product_kernel<<<blocks, 256, 0, c->b.stream>>>(n, c->sink);
               return cudaGetLastError();
           });
}
