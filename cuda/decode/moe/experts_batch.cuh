// Experts of several decode rows.
//
// An item is an expert and up to 8 of the pairs (row, choice) that chose it; the row tiles of all items form one sequence, of
// which each block takes an even part. So an expert's weights come once for 8 of its pairs, and again out of the L2 cache for more. A team of warps takes
// every n-th row tile of the block, each warp of it a unit of the columns (two where there are more than 16 units), whose pairs it keeps in
// registers for all of an item's tiles. Sums of a tile go to shared memory; a warp of the team, each in its turn, adds them while the others go
// on, and asks for the weights that take the tile's place in the block's ring, which runs over the ends of items. Nothing of a block waits for
// all of it but down, once, for gate and up.
//
// Where one kernel does both parts, row tiles of down take the places of the last ones of gate and up, so that the memory does not rest between.
// Up to 8 rows are routed by every block for itself, from the router's logits: what it would wait for else are two more hand-overs.
//
// A pair's sums have one order, for any number of pairs and wherever it stands: the columns of a product know nothing of each other.
//
// Block: 512 threads, one a multiprocessor; shared memory: batch_job::bytes.
#pragma once
#include "cuda/decode/gemv/act_tile.cuh"
#include "cuda/decode/moe/batch_choose.cuh"
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
        const float down = item.x < 0 ? j.down_shared : j.down;
        float a = v[q] * down, b = v[2 + q] * down;
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
            float *out = (item.x < 0 ? j.y_shared : j.y) + to[i0 + q] + col;
            out[0] = a + bias[0];
            if (col + 8 < j.n) out[8] = b + bias[1];
        }
    }
}

// ---- a block
// x / d, by = 2^32 / d + 1 (0 where d is 1), for x d below 2^32: divisions are code that runs once, which costs more than it does.
DEV int batch_over(int x, unsigned by) { return by ? (int)__umulhi((unsigned)x, by) : x; }
// What lies where in shared memory, of a part.
struct batch_shared {
    uint8_t *at;
    MEM uint64_t *full(int slot) const { return (uint64_t *)at + slot; }
    MEM uint64_t *met(int set) const { return full(BATCH_RING) + set; } // of teams and buffers
    MEM int *done() const {
        return (int *)met(BATCH_WARPS * BATCH_MET);
    } // row tiles of an item whose results are written
    MEM uint32_t *slot() const {
        return (uint32_t *)(done() + BATCH_ITEMS);
    } // where row tiles of the ring lie
    MEM int4 *items() const { return (int4 *)(slot() + BATCH_RING); }
    // of the block's places: gated: a pair's row; else where its result begins, floats
    MEM int *to() const { return (int *)(items() + BATCH_ITEMS); }
};
// The block's part of the row tiles of all items: its first one, how many; their first item and place, how many items.
struct batch_part {
    int t0, n, first, base, n_item;
};
struct batch_block {
    const batch_run &r;
    uint8_t *smem;
    batch_part gated, down;
    MEM batch_few &few() const { return *(batch_few *)smem; }
    template <bool GATED> MEM batch_shared part() const {
        return batch_shared{smem + BATCH_LISTS + (GATED ? 0 : BATCH_HEAD)};
    }
    // sums of a tile: [team][buffer][class][lane]
    MEM float4 *sums(int set, int classes) const {
        return (float4 *)(smem + BATCH_SUMS) + set * classes * 32;
    }
};
template <bool GATED> DEV const batch_job &batch_job_of(const batch_block &b) {
    if constexpr (GATED)
        return b.r.gated;
    else
        return b.r.down;
}
// What a warp knows of its team.
struct batch_team {
    int of, own; // number of the team, class of the warp
    unsigned n;
    int turn, slot, was,
        phase; // tiles done, n % classes; place of the next in the ring, of the last one, turns of the ring
    int item, tile; // of the last one, which is not finished yet
    bool asked;     // whether the ring was filled for the first time
};
// Asks for row tile i of the block's, whose item is no earlier than `item`. Of one lane.
template <int L, bool GATED> DEV void batch_ask(const batch_block &b, int i, int slot, int item) {
    const batch_job &j = batch_job_of<GATED>(b);
    const batch_part &p = GATED ? b.gated : b.down;
    const batch_shared m = b.part<GATED>();
    if (i >= p.n) return;
    const int at = p.t0 + i, bytes = j.u * layout_unit_bytes((enum layout)L);
    const uint32_t bar = smem_address(m.full(slot));
    int from = (p.first + item) * j.tiles;
    for (; at >= from + j.tiles; from += j.tiles) item++;
    const int e = m.items()[item].x;
    barrier_expect(bar, bytes);
    bulk_copy(m.slot()[slot],
              (e < 0 ? j.w_shared : j.w + e * j.step) + (size_t)((unsigned)(at - from) * (unsigned)bytes),
              bytes, bar, policy_evict_first());
}
// The same; behind the last one of gate and up the first ones of down come in its place. LG, LD: layouts of both parts, -1: without.
template <int LG, int LD, bool GATED> DEV void batch_more(const batch_block &b, int i, int slot, int item) {
    if constexpr (!GATED)
        batch_ask<LD, false>(b, i, slot, item);
    else if (i < b.gated.n)
        batch_ask<LG, true>(b, i, slot, item);
    else if constexpr (LD >= 0) {
        const int s0 = (i - b.gated.n) * b.r.per, end = min(s0 + b.r.per, b.r.down.slots);
        for (int s = s0; s < end; s++) batch_ask<LD, false>(b, s, s, 0);
    }
}
// What of the ring is filled at first: the team's first two row tiles, then all the others.
template <int LG, int LD, bool GATED> DEV void batch_first(const batch_block &b, const batch_team &t) {
    const batch_job &j = batch_job_of<GATED>(b);
    if (t.own || t.of >= j.teams || threadIdx.x & 31) return;
#pragma unroll 1
    for (int i = t.of; i < b.r.first; i += j.teams) batch_ask<GATED ? LG : LD, GATED>(b, i, i, 0);
}
template <int LG, int LD, bool GATED> DEV void batch_rest(const batch_block &b, const batch_team &t) {
    const batch_job &j = batch_job_of<GATED>(b);
    if (t.own || t.of >= j.teams || threadIdx.x & 31) return;
    const int n = (GATED ? b.gated : b.down).n;
#pragma unroll 1
    for (int i = t.of; i < j.slots; i += j.teams)
        if (i >= b.r.first || i >= n) batch_more<LG, LD, GATED>(b, i, i, 0);
}
// The sums of the team's last row tile, in the order of the classes, by the warp whose turn it is.
template <int LG, int LD, bool GATED> DEV void batch_end(const batch_block &b, const batch_team &t) {
    const batch_job &j = batch_job_of<GATED>(b);
    const batch_part &p = GATED ? b.gated : b.down;
    const batch_shared m = b.part<GATED>();
    const unsigned n = t.n - 1, set = t.of * BATCH_MET + n % BATCH_MET;
    const int lane = threadIdx.x & 31;
    barrier_wait(smem_address(m.met(set)), n / BATCH_MET & 1);
    if (t.turn != t.own) return;
    if (lane == 0) batch_more<LG, LD, GATED>(b, t.of + n * j.teams + j.slots, t.was, t.item);
    __syncwarp();
    const int4 item = m.items()[t.item];
    const float4 *part = b.sums(set, j.classes) + lane;
    float v[4] = {};
#pragma unroll 2
    for (int c = 0; c < j.classes; c++, part += 32) {
        const float4 a = *part;
        v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
    }
    batch_finish<GATED>(j, item, t.tile, m.to() + item.y - p.base, v);
    if (!GATED) return;
    __syncwarp();
    if (lane == 0) { // the last one of the block's tells down
        const int at = (p.first + t.item) * j.tiles, all = min(p.t0 + p.n, at + j.tiles) - max(p.t0, at);
        __threadfence_block();
        if (atomicAdd(m.done() + t.item, 1) == all - 1) {
            __threadfence();
            atomicAdd(&b.r.order.item[1 + p.first + t.item].w, all);
        }
    }
}
// Down: until all row tiles of gate and up of item s are there.
DEV void batch_after(const batch_run &r, int s) {
    if (r.down.after && (threadIdx.x & 31) == 0) {
        const int *w = &r.order.item[1 + s].w;
        int n;
        do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(n) : "l"(w) : "memory");
        while (n < r.down.after);
    }
    __syncwarp();
}
// The warp's row tiles of item s, from t to before end, of U units each.
template <int LG, int LD, bool GATED, int U>
DEV int batch_item(const batch_block &b, batch_team &team, int s, int t, int end) {
    constexpr int L = GATED ? LG : LD, UB = layout_unit_bytes((enum layout)L);
    const batch_job &j = batch_job_of<GATED>(b);
    const batch_part &p = GATED ? b.gated : b.down;
    const batch_shared m = b.part<GATED>();
    const int lane = threadIdx.x & 31, unit = team.own * U;
    float4 *sums = b.sums(team.of * BATCH_MET, j.classes) + team.own * 32 + lane;
    const uint32_t met = smem_address(m.met(team.of * BATCH_MET));
    const int4 item = m.items()[s];
    if (!GATED) batch_after(b.r, p.first + s);
    const bool is = (lane >> 2) < item.z;
    const int place = item.y + (lane >> 2), row = !is ? 0 : GATED ? m.to()[place - p.base] : place;
    const float up = item.x < 0 ? j.up_shared : j.up;
    batch_x<L> x[U];
#pragma unroll
    for (int i = 0; i < U; i++)
        x[i].load(j.x + row * j.x_row + (unit + i) * 512, is ? j.k - (unit + i) * 256 : 0);
    if (!team.asked) { // behind the columns, which would wait behind them else
        batch_rest<LG, LD, GATED>(b, team);
        team.asked = true;
        __syncwarp();
    }
    for (; t < end; t += j.teams) {
        float acc[4] = {};
        barrier_wait(smem_address(m.full(team.slot)), team.phase);
        const uint8_t *w = b.smem + (m.slot()[team.slot] - smem_address(b.smem)) + unit * UB;
#pragma unroll
        for (int i = 0; i < U; i++)
            if (i == 0 || unit + i < j.u) batch_unit<L>(acc, w + i * UB, x[i], up);
        const int buffer = team.n % BATCH_MET;
        sums[buffer * j.classes * 32] = make_float4(acc[0], acc[1], acc[2], acc[3]);
        __syncwarp();
        if (lane == 0) barrier_arrive(met + buffer * 8);
        if (team.n) batch_end<LG, LD, GATED>(b, team);
        team.was = team.slot;
        team.slot += j.teams;
        if (team.slot >= j.slots) {
            team.slot -= j.slots;
            team.phase ^= 1;
        }
        team.turn = team.turn + 1 == j.classes ? 0 : team.turn + 1;
        team.n++;
        team.item = s;
        team.tile = p.t0 + t - (p.first + s) * j.tiles;
    }
    return t;
}
// A warp's part of all of the block's row tiles.
template <int LG, int LD, bool GATED> DEV void batch_tiles(const batch_block &b, batch_team team) {
    const batch_job &j = batch_job_of<GATED>(b);
    const batch_part &p = GATED ? b.gated : b.down;
    int t = team.of < j.teams ? team.of : p.n;
    for (int s = 0; s < p.n_item; s++) {
        const int end = min(p.n, (p.first + s + 1) * j.tiles - p.t0);
        if (t >= end) continue;
        if (j.each == 2)
            t = batch_item<LG, LD, GATED, 2>(b, team, s, t, end);
        else
            t = batch_item<LG, LD, GATED, 1>(b, team, s, t, end);
    }
    if (!team.asked) batch_rest<LG, LD, GATED>(b, team);
    if (team.n) batch_end<LG, LD, GATED>(b, team);
}
template <bool GATED> DEV batch_team batch_team_of(const batch_block &b, bool asked) {
    const batch_job &j = batch_job_of<GATED>(b);
    const int warp = threadIdx.x >> 5, of = warp / j.classes;
    batch_team t = {of, warp - of * j.classes};
    t.slot = of;
    t.asked = asked;
    return t;
}

// ---- which row tiles
// The block's part of the row tiles of `count` items; its items to shared memory. mine: entry threadIdx.x of the list.
template <bool GATED> DEV batch_part batch_share(const batch_block &b, const int4 &mine, int count) {
    const batch_job &j = batch_job_of<GATED>(b);
    const batch_shared m = b.part<GATED>();
    const int all = count * j.tiles;
    batch_part p;
    const int next = (int)blockIdx.x + 1;
    p.t0 = batch_over(all * (int)blockIdx.x, b.r.by_blocks);
    p.n = (next == (int)gridDim.x ? all : batch_over(all * next, b.r.by_blocks)) - p.t0;
    p.first = batch_over(p.t0, j.by_tiles);
    p.n_item = p.n ? batch_over(p.t0 + p.n - 1, j.by_tiles) - p.first + 1 : 0;
    const int i = (int)threadIdx.x - 1 - p.first;
    if (b.r.few || p.first + p.n_item < BATCH_WARPS * 32) {
        if (i >= 0 && i < p.n_item) m.items()[i] = mine;
    } else if ((int)threadIdx.x < p.n_item)
        m.items()[threadIdx.x] = __ldcg(b.r.order.item + 1 + p.first + threadIdx.x);
    return p;
}
// Where the block's pair number threadIdx.x comes from or goes to: asked for, then left.
template <bool GATED> DEV int batch_pair(const batch_block &b, batch_part &p, bool &is) {
    const batch_shared m = b.part<GATED>();
    is = false;
    if (!p.n_item) return 0;
    const int4 last = m.items()[p.n_item - 1];
    p.base = m.items()[0].y;
    is = (int)threadIdx.x < last.y + last.z - p.base;
    const int at = p.base + (int)threadIdx.x;
    return !is ? 0 : b.r.few ? b.few().pair[at] : __ldcg(b.r.order.pair + at);
}
template <bool GATED> DEV void batch_to(const batch_block &b, int pair) {
    const batch_job &j = batch_job_of<GATED>(b);
    const int row = batch_over(pair, b.r.by_pair), c = pair - row * j.n_pair, shared = j.w_shared != NULL;
    b.part<GATED>().to()[threadIdx.x] = GATED        ? row
                                        : c < shared ? (int)(row * j.y_shared_row)
                                                     : (int)(row * j.y_row) + (c - shared) * j.n;
}

// ---- the kernel
template <bool GATED> DEV void batch_begin(const batch_block &b) {
    const batch_shared m = b.part<GATED>();
    const int i = threadIdx.x, classes = batch_job_of<GATED>(b).classes;
    if (i < BATCH_RING + BATCH_WARPS * BATCH_MET)
        barrier_init(smem_address(m.full(i)), i < BATCH_RING ? 1 : classes);
    if (i < BATCH_ITEMS) m.done()[i] = 0;
}
// Where row tiles of the ring lie.
template <int L, bool GATED> DEV void batch_slots(const batch_block &b) {
    const batch_job &j = batch_job_of<GATED>(b);
    const int i = threadIdx.x;
    if (i < j.slots)
        b.part<GATED>().slot()[i] =
            smem_address(b.smem) + b.r.ring_at + i * j.u * layout_unit_bytes((enum layout)L);
}
// Those of down in the places that gate and up leave, in the order in which they do.
template <int LG, int LD> DEV void batch_slots_behind(const batch_block &b) {
    const batch_job &j = b.r.down;
    const int i = threadIdx.x, e = batch_over(i, b.r.by_per), at = b.gated.n + e,
              slot = at - batch_over(at, b.r.by_slots) * b.r.gated.slots;
    if (i < j.slots)
        b.part<false>().slot()[i] =
            b.part<true>().slot()[slot] + (i - e * b.r.per) * j.u * layout_unit_bytes((enum layout)LD);
}
// The block's share of the weights of the expert that all rows take to L2, which may be before its rows are there.
template <int L> DEV void batch_early(const batch_job &j) {
#if __CUDA_ARCH__ >= 900
    if (!j.w_shared || threadIdx.x) return;
    const unsigned units = j.u * j.tiles, each = (units + gridDim.x - 1) / gridDim.x,
                   from = each * blockIdx.x, n = from < units ? min(each, units - from) : 0;
    constexpr unsigned UB = layout_unit_bytes((enum layout)L);
    if (n)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(j.w_shared + (size_t)from * UB),
                     "r"(n * UB)
                     : "memory");
#endif
}

// LG, LD: layouts of gate and up and of down; -1: without that part.
template <int LG, int LD>
__global__ void __launch_bounds__(BATCH_WARPS * 32, 1)
    experts_batch_kernel(const __grid_constant__ batch_run r) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr bool G = LG >= 0, D = LD >= 0;
    batch_block b = {r, smem};
    if constexpr (G) batch_begin<true>(b);
    if constexpr (D) batch_begin<false>(b);
    batch_slots<G ? LG : LD, G>(b);
    barrier_fence();
    if constexpr (G) { // the order is new: the kernels behind this one may read it ahead of their wait
        batch_early<LG>(r.gated);
        if constexpr (D) batch_early<LD>(r.down);
        pdl_wait();
        pdl_trigger();
    } else
        pdl_trigger();

    // the ring's end, to which row tiles come that are asked for late
    route_scratch *scratch = (route_scratch *)(smem + r.bytes - BATCH_FEW * sizeof(route_scratch));
    int4 mine = {};
    if (G && D && r.few) {
        batch_choose(r, b.few(), scratch);
        if (threadIdx.x <= BATCH_FEW_PAIRS) mine = b.few().item[threadIdx.x];
    } else {
        mine = __ldcg(r.order.item + threadIdx.x);
        if (threadIdx.x == 0) b.few().item[0] = mine;
        __syncthreads();
    }
    const int count = b.few().item[0].x;
    batch_part &first = G ? b.gated : b.down;
    first = batch_share<G>(b, mine, count);
    __syncthreads();
    // the pairs first, which would wait behind all of the ring else; as the first item's columns would, before which two tiles go
    bool is;
    const int pair = batch_pair<G>(b, first, is);
    const batch_team team = batch_team_of<G>(b, false);
    batch_first<LG, LD, G>(b, team);
    if (is) batch_to<G>(b, pair);
    if constexpr (G && D) {
        if (r.few) batch_weigh(r, scratch);
        b.down = batch_share<false>(b, mine, count);
        batch_slots_behind<LG, LD>(b);
        __syncthreads();
        const int later = batch_pair<false>(b, b.down, is);
        if (is) batch_to<false>(b, later);
    } else
        __syncthreads();
    batch_tiles<LG, LD, G>(b, team);
    if constexpr (G && D) {
        __syncthreads(); // sums have one place for both
        batch_tiles<LG, LD, false>(b, batch_team_of<false>(b, true));
    }
    if (!G) pdl_wait(); // what follows this kernel follows the one before, too
}

// The other layout that down has beside gate and up in mixtures of types.
template <int L> constexpr int batch_other() { return L == LAYOUT_Q4K ? LAYOUT_Q6K : L; }
// Both parts in one kernel, of layouts that are common.
template <int L, int LD> constexpr batch_entry batch_both() {
    if constexpr (L == LAYOUT_Q4K || L == LAYOUT_MX4 || L == LAYOUT_Q8)
        return experts_batch_kernel<L, LD>;
    else
        return NULL;
}
#define BATCH_CODES(id)                                                                                      \
    extern const batch_kernel batch_##id;                                                                    \
    const batch_kernel batch_##id = {                                                                        \
        LAYOUT_##id,                                                                                         \
        (enum layout)batch_other<LAYOUT_##id>(),                                                             \
        experts_batch_kernel<LAYOUT_##id, -1>,                                                               \
        experts_batch_kernel<-1, LAYOUT_##id>,                                                               \
        {batch_both<LAYOUT_##id, LAYOUT_##id>(), batch_both<LAYOUT_##id, batch_other<LAYOUT_##id>()>()}};
