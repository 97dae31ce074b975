// Decode rows above 8 times codes: one pass over the weights for 8 NT rows. Halves: wide_half.cuh.
//
// A block takes mw row tiles (a warp each) times 8 NT rows times all columns, or one of 8 classes of columns where a
// matrix has few tiles. One more warp keeps a ring of stages full: a unit of weights for every warp and the rows'
// records of that unit. The sums are those of stream.cuh, in its order: class c holds the units c, c + 8, .., and
// the classes are added from 0 on. A row's bits are those it has alone.
#pragma once
#include "stream_finish.cuh"
#include "stream_sums.cuh"
#include "wide.h"

// ---- a row tile times 8 NT rows
template <int L, int GA, int NT> struct wide_int {
    using F = frag<L>;
    float acc[NT][4][4], low[F::super ? NT : 1][4], lowp[F::mins ? NT : 1][4][4];
    MEM void clear() {
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                if (F::super) low[n][o] = 0;
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    acc[n][p][o] = 0;
                    if (F::mins) lowp[n][p][o] = 0;
                }
            }
    }
    MEM void unit(const uint8_t *u, const uint8_t *x, int stride, int lane) {
        frag<L> f;
        frag_load<L, false>(f, u, lane);
        const int tig = lane & 3, gid = lane >> 2;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t a[2][4];
            codes<L>(a[0], f, p);
            codes<L>(a[1], f, 4 + p);
            constexpr int N = by_halves<L, GA>() && NT > 2 ? 2 : NT; // products under way
#pragma unroll
            for (int n0 = 0; n0 < NT; n0 += N) {
                int d[N][4][4];
#pragma unroll
                for (int n = 0; n < N; n++)
                    many_mma<L, GA, false>(d[n], p, a, x + ((n0 + n) * 8 + gid) * stride, tig);
#pragma unroll
                for (int n = 0; n < N; n++) {
                    const uint8_t *c0 = x + ((n0 + n) * 8 + 2 * tig) * stride;
                    many_scale<L, GA, false>(acc[n0 + n][p], lowp[F::mins ? n0 + n : 0][p], f, p, d[n], c0,
                                             c0 + stride);
                }
            }
        }
        if constexpr (F::super)
#pragma unroll
            for (int n = 0; n < NT; n++) many_mins<L, GA, false>(low[n], f, x + (n * 8 + gid) * stride, tig);
    }
    MEM float value(int n, int o) const {
        float v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            v[p] = acc[n][p][o] * code_factor<L>(p);
            if constexpr (F::super) v[p] -= p ? 0.f : low[n][o];
            if constexpr (F::mins) v[p] += lowp[n][p][o];
        }
        return (v[0] + v[1]) + (v[2] + v[3]);
    }
};

// 16 bytes past L1, by a thread; the barrier gets an arrival for all that the thread has copied
DEV void copy16(uint32_t dst, const void *src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
DEV void copies_arrive(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}

// Where an item of the launch lies: a row group, a class or all, a group of rows of the step.
struct wide_item {
    int tile0, n_tile, c0, c1, group;
};
DEV wide_item wide_find(const wide_job &k, int region, int i) {
    wide_item it;
    it.group = i % k.groups;
    i /= k.groups;
    it.c0 = k.split ? i % k.classes : 0;
    it.c1 = k.split ? it.c0 + 1 : k.classes;
    if (k.split) i /= k.classes;
    it.tile0 = i * k.mw;
    it.n_tile = min(k.mw, k.tiles[region] - it.tile0);
    return it;
}

enum {
    WIDE_FULL = 0,
    WIDE_EMPTY = 64,
    WIDE_LAST = 192,
    WIDE_RS = 256,
    WIDE_BEST = WIDE_RS + WIDE_ROWS * 4
}; // bytes
struct wide_ring {
    uint32_t full, empty, slots;
    int slot, phase;
    MEM void step(int stages) {
        if (++slot == stages) slot = 0, phase ^= 1;
    }
};

template <int L, int GA, int NT> struct wide_unit {
    static constexpr bool half = frag<L>::half;
    static constexpr int UB = layout_unit_bytes((enum layout)L), XU = x_unit<L>(GA),
                         XC = !half && GA == 16 ? XU - 32 : XU, STRIDE = half ? XU + 64 : XU;
};

// The producer's side of a unit; weights, rows: which of the two to fetch.
template <int L, int GA, int NT>
DEV void wide_fetch(const wide_job &k, const wide_ring &r, const wide_item &it, int region, int u, int n_row,
                    bool weights, bool rows) {
    using U = wide_unit<L, GA, NT>;
    const int lane = threadIdx.x & 31;
    const uint32_t bar = r.full + 8 * r.slot, to = r.slots + r.slot * k.slot_bytes;
    if (weights) {
        if (lane == 0) barrier_expect(bar, it.n_tile * U::UB);
        __syncwarp();
        if (lane < it.n_tile)
            bulk_copy(to + lane * U::UB, k.j.w[region] + ((size_t)(it.tile0 + lane) * k.j.u + u) * U::UB,
                      U::UB, bar);
    }
    if (rows) { // by threads: many small pieces are slow through the copy engine
        const uint8_t *from = k.j.x + (size_t)u * U::XU + lane * 16;
        uint32_t at = to + k.mw * U::UB + lane * 16;
#pragma unroll 8
        for (int t = 0; t < 8 * NT; t++, at += U::STRIDE) {
            const int row = min(it.group * 8 * NT + t, max(n_row - 1, 0));
            const uint8_t *p = from + (k.j.rowmap ? __ldcg(k.j.rowmap + row) : row) * k.j.x_row;
#pragma unroll
            for (int o = 0; o < U::XC; o += 512)
                if (o + lane * 16 < U::XC) copy16(at + o, p + o);
        }
        copies_arrive(bar);
    }
}

DEV void pair_wait(int pair, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(pair + 1), "r"(threads) : "memory");
}

template <int R>
DEV void wide_finish(const wide_job &k, int region, int step, int row, float v, float rs, best_value *best) {
    best_value b = {-INFINITY, 0x7fffffff};
    if (k.epilogue == EPI_STORE)
        finish<R, EPI_STORE>(k.j, region, step, row, v, rs, ahead{0, 0}, b);
    else if (k.epilogue == EPI_ADD)
        finish<R, EPI_ADD>(k.j, region, step, row, v, rs, look_ahead<R, EPI_ADD>(k.j, step, row), b);
    else if (k.epilogue == EPI_GLU)
        finish<R, EPI_GLU>(k.j, region, step, row, v, rs, ahead{0, 0}, b);
    else {
        finish<R, EPI_HEAD>(k.j, region, step, row, v, rs, ahead{0, 0}, b);
        b = best_of_warp(b);
        if ((threadIdx.x & 31) == 0 && better(b, *best)) *best = b;
        __syncwarp();
    }
}

// One item of a warp: sums, then either the epilogue or the class's sums to memory, where the last one finishes.
template <int L, int GA, int NT>
DEV void wide_consume(const wide_job &k, wide_ring &r, const wide_item &it, int region, int n_row,
                      uint8_t *smem) {
    using U = wide_unit<L, GA, NT>;
    constexpr int R = U::half ? 1 : 2, RS = U::half ? 20 : 36; // row tiles that are finished together
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, tig = lane & 3, gid = lane >> 2, pair = w / R,
              h = w % R;
    const bool on = w < it.n_tile;
    wide_int<L, GA, NT> m;
    float sum[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    for (int c = it.c0; c < it.c1; c++) {
        m.clear();
        for (int u = c; u < k.j.u; u += k.classes) {
            barrier_wait(r.full + 8 * r.slot, r.phase);
            const uint8_t *at = smem + k.fixed_bytes + r.slot * k.slot_bytes;
            if (on) m.unit(at + w * U::UB, at + k.mw * U::UB, U::STRIDE, lane);
            __syncwarp();
            if (elect_one()) barrier_arrive(r.empty + 8 * r.slot);
            r.step(k.stages);
        }
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int o = 0; o < 4; o++) sum[n][o] += m.value(n, o);
    }
    if (!on) return; // tiles come in pairs where they are finished in pairs
    best_value *best = (best_value *)(smem + WIDE_BEST) + pair * WIDE_ROWS;
    float *red = (float *)(smem + k.red_at) + pair * (8 * NT * RS);
    pair_wait(pair, 32 * R); // the sums of the item before are read
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int o = 0; o < 4; o++)
            red[(n * 8 + 2 * tig + (o & 1)) * RS + h * 16 + gid + 8 * (o >> 1)] = sum[n][o];
    pair_wait(pair, 32 * R);

    const int step = (it.tile0 + w) / R, row0 = it.group * 8 * NT, col = R == 1 ? lane & 15 : lane;
    const float *rs_at = (const float *)(smem + WIDE_RS);
    bool last = true;
    if (k.split) {
        const size_t line = 16 * R, of_class = (size_t)k.tiles[region] / R * k.rows * line;
        float *part = k.part[region] + ((size_t)step * k.rows + row0) * line + col;
        for (int t = h; t < 8 * NT && row0 + t < n_row; t += R)
            __stcg(part + it.c0 * of_class + t * line, red[t * RS + col]);
        __threadfence();
        pair_wait(pair, 32 * R);
        int *flag = (int *)(smem + WIDE_LAST) + pair;
        if (h == 0 && lane == 0) {
            int *n = k.count + (region * WIDE_STEPS + step) * k.groups + it.group;
            const int before = atomicAdd(n, 1);
            if (before == k.classes - 1) *n = 0;
            *flag = before == k.classes - 1;
        }
        pair_wait(pair, 32 * R);
        last = *(volatile int *)flag;
        if (last) {
            __threadfence();
#pragma unroll 4
            for (int t = h; t < min(8 * NT, n_row - row0); t += R) {
                float v = 0, a[8];
#pragma unroll
                for (int c = 0; c < 8; c++)
                    a[c] = c < k.classes ? __ldcg(part + c * of_class + t * line) : 0.f;
#pragma unroll
                for (int c = 0; c < 8; c++) v += a[c];
                red[t * RS + col] = v;
            }
        }
        __syncwarp();
    }
    if (last)
        for (int t = h; t < 8 * NT && row0 + t < n_row; t += R) {
            const int row = row0 + t;
            const float v = red[t * RS + col], rs = !U::half && k.j.n_square ? rs_at[row] : 1.f;
            wide_finish<R>(k, region, step, row, v, rs, best + row);
        }
}

// visit(unit sizes, item, region, unit) for all that this block does
template <int L, int L2, int GA, int NT, class V> DEV void wide_each(const wide_job &k, V visit) {
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const int region = i >= k.items[0];
        const wide_item it = wide_find(k, region, region ? i - k.items[0] : i);
        for (int c = it.c0; c < it.c1; c++)
            for (int u = c; u < k.j.u; u += k.classes) visit(it, region, u);
    }
}
template <int L, int L2, int GA, int NT> DEV void wide_produce(const wide_job &k, wide_ring r) {
    auto fetch = [&](const wide_item &it, int region, int u, int n_row, bool weights, bool rows) {
        if (L2 < 0 || !region)
            wide_fetch<L, GA, NT>(k, r, it, region, u, n_row, weights, rows);
        else
            wide_fetch < L2<0 ? L : L2, GA, NT>(k, r, it, region, u, n_row, weights, rows);
    };
    int v = 0;
    wide_each<L, L2, GA, NT>(k, [&](const wide_item &it, int region, int u) {
        if (v++ >= k.stages) return;
        fetch(it, region, u, 0, true, false); // weights depend on no kernel
        r.step(k.stages);
    });
    pdl_wait();
    const int n_row = min(k.rows, *k.j.n_row);
    v = 0;
    r.slot = r.phase = 0;
    wide_each<L, L2, GA, NT>(k, [&](const wide_item &it, int region, int u) {
        const bool again = v++ >= k.stages;
        if (again) barrier_wait(r.empty + 8 * r.slot, r.phase ^ 1);
        fetch(it, region, u, n_row, again, true);
        r.step(k.stages);
    });
}

template <int L, int L2, int GA, int NT>
__global__ void __launch_bounds__((WIDE_WARPS + 1) * 32, 1) wide_kernel(const __grid_constant__ wide_job k) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    wide_ring r = {smem_address(smem + WIDE_FULL), smem_address(smem + WIDE_EMPTY),
                   smem_address(smem + k.fixed_bytes), 0, 0};
    if (threadIdx.x < WIDE_STAGES) {
        barrier_init(r.full + 8 * threadIdx.x, 33); // the weights' bytes and every lane's copies
        barrier_init(r.empty + 8 * threadIdx.x, k.mw);
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    if (w == k.mw) {
        wide_produce<L, L2, GA, NT>(k, r);
        return;
    }
    pdl_wait();
    const int n_row = min(k.rows, *k.j.n_row);
    float *rs = (float *)(smem + WIDE_RS);
    best_value *best = (best_value *)(smem + WIDE_BEST);
    for (int t = w; t < n_row && k.j.n_square; t += k.mw) {
        const float v = rms_factor<4>(k.j, k.j.rowmap ? k.j.rowmap[t] : t);
        if (lane == 0) rs[t] = v;
    }
    if (k.epilogue == EPI_HEAD)
        for (int i = threadIdx.x; i < WIDE_WARPS * WIDE_ROWS; i += k.mw * 32)
            best[i] = {-INFINITY, 0x7fffffff};
    pair_wait(14, k.mw * 32); // of all warps but the producer
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const int region = i >= k.items[0];
        const wide_item it = wide_find(k, region, region ? i - k.items[0] : i);
        if (L2 < 0 || !region)
            wide_consume<L, GA, NT>(k, r, it, region, n_row, smem);
        else
            wide_consume < L2<0 ? L : L2, GA, NT>(k, r, it, region, n_row, smem);
    }
    if (k.epilogue != EPI_HEAD) return;
    pair_wait(14, k.mw * 32);
    for (int t = threadIdx.x; t < n_row; t += k.mw * 32) {
        best_value b = best[t];
        for (int i = 1; i < WIDE_WARPS; i++)
            if (better(best[i * WIDE_ROWS + t], b)) b = best[i * WIDE_ROWS + t];
        k.j.cand[(size_t)t * k.j.n_cand + blockIdx.x] = make_float2(b.v, __int_as_float(b.i));
    }
}
