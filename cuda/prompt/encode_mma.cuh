// Attention without a mask with mma.sync, D columns of keys and values: every chip from sm_80 on. A block takes 64 rows of a head, a warp 16
// of them, past tiles of 64 keys. source: Dao 2023 (arXiv 2307.08691).
#pragma once
#include "cuda/prompt/encode_softmax.cuh"

enum { ENCODE_KEYS = 64, ENCODE_CHUNK = ENCODE_KEYS * 16 };
template <int D> struct encode_mma_size {
    static constexpr int tensor = ENCODE_KEYS * D * 2, smem = 4 * tensor;
};

// Keys or values of 64 rows into [chunk][64][16 bytes].
template <int D> DEV void encode_load(uint32_t to, const uint8_t *from, int tile) {
    from += (size_t)(tile / 2) * (ENCODE_ROWS * D * 2) + tile % 2 * ENCODE_CHUNK;
#pragma unroll
    for (int i = threadIdx.x; i < ENCODE_KEYS * D / 8; i += 128)
        cp_async16(to + i * 16, from + (i / ENCODE_KEYS * ENCODE_ROWS + i % ENCODE_KEYS) * 16, 16);
}
template <int D>
DEV void encode_tile(encode_rows &st, const uint32_t (&q)[D / 16][4], float (&o)[D / 2], uint32_t k,
                     uint32_t v, int n) {
    const int lane = threadIdx.x & 31, row = (lane & 7) + ((lane >> 4) << 3),
              half = (lane >> 3) & 1; // of keys: two groups of 8, two halves of 16 columns
    float s[ENCODE_KEYS / 2];
    uint32_t p[ENCODE_KEYS / 16][4];
#pragma unroll
    for (int i = 0; i < ENCODE_KEYS / 2; i++) s[i] = 0.f;
#pragma unroll
    for (int c = 0; c < D / 16; c++)
#pragma unroll
        for (int i = 0; i < ENCODE_KEYS / 16; i++) {
            uint32_t b[4];
            ldmatrix4(b, k + (2 * c + half) * ENCODE_CHUNK + (i * 16 + row) * 16);
            mma_f16(*(float(*)[4])(s + 8 * i), q[c][0], q[c][1], q[c][2], q[c][3], b[0], b[1]);
            mma_f16(*(float(*)[4])(s + 8 * i + 4), q[c][0], q[c][1], q[c][2], q[c][3], b[2], b[3]);
        }
    encode_softmax<ENCODE_KEYS, D>(st, n, s, p, o);
#pragma unroll
    for (int c = 0; c < ENCODE_KEYS / 16; c++)
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t b[4]; // 16 keys, two groups of 8 columns
            ldmatrix4_t(b, v + (2 * i + (lane >> 4)) * ENCODE_CHUNK + (c * 16 + (lane & 15)) * 16);
            mma_f16(*(float(*)[4])(o + 8 * i), p[c][0], p[c][1], p[c][2], p[c][3], b[0], b[1]);
            mma_f16(*(float(*)[4])(o + 8 * i + 4), p[c][0], p[c][1], p[c][2], p[c][3], b[2], b[3]);
        }
}

template <int D>
__global__ void __launch_bounds__(128) encode_mma_kernel(const __grid_constant__ encode_job j) {
    constexpr int TENSOR = encode_mma_size<D>::tensor, TILE = ENCODE_ROWS * D * 2;
    extern __shared__ __align__(1024) uint8_t encode_smem[];
    const int n_row = *j.n_row, row0 = blockIdx.x * 64, head = blockIdx.y, lane = threadIdx.x & 31,
              own = (threadIdx.x >> 5) * 16 + (lane >> 2), n_tile = (n_row + ENCODE_KEYS - 1) / ENCODE_KEYS;
    if (row0 >= n_row) return;
    const size_t kv_head = head / (j.n_head / j.n_kv_head);
    const uint8_t *k = j.k + kv_head * j.tiles * TILE, *v = j.v + kv_head * j.tiles * TILE,
                  *from = j.q + ((size_t)head * j.tiles + row0 / ENCODE_ROWS) * TILE +
                          (row0 % ENCODE_ROWS + own) * 16 + (lane & 3) * 4;
    const uint32_t ring = smem_address(encode_smem);
    uint32_t q[D / 16][4]; // rows own and own + 8, columns 2 t and 2 t + 8 of each 16
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int f = 0; f < 4; f++)
            q[i][f] = *(const uint32_t *)(from + ((2 * i + f / 2) * ENCODE_ROWS + f % 2 * 8) * 16);
    float o[D / 2];
    encode_rows st = {{-INFINITY, -INFINITY}, {0.f, 0.f}};
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.f;
    auto load = [&](int tile) {
        const uint32_t at = ring + (tile & 1) * (2 * TENSOR);
        if (tile < n_tile) {
            encode_load<D>(at, k, tile);
            encode_load<D>(at + TENSOR, v, tile);
        }
        cp_commit();
    };
    load(0);
    for (int tile = 0; tile < n_tile; tile++) {
        const uint32_t at = ring + (tile & 1) * (2 * TENSOR);
        load(tile + 1);
        cp_wait<1>();
        __syncthreads();
        encode_tile<D>(st, q, o, at, at + TENSOR, n_row - tile * ENCODE_KEYS);
        __syncthreads();
    }
    encode_finish<D>(j, st, row0 + own, n_row, head, o);
}
