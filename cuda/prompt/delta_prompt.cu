// With G the sums of the gates' logarithms from the chunk's first row on, K, Q of unit length (Q over sqrt(128)), S the state before:
//     A_ij = beta_i (k_i . k_j) e^(G_i - G_j), j < i;   T = (1 + A)^-1;   P_ij = (q_i . k_j) e^(G_i - G_j), j <= i
//     D = T (beta (V - e^G K S));   O = e^G Q S + P D;   S' = e^(G_last) S + sum_j e^(G_last - G_j) k_j d_j^T
// T and P need no state. All products are of halves with float32 sums; the states stay float32. A row's results do not depend on the rows
// behind it, whose factors are zero; T is found by substitution in one order.
#include "cuda/prompt/chunk_scan.cuh"

// ---- cuts
enum { CUT_THREADS = 1024 };
// Numbers a row by those up to it that begin something.
DEV int cut_number(bool begins, int *part, int &before) {
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const unsigned mask = __ballot_sync(~0u, begins);
    if (lane == 0) part[w] = __popc(mask);
    __syncthreads();
    int n = before + __popc(mask & (~0u >> (31 - lane)));
    for (int i = 0; i < CUT_THREADS / 32; i++) {
        if (i < w) n += part[i];
        before += part[i];
    }
    __syncthreads();
    return n;
}
__global__ void __launch_bounds__(CUT_THREADS) delta_cuts_kernel(dev_tables t, delta_cuts c) {
    __shared__ int part[CUT_THREADS / 32];
    const int n = t.step->n_row;
    int chunks = 0, runs = 0;
    for (int r0 = 0; r0 < n; r0 += CUT_THREADS) {
        const int r = r0 + threadIdx.x;
        const bool in = r < n, run = in && (!r || t.slot[r] != t.slot[r - 1]),
                   chunk = in && (run || t.pos[r] % CHUNK_ROWS == 0);
        const int i = cut_number(chunk, part, chunks) - 1, k = cut_number(run, part, runs) - 1;
        if (chunk) c.chunk[i].row = r;
        if (run) c.run[k].row = r, c.run[k].chunk = i;
    }
    if (threadIdx.x == 0) c.count[0] = chunks, c.count[1] = runs;
    __syncthreads();
    for (int i = threadIdx.x; i < chunks; i += CUT_THREADS)
        c.chunk[i].n = (i + 1 < chunks ? c.chunk[i + 1].row : n) - c.chunk[i].row;
    for (int i = threadIdx.x; i < runs; i += CUT_THREADS) {
        const bool last = i + 1 == runs;
        c.run[i].n_row = (last ? n : c.run[i + 1].row) - c.run[i].row;
        c.run[i].n_chunk = (last ? chunks : c.run[i + 1].chunk) - c.run[i].chunk;
    }
}
cudaError_t delta_cuts_launch(dev_tables t, delta_cuts c, cudaStream_t s) {
    delta_cuts_kernel<<<1, CUT_THREADS, 0, s>>>(t, c);
    return cudaGetLastError();
}

// ---- what a chunk's rows are to each other: a block a chunk and value head
enum { PAIR_THREADS = 128, TRI_STRIDE = CHUNK_ROWS + 4 };
struct pair_shared {
    __half q[CHUNK_ROWS][ROW_HALVES], k[CHUNK_ROWS][ROW_HALVES];
    float tri[CHUNK_ROWS][TRI_STRIDE]; // A^T, [column][row]
    float sum[CHUNK_ROWS], beta[CHUNK_ROWS];
};
DEV int delta_key_head(const delta_prompt_job &j, int h) {
    return j.tiled ? h % j.n_key : h / (j.n_value / j.n_key);
}
// Gates of the chunk's rows: beta, and the sums of their logarithms in order; rows behind the last count nothing.
DEV void chunk_gates(const delta_prompt_job &j, pair_shared &m, const delta_chunk &c, int h) {
    const int i = threadIdx.x;
    float g = 0;
    if (i < CHUNK_ROWS) {
        float beta = 0;
        if (i < c.n) {
            const float soft = j.a[(size_t)(c.row + i) * j.a_row + h] + j.dt_bias[h];
            g = j.A[h] * (soft > 20.f ? soft : log1pf(expf(soft)));
            beta = 1.f / (1.f + expf(-j.b[(size_t)(c.row + i) * j.b_row + h]));
        }
        m.beta[i] = beta;
    }
    chunk_sums(m.sum, g);
}
// Column c of T below and on its diagonal, from the first column of the warp on: t[i] loses A_ij t[j], j = first, first + 1 ..
template <int FIRST> DEV void substitute(float (&t)[CHUNK_ROWS], const float (*tri)[TRI_STRIDE]) {
#pragma unroll
    for (int k = FIRST; k < CHUNK_ROWS; k++)
#pragma unroll
        for (int i = k & ~3; i < CHUNK_ROWS; i += 4) {
            const float4 a = load4(&tri[k][i]); // zero up to the diagonal
            if (i > k) t[i] = fmaf(-a.x, t[k], t[i]);
            if (i + 1 > k) t[i + 1] = fmaf(-a.y, t[k], t[i + 1]);
            if (i + 2 > k) t[i + 2] = fmaf(-a.z, t[k], t[i + 2]);
            if (i + 3 > k) t[i + 3] = fmaf(-a.w, t[k], t[i + 3]);
        }
}
template <int FIRST> DEV void invert(__half *out, const float (*tri)[TRI_STRIDE], int c) {
    float t[CHUNK_ROWS];
#pragma unroll
    for (int i = 0; i < CHUNK_ROWS; i++) t[i] = i == c ? 1.f : 0.f;
    substitute<FIRST>(t, tri);
#pragma unroll
    for (int i = 0; i < CHUNK_ROWS; i++) out[i * CHUNK_ROWS + c] = __float2half_rn(t[i]);
}
__global__ void __launch_bounds__(PAIR_THREADS)
    delta_pair_kernel(const __grid_constant__ delta_prompt_job j) {
    extern __shared__ __align__(16) uint8_t smem[];
    pair_shared &m = *(pair_shared *)smem;
    const int h = blockIdx.x, g = delta_key_head(j, h), w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if ((int)blockIdx.y >= j.cuts.count[0]) return;
    const delta_chunk c = j.cuts.chunk[blockIdx.y];
    const size_t at = (size_t)blockIdx.y * j.n_value + h;
    __half *T = (__half *)(j.pair + at * DELTA_PAIR_BYTES), *P = T + CHUNK_ROWS * CHUNK_ROWS;
    fetch_chunk(smem_address(m.q), chunk_rows(j, g, c.row), j.qk_row, c.n, PAIR_THREADS);
    fetch_chunk(smem_address(m.k), chunk_rows(j, j.n_key + g, c.row), j.qk_row, c.n, PAIR_THREADS);
    cp_commit();
    keep_channels(j, c);
    chunk_gates(j, m, c, h);
    if (threadIdx.x < CHUNK_ROWS) {
        float *f = (float *)(j.factor + at * DELTA_FACTOR_BYTES);
        const int i = threadIdx.x;
        const float last = m.sum[CHUNK_ROWS - 1];
        f[i] = m.beta[i];
        f[CHUNK_ROWS + i] = expf(m.sum[i]);
        f[2 * CHUNK_ROWS + i] = expf(last - m.sum[i]);
        if (i == 0) f[3 * CHUNK_ROWS] = expf(last);
    }
    cp_wait<0>();
    __syncthreads();
    float d[8][4];
    chunk_products(d, m.k, m.k, w * 16);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = w * 16 + (lane >> 2) + (e >> 1) * 8, col = i * 8 + (lane & 3) * 2 + (e & 1);
            m.tri[col][row] = col < row ? m.beta[row] * d[i][e] * __expf(m.sum[row] - m.sum[col]) : 0.f;
        }
    chunk_products(d, m.q, m.k, w * 16);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const int row = w * 16 + (lane >> 2) + (e >> 1) * 8, col = i * 8 + (lane & 3) * 2;
            const float a = col <= row ? d[i][e] * __expf(m.sum[row] - m.sum[col]) : 0.f,
                        b = col < row ? d[i][e + 1] * __expf(m.sum[row] - m.sum[col + 1]) : 0.f;
            *(uint32_t *)(P + row * CHUNK_ROWS + col) = pack_half2(a, b);
        }
    __syncthreads();
    if (w == 0) invert<0>(T, m.tri, lane);
    if (w == 1) invert<32>(T, m.tri, 32 + lane);
}

// ---- chunk after chunk: a block W tiles of 16 columns of a value head's state, a warp a tile. A warp has S^T [16][128] as the sums of
// its products, so that it is an operand at once, and D^T and O^T [16][64] likewise; warps share nothing but what they read.
template <int W> struct scan_shared {
    static constexpr int v_stride = W * 16 + 4; // floats
    __half q[CHUNK_ROWS][ROW_HALVES], k[CHUNK_ROWS][ROW_HALVES];
    __half t[CHUNK_ROWS][SIDE_HALVES], p[CHUNK_ROWS][SIDE_HALVES];
    float v[CHUNK_ROWS][v_stride];
    float factor[4][CHUNK_ROWS];
};
template <int W>
DEV void fetch_scan(scan_shared<W> &m, const delta_prompt_job &j, int chunk, int h, int g, int col) {
    const delta_chunk c = j.cuts.chunk[chunk];
    const size_t at = (size_t)chunk * j.n_value + h;
    const uint8_t *pair = j.pair + at * DELTA_PAIR_BYTES, *factor = j.factor + at * DELTA_FACTOR_BYTES;
    fetch_chunk(smem_address(m.q), chunk_rows(j, g, c.row), j.qk_row, c.n, W * 32);
    fetch_chunk(smem_address(m.k), chunk_rows(j, j.n_key + g, c.row), j.qk_row, c.n, W * 32);
    for (int i = threadIdx.x; i < 2 * CHUNK_ROWS * 8; i += W * 32) {
        const int r = i >> 3, x = i & 7; // rows of t, then of p
        cp_async16(smem_address(m.t) + r * SIDE_HALVES * 2 + x * 16, pair + i * 16, 16);
    }
    for (int i = threadIdx.x; i < CHUNK_ROWS * W * 4; i += W * 32) {
        const int r = i / (W * 4), x = i % (W * 4);
        cp_async16(smem_address(&m.v[r][x * 4]),
                   j.v + (size_t)(c.row + (r < c.n ? r : 0)) * j.v_row + h * DELTA_DIM + col + x * 4,
                   r < c.n ? 16 : 0);
    }
    for (int i = threadIdx.x; i < 4 * CHUNK_ROWS / 4; i += W * 32)
        cp_async16(smem_address(m.factor) + i * 16, factor + i * 16, 16);
}
// One chunk. s: S^T of the warp's columns; v: its columns of the chunk's v.
template <int W>
DEV void scan_chunk(scan_shared<W> &m, float (&s)[16][4], float *out, size_t out_row, int n, int w) {
    const int lane = threadIdx.x & 31, gid = lane >> 2, tig = lane & 3;
    float x[8][4] = {}, o[8][4] = {};
    {
        uint32_t a[8][4];
        as_operand<16>(a, s);
        scan_product<DELTA_DIM, false>(x, a, smem_address(m.k), ROW_HALVES * 2);
        scan_product<DELTA_DIM, false>(o, a, smem_address(m.q), ROW_HALVES * 2);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = i * 8 + tig * 2 + (e & 1), col = w * 16 + gid + (e >> 1) * 8;
            const float f = m.factor[1][r];
            x[i][e] = m.factor[0][r] * (m.v[r][col] - f * x[i][e]);
            o[i][e] *= f;
        }
    uint32_t a[4][4];
    as_operand<8>(a, x);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0;
    scan_product<CHUNK_ROWS, true>(x, a, smem_address(m.t), SIDE_HALVES * 2);
    as_operand<8>(a, x);
    scan_product<CHUNK_ROWS, true>(o, a, smem_address(m.p), SIDE_HALVES * 2);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = i * 8 + tig * 2 + (e & 1);
            if (r < n) out[r * out_row + w * 16 + gid + (e >> 1) * 8] = o[i][e];
            x[i][e] *= m.factor[2][r];
        }
    as_operand<8>(a, x);
    scan_update(s, a, smem_address(m.k), m.factor[3][0]);
}
template <int W>
__global__ void __launch_bounds__(W * 32) delta_scan_kernel(const __grid_constant__ delta_prompt_job j) {
    extern __shared__ __align__(16) uint8_t smem[];
    scan_shared<W> *m = (scan_shared<W> *)smem;
    constexpr int SLICES = DELTA_DIM / (W * 16);
    const int h = blockIdx.x / SLICES, col = blockIdx.x % SLICES * W * 16, g = delta_key_head(j, h);
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, gid = lane >> 2, tig = lane & 3;
    if ((int)blockIdx.y >= j.cuts.count[1]) return;
    const delta_run run = j.cuts.run[blockIdx.y];
    const int slot = j.t.slot[run.row];
    float *state = j.state + slot * j.state_elem + (size_t)h * DELTA_DIM * DELTA_DIM + col + w * 16 + gid;
    fetch_scan<W>(m[0], j, run.chunk, h, g, col);
    cp_commit();
    float s[16][4];
    const bool none = j.t.pos[run.row] == 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[i][e] = none ? 0.f : state[(size_t)(i * 8 + tig * 2 + (e & 1)) * DELTA_DIM + (e >> 1) * 8];
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
        scan_chunk<W>(m[i & (j.stages - 1)], s, j.out + (size_t)c.row * j.out_row + h * DELTA_DIM + col,
                      j.out_row, c.n, w);
        __syncthreads();
        if (j.stages == 2 || !more) continue;
        fetch_scan<W>(m[0], j, run.chunk + i + 1, h, g, col);
        cp_commit();
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            state[(size_t)(i * 8 + tig * 2 + (e & 1)) * DELTA_DIM + (e >> 1) * 8] = s[i][e];
}

// ---- norm and gate: a warp a head of a row
enum { NORM_WARPS = 8 };
__global__ void __launch_bounds__(NORM_WARPS * 32)
    delta_norm_kernel(const __grid_constant__ delta_norm_job j) {
    const int h = blockIdx.x * NORM_WARPS + (threadIdx.x >> 5), t = blockIdx.y,
              k = h * DELTA_DIM + (threadIdx.x & 31) * 4;
    if (h >= j.n_head || t >= *j.n_row) return;
    const float4 x = load4(j.x + (size_t)t * j.x_row + k), z = load4(j.z + (size_t)t * j.z_row + k),
                 w = load4(j.w + (threadIdx.x & 31) * 4);
    const float f =
        rsqrtf(warp_sum(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w) * (1.f / DELTA_DIM) + j.eps);
    prompt_put2(j.tiles, t, k, j.k_tiles, j.order, x.x * f * w.x * silu_fast(z.x),
                x.y * f * w.y * silu_fast(z.y));
    prompt_put2(j.tiles, t, k + 2, j.k_tiles, j.order, x.z * f * w.z * silu_fast(z.z),
                x.w * f * w.w * silu_fast(z.w));
}
cudaError_t delta_norm_launch(const delta_norm_job &j, int n, cudaStream_t s) {
    delta_norm_kernel<<<dim3((j.n_head + NORM_WARPS - 1) / NORM_WARPS, n), NORM_WARPS * 32, 0, s>>>(j);
    return cudaGetLastError();
}

template <int W> static size_t scan_bytes(int stages) { return (size_t)stages * sizeof(scan_shared<W>); }
template <int W> static cudaError_t scan_launch(const delta_prompt_job &j, int runs, cudaStream_t s) {
    const dim3 grid(j.n_value * (DELTA_DIM / (W * 16)), runs);
    delta_scan_kernel<W><<<grid, W * 32, scan_bytes<W>(j.stages), s>>>(j);
    return cudaGetLastError();
}
cudaError_t delta_prompt_launch(const delta_prompt_job &j, int n, int n_slot, int sm_count, cudaStream_t s) {
    const int runs = delta_runs(n, n_slot);
    chunk_conv_launch<true>(j, j.n_key, n, s);
    delta_pair_kernel<<<dim3(j.n_value, delta_chunks(n, n_slot)), PAIR_THREADS, sizeof(pair_shared), s>>>(j);
    return j.n_value * 4 <= sm_count ? scan_launch<2>(j, runs, s) : scan_launch<4>(j, runs, s);
}
int delta_prompt_stages(size_t shared) { return scan_bytes<4>(2) <= shared ? 2 : 1; }
template <class K> static cudaError_t allow(K *k, size_t bytes) {
    return cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}
cudaError_t delta_prompt_prepare(int stages) {
    cudaError_t e = allow(delta_pair_kernel, sizeof(pair_shared));
    if (e == cudaSuccess) e = allow(delta_scan_kernel<2>, scan_bytes<2>(stages));
    if (e == cudaSuccess) e = allow(delta_scan_kernel<4>, scan_bytes<4>(stages));
    return e;
}
