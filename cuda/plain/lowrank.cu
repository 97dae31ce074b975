// Adapters: two kernels for all parts of an operation, of which blocks without a row leave at once. A block has rows of one tile, whose first
// adapter is the same, and ranks of one part (down) or columns of all parts (up). Matrices are asked for before the wait for what is in
// front: they and the table of rows are there before the step. A row's sums have one order, whoever its neighbours are.
#include "cuda/plain/lowrank.h"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/plain/plain.cuh"

enum {
    DOWN_WARPS = 8,
    DOWN_ROWS = 8,
    DOWN_STEP = DOWN_WARPS * 256,
    UP_THREADS = 128,
    UP_ROWS = 8,
    CHUNK = 16
};

// ---- which rows
struct tile_rows { // a lane a row, of at most 32
    int2 row;      // {row, slot}
    int n, adapter;
    bool mixed; // some row has more adapters than that one
};
DEV bool take_tile(const lowrank_job &j, tile_rows &t) {
    const int lane = threadIdx.x & 31;
    if ((int)blockIdx.y >= __ldcg(j.n_tile)) return false;
    const int4 tile = __ldcg(j.tile + blockIdx.y);
    t.n = tile.y, t.adapter = tile.z, t.mixed = tile.w;
    t.row = lane < t.n ? __ldcg(j.order + tile.x + lane) : make_int2(0, 0);
    return true;
}
// The lane's row's scale of an adapter; 0 beyond the tile. All lanes together.
DEV float scale_of(const lowrank_job &j, const tile_rows &t, int adapter) {
    return (int)(threadIdx.x & 31) < t.n ? __ldcg(j.scale + t.row.y * j.n_adapter + adapter) : 0.f;
}
DEV bool is_for(const tile_rows &t, int adapter) { return t.mixed || adapter == t.adapter; }

// ---- A: the matrix of a part that a pair takes, its ranks from rank on
DEV int matrix_of(const lowrank_job &j, const lowrank_dev_part &p, int row, int pair) {
    return min(max((int)__ldcg(j.choice.p + row * j.choice.stride + pair), 0), p.n_stack - 1);
}
DEV const __half *a_of(const lowrank_job &j, const lowrank_dev_part &p, int matrix) {
    return (const __half *)(j.weights + p.a) + (size_t)matrix * p.r * ((p.k + 7) & ~7);
}
DEV const float *x_of(const lowrank_job &j, const lowrank_dev_part &p, int row) {
    return j.x.p + row * j.x.stride + (j.by_choice ? (size_t)blockIdx.z * p.k : 0);
}
DEV float *low_of(const lowrank_job &j, const lowrank_dev_part &p, int row) {
    return j.low + ((size_t)row * j.pairs + blockIdx.z) * j.r + p.at;
}
// N numbers of a row from k on; 0 behind its end.
template <int N> DEV void load_row(float (&v)[N], const float *x, int k, int end) {
    if (k + N <= end && !((uintptr_t)x & 15)) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 f = __ldcg((const float4 *)(x + k + i));
            v[i] = f.x, v[i + 1] = f.y, v[i + 2] = f.z, v[i + 3] = f.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = k + i < end ? __ldcg(x + k + i) : 0.f;
    }
}
// The part of a block of ranks, and its first rank; more: blocks of LOWRANK_MORE.
template <bool MORE> DEV lowrank_dev_part part_of(const lowrank_job &j, int *rank) {
    const int lane = threadIdx.x & 31, block = blockIdx.x;
    int found = 0;
    for (int i = 0; i < j.n_part; i += 32) {
        const lowrank_dev_part *p = j.part + i + lane;
        const bool before = i + lane < j.n_part && (MORE ? p->first_more : p->first_few) <= block;
        found += __popc(__ballot_sync(~0u, before));
    }
    const lowrank_dev_part p = j.part[found - 1];
    *rank = (block - (MORE ? p.first_more : p.first_few)) * (MORE ? LOWRANK_MORE : LOWRANK_FEW);
    return p;
}

DEV void load_ranks(uint4 (&w)[LOWRANK_FEW], const __half *a, const lowrank_dev_part &p, int rank, int k) {
    const int pitch = (p.k + 7) & ~7;
#pragma unroll
    for (int i = 0; i < LOWRANK_FEW; i++)
        w[i] = k < pitch ? __ldg((const uint4 *)(a + (size_t)min(rank + i, p.r - 1) * pitch + k))
                         : make_uint4(0, 0, 0, 0);
}
DEV void add_products(float (&acc)[LOWRANK_FEW], const uint4 (&w)[LOWRANK_FEW], const float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < LOWRANK_FEW; i++) {
        const __half2 *h = (const __half2 *)&w[i];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 f = __half22float2(h[e]);
            acc[i] = fmaf(f.x, v[2 * e], acc[i]);
            acc[i] = fmaf(f.y, v[2 * e + 1], acc[i]);
        }
    }
}

// ---- rows times A, four ranks a block: each warp has its columns of all rows, eight a lane
// n rows from row `at` of the tile on, of which `has` (bits from there on) are there; ready: w holds the first columns. Rows are a loop: code
// that runs once waits for its own instructions.
template <bool NORM>
DEV void down_rows(const lowrank_job &j, const lowrank_dev_part &p, const tile_rows &t, const __half *a,
                   int rank, int at, int n, unsigned has, uint4 (&w)[2][LOWRANK_FEW], bool ready) {
    __shared__ float sums[DOWN_WARPS][DOWN_ROWS][LOWRANK_FEW + 1];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, begin = threadIdx.x * 8;
    if (!ready) {
        load_ranks(w[0], a, p, rank, begin);
        load_ranks(w[1], a, p, rank, begin + DOWN_STEP);
    }
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        if (!(has >> i & 1)) continue;
        const float *x = x_of(j, p, __shfl_sync(~0u, t.row.x, at + i));
        float acc[LOWRANK_FEW] = {}, squares = 0;
#pragma unroll 1
        for (int k = begin; k - begin < p.k; k += DOWN_STEP) {
            uint4 u[LOWRANK_FEW];
            float v[8], norm[8];
            load_row(v, x, k, p.k);
            if (NORM) load_row(norm, j.norm, k, p.k);
            if (k >= begin + 2 * DOWN_STEP) load_ranks(u, a, p, rank, k);
#pragma unroll
            for (int r = 0; r < LOWRANK_FEW && k < begin + 2 * DOWN_STEP; r++)
                u[r] = k == begin ? w[0][r] : w[1][r];
#pragma unroll
            for (int e = 0; NORM && e < 8; e++) {
                squares = fmaf(v[e], v[e], squares);
                v[e] *= norm[e];
            }
            add_products(acc, u, v);
        }
#pragma unroll
        for (int r = 0; r < LOWRANK_FEW + NORM; r++) {
            const float v = warp_sum(r < LOWRANK_FEW ? acc[r % LOWRANK_FEW] : squares);
            if (lane == 0) sums[warp][i][r] = v;
        }
    }
    __syncthreads();
    const int own = lane / LOWRANK_FEW, r = lane % LOWRANK_FEW,
              row = __shfl_sync(~0u, t.row.x, (at + own) & 31);
    if (warp == 0 && own < n && (has >> own & 1) && rank + r < p.r) {
        float v = 0;
        for (int i = 0; i < DOWN_WARPS; i++) v += sums[i][own][r];
        if (NORM) {
            float all = 0;
            for (int i = 0; i < DOWN_WARPS; i++) all += sums[i][own][LOWRANK_FEW];
            v /= sqrtf(all / (float)p.k + j.eps);
        }
        low_of(j, p, row)[rank + r] = v * p.down_a;
    }
    __syncthreads();
}
// EACH: each row has a matrix of its own.
template <bool EACH, bool NORM>
__global__ void __launch_bounds__(DOWN_WARPS * 32)
    lowrank_down_kernel(const __grid_constant__ lowrank_job j) {
    tile_rows t;
    lowrank_dev_part p;
    uint4 w[2][LOWRANK_FEW];
    int rank;
    unsigned has = 0;
    pdl_trigger();
    if (take_tile(j, t)) {
        p = part_of<false>(j, &rank);
        if (is_for(t, p.adapter)) has = __ballot_sync(~0u, scale_of(j, t, p.adapter) != 0.f);
    }
    if (has && !EACH) {
        load_ranks(w[0], a_of(j, p, 0), p, rank, threadIdx.x * 8);
        load_ranks(w[1], a_of(j, p, 0), p, rank, threadIdx.x * 8 + DOWN_STEP);
    }
    pdl_wait();
    if (!has) return;
    if constexpr (EACH) {
        for (int at = 0; at < t.n; at++) {
            if (!(has >> at & 1)) continue;
            const int matrix = matrix_of(j, p, __shfl_sync(~0u, t.row.x, at), blockIdx.z);
            down_rows<NORM>(j, p, t, a_of(j, p, matrix), rank, at, 1, 1, w, false);
        }
    } else {
        for (int at = 0; at < t.n; at += DOWN_ROWS)
            if (has >> at)
                down_rows<NORM>(j, p, t, a_of(j, p, 0), rank, at, min((int)DOWN_ROWS, t.n - at), has >> at, w,
                                at == 0);
    }
}

// ---- the same of 16 rows on tensor cores, 32 ranks a block: a warp has its columns, 16 a turn, of which a lane has four in a row of x and of
// A; in which order they are the product's does not matter as long as it is the same
DEV void mma_tf32(float (&d)[4], float a0, float a1, float a2, float a3, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)),
          "r"(__float_as_uint(a3)), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
enum { WIDE_TILES = LOWRANK_MORE / 8 };
// Columns k .. k + 15 of the rows: x[0] and x[1] are rows g and g + 8 of the tile.
DEV void wide_step(float (&acc)[WIDE_TILES][4], const __half *a, const lowrank_dev_part &p, int rank, int k,
                   const float *const (&x)[2], const bool (&there)[2]) {
    const int g = (threadIdx.x & 31) >> 2, pitch = (p.k + 7) & ~7;
    float v[2][4] = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (there[i]) load_row(v[i], x[i], k, p.k);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) v[i][e] = tf32_round(v[i][e]);
#pragma unroll
    for (int n = 0; n < WIDE_TILES; n++) {
        if (rank + n * 8 >= p.r) continue;
        uint2 w = make_uint2(0, 0);
        if (rank + n * 8 + g < p.r && k < pitch)
            w = __ldg((const uint2 *)(a + (size_t)(rank + n * 8 + g) * pitch + k));
        const float2 lo = __half22float2(*(const __half2 *)&w.x), hi = __half22float2(*(const __half2 *)&w.y);
        mma_tf32(acc[n], v[0][0], v[1][0], v[0][1], v[1][1], lo.x, lo.y);
        mma_tf32(acc[n], v[0][2], v[1][2], v[0][3], v[1][3], hi.x, hi.y);
    }
}
__global__ void __launch_bounds__(DOWN_WARPS * 32)
    lowrank_wide_kernel(const __grid_constant__ lowrank_job j) {
    __shared__ float sums[DOWN_WARPS][LOWRANK_TILE_PROMPT][LOWRANK_MORE];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3;
    tile_rows t;
    int rank;
    op_begin();
    if (!take_tile(j, t)) return;
    const lowrank_dev_part p = part_of<true>(j, &rank);
    if (!is_for(t, p.adapter)) return;
    const unsigned has = __ballot_sync(~0u, scale_of(j, t, p.adapter) != 0.f);
    if (!has) return;
    const __half *a = a_of(j, p, 0);
    const float *const x[2] = {x_of(j, p, __shfl_sync(~0u, t.row.x, g)),
                               x_of(j, p, __shfl_sync(~0u, t.row.x, g + 8))};
    const bool there[2] = {(has >> g & 1) != 0, (has >> (g + 8) & 1) != 0};
    float acc[WIDE_TILES][4] = {};
    for (int k = warp * 16; k < p.k; k += DOWN_WARPS * 16) wide_step(acc, a, p, rank, k + 4 * q, x, there);
#pragma unroll
    for (int n = 0; n < WIDE_TILES; n++) {
        *(float2 *)&sums[warp][g][n * 8 + 2 * q] = make_float2(acc[n][0], acc[n][1]);
        *(float2 *)&sums[warp][g + 8][n * 8 + 2 * q] = make_float2(acc[n][2], acc[n][3]);
    }
    __syncthreads();
    for (int i = warp; i < t.n; i += DOWN_WARPS) { // a lane a rank
        const int row = __shfl_sync(~0u, t.row.x, i);
        if (!(has >> i & 1) || rank + lane >= p.r) continue;
        float v = 0;
        for (int k = 0; k < DOWN_WARPS; k++) v += sums[k][i][lane];
        low_of(j, p, row)[rank + lane] = v * p.down_a;
    }
}

// ---- times B, by columns, added to out: a thread has two columns of all rows
struct up_columns {
    __half2 b[CHUNK];
};
// Ranks r .. r + CHUNK of a matrix, columns c and c + UP_THREADS of the part.
DEV void load_columns(up_columns &w, const lowrank_job &j, const lowrank_dev_part &p, int matrix, int r,
                      int c) {
    const __half *b = (const __half *)(j.weights + p.b) + ((size_t)matrix * p.r + r) * p.n + c, zero = 0.f;
    const bool first = c >= 0 && c < p.n, second = c + UP_THREADS >= 0 && c + UP_THREADS < p.n;
#pragma unroll
    for (int i = 0; i < CHUNK; i++, b += p.n) {
        const bool there = r + i < p.r;
        w.b[i] =
            __halves2half2(there && first ? __ldg(b) : zero, there && second ? __ldg(b + UP_THREADS) : zero);
    }
}
// One part of n rows from row `at` of the tile on; c: the thread's first column in the part. Code that runs once waits for its own
// instructions, so rows are a loop, and what they get is added without being read.
DEV void up_rows(const lowrank_job &j, const lowrank_dev_part &p, const tile_rows &t, float scale, int matrix,
                 int at, int n, unsigned has, int c, up_columns &w, bool ready) {
    __shared__ float low[UP_ROWS][CHUNK];
    const int tid = threadIdx.x, own = tid / CHUNK, e = tid % CHUNK,
              own_row = __shfl_sync(~0u, t.row.x, (at + own) & 31);
    const bool first = c >= 0 && c < p.n, second = c + UP_THREADS >= 0 && c + UP_THREADS < p.n;
#pragma unroll 1
    for (int r = 0; r < p.r; r += CHUNK) {
        if (!ready || r) load_columns(w, j, p, matrix, r, c);
        if (own < n)
            low[own][e] = !(has >> own & 1) || r + e >= p.r ? 0.f
                          : p.vector                        ? 1.f
                                                            : __ldcg(low_of(j, p, own_row) + r + e);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            if (!(has >> i & 1)) continue;
            const int row = __shfl_sync(~0u, t.row.x, (at + i) & 31);
            float s = __shfl_sync(~0u, scale, (at + i) & 31) * p.down_b, a[2] = {};
            if (j.weighted) s *= __ldcg(j.choice.p + row * j.choice.stride + j.n_used + blockIdx.z);
#pragma unroll
            for (int k = 0; k < CHUNK; k++) {
                const float2 b = __half22float2(w.b[k]);
                a[0] = fmaf(low[i][k], b.x, a[0]);
                a[1] = fmaf(low[i][k], b.y, a[1]);
            }
            float *out =
                j.out.p + row * j.out.stride + (size_t)p.col * j.pairs + (size_t)blockIdx.z * p.n + c;
            if (first) atomicAdd(out, s * a[0]);
            if (second) atomicAdd(out + UP_THREADS, s * a[1]);
        }
        __syncthreads();
    }
}
// Parts i .. i + 31 that have columns of the block and an adapter of the tile, a bit each.
DEV unsigned parts_from(const lowrank_job &j, const tile_rows &t, int i) {
    const lowrank_dev_part *p = j.part + i + (threadIdx.x & 31);
    const int first = blockIdx.x * 2 * UP_THREADS;
    const bool some = i + (int)(threadIdx.x & 31) < j.n_part && is_for(t, p->adapter) &&
                      p->col < first + 2 * UP_THREADS && p->col + p->n > first;
    return __ballot_sync(~0u, some);
}
template <bool EACH>
__global__ void __launch_bounds__(UP_THREADS) lowrank_up_kernel(const __grid_constant__ lowrank_job j) {
    enum { ROWS = EACH ? 1 : UP_ROWS };
    const int column = blockIdx.x * 2 * UP_THREADS + threadIdx.x;
    tile_rows t;
    up_columns w;
    int first = -1;
    pdl_trigger();
    const bool mine = take_tile(j, t);
    for (int i = 0; mine && first < 0 && i < j.n_part; i += 32) {
        const unsigned some = parts_from(j, t, i);
        if (some) first = i + __ffs(some) - 1;
    }
    if (first >= 0 && !EACH) load_columns(w, j, j.part[first], 0, 0, column - j.part[first].col);
    pdl_wait();
    if (first < 0) return;
    for (int i = first & ~31; i < j.n_part; i += 32)
        for (unsigned some = parts_from(j, t, i); some; some &= some - 1) {
            const int at_part = i + __ffs(some) - 1;
            const lowrank_dev_part p = j.part[at_part];
            const float scale = scale_of(j, t, p.adapter);
            const unsigned has = __ballot_sync(~0u, scale != 0.f);
            for (int at = 0; at < t.n; at += ROWS) {
                if (!(has >> at & ((1u << ROWS) - 1))) continue;
                const int matrix = EACH ? matrix_of(j, p, __shfl_sync(~0u, t.row.x, at), blockIdx.z) : 0;
                up_rows(j, p, t, scale, matrix, at, min((int)ROWS, t.n - at), has >> at, column - p.col, w,
                        !EACH && at == 0 && at_part == first);
            }
        }
}

cudaError_t op_lowrank_down(const lowrank_job &j, int tiles, bool wide, op_queue s) {
    const bool each = j.choice.p != NULL;
    if (!tiles || !j.few) return cudaSuccess;
    if (wide && !each) return op_launch(lowrank_wide_kernel, dim3(j.more, tiles), DOWN_WARPS * 32, s, j);
    return op_launch(each     ? lowrank_down_kernel<true, false>
                     : j.norm ? lowrank_down_kernel<false, true>
                              : lowrank_down_kernel<false, false>,
                     dim3(j.few, tiles, j.pairs), DOWN_WARPS * 32, s, j);
}
cudaError_t op_lowrank_up(const lowrank_job &j, int tiles, op_queue s) {
    const unsigned blocks = (unsigned)((j.out.width / j.pairs + 2 * UP_THREADS - 1) / (2 * UP_THREADS));
    if (!tiles) return cudaSuccess;
    return op_launch(j.choice.p ? lowrank_up_kernel<true> : lowrank_up_kernel<false>,
                     dim3(blocks, tiles, j.pairs), UP_THREADS, s, j);
}
