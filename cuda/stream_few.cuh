// 2 to 8 decode rows of codes: blocks as for one row, whose products have columns for 8. The rows stay in shared memory, so that
// two blocks fit a multiprocessor and the next kernel's weights come in beside this one. The sums are those of one row.
#pragma once
#include "stream_finish.cuh"
#include "stream_ring.cuh"
#include "stream_sums.cuh"

// A unit times T rows, FEW_ROW bytes apart (no bank twice); columns that are not there repeat the others.
template <int L, int R, int T> struct few_rows {
    float acc[R][4];
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][0] = acc[h][1] = acc[h][2] = acc[h][3] = 0;
    }
    MEM void unit(const frag<L> &f, int h, const uint8_t *x, int lane) {
        x += (lane >> 2) % T * FEW_ROW + (lane & 3) * 16;
#pragma unroll
        for (int g = 0; g < 8; g++) {
            const uint4 b = *(const uint4 *)(x + g * 64);
            group_factors<L> k;
            uint32_t a[2][4];
            k.get(f.f, g, lane);
            group_halves<L>(a, f.t[g >> 1], g, k);
            mma_f16(acc[h], a[0][0], a[0][1], a[0][2], a[0][3], b.x, b.y);
            mma_f16(acc[h], a[1][0], a[1][1], a[1][2], a[1][3], b.z, b.w);
        }
    }
    MEM void leave(float *red, int lane) { // red[T][16 R]
        const int tig = lane & 3, gid = lane >> 2;
#pragma unroll
        for (int h = 0; h < R; h++)
#pragma unroll
            for (int o = 0; o < 4; o++)
                if (2 * tig + (o & 1) < T)
                    red[(2 * tig + (o & 1)) * 16 * R + h * 16 + gid + 8 * (o >> 1)] = acc[h][o];
    }
};

// Buffer ti % B of sums: all warps leave theirs, T warps add and finish a row each.
template <int L, int R, int W, int S, int EPI, int T>
DEV void stream_few(const mm_job &j, int region, int cta, int n_cta) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr int ROWS = 16 * R, B = few_buffers(T);
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, U = j.u,
              own = w % T; // row that this warp finishes
    uint64_t *bars = (uint64_t *)smem, *done = bars + W * S, *freed = done + B, *xbar = freed + B;
    float *rs_at = (float *)(smem + 896), *red = (float *)(smem + 1024);
    uint8_t *x = smem + 1024 + B * W * T * ROWS * 4, *slots = x + j.x_bytes;

    ring<L, R, W, S> r;
    r.start(slots, bars, j.w[region], j.steps[region], U, cta, n_cta);
    if (threadIdx.x < 2 * B + W) {
        barrier_init(smem_address(done + threadIdx.x), threadIdx.x < B ? W : threadIdx.x < 2 * B ? T : 1);
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    pdl_wait();

    const int n_col = min(T, *j.n_row);
    const uint32_t arrived = smem_address(xbar + w);
    if (w < U && n_col > 0 && elect_one()) { // each warp takes the columns of its own units
        barrier_expect(arrived, (U - w + W - 1) / W * T * 512);
        for (int t = 0; t < T; t++) {
            const int at = t < n_col ? t : 0, row = j.rowmap ? j.rowmap[at] : at;
            for (int u = w; u < U; u += W)
                bulk_copy(smem_address(x + (u * T + t) * FEW_ROW), j.x + row * j.x_row + (size_t)u * j.x_unit,
                          512, arrived);
        }
    }
    __syncwarp();
    if (EPI != EPI_ADD && j.n_square && w < n_col) {
        const float v = row_factor<false>(j, j.rowmap ? j.rowmap[w] : w);
        if (lane == 0) rs_at[w] = v;
    }
    if (w < U && n_col > 0) barrier_wait(arrived, 0);

    few_rows<L, R, T> m;
    best_value best = {-INFINITY, 0x7fffffff};
    int ti = 0;
    for (int step = cta; step < j.steps[region]; step += n_cta, ti++) {
        const int buf = ti % B, use = ti / B;
        const bool mine = (ti * T + own) % W == w;
        m.clear();
        ahead a = {0, 0, 0};
        if (mine && own < n_col) a = look_ahead<R, EPI>(j, step, own);
        for (int u = w; u < U; u += W) {
            r.wait();
#pragma unroll
            for (int h = 0; h < R; h++) {
                frag<L> f;
                r.load(f, h, j.up[region]);
                if (h == R - 1) r.release();
                m.unit(f, h, x + u * T * FEW_ROW, lane);
            }
        }
        float *part = red + buf * W * T * ROWS;
        if (use) barrier_wait(smem_address(freed + buf), (use - 1) & 1);
        m.leave(part + w * T * ROWS, lane);
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(done + buf));
        if (!mine) continue;
        barrier_wait(smem_address(done + buf), use & 1);
        float v = 0;
#pragma unroll
        for (int k = 0; k < W; k++) v += part[(k * T + own) * ROWS + (R == 1 ? lane & 15 : lane)];
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(freed + buf));
        if (own < n_col)
            finish<R, EPI, false, false, true>(j, region, step, v * j.down[region],
                                               j.n_square ? rs_at[own] : 1.f, a, best, 0, own);
    }
    if (EPI == EPI_HEAD && own < n_col) {
        best = best_of_warp(best);
        if (lane == 0)
            j.cand[(size_t)own * j.n_cand + blockIdx.x * (W / T) + w / T] =
                make_float2(best.v, __int_as_float(best.i));
    }
}
template <int L, int L2, int R, int W, int S, int S2, int EPI, int T>
__global__ void __launch_bounds__(W * 32, 2) stream_few_kernel(const __grid_constant__ mm_job j) {
    if (L2 < 0 || (int)blockIdx.x < j.split)
        stream_few<L, R, W, S, EPI, T>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split);
    else if constexpr (L2 >= 0)
        stream_few<L2, R, W, S2, EPI, T>(j, 1, blockIdx.x - j.split, gridDim.x - j.split);
}
