// Prompt rows of layers with a state, in chunks of 64 positions: what the delta rule and Mamba-2 share. The convolution in front of both,
// and products of halves on tensor cores in which a warp has 16 columns of the state, transposed, in registers.
#pragma once
#include "cuda/prompt/delta_prompt.h"
#include "cuda/common/prompt_tiles.cuh"

DEV float silu_fast(float y) { return __fdividef(y, 1.f + __expf(-y)); }
DEV float4 load4(const float *p) { return *(const float4 *)p; }

// ---- convolution: a warp a block of 128 channels of 16 rows
enum { CONV_ROWS = 16, CONV_WARPS = 4 };
// The inputs i rows before row r, which has before rows of its own sequence in front of it.
DEV float4 conv_past(const chunk_rows_job &j, int r, int c, int back, int before, int slot, int C) {
    if (j.t.pos[r] < back) return make_float4(0, 0, 0, 0);
    if (back <= before) return load4(j.x + (size_t)(r - back) * j.x_row + c);
    return load4(j.conv + slot * j.conv_elem + (size_t)(DELTA_TAPS - 1 - (back - before)) * C + c);
}
// n_query: 0, or the blocks of halves become of length 1, the first so many 1 / sqrt(128).
template <bool UNIT>
__global__ void __launch_bounds__(CONV_WARPS * 32)
    chunk_conv_kernel(const __grid_constant__ chunk_rows_job j, int n_query) {
    const int lane = threadIdx.x & 31, block = blockIdx.x * CONV_WARPS + (threadIdx.x >> 5),
              n = j.t.step->n_row, C = j.n_block * DELTA_DIM, c = block * DELTA_DIM + lane * 4,
              of_half = block - j.first_half, of_rows = of_half < 0 ? block : block - j.n_half;
    int r = blockIdx.y * CONV_ROWS;
    if (block >= j.n_block || r >= n) return;
    float4 w[4], past[3] = {};
    for (int i = 0; i < 4; i++) w[i] = load4(j.conv_w + (c + i) * DELTA_TAPS);
    const float4 bias = j.conv_bias ? load4(j.conv_bias + c) : make_float4(0, 0, 0, 0);
    const int end = min(n, r + CONV_ROWS);
    int slot = -1;
    float4 next = load4(j.x + (size_t)r * j.x_row + c);
    for (; r < end; r++) {
        const float4 x = next;
        if (r + 1 < end) next = load4(j.x + (size_t)(r + 1) * j.x_row + c);
        if (j.t.slot[r] != slot) {
            slot = j.t.slot[r];
            int before = 0;
            while (before < 3 && before < r && j.t.slot[r - before - 1] == slot) before++;
            for (int i = 0; i < 3; i++) past[i] = conv_past(j, r, c, 3 - i, before, slot, C);
        }
        float y[4], square = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *f = &w[i].x;
            y[i] =
                silu_fast(fmaf(f[3], (&x.x)[i],
                               fmaf(f[2], (&past[2].x)[i],
                                    fmaf(f[1], (&past[1].x)[i], fmaf(f[0], (&past[0].x)[i], (&bias.x)[i])))));
            square = fmaf(y[i], y[i], square);
        }
        past[0] = past[1];
        past[1] = past[2];
        past[2] = x;
        if (of_half >= 0 && of_half < j.n_half) {
            const float f =
                UNIT ? rsqrtf(warp_sum(square) + 1e-6f) * (of_half < n_query ? 0.08838834764831845f : 1.f)
                     : 1.f;
            *(uint2 *)(j.qk + (size_t)r * j.qk_row + of_half * DELTA_DIM * 2 + lane * 8) =
                make_uint2(pack_half2(y[0] * f, y[1] * f), pack_half2(y[2] * f, y[3] * f));
        } else
            *(float4 *)(j.v + (size_t)r * j.v_row + of_rows * DELTA_DIM + lane * 4) =
                make_float4(y[0], y[1], y[2], y[3]);
    }
}
template <bool UNIT>
static void chunk_conv_launch(const chunk_rows_job &j, int n_query, int n, cudaStream_t s) {
    const dim3 grid((j.n_block + CONV_WARPS - 1) / CONV_WARPS, (n + CONV_ROWS - 1) / CONV_ROWS);
    chunk_conv_kernel<UNIT><<<grid, CONV_WARPS * 32, 0, s>>>(j, n_query);
}
// The past of channels for the next step, of a chunk that is the last of its sequence in the step: its last inputs, oldest first. Blocks x
// share the channels. Not by the scan: what that leaves may lie where other sequences' inputs did, which nothing reads behind the convolution.
DEV void keep_channels(const chunk_rows_job &j, const delta_chunk &chunk) {
    const int row = chunk.row + chunk.n - 1, slot = j.t.slot[row], C = j.n_block * DELTA_DIM;
    if (row + 1 < j.t.step->n_row && j.t.slot[row + 1] == slot) return;
    int before = 0; // rows of the sequence in front of it, that count
    while (before < DELTA_TAPS - 2 && before < row && j.t.slot[row - before - 1] == slot) before++;
    float *conv = j.conv + slot * j.conv_elem;
    for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < C; c += gridDim.x * blockDim.x) {
        float kept[DELTA_TAPS - 1];
        for (int i = 0; i < DELTA_TAPS - 1; i++) {
            const int back = DELTA_TAPS - 2 - i;
            kept[i] = back <= before        ? j.x[(size_t)(row - back) * j.x_row + c]
                      : j.t.pos[row] < back ? 0.f
                                            : conv[(size_t)(DELTA_TAPS - 1 + before - back) * C + c];
        }
        for (int i = 0; i < DELTA_TAPS - 1; i++) conv[(size_t)i * C + c] = kept[i];
    }
}

// ---- chunks in shared memory, and products of their rows
enum { ROW_HALVES = DELTA_DIM + 8, SIDE_HALVES = CHUNK_ROWS + 8 };
DEV void fetch_chunk(uint32_t to, const uint8_t *from, size_t row, int n, int threads) {
    for (int i = threadIdx.x; i < CHUNK_ROWS * 16; i += threads) {
        const int r = i >> 4, c = i & 15;
        cp_async16(to + r * ROW_HALVES * 2 + c * 16, from + (size_t)(r < n ? r : 0) * row + c * 16,
                   r < n ? 16 : 0);
    }
}
DEV const uint8_t *chunk_rows(const chunk_rows_job &j, int head, int row) {
    return j.qk + (size_t)row * j.qk_row + head * DELTA_DIM * 2;
}
// sum[i]: g of the threads up to i, in order; of CHUNK_ROWS threads and more.
DEV void chunk_sums(float *sum, float g) {
    const int i = threadIdx.x, lane = i & 31;
    if (i < CHUNK_ROWS) {
        for (int o = 1; o < 32; o <<= 1) {
            const float v = __shfl_up_sync(~0u, g, o);
            if (lane >= o) g += v;
        }
        sum[i] = g;
    }
    __syncthreads();
    const float first = sum[31];
    __syncthreads();
    if (i >= 32 && i < CHUNK_ROWS) sum[i] += first;
    __syncthreads();
}
// Products of 16 rows of a (from row r on) with all rows of k.
DEV void chunk_products(float (&d)[8][4], const __half (*a)[ROW_HALVES], const __half (*k)[ROW_HALVES],
                        int r) {
    const int lane = threadIdx.x & 31;
    const uint32_t at = smem_address(&a[r + (lane & 15)][(lane >> 4) * 8]),
                   bt = smem_address(&k[(lane & 7) + (lane >> 4) * 8][(lane >> 3 & 1) * 8]);
    for (int i = 0; i < 8; i++) d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
#pragma unroll
    for (int e = 0; e < DELTA_DIM / 16; e++) {
        uint32_t x[4];
        ldmatrix4(x, at + e * 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t y[4];
            ldmatrix4(y, bt + i * 16 * ROW_HALVES * 2 + e * 32);
            mma_f16(d[2 * i], x[0], x[1], x[2], x[3], y[0], y[1]);
            mma_f16(d[2 * i + 1], x[0], x[1], x[2], x[3], y[2], y[3]);
        }
    }
}
// Sums of 16 x 8 tiles as operands of products over their columns.
template <int N> DEV void as_operand(uint32_t (&a)[N / 2][4], const float (&d)[N][4]) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        a[i][0] = pack_half2(d[2 * i][0], d[2 * i][1]);
        a[i][1] = pack_half2(d[2 * i][2], d[2 * i][3]);
        a[i][2] = pack_half2(d[2 * i + 1][0], d[2 * i + 1][1]);
        a[i][3] = pack_half2(d[2 * i + 1][2], d[2 * i + 1][3]);
    }
}
// d [16][64 rows of b] += a b^T over K columns; LOWER: row i of b is zero from column i + 1 on. at: of b's first row, stride in bytes.
template <int K, bool LOWER>
DEV void scan_product(float (&d)[8][4], const uint32_t (&a)[K / 16][4], uint32_t b, int stride) {
    const int lane = threadIdx.x & 31;
    const uint32_t at = b + ((lane & 7) + (lane >> 4) * 8) * stride + (lane >> 3 & 1) * 16;
#pragma unroll
    for (int e = 0; e < K / 16; e++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (LOWER && i < e) continue;
            uint32_t y[4];
            ldmatrix4(y, at + i * 16 * stride + e * 32);
            mma_f16(d[2 * i], a[e][0], a[e][1], a[e][2], a[e][3], y[0], y[1]);
            mma_f16(d[2 * i + 1], a[e][0], a[e][1], a[e][2], a[e][3], y[2], y[3]);
        }
}
// S^T = decay S^T + a k over the chunk's rows. k: of its first row.
DEV void scan_update(float (&s)[16][4], const uint32_t (&a)[4][4], uint32_t k, float decay) {
    const int lane = threadIdx.x & 31;
    const uint32_t at = k + ((lane & 7) + (lane >> 3 & 1) * 8) * ROW_HALVES * 2 + (lane >> 4) * 16;
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[i][e] *= decay;
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t y[4];
            ldmatrix4_t(y, at + e * 16 * ROW_HALVES * 2 + i * 32);
            mma_f16(s[2 * i], a[e][0], a[e][1], a[e][2], a[e][3], y[0], y[1]);
            mma_f16(s[2 * i + 1], a[e][0], a[e][1], a[e][2], a[e][3], y[2], y[3]);
        }
}
