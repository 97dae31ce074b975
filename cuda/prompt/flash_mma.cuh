// Causal attention of prompt rows with mma.sync: every chip from sm_80 on. A block takes 64 rows of one query head, a warp
// 16 of them; tiles of 64 keys at absolute positions. source: Dao 2023 (arXiv 2307.08691).
#pragma once
#include "cuda/prompt/flash_softmax.cuh"

enum { FLASH_ROWS = 64, FLASH_KEYS = 64 };
template <int D> struct flash_size {
    static constexpr int tensor = D / 64 * FLASH_KEYS * 128, query = D / 64 * FLASH_ROWS * 128,
                         smem = 4 * tensor + query;
};

template <int D, class J>
__global__ void __launch_bounds__(128) flash_mma_kernel(const __grid_constant__ J j) {
    constexpr int TENSOR = flash_size<D>::tensor, BLOCK = FLASH_KEYS * 128;
    extern __shared__ __align__(1024) uint8_t flash_smem[];
    __shared__ attend_run run[ATTEND_ROWS];
    int n_row = *j.n_row, n_tile = (n_row + FLASH_ROWS - 1) / FLASH_ROWS;
    int qt = n_tile - 1 - (int)blockIdx.y, head = blockIdx.x, kv_head = head / (j.n_head / j.n_kv_head);
    if (qt < 0) return;
    int t0 = qt * FLASH_ROWS, n = min(FLASH_ROWS, n_row - t0), warp = threadIdx.x >> 5,
        lane = threadIdx.x & 31;
    uint32_t ring = smem_address(flash_smem), query = ring + 4 * TENSOR;
    int n_run = attend_runs<FLASH_KEYS>(j, t0, n, run);
    attend_rows st = attend_start(j, warp * 16, t0, n, head);
    attend_query<D>(j, st, t0, head, query, warp * 16 + (lane >> 2), FLASH_ROWS);
    __syncwarp();
    uint32_t q[D / 16][4]; // a lane's row lane % 16 of the warp's 16, half lane / 16 of 16 columns
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int row = warp * 16 + (lane & 15), chunk = (i & 3) * 2 + (lane >> 4);
        ldmatrix4(q[i], query + (i >> 2) * (FLASH_ROWS * 128) + row * 128 + ((chunk ^ (row & 7)) << 4));
    }
    float o[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.f;
    int row = (lane & 7) + ((lane >> 4) << 3),
        half = (lane >> 3) & 1;              // K: two groups of 8 keys, two halves of 16 dims
    int vrow = lane & 15, vhalf = lane >> 4; // V: 16 keys, two groups of 8 dims
    for (int w = 0; w < n_run; w++) {
        const attend_run walk = run[w];
        const int32_t *table = j.pages + (size_t)walk.slot * j.max_pages;
        auto load = [&](int tile) {
            uint32_t at = ring + (tile & 1) * (2 * TENSOR);
            if (tile < walk.tile_end) {
                attend_load<D, FLASH_KEYS>(at, j.k, j, table, kv_head, tile, walk.end, j.dk);
                attend_load<D, FLASH_KEYS>(at + TENSOR, j.v, j, table, kv_head, tile, walk.end, j.dv);
            }
            cp_commit();
        };
        load(walk.tile);
        for (int tile = walk.tile; tile < walk.tile_end; tile++) {
            load(tile + 1);
            cp_wait<1>();
            __syncthreads();
            uint32_t at = ring + (tile & 1) * (2 * TENSOR);
            float s[FLASH_KEYS / 2];
#pragma unroll
            for (int i = 0; i < FLASH_KEYS / 2; i++) s[i] = 0.f;
#pragma unroll
            for (int k = 0; k < D / 16; k++)
#pragma unroll
                for (int i = 0; i < FLASH_KEYS / 16; i++) {
                    uint32_t b[4];
                    ldmatrix4(b, at + (k >> 2) * BLOCK + (i * 16 + row) * 128 +
                                     ((((k & 3) * 2 + half) ^ (row & 7)) << 4));
                    mma_f16(*(float(*)[4])(s + 8 * i), q[k][0], q[k][1], q[k][2], q[k][3], b[0], b[1]);
                    mma_f16(*(float(*)[4])(s + 8 * i + 4), q[k][0], q[k][1], q[k][2], q[k][3], b[2], b[3]);
                }
            uint32_t p[FLASH_KEYS / 16][4];
            attend_softmax<D, FLASH_KEYS>(j, walk, tile * FLASH_KEYS, st, s, p, o);
#pragma unroll
            for (int k = 0; k < FLASH_KEYS / 16; k++)
#pragma unroll
                for (int i = 0; i < D / 16; i++) {
                    uint32_t b[4];
                    ldmatrix4_t(b, at + TENSOR + (i >> 2) * BLOCK + (k * 16 + vrow) * 128 +
                                       ((((i & 3) * 2 + vhalf) ^ (vrow & 7)) << 4));
                    mma_f16(*(float(*)[4])(o + 8 * i), p[k][0], p[k][1], p[k][2], p[k][3], b[0], b[1]);
                    mma_f16(*(float(*)[4])(o + 8 * i + 4), p[k][0], p[k][1], p[k][2], p[k][3], b[2], b[3]);
                }
            __syncthreads();
        }
    }
    attend_finish<D>(j, st, t0, head, o);
}
