// Quantised weights times many decode rows.
//
// A block takes mw row tiles times nw * 8 NT rows: warp (m, n) has row tile m and the rows of slice n. One more warp
// keeps a ring of stages full: a unit of weights for every row tile and the rows' slab of that unit. The sums are those of
// stream.cuh, in its order: class c holds the units c, c + 8, .. (as many classes as warps share the columns for one
// row), and the classes are added from 0 on. A row's bits are those it has alone: there a group's sum of codes times
// codes is an integer, times the scale of the row's group, exactly; here codes are halves and the rows are codes times
// that scale, halves too, whose products and sums for a group are the same number, exactly (below 2^24 times the last
// bit). So a sum costs one multiply-add for each group, and the products run as those of halves. Where a matrix has few
// row tiles an item is a part of the classes; their sums go through memory, and the blocks that share a tile add and
// finish a part of its rows each.
#pragma once
#include "slab_sums.cuh"
#include "wide_codes_finish.cuh"

// ---- the producer
// visit(item, unit) for all that this block does
template <class V> DEV void codes_each(const codes_job &k, V visit) {
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const codes_item it = codes_find(k, i);
        for (int c = it.c0; c < it.c1; c++)
            for (int u = c; u < k.j.u; u += k.classes) visit(it, u);
    }
}
// A stage: 4 column tiles of n rows, their sums, a unit of each row tile.
template <int L, int L2>
DEV void codes_fetch(const codes_job &k, const codes_ring &r, const codes_item &it, int u, bool weights,
                     bool rows) {
    constexpr int LB = L2 < 0 ? L : L2;
    const int lane = threadIdx.x & 31, unit = layout_unit_bytes((enum layout)(it.region ? LB : L)),
              row0 = it.group * k.n, n = min(k.n, k.pitch - row0); // rows that are there, whole groups of 8
    const uint32_t to = r.smem + k.fixed_bytes + r.slot * k.slot_bytes;
    if (weights) {
        if (lane == 0) barrier_expect(r.full(), it.n_tile * unit + n * SLAB_ROW);
        __syncwarp();
        if (lane < it.n_tile)
            bulk_copy(to + k.n * SLAB_ROW + lane * unit,
                      k.j.w[it.region] + ((size_t)(it.tile0 + lane) * k.j.u + u) * unit, unit, r.full());
    }
    const uint8_t *x = k.j.x + (size_t)u * slab_bytes(k.pitch);
    if (rows && lane < 4)
        bulk_copy(to + lane * k.n * 128, x + ((size_t)lane * k.pitch + row0) * 128, n * 128, r.full());
    if (rows && lane == 4)
        bulk_copy(to + k.n * SLAB_SUM, x + (size_t)k.pitch * SLAB_SUM + row0 * SLAB_SUM_ROW, n * SLAB_SUM_ROW,
                  r.full());
}
template <int L, int L2> DEV void codes_produce(const codes_job &k, uint32_t smem) {
    codes_ring r = {smem, 0, 0};
    int v = 0;
    codes_each(k, [&](const codes_item &it, int u) {
        if (v++ >= k.stages) return;
        codes_fetch<L, L2>(k, r, it, u, true, false); // weights depend on no kernel
        r.step(k.stages);
    });
    pdl_wait();
    v = 0;
    r = {smem, 0, 0};
    codes_each(k, [&](const codes_item &it, int u) {
        const bool again = v++ >= k.stages;
        if (again) barrier_wait(r.empty(), r.phase ^ 1);
        codes_fetch<L, L2>(k, r, it, u, again, true);
        r.step(k.stages);
    });
}

// One item of a warp.
template <int L, int GA, int NT, bool GROUP>
DEV void codes_consume(const codes_job &k, codes_ring &r, const codes_item &it, int n_row, uint8_t *smem,
                       bool &ready) {
    constexpr int UB = layout_unit_bytes((enum layout)L), RS = RED_ROW;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, tig = lane & 3, gid = lane >> 2, m = w % k.mw,
              pair = w >> 1, h = w & 1;
    // a warpgroup works on its tiles together, those that are not there included
    constexpr int together = GROUP ? 4 : 1;
    const bool on = m < it.n_tile, works = m / together * together < it.n_tile;
    const int slice0 = w / k.mw * (8 * NT), step = (it.tile0 + m) / 2, row0 = it.group * k.n + slice0;
    float *red = (float *)(smem + k.red_at) + pair * (8 * NT * RS);
    float4 *kept = (float4 *)red + h * 32 + lane; // of this thread alone
    const size_t of_class = (size_t)k.tiles[it.region] / 2 * (k.groups * k.n) * 32;
    float *part = k.part[it.region] + ((size_t)step * (k.groups * k.n) + row0) * 32;
    slab_sums<L, GA, NT, GROUP> s;
    for (int c = it.c0; c < it.c1; c++) {
        s.clear();
        for (int u = c; u < k.j.u; u += k.classes) {
            barrier_wait(r.full(), r.phase);
            const uint8_t *at = smem + k.fixed_bytes + r.slot * k.slot_bytes;
            if (works) {
                const uint32_t first = smem_address(at) + slice0 * 128;
                const slab_rows x = {first, first + (lane & 7) * 128 + ((lane >> 3 ^ (lane & 7)) << 4),
                                     (uint32_t)k.n * 128, at + k.n * SLAB_SUM + slice0 * SLAB_SUM_ROW,
                                     1.f / k.j.range.half};
                s.unit(at + k.n * SLAB_ROW + m * UB, x, lane);
            }
            __syncwarp();
            if (elect_one()) barrier_arrive(r.empty());
            r.step(k.stages);
        }
        if (c == it.c0 && on) named_barrier(pair + 1, 64); // the sums of the item before are read
#pragma unroll
        for (int n = 0; n < NT && on; n++) {
            float4 v = make_float4(s.value(n, 0), s.value(n, 1), s.value(n, 2), s.value(n, 3));
            if (k.splits > 1) {
                float *to = part + c * of_class + (n * 8 + 2 * tig) * 32 + h * 16 + gid;
                __stcg(to, v.x), __stcg(to + 32, v.y), __stcg(to + 8, v.z), __stcg(to + 40, v.w);
            } else {
                const float4 o = c == it.c0 ? make_float4(0, 0, 0, 0) : kept[n * 64];
                v = make_float4(o.x + v.x, o.y + v.y, o.z + v.z, o.w + v.w);
                kept[n * 64] = v;
            }
        }
    }
    if (!ready)
        named_barrier(15, (k.mw * k.nw + codes_helpers(GROUP) - 1) * 32); // codes_start by other warps
    ready = true;
    const int t1 = min(8 * NT, n_row - row0);
    if (k.splits > 1) {
        codes_meet(k, it);
        if (!on) return;
        codes_gather(k, red, part, of_class, it.split + k.splits * h, t1, 2 * k.splits);
    } else {
        if (!on) return;
        float4 v[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) v[n] = kept[n * 64];
        named_barrier(pair + 1, 64);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float *to = red + (n * 8 + 2 * tig) * RS + h * 16 + gid;
            to[0] = v[n].x, to[RS] = v[n].y, to[8] = v[n].z, to[RS + 8] = v[n].w;
        }
    }
    named_barrier(pair + 1, 64);
    best_value *best = (best_value *)(smem + CODES_BEST) + pair * CODES_ROWS;
    for (int t = it.split + k.splits * (h * 32 + lane); t < t1; t += 64 * k.splits)
        codes_finish(k, it.region, step, row0 + t, red + t * RS, smem, best);
}

// 1 / rms of the step's rows, an empty best of each row for every pair of warps, the outputs of rows, all of which the
// rows' ends need: thread t of n.
DEV void codes_start(const codes_job &k, int n_row, int n_out, uint8_t *smem, int t, int n) {
    float *rs = (float *)(smem + CODES_RS);
    int *out = (int *)(smem + CODES_OUT);
    best_value *best = (best_value *)(smem + CODES_BEST);
    if (k.j.n_square) {
#pragma unroll 4
        for (int i = t >> 5; i < n_row; i += n / 32) {
            const float v = rms_factor<4>(k.j, i);
            if ((t & 31) == 0) rs[i] = v;
        }
    }
    if (k.epilogue == EPI_HEAD)
        for (int i = t; i < k.best_pairs * CODES_ROWS; i += n) best[i] = {-INFINITY, 0x7fffffff};
    if (k.j.rowmap) {
        for (int i = t; i < n_row; i += n) out[i] = -1;
        named_barrier(13, n);
        for (int i = t; i < n_out; i += n) {
            const int row = __ldcg(k.j.rowmap + i);
            if (row < n_row) out[row] = i;
        }
    }
}

template <int L, int L2, int GA, int NT, bool GROUP> DEV void codes_block(const codes_job &k) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, W = k.mw * k.nw;
    const uint32_t base = smem_address(smem);
    if (threadIdx.x < CODES_STAGES) {
        barrier_init(base + CODES_FULL + 8 * threadIdx.x, 1);
        barrier_init(base + CODES_EMPTY + 8 * threadIdx.x, W);
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    if (w >= W) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if constexpr (GROUP) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        if (w == W) {
            codes_produce<L, L2>(k, base);
            return;
        }
        pdl_wait(); // the others have time for what the ends of rows need
        const int n_out = min(k.rows, *k.j.n_row), n_row = k.j.rowmap ? k.rows : n_out;
        codes_start(k, n_row, n_out, smem, threadIdx.x - (W + 1) * 32, (codes_helpers(GROUP) - 1) * 32);
        asm volatile("bar.arrive 15, %0;" ::"r"((W + codes_helpers(GROUP) - 1) * 32) : "memory");
        return;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (GROUP) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    pdl_wait();
    const int n_out = min(k.rows, *k.j.n_row), n_row = k.j.rowmap ? k.rows : n_out;
    if (!GROUP) {
        codes_start(k, n_row, n_out, smem, threadIdx.x, W * 32);
        named_barrier(14, W * 32);
    }
    codes_ring r = {base, 0, 0};
    bool ready = !GROUP;
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const codes_item it = codes_find(k, i);
        if (L2 < 0 || !it.region)
            codes_consume<L, GA, NT, GROUP>(k, r, it, n_row, smem, ready);
        else
            codes_consume < L2<0 ? L : L2, GA, NT, GROUP>(k, r, it, n_row, smem, ready);
    }
    if (k.epilogue != EPI_HEAD) return;
    if (!ready) named_barrier(15, (W + codes_helpers(GROUP) - 1) * 32);
    named_barrier(14, W * 32);
    const best_value *best = (const best_value *)(smem + CODES_BEST);
    for (int t = threadIdx.x; t < n_out; t += W * 32) {
        best_value b = best[t];
        for (int i = 1; i < k.best_pairs; i++)
            if (better(best[i * CODES_ROWS + t], b)) b = best[i * CODES_ROWS + t];
        k.j.cand[(size_t)t * k.j.n_cand + blockIdx.x] = make_float2(b.v, __int_as_float(b.i));
    }
}
// GROUP: by warpgroups, where there is wgmma.
template <int L, int L2, int GA, int NT, bool GROUP>
__global__ void __launch_bounds__((codes_warps(NT, GROUP) + codes_helpers(GROUP)) * 32, 1)
    wide_codes_kernel(const __grid_constant__ codes_job k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    codes_block<L, L2, GA, NT, GROUP>(k);
#else
    if constexpr (!GROUP) codes_block<L, L2, GA, NT, GROUP>(k);
#endif
}
