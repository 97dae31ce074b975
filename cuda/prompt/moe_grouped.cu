// Pairs of prompt rows and their experts: their order, their activations, the sum of their products.
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/prompt/moe_grouped.h"
#include "cuda/common/route.cuh"
#include "seam/router.h"

// ---- the order: one block counts and adds up
enum { ORDER_THREADS = 1024 };
static_assert((int)ORDER_THREADS >= (int)ROUTE_EXPERTS_MAX, "a thread an expert");
// The sum of v of the threads before this one, and of all; a power of two of them.
DEV int sum_before(int v, int *all) {
    __shared__ int warp_sum[32];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, own = v;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const int w = __shfl_up_sync(~0u, v, o);
        if (lane >= o) v += w;
    }
    __syncthreads(); // what was there is read
    if (lane == 31) warp_sum[warp] = v;
    __syncthreads();
    const int w = warp_sum[lane], before = __reduce_add_sync(~0u, lane < warp ? w : 0);
    *all = __reduce_add_sync(~0u, w);
    return before + v - own;
}
__global__ void __launch_bounds__(ORDER_THREADS) moe_grouped_order_kernel(pair_order o) {
    __shared__ int first[ROUTE_EXPERTS_MAX];
    const int i = threadIdx.x, n = *o.n_row;
    first[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (int row = i; row < n; row += ORDER_THREADS)
#pragma unroll 4
        for (int c = 0; c < o.n_used; c++) {
            const int e = route_matrix(o.choice.p[row * o.choice.stride + c], o.n_expert, o.first, o.n_all);
            if (e >= 0) atomicAdd(&first[e], 1);
        }
    __syncthreads();
    // tiles of 256 pairs, then one of what is left, by its number of blocks; 256 first
    const int many = first[i], whole = many / PAIR_TILE, rest = many % PAIR_TILE,
              blocks = (rest + PAIR_BLOCK - 1) / PAIR_BLOCK;
    int all, before = 0, at_whole = 0, at_rest = 0;
    const int position = sum_before((many + PAIR_BLOCK - 1) / PAIR_BLOCK * PAIR_BLOCK, &all);
    for (int b = 4; b > 0; b--) {
        const int at = before + sum_before(b == 4 ? whole + (blocks == 4) : blocks == b, &all);
        if (b == 4) at_whole = at;
        if (b == blocks) at_rest = at + (b == 4 ? whole : 0);
        before += all;
    }
    for (int k = 0; k < whole; k++)
        o.tile[1 + at_whole + k] = make_int4(i, position + k * PAIR_TILE, PAIR_TILE, 0);
    if (rest) o.tile[1 + at_rest] = make_int4(i, position + whole * PAIR_TILE, rest, 0);
    if (i == 0) o.tile[0] = make_int4(before, 0, 0, 0);
    if (i < o.n_expert) o.next[i] = position;
}
cudaError_t moe_grouped_order_launch(const pair_order &o, cudaStream_t s) {
    moe_grouped_order_kernel<<<1, ORDER_THREADS, 0, s>>>(o);
    return cudaGetLastError();
}

// ---- activations: a block a row, which becomes halves in their order once and is copied to each of its places
__global__ void __launch_bounds__(256)
    moe_grouped_gather_kernel(pair_order o, rows x, uint8_t *tiles, int k_tiles, int order) {
    extern __shared__ uint4 image[]; // [k tile][8 chunks]
    __shared__ int places[ROUTE_USED_MAX];
    const int t = blockIdx.x;
    if (t >= *o.n_row) return;
    const float *p = x.p + (size_t)t * x.stride;
    for (int k = threadIdx.x * 4; k < k_tiles * PROMPT_TILE_COLS; k += 1024) {
        const float4 v = k < x.width ? *(const float4 *)(p + k) : make_float4(0.f, 0.f, 0.f, 0.f);
        const int at =
            (k & ~31) + prompt_position(k & 31, order); // the third of the four lies 8 further, or behind
        __half *to = (__half *)image;
        const int next = (k & ~31) + prompt_position((k & 31) + 2, order);
        *(uint32_t *)(to + at) = pack_half2(v.x, v.y);
        *(uint32_t *)(to + next) = pack_half2(v.z, v.w);
    }
    if (threadIdx.x < o.n_used) {
        const int e = route_matrix(o.choice.p[t * o.choice.stride + threadIdx.x], o.n_expert, o.first,
                                   o.n_all),
                  to = e < 0 ? -1 : atomicAdd(&o.next[e], 1);
        if (e >= 0) o.pair[to] = t * o.n_used + threadIdx.x;
        places[threadIdx.x] = to;
    }
    __syncthreads();
    for (int c = 0; c < o.n_used; c++) {
        const int place = places[c];
        if (place < 0) continue;
        uint8_t *to =
            tiles + (size_t)(place / PAIR_BLOCK) * k_tiles * PAIR_BLOCK_BYTES + place % PAIR_BLOCK * 128;
        for (int i = threadIdx.x; i < k_tiles * 8; i += 256)
            *(uint4 *)(to + (size_t)(i >> 3) * PAIR_BLOCK_BYTES + (((i & 7) ^ (place & 7)) << 4)) = image[i];
    }
}
cudaError_t moe_grouped_gather_launch(const pair_order &o, rows x, uint8_t *tiles, int k_tiles, int order,
                                      int n, cudaStream_t s) {
    const size_t bytes = (size_t)k_tiles * 128;
    if (bytes > 48 << 10) {
        const cudaError_t e = cudaFuncSetAttribute(moe_grouped_gather_kernel,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (e != cudaSuccess) return e;
    }
    moe_grouped_gather_kernel<<<n, 256, bytes, s>>>(o, x, tiles, k_tiles, order);
    return cudaGetLastError();
}

cudaError_t moe_grouped_gemm_launch(const pair_gemm &j, enum layout l, int n, int sm_count, cudaStream_t s) {
    const int pairs = n * j.o.n_used,
              tiles = pairs / PAIR_TILE + (pairs < j.o.n_expert ? pairs : j.o.n_expert);
    switch (l) {
#define CASE_FLOATS(id)
#define CASE_HALVES(id)                                                                                      \
    case LAYOUT_##id:                                                                                        \
        return moe_grouped_gemm_##id(j, tiles, sm_count, s);
#define CASE_CODES(id)                CASE_HALVES(id)
#define CASE_EIGHTS(id)               CASE_HALVES(id)
#define LAYOUT(id, name, bytes, kind) CASE_##kind(id)
#include "cuda/plan/layouts.def"
    default:
        return cudaErrorInvalidValue;
    }
}

// ---- the sum: mix_kernel's, then the other row
__global__ void __launch_bounds__(256) moe_grouped_mix_kernel(pair_mix j) {
    const int t = blockIdx.y, i = (blockIdx.x * 256 + threadIdx.x) * 4;
    if (t >= *j.n_row || i >= j.out.width) return;
    const float *x = j.x.p + (size_t)t * j.x.stride + i, *w = j.w.p + (size_t)t * j.w.stride;
    float4 y = make_float4(0.f, 0.f, 0.f, 0.f);
    if (j.shared.p) {
        const float g = j.gate.p ? router_sigmoid(j.gate.p[(size_t)t * j.gate.stride]) : 1.f;
        const float4 v = *(const float4 *)(j.shared.p + (size_t)t * j.shared.stride + i);
        y = make_float4(g * v.x, g * v.y, g * v.z, g * v.w);
    }
#pragma unroll 8
    for (int c = 0; c < j.n_used; c++) {
        const float f = j.w.p ? w[c] : 1.f;
        const float4 v = __ldcs((const float4 *)(x + (size_t)c * j.out.width));
        y = make_float4(fmaf(f, v.x, y.x), fmaf(f, v.y, y.y), fmaf(f, v.z, y.z), fmaf(f, v.w, y.w));
    }
    const float4 a = *(const float4 *)(j.add.p + (size_t)t * j.add.stride + i);
    *(float4 *)(j.out.p + (size_t)t * j.out.stride + i) =
        make_float4(a.x + y.x, a.y + y.y, a.z + y.z, a.w + y.w);
}
cudaError_t moe_grouped_mix_launch(const pair_mix &j, int n, cudaStream_t s) {
    moe_grouped_mix_kernel<<<dim3((j.out.width / 4 + 255) / 256, n), 256, 0, s>>>(j);
    return cudaGetLastError();
}
