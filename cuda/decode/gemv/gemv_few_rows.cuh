// 2 to 8 decode rows of codes: blocks as for one row, whose products have columns for 8. A block has one or two groups of W
// warps, each with row tiles of its own, over rows that stay in shared memory. The sums are those of one row.
#pragma once
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/decode/gemv/gemv_shared.h"
#include "cuda/decode/gemv/weight_ring.cuh"
#include "cuda/decode/gemv/gemv_mma.cuh"

// The ring of a warp: slots of one unit, R row tiles after each other for every unit of columns.
template <int L, int R, int W> struct unit_ring {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    const uint8_t *p, *at;
    uint64_t policy;
    uint32_t base, bar, phase;
    long jump;
    size_t hop;
    int units, left, tile, steps, count, fetch, slot; // steps: still to fetch; count: of slots
    MEM void issue() {
        if (steps <= 0) return;
        if (elect_one()) {
            barrier_expect(bar + 8 * fetch, UB);
            bulk_copy(base + fetch * UB, p, UB, bar + 8 * fetch, policy);
        }
        if (++fetch == count) fetch = 0;
        if (R > 1 && ++tile < R) {
            p += hop;
            return;
        }
        tile = 0;
        p += W * UB - (R - 1) * (long)hop;
        if (--left == 0) {
            left = units;
            p += jump;
            steps--;
        }
    }
    // warp w of a group; steps cta, cta + n_cta, .. of n_step steps of R row tiles; u units a row tile
    MEM void start(const gemv_args &j, int region, uint8_t *slots, uint64_t *bars, int w, int cta,
                   int n_cta) {
        const int n_step = j.steps[region], u = j.u;
        at = slots;
        base = smem_address(slots);
        bar = smem_address(bars);
        count = j.few.slots;
        slot = fetch = tile = 0;
        phase = 0;
        policy = policy_evict_first();
        if (elect_one()) {
            for (int s = 0; s < count; s++) barrier_init(bar + 8 * s, 1);
            barrier_fence();
        }
        __syncwarp();
        units = left = (u - w + W - 1) / W;
        steps = units > 0 ? (n_step - cta + n_cta - 1) / n_cta : 0;
        hop = (size_t)u * UB;
        p = j.w[region] + (size_t)cta * R * hop + (size_t)w * UB;
        jump = (long)((size_t)n_cta * R * hop) - (long)units * W * UB;
        for (int s = 0; s < count; s++) issue();
    }
    // The next unit into registers; its slot is filled again.
    MEM void next(frag<L> &f, float up) {
        barrier_wait(bar + 8 * slot, phase);
        f.load(at + slot * UB, threadIdx.x & 31, up);
        __syncwarp();
        issue();
        if (++slot == count) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// Rows of 512 bytes, those of odd number turned by 64, so that the loads of a product meet no bank twice.
DEV void few_fetch(uint32_t to, const uint8_t *from, int t, uint32_t bar) {
    if (t & 1) {
        bulk_copy(to + 64, from, 448, bar);
        bulk_copy(to, from + 448, 64, bar);
    } else
        bulk_copy(to, from, 512, bar);
}
// A unit times T rows; columns that are not there repeat the others.
template <int L, int R, int T> struct few_rows {
    float acc[R][4];
    MEM void clear() {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][0] = acc[h][1] = acc[h][2] = acc[h][3] = 0;
    }
    MEM void unit(const frag<L> &f, int h, const uint8_t *x, int lane) {
        const int t = (lane >> 2) % T;
        x += t * 512 + (lane & 3) * 16;
        const uint8_t *turned = x + (t & 1) * 64, *last = x + (t & 1 ? 0 : 448);
#pragma unroll
        for (int g = 0; g < 8; g++) {
            const uint4 b = *(const uint4 *)(g < 7 ? turned + g * 64 : last);
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

// Block `block` of n_block. With 8 rows its groups' steps lie n_block apart, so that the last ones spread over all blocks (with
// fewer rows neighbours are 1% faster). Buffers of sums in turn: all warps of a group leave theirs, T warps add and finish a row each.
template <int L, int R, int W, int EPI, int T>
DEV void gemv_few(const gemv_args &j, int region, int block, int n_block) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr int ROWS = 16 * R, UB = layout_unit_bytes((enum layout)L);
    const few_shape &s = j.few;
    const int all = threadIdx.x >> 5, group = all / W, w = all % W, lane = threadIdx.x & 31, U = j.u,
              cta = T == 8 ? block + group * n_block : block * s.groups + group, n_cta = s.groups * n_block,
              own = w % T; // row that this warp finishes
    uint64_t *xbar = (uint64_t *)smem, *done = xbar + W + group * 2 * s.buffers, *freed = done + s.buffers,
             *bars = xbar + W + s.groups * 2 * s.buffers;
    float *rs_at = (float *)(smem + FEW_FACTORS),
          *red = (float *)(smem + FEW_HEAD) + group * s.buffers * W * T * ROWS;
    uint8_t *x = smem + FEW_HEAD + few_lay_out(s, W, T, ROWS, U, UB).sums,
            *slots = x + few_lay_out(s, W, T, ROWS, U, UB).x;

    unit_ring<L, R, W> r;
    r.start(j, region, slots + all * s.slots * UB, bars + all * s.slots, w, cta, n_cta);
    if (group == 0 && lane == 0) barrier_init(smem_address(xbar + w), s.groups);
    if (w == 0 && lane < 2 * s.buffers) barrier_init(smem_address(done + lane), lane < s.buffers ? W : T);
    barrier_fence();
    __syncthreads();
    pdl_trigger();
    pdl_wait();

    // Rows that the step does not have are read, too: columns of a product know nothing of each other.
    int n_col = *j.n_row;
    const uint32_t arrived = smem_address(xbar + w);
    if (w < U && elect_one()) { // the groups share the columns of their units
        const int first = w + W * group, by = W * s.groups, n = first < U ? (U - first + by - 1) / by : 0;
        barrier_expect(arrived, n * T * 512);
        for (int t = 0; t < T; t++) {
            int row = min(t, s.rows - 1);
            if (EPI == EPI_HEAD) row = n_col ? j.rowmap[min(t, n_col - 1)] : 0;
            for (int u = first; u < U; u += by)
                few_fetch(smem_address(x + (u * T + t) * 512), j.x + row * j.x_row + (size_t)u * j.x_unit, t,
                          arrived);
        }
    }
    n_col = min(T, n_col);
    __syncwarp();
    if (EPI != EPI_ADD && j.n_square && w < n_col) {
        const float v = row_factor<false>(j, EPI == EPI_HEAD ? j.rowmap[w] : w);
        if (lane == 0) rs_at[group * 8 + w] = v;
    }
    if (w < U) barrier_wait(arrived, 0);

    const float up = j.up[region];
    few_rows<L, R, T> m;
    best_value best = {-INFINITY, 0x7fffffff};
    // Later: a warp finishes a step when it has left its sums of the next one, so that it need not wait for the others; that
    // takes two buffers (and gains nothing where few warps finish).
    const bool later = T == 8 && s.buffers > 1;
    int held = -1, held_buf = 0, held_use = 0;
    ahead a = {0, 0, 0};
    for (int step = cta, ti = 0, buf = 0, use = 0;; step += n_cta, ti++) {
        const bool more = step < j.steps[region], mine = (ti * T + own) % W == w;
        ahead next = {0, 0, 0};
        if (more) {
            m.clear();
            if (mine && own < n_col) next = look_ahead<R, EPI>(j, step, own);
            for (int u = w; u < U; u += W)
#pragma unroll
                for (int h = 0; h < R; h++) {
                    frag<L> f;
                    r.next(f, up);
                    m.unit(f, h, x + u * T * 512, lane);
                }
            if (use) barrier_wait(smem_address(freed + buf), (use - 1) & 1);
            m.leave(red + (buf * W + w) * T * ROWS, lane);
            __syncwarp();
            if (elect_one()) barrier_arrive(smem_address(done + buf));
        }
        if (!later) {
            held = more && mine ? step : -1, held_buf = buf, held_use = use;
            a = next;
        }
        if (held >= 0) {
            const float *part = red + held_buf * W * T * ROWS;
            barrier_wait(smem_address(done + held_buf), held_use & 1);
            float v = 0;
#pragma unroll
            for (int k = 0; k < W; k++) v += part[(k * T + own) * ROWS + (R == 1 ? lane & 15 : lane)];
            __syncwarp();
            if (elect_one()) barrier_arrive(smem_address(freed + held_buf));
            if (own < n_col)
                finish<R, EPI, false, false, true>(j, region, held, v * j.down[region],
                                                   j.n_square ? rs_at[group * 8 + own] : 1.f, a, best, 0,
                                                   own);
        }
        if (!more) break;
        held = later && mine ? step : -1, held_buf = buf, held_use = use;
        a = next;
        if (++buf == s.buffers) buf = 0, use++;
    }
    if (EPI == EPI_HEAD && own < n_col) {
        best = best_of_warp(best);
        if (lane == 0)
            j.cand[(size_t)own * j.n_cand + blockIdx.x * (s.groups * (W / T)) + group * (W / T) + w / T] =
                make_float2(best.v, __int_as_float(best.i));
    }
}
template <int L, int L2, int R, int W, int EPI, int T>
__global__ void __launch_bounds__(W * 32 * FEW_GROUPS, 1)
    gemv_few_kernel(const __grid_constant__ gemv_args j) {
    static_assert((W + FEW_GROUPS * (2 * 4 + W * FEW_SLOTS)) * 8 <= FEW_FACTORS, "room for the barriers");
    if (L2 < 0 || (int)blockIdx.x < j.split)
        gemv_few<L, R, W, EPI, T>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split);
    else if constexpr (L2 >= 0)
        gemv_few<L2, R, W, EPI, T>(j, 1, blockIdx.x - j.split, gridDim.x - j.split);
}
