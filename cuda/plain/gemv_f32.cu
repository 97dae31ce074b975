// Matrices of F32 with few rows: the products of a decode step, with what follows them in the list.
//
// A row tile is parts of 16 rows x 32 columns, 2 KB each, as they lie (unit_layout.h). Warp w adds up parts w, w + 16 .. one
// after the other, and the warps' sums are added in order, so a row's bits do not depend on the other rows. Weights
// depend on nothing that is under way: each warp has asked for its first parts before it waits for the input, and has as
// many on their way at any time, over the ends of tiles.
#include "cuda/plain/gemv_f32.h"
#include "cuda/common/launch.h"
#include "cuda/common/util.cuh"

enum { PART_BYTES = 2048, PART_COLS = 32, WARPS = 16, ROWS_MOST = 8 };

// Where a warp's next part to be asked for is.
struct part_walk {
    int tile, step;
    MEM int part() const { return (threadIdx.x >> 5) + WARPS * step; }
    MEM void next(const gemv_f32_job &j) {
        if (++step < j.steps) return;
        step = 0;
        tile += gridDim.x;
    }
};

// A lane's four chunks of a part: 4 columns of rows lane / 8 + 4 i.
DEV void fetch_part(float4 (&v)[4], const gemv_f32_job &j, int tile, int part) {
    if (tile >= j.n_tile || part >= j.n_part) return;
    const uint8_t *p =
        j.weights + ((size_t)tile * j.tile_parts + part) * PART_BYTES + (threadIdx.x & 31) * 16;
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = __ldcs((const float4 *)(p + i * 512));
}
DEV float dot4(float4 a, float4 b, float s) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s))));
}
// acc[i] += chunk i of the part times x, the columns of chunks 0 and 2; those of 1 and 3 are the lane's across.
DEV void add_part(float (&acc)[4], const float4 (&v)[4], float4 x) {
    float4 y;
    y.x = __shfl_xor_sync(~0u, x.x, 4);
    y.y = __shfl_xor_sync(~0u, x.y, 4);
    y.z = __shfl_xor_sync(~0u, x.z, 4);
    y.w = __shfl_xor_sync(~0u, x.w, 4);
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] = dot4(v[i], i & 1 ? y : x, acc[i]);
}

// ---- what becomes of a tile's sums
// v: of weight row lane % 16 of the tile and row r of x; extra: what is added.
DEV void put_sum(const gemv_f32_job &j, int tile, int r, float v, float extra) {
    const int lane = threadIdx.x & 31, phys = tile * 16 + (lane & 15);
    float *out = j.out.p + r * j.out.stride;
    if (j.paired) {
        const int n = tile * 8 + (lane & 7), up = j.n[0];
        if (j.bias && n < up) v += j.bias[n + (lane & 8 ? up : 0)];
        const float u = __shfl_down_sync(~0u, v, 8);
        if (lane >= 16 || n >= up) return;
        if (j.act < 0)
            out[n + (lane & 8 ? up : 0)] = v;
        else if (lane < 8)
            out[n] = act_apply(j.act, v) * u;
        return;
    }
#pragma unroll
    for (int m = 0; m < WEIGHT_GROUP_MAX; m++) {
        const int n = phys - j.base[m], c = j.col[m] + n;
        if (m < j.n_member && lane < 16 && n >= 0 && n < j.n[m])
            out[c] = v + (j.bias ? j.bias[c] : 0.f) + extra;
    }
}
// What is added to the sum that the lane puts; asked for long before.
DEV float extra_of(const gemv_f32_job &j, int tile, int r) {
    const int c = tile * 16 + (threadIdx.x & 15);
    return j.add.p && c < j.n[0] ? __ldcg(j.add.p + r * j.add.stride + c) : 0.f;
}

// T rows of x; D parts ahead
template <int T, int D>
__global__ void __launch_bounds__(WARPS * 32) gemv_f32_kernel(const __grid_constant__ gemv_f32_job j) {
    __shared__ float sum[2][T][WARPS][16];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, col = ((lane & 7) ^ (lane >> 3)) * 4,
              n_row = (j.out_rows ? j.t.step->n_out : j.t.step->n_row) - j.row0;
    const float *x = j.x.p + j.row0 * j.x.stride + col;
    auto input = [&](int t, int part) {
        return __ldcg((const float4 *)(x + min(t, n_row - 1) * j.x.stride + part * PART_COLS));
    };
    float4 v[D][4], ahead[D]; // ahead: the input, where it is one row
    part_walk to = {(int)blockIdx.x, 0};
    pdl_trigger();
#pragma unroll
    for (int d = 0; d < D; d++) fetch_part(v[d], j, to.tile, warp + WARPS * d); // steps >= D
    pdl_wait();
    if (n_row <= 0) return;
#pragma unroll
    for (int d = 0; d < D; d++) {
        if (T == 1 && to.part() < j.n_part) ahead[d] = input(0, to.part());
        to.next(j);
    }
    int buffer = 0;
#pragma unroll 1
    for (int tile = blockIdx.x; tile < j.n_tile; tile += gridDim.x, buffer ^= 1) {
        const bool puts = warp < T && warp < n_row;
        const float extra = puts ? extra_of(j, tile, j.row0 + warp) : 0.f;
        float acc[T][4] = {};
#pragma unroll 1
        for (int s = 0; s < j.steps; s += D)
#pragma unroll
            for (int d = 0; d < D; d++) {
                const int part = warp + WARPS * (s + d);
                if (part < j.n_part)
#pragma unroll
                    for (int t = 0; t < T; t++) add_part(acc[t], v[d], T == 1 ? ahead[d] : input(t, part));
                fetch_part(v[d], j, to.tile, to.part());
                if (T == 1 && to.part() < j.n_part) ahead[d] = input(0, to.part());
                to.next(j);
            }
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float a = acc[t][i];
#pragma unroll
                for (int o = 1; o < 8; o <<= 1) a += __shfl_xor_sync(~0u, a, o);
                if ((lane & 7) == t) sum[buffer][t][warp][4 * i + (lane >> 3)] = a;
            }
        __syncthreads(); // the other buffer's sums have been taken
        if (!puts) continue;
        float a = 0;
#pragma unroll
        for (int w = 0; w < WARPS / 2; w++) a += sum[buffer][warp][(lane >> 4) * 8 + w][lane & 15];
        put_sum(j, tile, j.row0 + warp, a + __shfl_xor_sync(~0u, a, 16), extra);
    }
}

// ---- host side
bool op_gemv_f32_take(const struct cuda_group *g, rows x) {
    return !g->scaled && g->n_region == 1 && g->region[0].layout == LAYOUT_F32 && g->k % PART_COLS == 0 &&
           (uintptr_t)x.p % 16 == 0 && x.stride % 4 == 0;
}
gemv_f32_job op_gemv_f32_job(const struct cuda_group *g, const uint8_t *weights, const float *bias) {
    gemv_f32_job j = {};
    j.weights = weights + g->region[0].offset;
    j.n_tile = g->region[0].rows / UNIT_ROWS;
    j.n_part = g->k / PART_COLS;
    j.tile_parts = g->region[0].u * (UNIT_COLS / PART_COLS);
    j.n_member = g->n_member;
    j.paired = g->paired;
    for (int i = 0; i < g->n_member; i++) {
        j.base[i] = g->member[i].base;
        j.n[i] = g->member[i].n;
        j.col[i] = g->member[i].col;
    }
    j.bias = bias;
    j.act = -1;
    return j;
}
template <int T, int D> static cudaError_t launch(gemv_f32_job j, int sm_count, op_queue s) {
    j.steps = (j.n_part + WARPS * D - 1) / (WARPS * D) * D;
    return launch_overlapped(gemv_f32_kernel<T, D>, j.n_tile < sm_count ? j.n_tile : sm_count, WARPS * 32, 0,
                             s.overlap, s.stream, j);
}
cudaError_t op_gemv_f32_run(gemv_f32_job j, int n, int sm_count, op_queue s) {
    for (j.row0 = 0; j.row0 < n; j.row0 += ROWS_MOST) {
        cudaError_t e = n - j.row0 > 1 ? launch<ROWS_MOST, 2>(j, sm_count, s) : launch<1, 4>(j, sm_count, s);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}
