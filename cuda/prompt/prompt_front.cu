// What is done to rows on their way into a matmul's tiles beside an RMS norm: a norm with a mean, an activation. A lane makes 16 bytes of a
// tile, eight columns of a row.
#include "cuda/common/front.cuh"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/prompt/prompt_qkv_post.h"

enum {
    FRONT_THREADS = 256,
    FRONT_WARPS = FRONT_THREADS / 32,
    FRONT_HELD = 6 /* chunks that a lane keeps of a row */
};

// The pair i of chunk c (16 bytes) of a row: its first column.
DEV int front_column(int c, int i, int order) {
    const int in = order == ORDER_CODES ? 16 * (c >> 1 & 1) + 4 * i : 8 * i + 4 * (c >> 1 & 1);
    return (c >> 2) * 32 + in + 2 * (c & 1);
}
DEV void front_load(float2 (&v)[4], const float *p, int c, int order, int width) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = front_column(c, i, order);
        v[i] = k < width ? __ldcg((const float2 *)(p + k)) : make_float2(0.f, 0.f);
    }
}
DEV float2 front_pair(const front_job &f, float2 moments, float2 v, int k) {
    if (!f.norm) return make_float2(front_value(f, moments, v.x, k), front_value(f, moments, v.y, k + 1));
    const float2 w = f.w ? *(const float2 *)(f.w + k) : make_float2(1.f, 1.f),
                 bias = f.bias ? *(const float2 *)(f.bias + k) : make_float2(0.f, 0.f);
    return make_float2((v.x - moments.x) * moments.y * w.x + bias.x,
                       (v.y - moments.x) * moments.y * w.y + bias.y);
}
DEV void front_store(const float2 (&v)[4], const front_job &f, float2 moments, uint8_t *tiles, int row, int c,
                     int k_tiles, int order, int width) {
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = front_column(c, i, order); // pairs behind the last column stay zeros
        const float2 y = k < width ? front_pair(f, moments, v[i], k) : make_float2(0.f, 0.f);
        out[i] = pack_half2(y.x, y.y);
    }
    const size_t tile = (size_t)(row >> 8) * k_tiles + (c >> 3);
    *(uint4 *)(tiles + tile * PROMPT_TILE_BYTES + (row & 255) * 128 + (((c & 7) ^ (row & 7)) << 4)) =
        make_uint4(out[0], out[1], out[2], out[3]);
}

// A warp a row, which stays in registers.
__global__ void __launch_bounds__(FRONT_THREADS)
    front_norm_kernel(rows x, const __grid_constant__ front_job f, const int *n_row, uint8_t *tiles,
                      int k_tiles, int order, int chunks) {
    const int row = blockIdx.x * FRONT_WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= *n_row) return;
    const float *p = x.p + (size_t)row * x.stride;
    float2 v[FRONT_HELD][4];
    float sum = 0.f, square = 0.f;
#pragma unroll
    for (int j = 0; j < FRONT_HELD; j++) {
        if (lane + 32 * j >= chunks) continue;
        front_load(v[j], p, lane + 32 * j, order, x.width);
#pragma unroll
        for (int i = 0; i < 4; i++) sum += v[j][i].x + v[j][i].y;
    }
    const float mean = warp_sum(sum) / (float)x.width;
#pragma unroll
    for (int j = 0; j < FRONT_HELD; j++) {
        if (lane + 32 * j >= chunks) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (front_column(lane + 32 * j, i, order) >= x.width) continue;
            const float a = v[j][i].x - mean, b = v[j][i].y - mean;
            square += a * a + b * b;
        }
    }
    const float2 moments = make_float2(mean, 1.f / sqrtf(warp_sum(square) / (float)x.width + f.eps));
#pragma unroll
    for (int j = 0; j < FRONT_HELD; j++)
        if (lane + 32 * j < chunks)
            front_store(v[j], f, moments, tiles, row, lane + 32 * j, k_tiles, order, x.width);
}
// A thread a chunk.
__global__ void __launch_bounds__(FRONT_THREADS)
    front_act_kernel(rows x, const __grid_constant__ front_job f, const int *n_row, uint8_t *tiles,
                     int k_tiles, int order, int chunks) {
    const unsigned at = blockIdx.x * FRONT_THREADS + threadIdx.x;
    const int row = (int)(at / (unsigned)chunks), c = (int)(at % (unsigned)chunks);
    if (row >= *n_row) return;
    float2 v[4];
    front_load(v, x.p + (size_t)row * x.stride, c, order, x.width);
    front_store(v, f, make_float2(0.f, 1.f), tiles, row, c, k_tiles, order, x.width);
}

// A block a row of any width, in any form of tiles.
__global__ void __launch_bounds__(FRONT_THREADS)
    prompt_front_kernel(rows x, const __grid_constant__ front_job f, const int *n_row, uint8_t *tiles,
                        int k_tiles, int order) {
    __shared__ float tmp[16];
    const int t = blockIdx.x;
    if (t >= *n_row) return;
    const float *p = x.p + (size_t)t * x.stride;
    const float2 m = f.norm ? front_moments(f, p, x.width, tmp) : make_float2(0, 1);
    for (int k = threadIdx.x * 2; k < x.width; k += 512)
        prompt_put2(tiles, t, k, k_tiles, order, front_value(f, m, p[k], k),
                    front_value(f, m, p[k + 1], k + 1));
}
cudaError_t prompt_front_launch(rows x, const front_job &f, const int *n_row, uint8_t *tiles, int k_tiles,
                                int order, int n, cudaStream_t s) {
    const int chunks = (x.width + 31) / 32 * 4; // of whole groups of 32 columns
    const bool halves =
        (order == ORDER_HALVES || order == ORDER_CODES) && (size_t)x.p % 8 == 0 && x.stride % 2 == 0;
    const size_t all = (size_t)n * (size_t)chunks;
    if (halves && f.norm && chunks <= 32 * FRONT_HELD)
        front_norm_kernel<<<(n + FRONT_WARPS - 1) / FRONT_WARPS, FRONT_THREADS, 0, s>>>(
            x, f, n_row, tiles, k_tiles, order, chunks);
    else if (halves && !f.norm && all < 1u << 31)
        front_act_kernel<<<(unsigned)((all + FRONT_THREADS - 1) / FRONT_THREADS), FRONT_THREADS, 0, s>>>(
            x, f, n_row, tiles, k_tiles, order, chunks);
    else
        prompt_front_kernel<<<n, FRONT_THREADS, 0, s>>>(x, f, n_row, tiles, k_tiles, order);
    return cudaGetLastError();
}
