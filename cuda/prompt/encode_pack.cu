// q, k and v of attention without a store: rotated, and as halves in the tiles that its kernels read.
#include "cuda/common/util.cuh"
#include "cuda/prompt/encode.h"

enum { PACK_ROWS = 64, PACK_THREADS = 256 };

// Rows t0 .. of a head to x, `pitch` floats apart; zeros behind the last.
DEV void pack_load(const encode_pack_job &j, const rows &from, int h, int t0, int n_row, float *x,
                   int pitch) {
    const float *p = from.p + (size_t)t0 * from.stride + (size_t)h * j.dim;
    const int quads = j.dim / 4;
    if (j.wide) {
#pragma unroll 4
        for (int i = threadIdx.x; i < PACK_ROWS * quads; i += PACK_THREADS) {
            const int r = i / quads, c = i % quads * 4;
            const float4 v = t0 + r < n_row ? __ldcg((const float4 *)(p + (size_t)r * from.stride + c))
                                            : make_float4(0.f, 0.f, 0.f, 0.f);
            float *to = x + r * pitch + c;
            to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        }
        return;
    }
    for (int i = threadIdx.x; i < PACK_ROWS * j.dim; i += PACK_THREADS) {
        const int r = i / j.dim, c = i % j.dim;
        x[r * pitch + c] = t0 + r < n_row ? __ldcg(p + (size_t)r * from.stride + c) : 0.f;
    }
}
// One rotation of all rows.
DEV void pack_turn(const encode_turn &t, int t0, int n, float *x, int pitch) {
    const int half = t.n_rot / 2;
#pragma unroll 4
    for (int i = threadIdx.x; i < n * half; i += PACK_THREADS) {
        const int r = i / half, p = i % half;
        const float2 c = t.table[(size_t)t0 * half + i];
        float *a = x + r * pitch + t.at + (t.neox ? p : 2 * p), *b = t.neox ? a + half : a + 1;
        const float u = *a, v = *b;
        *a = u * c.x - v * c.y;
        *b = v * c.x + u * c.y;
    }
}
// A block: 64 rows of a head of q, k or v.
__global__ void __launch_bounds__(PACK_THREADS)
    encode_pack_kernel(const __grid_constant__ encode_pack_job j) {
    extern __shared__ float x[];
    const int n_row = *j.n_row, t0 = blockIdx.x * PACK_ROWS, pitch = j.dim | 1;
    if (t0 >= (n_row + ENCODE_ROWS - 1) / ENCODE_ROWS * ENCODE_ROWS) return; // a tile is written as a whole
    int h = blockIdx.y;
    const bool is_q = h < j.n_head, is_k = !is_q && h < j.n_head + j.n_kv_head;
    h -= is_q ? 0 : is_k ? j.n_head : j.n_head + j.n_kv_head;
    pack_load(j, is_q ? j.q : is_k ? j.k : j.v, h, t0, n_row, x, pitch);
    for (int i = 0; i < j.n_turn && (is_q || is_k); i++) {
        __syncthreads();
        pack_turn(j.turn[i], t0, min((int)PACK_ROWS, n_row - t0), x, pitch);
    }
    __syncthreads();
    uint8_t *to = (is_q   ? j.to_q
                   : is_k ? j.to_k
                          : j.to_v) +
                  ((size_t)h * j.tiles + t0 / ENCODE_ROWS) * ENCODE_ROWS * j.columns * 2 +
                  t0 % ENCODE_ROWS * 16;
    const float scale = is_q ? j.scale : 1.f;
#pragma unroll 2
    for (int i = threadIdx.x; i < PACK_ROWS * j.columns / 8; i += PACK_THREADS) {
        const int r = i % PACK_ROWS, chunk = i / PACK_ROWS;
        const float *p = x + r * pitch + chunk * 8;
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; e++) v[e] = chunk * 8 + e < j.dim ? p[e] * scale : 0.f;
        *(uint4 *)(to + (size_t)(chunk * ENCODE_ROWS + r) * 16) = make_uint4(
            pack_half2(v[0], v[1]), pack_half2(v[2], v[3]), pack_half2(v[4], v[5]), pack_half2(v[6], v[7]));
    }
}
static bool aligned(const rows &r) { return (size_t)r.p % 16 == 0 && r.stride % 4 == 0; }
cudaError_t encode_pack_launch(const encode_pack_job &j, int n, cudaStream_t s) {
    const int tiles = (n + ENCODE_ROWS - 1) / ENCODE_ROWS * (ENCODE_ROWS / PACK_ROWS);
    const dim3 grid((unsigned)tiles, (unsigned)(j.n_head + 2 * j.n_kv_head));
    encode_pack_job own = j;
    own.wide = j.dim % 4 == 0 && aligned(j.q) && aligned(j.k) && aligned(j.v);
    encode_pack_kernel<<<grid, PACK_THREADS, PACK_ROWS *(j.dim | 1) * 4, s>>>(own);
    return cudaGetLastError();
}
