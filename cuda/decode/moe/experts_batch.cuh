// Experts of several decode rows.
//
// An item is an expert and up to 8 of the pairs (row, choice) that chose it; the row tiles of all items form one sequence, of
// which each block takes an even part. So an expert's weights come once for 8 of its pairs, and again out of the L2 cache for more. A team of warps takes
// every n-th row tile of the block, each warp of it a unit of the columns (two where there are more than 16 units), whose pairs it keeps in
// registers for all of an item's tiles. Sums of a tile go to shared memory; a warp of the team, each in its turn, adds them while the others go
// on, and asks for the weights that take the tile's place in the team's ring, which runs over the ends of items. Nothing of a block waits for
// all of it.
//
// A pair's sums have one order, for any number of pairs and wherever it stands: the columns of a product know nothing of each other.
//
// Block: 512 threads, one a multiprocessor; shared memory: batch_job::bytes.
#pragma once
#include "cuda/decode/gemv/act_tile.cuh"
#include "cuda/decode/moe/batch_unit.cuh"
#include "cuda/decode/moe/experts_batch.h"

// ---- what follows the sums
DEV void batch_put(__half *out, int col, float v) {
    out[(col & ~31) + row_order(true, col)] = __float2half(skinny_range(v));
}
DEV float batch_glu(const batch_job &j, float g, float u) {
    if (j.act != ACT_SWIGLU_OAI) return act_apply(j.act, g) * u;
    const float x = g > j.limit ? j.limit : g, v = u > j.limit ? j.limit : u < -j.limit ? -j.limit : u;
    return x / (1.f + __expf(-j.alpha * x)) * (v + 1.f);
}
// v: sums [h * 2 + q] of rows gid + 8 h of the tile and pairs 2 tig + q of the item; to: of these, batch_pairs left.
template <bool GATED>
DEV void batch_finish(const batch_job &j, const int4 &item, int tile, const int *to, const float (&v)[4]) {
    const bool gated = GATED && !j.single;
    const int lane = threadIdx.x & 31, i0 = 2 * (lane & 3), col = tile * (gated ? 8 : 16) + (lane >> 2);
    float bias[2] = {0, 0};
    if (col >= j.n) return;
    if (j.bias) {
        const float *p = j.bias + (size_t)item.x * j.n + col;
        bias[0] = p[0];
        if (gated || col + 8 < j.n) bias[1] = p[gated ? j.bias_up : 8];
    }
#pragma unroll
    for (int q = 0; q < 2; q++) {
        if (i0 + q >= item.z) continue;
        float a = v[q] * j.down, b = v[2 + q] * j.down;
        if constexpr (GATED) {
            if (j.factor) {
                const float f = __ldcg(j.factor + to[i0 + q]);
                a = __fmul_rn(a, f);
                b = __fmul_rn(b, f);
            }
            __half *out = (__half *)(j.xo + (size_t)(item.y + i0 + q) * j.xo_row);
#pragma unroll 1
            for (int h = 0; h < (gated ? 1 : 2) && col + 8 * h < j.n; h++)
                batch_put(out, col + 8 * h,
                          batch_glu(j, h ? b + bias[1] : a + bias[0], gated ? b + bias[1] : 1.f));
        } else {
            float *out = j.y + to[i0 + q] + col;
            out[0] = a + bias[0];
            if (col + 8 < j.n) out[8] = b + bias[1];
        }
    }
}

// ---- a block
// What lies where in shared memory.
struct batch_shared {
    uint8_t *at;
    MEM uint64_t *full(int team, int slot) const { return (uint64_t *)at + team * BATCH_RING + slot; }
    MEM uint64_t *met(int set) const { return full(BATCH_WARPS, 0) + set; } // of teams and buffers
    MEM int *count() const { return (int *)met(BATCH_WARPS * BATCH_MET); }
    MEM int *done() const { return count() + 4; } // row tiles of an item whose results are written
    MEM int4 *items() const { return (int4 *)(done() + BATCH_ITEMS); }
    // of the block's places: gated: a pair's row; else where its result begins, floats
    MEM int *to() const { return (int *)(items() + BATCH_ITEMS); }
    // sums of a tile: [team][buffer][class][lane]
    MEM float4 *sums(const batch_job &j, int set) const {
        return (float4 *)(at + BATCH_HEAD) + set * j.classes * 32;
    }
};
// What a warp knows of its block and its team.
struct batch_team {
    int t, t0, t1, first,
        base;    // the team's first row tile; the block's, and that behind them; its first item and place
    int of, own; // number of the team, class of the warp
    unsigned n;
    int turn, slot, phase; // tiles done, n % classes, ring
    int item, tile;        // of the last one, which is not finished yet
};
// Asks for the weights of the team's row tile number nth.
template <int L>
DEV void batch_ask(const batch_job &j, const batch_shared &m, const batch_team &t, int nth, int slot) {
    const int at = t.t + nth * j.teams;
    if (at >= t.t1 || threadIdx.x & 31) return;
    const int bytes = j.u * layout_unit_bytes((enum layout)L);
    const uint32_t bar = smem_address(m.full(t.of, slot));
    int item = t.item, from = (t.first + item) * j.tiles;
    for (; at >= from + j.tiles; from += j.tiles) item++;
    barrier_expect(bar, bytes);
    bulk_copy(smem_address(m.at) + j.ring_at + (t.of * j.slots + slot) * bytes,
              j.w + m.items()[item].x * j.step + (size_t)((unsigned)(at - from) * (unsigned)bytes), bytes,
              bar, policy_evict_first());
}
// The sums of the team's last row tile, in the order of the classes, by the warp whose turn it is.
template <int L, bool GATED>
DEV void batch_end(const batch_job &j, const batch_shared &m, const batch_team &t) {
    const unsigned n = t.n - 1, set = t.of * BATCH_MET + n % BATCH_MET;
    barrier_wait(smem_address(m.met(set)), n / BATCH_MET & 1);
    if (t.turn != t.own) return;
    batch_ask<L>(j, m, t, n + j.slots, t.slot ? t.slot - 1 : j.slots - 1);
    __syncwarp();
    const int4 item = m.items()[t.item];
    const float4 *part = m.sums(j, set) + (threadIdx.x & 31);
    float v[4] = {};
#pragma unroll 2
    for (int c = 0; c < j.classes; c++, part += 32) {
        const float4 a = *part;
        v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
    }
    batch_finish<GATED>(j, item, t.tile, m.to() + item.y - t.base, v);
    if (!GATED) return;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) { // the last one of the block's tells down
        const int from = (t.first + t.item) * j.tiles, all = min(t.t1, from + j.tiles) - max(t.t0, from);
        __threadfence_block();
        if (atomicAdd(m.done() + t.item, 1) == all - 1) {
            __threadfence();
            atomicAdd(&j.order.item[1 + t.first + t.item].w, all);
        }
    }
}
// Down: until all row tiles of gate and up of item s are there.
DEV void batch_after(const batch_job &j, int s) {
    if (j.after && (threadIdx.x & 31) == 0) {
        const int *w = &j.order.item[1 + s].w;
        int n;
        do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(n) : "l"(w) : "memory");
        while (n < j.after);
    }
    __syncwarp();
}
// The warp's row tiles of item s, from t to before end, of U units each.
template <int L, bool GATED, int U>
DEV int batch_item(const batch_job &j, const batch_shared &m, batch_team &team, int s, int t, int end) {
    constexpr int UB = layout_unit_bytes((enum layout)L);
    const int lane = threadIdx.x & 31, unit = team.own * U, bytes = j.u * UB;
    const uint8_t *ring = m.at + j.ring_at + team.of * j.slots * bytes + unit * UB;
    float4 *sums = m.sums(j, team.of * BATCH_MET) + team.own * 32 + lane;
    const uint32_t full = smem_address(m.full(team.of, 0)), met = smem_address(m.met(team.of * BATCH_MET));
    const int4 item = m.items()[s];
    if (!GATED) batch_after(j, team.first + s);
    const bool is = (lane >> 2) < item.z;
    const int place = item.y + (lane >> 2), row = !is ? 0 : GATED ? m.to()[place - team.base] : place;
    batch_x<L> x[U];
#pragma unroll
    for (int i = 0; i < U; i++)
        x[i].load(j.x + row * j.x_row + (unit + i) * 512, is ? j.k - (unit + i) * 256 : 0);
    if (team.own == 0 && team.n == 0)
        for (int n = 2; n < j.slots; n++) batch_ask<L>(j, m, team, n, n);
    for (; t < end; t += j.teams) {
        float acc[4] = {};
        barrier_wait(full + team.slot * 8, team.phase);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (i == 0 || unit + i < j.u) batch_unit<L>(acc, ring + team.slot * bytes + i * UB, x[i], j.up);
        const int buffer = team.n % BATCH_MET;
        sums[buffer * j.classes * 32] = make_float4(acc[0], acc[1], acc[2], acc[3]);
        __syncwarp();
        if (lane == 0) barrier_arrive(met + buffer * 8);
        if (team.n) batch_end<L, GATED>(j, m, team);
        if (++team.slot == j.slots) {
            team.slot = 0;
            team.phase ^= 1;
        }
        team.turn = team.turn + 1 == j.classes ? 0 : team.turn + 1;
        team.n++;
        team.item = s;
        team.tile = t - (team.first + s) * j.tiles;
    }
    return t;
}
// The block's part of the row tiles of all items: from t0 to before t1, and their items to shared memory; returns how many.
DEV int batch_share(const batch_job &j, const batch_shared &m, int &t0, int &t1, int &first) {
    const int4 mine = __ldcg(j.order.item + threadIdx.x);
    if (threadIdx.x == 0) *m.count() = mine.x;
    __syncthreads();
    const int all = *m.count() * j.tiles;
    t0 = (int)((long)all * blockIdx.x / gridDim.x);
    t1 = (int)((long)all * (blockIdx.x + 1) / gridDim.x);
    first = t0 / j.tiles;
    const int n = t1 > t0 ? (t1 - 1) / j.tiles - first + 1 : 0, i = (int)threadIdx.x - 1 - first;
    if (first + n < BATCH_WARPS * 32) {
        if (i >= 0 && i < n) m.items()[i] = mine;
    } else if ((int)threadIdx.x < n)
        m.items()[threadIdx.x] = __ldcg(j.order.item + 1 + first + threadIdx.x);
    __syncthreads();
    return n;
}
// Of a pair of the block's items, where it comes from or goes to.
template <bool GATED> DEV int batch_pair(const batch_job &j, int p) {
    const int row = p / j.n_used;
    return GATED ? row : (int)(row * j.y_row) + (p - row * j.n_used) * j.n;
}

template <int L, bool GATED>
__global__ void __launch_bounds__(BATCH_WARPS * 32, 1)
    experts_batch_kernel(const __grid_constant__ batch_job j) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const batch_shared m = {smem};
    for (int i = threadIdx.x; i < BATCH_WARPS * (BATCH_RING + BATCH_MET); i += BATCH_WARPS * 32)
        barrier_init(smem_address(m.full(0, 0) + i), i < BATCH_WARPS * BATCH_RING ? 1 : j.classes);
    if (threadIdx.x < BATCH_ITEMS) m.done()[threadIdx.x] = 0;
    barrier_fence();
    if (GATED) { // the order is new: the kernels behind this one may read it ahead of their wait
        pdl_wait();
        pdl_trigger();
    } else
        pdl_trigger();

    int t0, t1, first;
    const int n_item = batch_share(j, m, t0, t1, first);
    if (n_item == 0) {
        if (!GATED) pdl_wait();
        return;
    }
    const int warp = threadIdx.x >> 5, of = warp / j.classes;
    batch_team team = {of < j.teams ? t0 + of : t1, t0, t1, first, m.items()[0].y, of, warp - of * j.classes};
    // the pairs first, which would wait behind all of the ring else; as the first item's columns would, before which two tiles go
    const int4 last = m.items()[n_item - 1];
    const bool is = (int)threadIdx.x < last.y + last.z - team.base;
    const int pair = is ? __ldcg(j.order.pair + team.base + threadIdx.x) : 0;
    if (team.own == 0)
        for (int s = 0; s < 2; s++) batch_ask<L>(j, m, team, s, s);
    if (is) m.to()[threadIdx.x] = batch_pair<GATED>(j, pair);
    __syncthreads();

    int t = team.t;
    for (int s = 0; s < n_item; s++) {
        const int end = min(t1, (first + s + 1) * j.tiles);
        if (t >= end) continue;
        if (j.each == 2)
            t = batch_item<L, GATED, 2>(j, m, team, s, t, end);
        else
            t = batch_item<L, GATED, 1>(j, m, team, s, t, end);
    }
    if (team.n) batch_end<L, GATED>(j, m, team);
    if (!GATED) pdl_wait(); // what follows this kernel follows the one before, too
}

#define BATCH_CODES(id)                                                                                      \
    extern const batch_kernel batch_##id;                                                                    \
    const batch_kernel batch_##id = {LAYOUT_##id, experts_batch_kernel<LAYOUT_##id, true>,                   \
                                     experts_batch_kernel<LAYOUT_##id, false>};
