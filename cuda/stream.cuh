// Decode rows: matrix times few vectors as one stream of weights.
//
// Every warp owns a ring of bulk copies and takes units w, w + W, .. of each row tile of its block; the sum over the
// warps goes through shared memory. R row tiles are done in one step; the warp that sums a step finishes it: scale by
// 1/rms, bias, residual, gate, quantisation for the reader that follows (epilogue). Weights never depend on the
// kernel before, so the ring starts before the dependency wait.
//
// One row: the 8 columns of the int8 mma are 8 subgroups of 16 columns of K (block-diagonal B), so no lane repeats
// another's work with scales. Up to 8 rows: the columns are rows. Both sum in one order: partial p of a row holds the
// groups p and p + 4 of each unit, the partials are added as (0 + 1) + (2 + 3), then the warps in order. A row's bits
// do not depend on the number of rows.
#pragma once
#pragma once
#include "stream_finish.cuh"
#include "stream_sums.cuh"

// ---- the ring: S slots of R units a warp
template <int L, int R, int W, int S> struct ring {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    const uint8_t *p, *slots;
    uint64_t policy;
    uint32_t base, bar, phase;
    long jump;
    size_t hop;
    int left, units, steps, slot; // steps: still to fetch
    MEM void issue(int s) {
        if (steps <= 0) return;
        if (elect_one()) {
            const uint32_t b = bar + 8 * s;
            barrier_expect(b, R * UB);
#pragma unroll
            for (int h = 0; h < R; h++) bulk_copy(base + (s * R + h) * UB, p + h * hop, UB, b, policy);
        }
        p += W * UB;
        if (--left == 0) {
            left = units;
            p += jump;
            steps--;
        }
    }
    // steps cta, cta + n_cta, .. of n_step steps of rt row tiles, from row tile h on; u units a row tile
    MEM void start(uint8_t *smem, uint64_t *bars, const uint8_t *w, int n_step, int u, int cta, int n_cta,
                   int rt = R, int h = 0) {
        const int all = threadIdx.x >> 5, warp = all % W;
        slots = smem + (size_t)all * S * R * UB;
        base = smem_address(slots);
        bar = smem_address(bars + all * S);
        slot = 0;
        phase = 0;
        policy = policy_evict_first();
        if (elect_one()) {
            for (int s = 0; s < S; s++) barrier_init(bar + 8 * s, 1);
            barrier_fence();
        }
        __syncwarp();
        units = left = (u - warp + W - 1) / W;
        steps = units > 0 ? (n_step - cta + n_cta - 1) / n_cta : 0;
        hop = (size_t)u * UB;
        p = w + ((size_t)cta * rt + h) * hop + (size_t)warp * UB;
        jump = (long)((size_t)n_cta * rt * hop) - (long)units * W * UB;
#pragma unroll
        for (int s = 0; s < S; s++) issue(s);
    }
    template <bool ONE> MEM void next(frag<L> (&f)[R]) {
        barrier_wait(bar + 8 * slot, phase);
#pragma unroll
        for (int h = 0; h < R; h++) frag_load<L, ONE>(f[h], slots + (slot * R + h) * UB, threadIdx.x & 31);
        __syncwarp();
        issue(slot);
        if (++slot == S) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// PACKETS: the input (EPI_ADD) or the result comes in packets.
template <int L, int GA, int R, int W, int S, int EPI, bool PACKETS>
DEV void stream_one(const mm_job &j, int region, int cta, int n_cta) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr bool half = frag<L>::half;
    constexpr int XU = x_unit<L>(GA), ROWS = 16 * R;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, U = j.u;
    uint64_t *bars = (uint64_t *)smem, *done = bars + W * S, *xbar = done + W;
    float *rs_at = (float *)(smem + 896), *red = (float *)(smem + 1024);
    uint8_t *x = smem + 1024 + W * W * ROWS * 4, *slots = x + j.x_bytes;

    ring<L, R, W, S> r;
    r.start(slots, bars, j.w[region], j.steps[region], U, cta, n_cta);
    if (threadIdx.x < 2 * W) barrier_init(smem_address(done + threadIdx.x), threadIdx.x < W ? W : 1);
    if (threadIdx.x < 2 * W) barrier_fence();
    __syncthreads();
    // Packets say by themselves when they are there. What a taker reads beside them is older than the giver's wait.
    constexpr bool beside = PACKETS && EPI == EPI_ADD;
    if (EPI == EPI_STORE && j.first) {
        pdl_wait();
        pdl_trigger();
    } else {
        pdl_trigger();
        if (!beside) pdl_wait();
    }

    const uint32_t tag = PACKETS ? packet_tag(j.seq, j.tag) : 0;
    const int row = j.rowmap ? j.rowmap[0] : 0;
    auto factor = [&] {
        if (EPI == EPI_ADD || !j.n_square || w) return;
        const float v = row_factor<L>(j, row);
        if (lane == 0) *rs_at = v;
    };
    if (!beside) { // each warp takes the records of its own units
        const uint32_t b = smem_address(xbar + w);
        if (w < U && elect_one()) {
            const uint8_t *src = j.x + row * j.x_row;
            barrier_expect(b, (U - w + W - 1) / W * XU);
            for (int u = w; u < U; u += W)
                bulk_copy(smem_address(x + (size_t)u * XU), src + (size_t)u * j.x_unit, XU, b);
        }
        __syncwarp();
        factor();
        if (w < U) barrier_wait(b, 0);
    }

    conditional_t<half, one_half<L, GA, R>, one_row<L, GA, R>> m;
    m.start(lane);
    best_value best = {-INFINITY, 0x7fffffff};
    packet_reader<L, GA> in;
    if (beside && w < U) {
        in.at = j.take_packets;
        in.tag = tag;
        in.columns = j.take_columns;
        in.ask(w, lane);
    }
    int ti = 0;
    for (int step = cta; step < j.steps[region]; step += n_cta, ti++) {
        m.clear();
        ahead a = {0, 0, 0};
        if (!beside && ti % W == w) a = look_ahead<L, R, EPI>(j, step, 0);
        for (int u = w; u < U; u += W) {
            frag<L> f[R];
            if (beside && ti == 0) {
                in.take(u, x + (size_t)u * XU, lane);
                if (u + W < U) in.ask(u + W, lane);
            }
            // (a packet of this step says that the kernels before its writer are done)
            if (beside && u == w && ti % W == w) a = look_ahead<L, R, EPI>(j, step, 0);
            r.template next<true>(f);
            m.unit(f, x + (size_t)u * XU, lane);
        }
        const int buf = ti % W;
        float *part = red + buf * W * ROWS;
        m.leave(part + w * ROWS, lane);
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(done + buf));
        if (buf != w) continue;
        barrier_wait(smem_address(done + buf), (ti / W) & 1);
        float v = 0;
#pragma unroll
        for (int k = 0; k < W; k++) v += part[k * ROWS + (R == 1 ? lane & 15 : lane)];
        finish<L, R, EPI, false, PACKETS>(j, region, step, 0, v, j.n_square ? *rs_at : 1.f, a, best, tag);
    }
    if (EPI == EPI_HEAD) {
        best = best_of_warp(best);
        if (lane == 0) j.cand[blockIdx.x * W + w] = make_float2(best.v, __int_as_float(best.i));
    }
    if (beside) pdl_wait(); // what follows this kernel follows the one before, too
}

// The steps of a block; G: the input lies in global memory.
template <int L, int GA, int R, int W, int S, int EPI, bool G>
DEV void many_steps(const mm_job &j, ring<L, 1, W, S> &r, int region, int cta, int n_cta, int n_col,
                    const uint8_t *x, size_t stride, size_t unit, float *red, uint64_t *done, uint64_t *freed,
                    const float *rs_at) {
    constexpr bool half = frag<L>::half;
    constexpr int PART = 8 * RED_STRIDE, TOKENS = 8 / W; // rows that a warp finishes
    const int w = (threadIdx.x >> 5) % W, h = (threadIdx.x >> 5) / W, lane = threadIdx.x & 31, U = j.u;
    conditional_t<half, many_half<L, GA, 1, G>, many_rows<L, GA, G>> m;
    best_value best[TOKENS];
    for (int i = 0; i < TOKENS; i++) best[i] = {-INFINITY, 0x7fffffff};
    // Buffer ti % n of sums: all warps leave theirs, one set of W warps (the sets take turns) adds and finishes them.
    int ti = 0;
    for (int step = cta; step < j.steps[region]; step += n_cta, ti++) {
        const int buf = ti % j.buffers, use = ti / j.buffers;
        const bool mine = R == 1 || (ti & 1) == h;
        m.clear();
        ahead a[TOKENS];
#pragma unroll
        for (int i = 0; i < TOKENS; i++)
            a[i] = mine && w + i * W < n_col ? look_ahead<L, R, EPI>(j, step, w + i * W) : ahead{0, 0, 0};
        for (int u = w; u < U; u += W) {
            frag<L> f[1];
            r.template next<false>(f);
            m.unit(f, x + u * unit, stride, lane);
        }
        float *part = red + buf * W * PART;
        if (use) barrier_wait(smem_address(freed + buf), (use - 1) & 1);
        m.leave(part + w * PART + h * 16, lane);
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(done + buf));
        if (!mine) continue;
        barrier_wait(smem_address(done + buf), use & 1);
        float v[TOKENS];
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            v[i] = 0;
#pragma unroll
            for (int k = 0; k < W; k++)
                v[i] += part[k * PART + (w + i * W) * RED_STRIDE + (R == 1 ? lane & 15 : lane)];
        }
        __syncwarp();
        if (elect_one()) barrier_arrive(smem_address(freed + buf));
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            const int t = w + i * W;
            if (t < n_col)
                finish<L, R, EPI>(j, region, step, t, v[i], j.n_square ? rs_at[t] : 1.f, a[i], best[i]);
        }
    }
    if (EPI == EPI_HEAD)
        for (int i = 0; i < TOKENS; i++) {
            const best_value b = best_of_warp(best[i]);
            if (lane == 0 && w + i * W < n_col)
                j.cand[(size_t)(w + i * W) * j.n_cand + blockIdx.x * R + h] =
                    make_float2(b.v, __int_as_float(b.i));
        }
}

// Up to 8 rows. W warps share K as for one row; with R = 2 a second set of W warps has the second row tile.
template <int L, int GA, int R, int W, int S, int EPI>
DEV void stream_many(const mm_job &j, int region, int cta, int n_cta) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr bool half = frag<L>::half;
    constexpr int XU = x_unit<L>(GA), XC = !half && GA == 16 ? XU - 32 : XU; // XC: without the pad
    constexpr bool far = half || GA == 16; // the input may be too large for shared memory
    constexpr int PART = 8 * RED_STRIDE;
    const int w = (threadIdx.x >> 5) % W, h = (threadIdx.x >> 5) / W, lane = threadIdx.x & 31, U = j.u;
    uint64_t *bars = (uint64_t *)smem, *xbar = bars + W * R * S, *done = xbar + W, *freed = done + 2;
    float *rs_at = (float *)(smem + 896), *red = (float *)(smem + 1024);
    uint8_t *xs = smem + 1024 + j.buffers * W * PART * 4, *slots = xs + j.x_bytes;

    ring<L, 1, W, S> r;
    r.start(slots, bars, j.w[region], j.steps[region], U, cta, n_cta, R, h);
    if (threadIdx.x < W) {
        barrier_init(smem_address(xbar + threadIdx.x), 1);
        if (threadIdx.x < 2) {
            barrier_init(smem_address(done + threadIdx.x), W * R);
            barrier_init(smem_address(freed + threadIdx.x), W);
        }
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    pdl_wait();

    const int n_col = min(j.columns, *j.n_row - j.row0);
    for (int t = w; t < 8 && h == R - 1; t += W)
        if (EPI != EPI_ADD && j.n_square && t < n_col) {
            const float v = row_factor<L>(j, j.rowmap ? j.rowmap[t] : t);
            if (lane == 0) rs_at[t] = v;
        }
    // columns of rows that are not there repeat the first row
    const uint8_t *x = xs;
    size_t stride, unit;
    if (j.x_bytes) {
        stride = half ? XU + 64 : XU;
        unit = 8 * stride - (half ? 64 : XU - XC);
        if (w < U && n_col > 0) {
            const uint32_t b = smem_address(xbar + w);
            if (h == 0 && elect_one()) {
                barrier_expect(b, (U - w + W - 1) / W * 8 * XC);
                for (int t = 0; t < 8; t++) {
                    const int at = t < n_col ? t : 0, row = j.rowmap ? j.rowmap[at] : at;
                    for (int u = w; u < U; u += W)
                        bulk_copy(smem_address(xs + u * unit + t * stride),
                                  j.x + row * j.x_row + (size_t)u * j.x_unit, XC, b);
                }
            }
            barrier_wait(b, 0);
        }
    } else { // read where it lies
        x = j.x;
        stride = j.x_row;
        unit = j.x_unit;
    }
    __syncthreads();

    if (j.x_bytes)
        many_steps<L, GA, R, W, S, EPI, false>(j, r, region, cta, n_cta, n_col, x, stride, unit, red, done,
                                               freed, rs_at);
    else if constexpr (far)
        many_steps<L, GA, R, W, S, EPI, true>(j, r, region, cta, n_cta, n_col, x, stride, unit, red, done,
                                              freed, rs_at);
}

// L2 < 0: one region
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI, bool PACKETS>
__global__ void __launch_bounds__(W * 32, frag<L>::half ? 1 : 2)
    stream_one_kernel(const __grid_constant__ mm_job j) {
    if (L2 < 0 || (int)blockIdx.x < j.split)
        stream_one<L, GA, R, W, S, EPI, PACKETS>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split);
    else if constexpr (L2 >= 0)
        stream_one<L2, GA, R, W, S2, EPI, PACKETS>(j, 1, blockIdx.x - j.split, gridDim.x - j.split);
}
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI>
__global__ void __launch_bounds__(W *R * 32, 1) stream_many_kernel(const __grid_constant__ mm_job j) {
    if (L2 < 0 || (int)blockIdx.x < j.split)
        stream_many<L, GA, R, W, S, EPI>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split);
    else if constexpr (L2 >= 0)
        stream_many<L2, GA, R, W, S2, EPI>(j, 1, blockIdx.x - j.split, gridDim.x - j.split);
}
