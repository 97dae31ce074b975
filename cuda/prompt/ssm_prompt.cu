// With G the sums of A dt from the chunk's first row on, S the state before:
//     P_ij = (C_i . B_j) e^(G_i - G_j), j <= i;   O = e^G C S + P (dt x) + skip x;   S' = e^(G_last) S + sum_j e^(G_last - G_j) B_j (dt_j x_j)^T
// (Dao & Gu 2024, arXiv 2405.21060, section 6). P needs no state. All products are of halves with float32 sums; the states stay float32.
// A row's results do not depend on the rows behind it, whose steps are zero.
#include "cuda/prompt/ssm_prompt.h"
#include "cuda/prompt/chunk_scan.cuh"

DEV float as_half(float v) { return fminf(fmaxf(v, -65504.f), 65504.f); }

// ---- what a chunk's rows are to each other: a block a chunk and head
enum { PAIR_THREADS = 128 };
struct pair_shared {
    __half c[CHUNK_ROWS][ROW_HALVES], b[CHUNK_ROWS][ROW_HALVES];
    float sum[CHUNK_ROWS];
};
DEV int group_of(const ssm_prompt_job &j, int h) { return h / (j.n_head / j.n_group); }
// Steps of the chunk's rows to its factors, the sums of their logarithms in order to m; rows behind the last count nothing.
DEV void chunk_steps(const ssm_prompt_job &j, pair_shared &m, const delta_chunk &c, int h, float *f) {
    const int i = threadIdx.x;
    float step = 0;
    if (i < c.n) {
        const float soft = j.dt[(size_t)(c.row + i) * j.dt_row + h] + j.dt_bias[h];
        step = fminf(fmaxf(soft > 20.f ? soft : log1pf(expf(soft)), j.lo), j.hi);
    }
    chunk_sums(m.sum, j.A[h] * step);
    if (i >= CHUNK_ROWS) return;
    const float last = m.sum[CHUNK_ROWS - 1];
    f[i] = step;
    f[CHUNK_ROWS + i] = expf(m.sum[i]);
    f[2 * CHUNK_ROWS + i] = expf(last - m.sum[i]);
    if (i == 0) f[3 * CHUNK_ROWS] = expf(last);
}
__global__ void __launch_bounds__(PAIR_THREADS) ssm_pair_kernel(const __grid_constant__ ssm_prompt_job j) {
    __shared__ __align__(16) pair_shared m;
    const int h = blockIdx.x, g = group_of(j, h), w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if ((int)blockIdx.y >= j.cuts.count[0]) return;
    const delta_chunk c = j.cuts.chunk[blockIdx.y];
    const size_t at = (size_t)blockIdx.y * j.n_head + h;
    __half *P = (__half *)(j.pair + at * SSM_PAIR_BYTES);
    fetch_chunk(smem_address(m.b), chunk_rows(j, g, c.row), j.qk_row, c.n, PAIR_THREADS);
    fetch_chunk(smem_address(m.c), chunk_rows(j, j.n_group + g, c.row), j.qk_row, c.n, PAIR_THREADS);
    cp_commit();
    keep_channels(j, c);
    chunk_steps(j, m, c, h, (float *)(j.factor + at * DELTA_FACTOR_BYTES));
    cp_wait<0>();
    __syncthreads();
    float d[8][4];
    chunk_products(d, m.c, m.b, w * 16);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const int row = w * 16 + (lane >> 2) + (e >> 1) * 8, col = i * 8 + (lane & 3) * 2;
            const float a = col <= row ? d[i][e] * __expf(m.sum[row] - m.sum[col]) : 0.f,
                        b = col < row ? d[i][e + 1] * __expf(m.sum[row] - m.sum[col + 1]) : 0.f;
            *(uint32_t *)(P + row * CHUNK_ROWS + col) = pack_half2(as_half(a), as_half(b));
        }
}

// ---- chunk after chunk: a block W tiles of 16 columns of a head's state, a warp a tile
template <int W> struct scan_shared {
    static constexpr int v_stride = W * 16 + 4; // floats
    __half c[CHUNK_ROWS][ROW_HALVES], b[CHUNK_ROWS][ROW_HALVES], p[CHUNK_ROWS][SIDE_HALVES];
    float v[CHUNK_ROWS][v_stride];
    float factor[4][CHUNK_ROWS];
};
template <int W>
DEV void fetch_scan(scan_shared<W> &m, const ssm_prompt_job &j, int chunk, int h, int g, int col) {
    const delta_chunk c = j.cuts.chunk[chunk];
    const size_t at = (size_t)chunk * j.n_head + h;
    const uint8_t *pair = j.pair + at * SSM_PAIR_BYTES, *factor = j.factor + at * DELTA_FACTOR_BYTES;
    fetch_chunk(smem_address(m.b), chunk_rows(j, g, c.row), j.qk_row, c.n, W * 32);
    fetch_chunk(smem_address(m.c), chunk_rows(j, j.n_group + g, c.row), j.qk_row, c.n, W * 32);
    for (int i = threadIdx.x; i < CHUNK_ROWS * 8; i += W * 32)
        cp_async16(smem_address(m.p) + (i >> 3) * SIDE_HALVES * 2 + (i & 7) * 16, pair + i * 16, 16);
    for (int i = threadIdx.x; i < CHUNK_ROWS * W * 4; i += W * 32) {
        const int r = i / (W * 4), x = i % (W * 4);
        cp_async16(smem_address(&m.v[r][x * 4]),
                   j.v + (size_t)(c.row + (r < c.n ? r : 0)) * j.v_row + h * j.head_dim + col + x * 4,
                   r < c.n ? 16 : 0);
    }
    for (int i = threadIdx.x; i < 4 * CHUNK_ROWS / 4; i += W * 32)
        cp_async16(smem_address(m.factor) + i * 16, factor + i * 16, 16);
}
template <int N> DEV void limit_halves(float (&d)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) d[i][e] = as_half(d[i][e]);
}
// One chunk. s: S^T of the warp's columns.
template <int W>
DEV void scan_chunk(scan_shared<W> &m, float (&s)[16][4], float *out, size_t out_row, int n, int w,
                    float skip) {
    const int lane = threadIdx.x & 31, gid = lane >> 2, tig = lane & 3;
    float x[8][4], o[8][4] = {};
    {
        uint32_t a[8][4];
        as_operand<16>(a, s);
        scan_product<DELTA_DIM, false>(o, a, smem_address(m.c), ROW_HALVES * 2);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = i * 8 + tig * 2 + (e & 1);
            x[i][e] = m.factor[0][r] * m.v[r][w * 16 + gid + (e >> 1) * 8];
            o[i][e] *= m.factor[1][r];
        }
    limit_halves(x);
    uint32_t a[4][4];
    as_operand<8>(a, x);
    scan_product<CHUNK_ROWS, true>(o, a, smem_address(m.p), SIDE_HALVES * 2);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = i * 8 + tig * 2 + (e & 1), col = w * 16 + gid + (e >> 1) * 8;
            if (r < n) out[r * out_row + col] = fmaf(skip, m.v[r][col], o[i][e]);
            x[i][e] *= m.factor[2][r];
        }
    as_operand<8>(a, x);
    scan_update(s, a, smem_address(m.b), m.factor[3][0]);
}
template <int W>
__global__ void __launch_bounds__(W * 32) ssm_scan_kernel(const __grid_constant__ ssm_prompt_job j) {
    extern __shared__ __align__(16) uint8_t smem[];
    scan_shared<W> *m = (scan_shared<W> *)smem;
    const int slices = j.head_dim / (W * 16), h = blockIdx.x / slices, col = blockIdx.x % slices * W * 16,
              g = group_of(j, h), w = threadIdx.x >> 5, lane = threadIdx.x & 31, gid = lane >> 2,
              tig = lane & 3;
    if ((int)blockIdx.y >= j.cuts.count[1]) return;
    const delta_run run = j.cuts.run[blockIdx.y];
    const int slot = j.t.slot[run.row];
    float *state = j.state + slot * j.state_elem + (size_t)h * DELTA_DIM * j.head_dim + col + w * 16 + gid;
    const float skip = j.skip ? j.skip[h] : 0.f;
    fetch_scan<W>(m[0], j, run.chunk, h, g, col);
    cp_commit();
    float s[16][4];
    const bool none = j.t.pos[run.row] == 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[i][e] = none ? 0.f : state[(size_t)(i * 8 + tig * 2 + (e & 1)) * j.head_dim + (e >> 1) * 8];
    for (int i = 0; i < run.n_chunk; i++) {
        const bool more = i + 1 < run.n_chunk;
        if (j.stages == 2) { // the next chunk comes while this one is done
            if (more) fetch_scan<W>(m[(i + 1) & 1], j, run.chunk + i + 1, h, g, col);
            cp_commit();
            cp_wait<1>();
        } else
            cp_wait<0>();
        __syncthreads();
        const delta_chunk c = j.cuts.chunk[run.chunk + i];
        scan_chunk<W>(m[i & (j.stages - 1)], s, j.out + (size_t)c.row * j.out_row + h * j.head_dim + col,
                      j.out_row, c.n, w, skip);
        __syncthreads();
        if (j.stages == 2 || !more) continue;
        fetch_scan<W>(m[0], j, run.chunk + i + 1, h, g, col);
        cp_commit();
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            state[(size_t)(i * 8 + tig * 2 + (e & 1)) * j.head_dim + (e >> 1) * 8] = s[i][e];
}

// ---- gate and norm: a block a group of a row
enum { NORM_THREADS = 256, NORM_EACH = SSM_NORM_DIM / (NORM_THREADS * 4) };
__global__ void __launch_bounds__(NORM_THREADS) ssm_norm_kernel(const __grid_constant__ ssm_norm_job j) {
    __shared__ float part[NORM_THREADS / 32];
    const int g = blockIdx.x, t = blockIdx.y;
    if (t >= *j.n_row) return;
    const float *x = j.x + (size_t)t * j.x_row + (size_t)g * j.dim,
                *z = j.z + (size_t)t * j.z_row + (size_t)g * j.dim;
    float4 y[NORM_EACH];
    float square = 0;
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++) {
        const int k = (i * NORM_THREADS + threadIdx.x) * 4;
        if (k >= j.dim) continue;
        const float4 a = load4(x + k), b = load4(z + k);
        y[i] = make_float4(a.x * silu_fast(b.x), a.y * silu_fast(b.y), a.z * silu_fast(b.z),
                           a.w * silu_fast(b.w));
        square += y[i].x * y[i].x + y[i].y * y[i].y + y[i].z * y[i].z + y[i].w * y[i].w;
    }
    square = warp_sum(square);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = square;
    __syncthreads();
    square = 0;
    for (int i = 0; i < NORM_THREADS / 32; i++) square += part[i];
    const float f = j.w ? rsqrtf(square / (float)j.dim + j.eps) : 1.f;
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++) {
        const int k = (i * NORM_THREADS + threadIdx.x) * 4;
        if (k >= j.dim) continue;
        const float4 w = j.w ? load4(j.w + (size_t)g * j.w_step + k) : make_float4(1, 1, 1, 1);
        prompt_put2(j.tiles, t, g * j.dim + k, j.k_tiles, j.order, y[i].x * f * w.x, y[i].y * f * w.y);
        prompt_put2(j.tiles, t, g * j.dim + k + 2, j.k_tiles, j.order, y[i].z * f * w.z, y[i].w * f * w.w);
    }
}
cudaError_t ssm_norm_launch(const ssm_norm_job &j, int n, cudaStream_t s) {
    ssm_norm_kernel<<<dim3(j.n_group, n), NORM_THREADS, 0, s>>>(j);
    return cudaGetLastError();
}

// ---- launches
template <int W> static size_t scan_bytes(int stages) { return (size_t)stages * sizeof(scan_shared<W>); }
template <int W> static cudaError_t scan_launch(const ssm_prompt_job &j, int runs, cudaStream_t s) {
    const dim3 grid(j.n_head * (j.head_dim / (W * 16)), runs);
    ssm_scan_kernel<W><<<grid, W * 32, scan_bytes<W>(j.stages), s>>>(j);
    return cudaGetLastError();
}
cudaError_t ssm_prompt_launch(const ssm_prompt_job &j, int n, int n_slot, int sm_count, cudaStream_t s) {
    const int runs = delta_runs(n, n_slot);
    chunk_conv_launch<false>(j, 0, n, s);
    ssm_pair_kernel<<<dim3(j.n_head, delta_chunks(n, n_slot)), PAIR_THREADS, 0, s>>>(j);
    if (j.head_dim % 32) return scan_launch<1>(j, runs, s);
    return j.head_dim % 64 || j.n_head * j.head_dim / 32 <= 2 * sm_count ? scan_launch<2>(j, runs, s)
                                                                         : scan_launch<4>(j, runs, s);
}
int ssm_prompt_stages(size_t shared) { return scan_bytes<4>(2) <= shared ? 2 : 1; }
template <class K> static cudaError_t allow(K *k, size_t bytes) {
    return cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}
cudaError_t ssm_prompt_prepare(int stages) {
    cudaError_t e = allow(ssm_scan_kernel<1>, scan_bytes<1>(stages));
    if (e == cudaSuccess) e = allow(ssm_scan_kernel<2>, scan_bytes<2>(stages));
    if (e == cudaSuccess) e = allow(ssm_scan_kernel<4>, scan_bytes<4>(stages));
    return e;
}
