// Experts of several decode rows.
//
// An item is an expert and up to 8 * x_slots of the pairs (row, choice) that chose it; the row tiles of all items form one sequence, of
// which each block takes an even part. So an expert's weights come once for all its pairs. A team of warps takes
// every n-th row tile of the block: one warp, or two with half of the columns each (classes), whose sums are added. Each warp has its
// own ring of weights, which runs over the ends of items; the pairs' halves lie in shared memory, gathered by item.
//
// A pair's sums have one order, for any number of pairs and wherever it stands: the columns of a product know nothing of each other.
//
// Block: 512 threads, one a multiprocessor; shared memory: batch_bytes.
#pragma once
#include "cuda/decode/act_tile.cuh"
#include "cuda/decode/experts_batch.h"
#include "cuda/decode/gemv_mma.cuh"

// ---- a warp's ring of weights
template <int L> struct batch_warp {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    // what the warp has to do: items of the block, units of its class, every by-th row tile
    const int4 *items;
    int unit, units, by;
    // what it asks for next: a unit, of which left are to come of a row tile; item and row tile of it; how many tiles are to come
    const uint8_t *p, *at;
    uint64_t policy;
    uint32_t base, bar, phase;
    int slot, fetch, left, item, tile, tiles;

    MEM void aim(const batch_job &j) {
        while (tile >= j.tiles) tile -= j.tiles, item++;
        p = j.w + items[item].x * j.step + (size_t)((unsigned)(tile * j.u + unit) * (unsigned)UB);
    }
    MEM void issue(const batch_job &j) {
        if (tiles <= 0) return;
        if (elect_one()) {
            barrier_expect(bar + 8 * fetch, UB);
            bulk_copy(base + fetch * UB, p, UB, bar + 8 * fetch, policy);
        }
        p += UB;
        if (++fetch == j.slots) fetch = 0;
        if (--left) return;
        left = units;
        tile += by;
        if (--tiles > 0) aim(j);
    }
    // first: of the block's first item; n: of the warp
    MEM void start(const batch_job &j, uint8_t *ring, uint64_t *bars, int first, int n) {
        at = ring;
        base = smem_address(ring);
        bar = smem_address(bars);
        policy = policy_evict_first();
        slot = fetch = item = 0;
        phase = 0;
        left = units;
        tile = first;
        tiles = n;
        if (tiles > 0) aim(j);
#pragma unroll 1
        for (int s = 0; s < j.slots; s++) issue(j);
    }
    MEM void next(const batch_job &j, frag<L> &f) {
        barrier_wait(bar + 8 * slot, phase);
        f.load(at + slot * UB, threadIdx.x & 31, j.up);
        __syncwarp();
        issue(j);
        if (++slot == j.slots) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// ---- the sums of a row tile for 8 NT pairs
// Codes are multiplied as they are, as halves; the sum of a group of columns is then multiplied by its scale in float32, and the groups'
// addends are multiplied by the sums of their columns (batch_columns). So a code takes one operation, and no product rounds.
template <int L> struct batch_groups {
    static constexpr int E = format<L>::n_scale == 4 ? 2 : 1; // scales of 32 columns
    static constexpr bool addends = L != LAYOUT_MX4;
    static constexpr int columns = addends ? E * 64 : 0; // sums of a unit and 8 pairs
};
DEV void batch_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { // from zero
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
// Sums of the columns of groups, or of 16 columns, of 8 pairs' unit: [e][pair][tig]{group tig, tig + 4}, by one warp.
template <int L> DEV void batch_columns(float *sums, const uint8_t *x, int x_row) {
    constexpr int E = batch_groups<L>::E;
    const int lane = threadIdx.x & 31;
    const uint32_t one[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
    x += (lane >> 2) * x_row + (lane & 3) * 16;
#pragma unroll
    for (int g = 0; g < 8; g++) {
        const uint4 v = *(const uint4 *)(x + g * 64);
        float d[2][4];
        batch_mma(d[0], one, v.x, v.y);
        if (E == 1)
            mma_f16(d[0], one[0], one[1], one[2], one[3], v.z, v.w);
        else
            batch_mma(d[1], one, v.z, v.w);
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int q = 0; q < 2; q++) // pairs 2 lane + q
                if (lane < 4) sums[e * 64 + ((2 * lane + q) * 4 + (g & 3)) * 2 + (g >> 2)] = d[e][q];
    }
}
template <int L> DEV void batch_codes(uint32_t (&a)[2][4], const tile_codes<L> &t, int g) {
    using W = format<L>;
    const uint4 c = t.c[W::wide ? g & 1 : 0];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int e = i >> 1, r = i & 1;
        const uint32_t v = W::word(word_of(c, i), g), x = W::NX ? word_of(t.x, i) : 0;
        a[e][r] = W::code_halves(v, x, g);
        a[e][2 + r] = W::code_halves(v >> 8, x >> 8, g);
    }
}
DEV void batch_scale(float (&acc)[4], const float (&d)[4], float s0, float s1) {
    acc[0] = fmaf(d[0], s0, acc[0]);
    acc[1] = fmaf(d[1], s0, acc[1]);
    acc[2] = fmaf(d[2], s1, acc[2]);
    acc[3] = fmaf(d[3], s1, acc[3]);
}
// Addends of a lane's groups times the sums of columns, those in two parts of 11 bits.
template <int L, int NT>
DEV void batch_addends(float (&acc)[NT][4], const unit_factors<L> &f, const float *columns, int next) {
    const int lane = threadIdx.x & 31;
    uint32_t m[2][4]; // [e][row + 2 * (group / 4)]
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __half2 s[2], a[2];
        format<L>::spread(s, a, f.own[i & 1], i & 2 ? 4 : 0, lane);
        m[0][i] = __float_as_uint(__low2float(a[0]));
        m[1][i] = __float_as_uint(__low2float(a[1]));
    }
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < batch_groups<L>::E; e++) {
            const float2 v = *(const float2 *)(columns + n * next + e * 64 + lane * 2);
            const uint32_t b0 = __float_as_uint(v.x) & 0xffffe000u, b1 = __float_as_uint(v.y) & 0xffffe000u;
            mma_tf32(acc[n], m[e][0], m[e][1], m[e][2], m[e][3], b0, b1);
            mma_tf32(acc[n], m[e][0], m[e][1], m[e][2], m[e][3], __float_as_uint(v.x - __uint_as_float(b0)),
                     __float_as_uint(v.y - __uint_as_float(b1)));
        }
}
// x: halves of lane's pair, of the class's first unit; columns: their sums
template <int L, int NT>
DEV void batch_sums(float (&acc)[NT][4], const batch_job &j, batch_warp<L> &b, const uint8_t *x,
                    const float *columns) {
    using G = batch_groups<L>;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < NT; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
#pragma unroll 1
    for (int u = 0; u < b.units; u++, x += 512, columns += G::columns) {
        frag<L> f;
        b.next(j, f);
        if (G::addends) batch_addends<L, NT>(acc, f.f, columns, j.u * G::columns);
#pragma unroll
        for (int g = 0; g < 8; g++) {
            group_factors<L> k;
            uint32_t a[2][4];
            float s[2][2];
            k.get(f.f, g, lane);
            batch_codes<L>(a, f.t[g >> 1], g);
#pragma unroll
            for (int i = 0; i < 4; i++) s[i >> 1][i & 1] = __low2float(k.s[i >> 1][i & 1]);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const uint4 v = *(const uint4 *)(x + n * 8 * j.x_pitch + g * 64);
                float d[4];
                batch_mma(d, a[0], v.x, v.y);
                if (G::E == 2) {
                    batch_scale(acc[n], d, s[0][0], s[1][0]);
                    batch_mma(d, a[1], v.z, v.w);
                } else
                    mma_f16(d, a[1][0], a[1][1], a[1][2], a[1][3], v.z, v.w);
                batch_scale(acc[n], d, s[0][G::E - 1], s[1][G::E - 1]);
            }
        }
    }
}

// ---- what follows them, for the 8 pairs of the item from place on
DEV float batch_glu(const batch_job &j, float g, float u) {
    if (j.act != ACT_SWIGLU_OAI) return act_apply(j.act, g) * u;
    const float x = g > j.limit ? j.limit : g, v = u > j.limit ? j.limit : u < -j.limit ? -j.limit : u;
    return x / (1.f + __expf(-j.alpha * x)) * (v + 1.f);
}
// v: sums [h * 2 + q] of rows gid + 8 h of the tile and pairs 2 tig + q; to: of the 8 pairs, what batch_fetch left.
template <bool GATED>
DEV void batch_finish(const batch_job &j, const int4 &item, int tile, int place, const int *to,
                      const float (&v)[4]) {
    const int lane = threadIdx.x & 31, gid = lane >> 2;
#pragma unroll
    for (int q = 0; q < 2; q++) {
        const int i = 2 * (lane & 3) + q;
        if (place + i >= item.z) continue;
        float a = v[q] * j.down, b = v[2 + q] * j.down;
        if constexpr (GATED) {
            const int col = tile * 8 + gid;
            if (col >= j.n) continue;
            if (j.factor) {
                const float f = __ldcg(j.factor + to[i]);
                a = __fmul_rn(a, f);
                b = __fmul_rn(b, f);
            }
            if (j.bias) {
                const float *bias = j.bias + (size_t)item.x * j.n + col;
                a += bias[0];
                b += bias[j.bias_up];
            }
            __half *out = (__half *)(j.xo + (size_t)(item.y + place + i) * j.xo_row);
            out[(col & ~31) + row_order(true, col)] = __float2half(skinny_range(batch_glu(j, a, b)));
        } else {
            const int col = tile * 16 + gid;
            const float *bias = j.bias ? j.bias + (size_t)item.x * j.n + col : NULL;
            if (col < j.n) j.y[(size_t)to[i] + col] = a + (bias ? bias[0] : 0.f);
            if (col + 8 < j.n) j.y[(size_t)to[i] + col + 8] = b + (bias ? bias[8] : 0.f);
        }
    }
}

// ---- a block
// What lies where in shared memory.
struct batch_shared {
    uint8_t *at;
    MEM uint64_t *full() const { return (uint64_t *)at; }      // of slots of pairs
    MEM uint64_t *met() const { return full() + 2; }           // of teams and buffers
    MEM uint64_t *bars() const { return met() + BATCH_WARPS; } // of the rings
    // of a pair: gated: its row; else where its result begins, floats
    MEM int *to() const { return (int *)(at + BATCH_HEAD - BATCH_ITEMS * 16 - BATCH_PAIRS * 4); }
    MEM int *count() const { return to() - 4; }
    MEM int4 *items() const { return (int4 *)(at + BATCH_HEAD - BATCH_ITEMS * 16); }
    MEM uint8_t *x(const batch_job &j, int slot) const { return at + BATCH_HEAD + slot * 8 * j.x_pitch; }
    // sums of columns of a slot's unit
    template <int L> MEM float *columns(const batch_job &j, int slot, int unit) const {
        return (float *)(at + j.columns_at) + (slot * j.u + unit) * batch_groups<L>::columns;
    }
    // sums of classes: [team][2][x_slots][lane]
    MEM float4 *sums(const batch_job &j, int set) const {
        return (float4 *)(at + j.sums_at) + set * j.x_slots * 32;
    }
};
// Halves of an item's pairs to slots at .., of one warp.
template <bool GATED>
DEV void batch_fetch(const batch_job &j, const batch_shared &m, const int4 &item, int at) {
    const int lane = threadIdx.x & 31, bytes = j.k * 2;
    const uint32_t bar = smem_address(m.full() + at);
    const uint8_t *from = j.x;
    if (lane < item.z) {
        const int p = __ldcg(j.order.pair + item.y + lane), row = p / j.n_used;
        from += (GATED ? row : item.y + lane) * j.x_row;
        m.to()[at * 8 + lane] = GATED ? row : (int)(row * j.y_row) + (p - row * j.n_used) * j.n;
    }
    __syncwarp();
    if (lane == 0) barrier_expect(bar, item.z * bytes);
    __syncwarp();
    if (lane < item.z) bulk_copy(smem_address(m.x(j, at) + lane * j.x_pitch), from, bytes, bar);
}
// Row tile number nth of the warp, which is tile of its item.
template <int L, bool GATED, int NT>
DEV void batch_tile(const batch_job &j, const batch_shared &m, batch_warp<L> &b, const int4 &item, int tile,
                    int at, int nth) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float acc[NT][4];
    batch_sums<L, NT>(acc, j, b, m.x(j, at) + (lane >> 2) * j.x_pitch + b.unit * 512 + (lane & 3) * 16,
                      m.columns<L>(j, at, b.unit));
    if (j.classes == 2) { // the warps of a team finish in turns
        const int buffer = nth & 1, set = (warp & ~1) + buffer;
        float4 *part = m.sums(j, set) + lane;
        const uint32_t met = smem_address(m.met() + set);
        if ((warp & 1) != buffer) {
#pragma unroll
            for (int n = 0; n < NT; n++)
                part[n * 32] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
            __syncwarp();
            if (elect_one()) barrier_arrive(met);
            return;
        }
        barrier_wait(met, nth >> 1 & 1);
#pragma unroll
        for (int n = 0; n < NT; n++) { // of two numbers the order does not matter
            const float4 a = part[n * 32];
            acc[n][0] += a.x, acc[n][1] += a.y, acc[n][2] += a.z, acc[n][3] += a.w;
        }
    }
#pragma unroll
    for (int n = 0; n < NT; n++) batch_finish<GATED>(j, item, tile, n * 8, m.to() + (at + n) * 8, acc[n]);
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
template <int L> DEV void batch_start(const batch_job &j, const batch_shared &m) {
    const int n_bar = 2 + BATCH_WARPS * (1 + j.slots);
    if ((int)threadIdx.x < n_bar) barrier_init(smem_address(m.full() + threadIdx.x), 1);
    // columns behind the last one: zeros, which no copy overwrites
    for (int i = threadIdx.x; i < 8 * j.x_slots * 32 && j.k < j.u * 256; i += BATCH_WARPS * 32)
        for (int c = j.k * 2 + (i & 31) * 16; c < j.u * 512; c += 512)
            *(uint4 *)(m.x(j, 0) + (i >> 5) * j.x_pitch + c) = make_uint4(0, 0, 0, 0);
    barrier_fence();
}

// Sums of the columns of an item's pairs in slots at .., for all of its row tiles.
template <int L> DEV void batch_sum_columns(const batch_job &j, const batch_shared &m, int at, int slots) {
    if constexpr (batch_groups<L>::addends) {
        for (int i = threadIdx.x >> 5; i < slots * j.u; i += BATCH_WARPS) {
            const int n = i >= j.u, u = n ? i - j.u : i;
            batch_columns<L>(m.columns<L>(j, at + n, u), m.x(j, at + n) + u * 512, j.x_pitch);
        }
        __syncthreads();
    }
}
// What the warp does in the block's share from tile t0 to before t1; returns its first tile.
template <int L>
DEV int batch_begin(const batch_job &j, const batch_shared &m, batch_warp<L> &b, int t0, int t1, int first) {
    const int warp = threadIdx.x >> 5, of_class = (j.u + j.classes - 1) / j.classes,
              t = t0 + warp / j.classes;
    b.items = m.items();
    b.unit = (warp & (j.classes - 1)) * of_class;
    b.units = min(of_class, j.u - b.unit);
    b.by = BATCH_WARPS / j.classes;
    b.start(j, m.at + j.ring_at + warp * j.slots * b.UB, m.bars() + warp * j.slots, t - first * j.tiles,
            (t1 - t + b.by - 1) / b.by);
    return t;
}

template <int L, bool GATED>
__global__ void __launch_bounds__(BATCH_WARPS * 32, 1)
    experts_batch_kernel(const __grid_constant__ batch_job j) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const int warp = threadIdx.x >> 5;
    const batch_shared m = {smem};
    batch_start<L>(j, m);
    if (GATED) { // the order is new: the kernels behind this one may read it ahead of their wait
        pdl_wait();
        pdl_trigger();
    } else
        pdl_trigger();

    batch_warp<L> b;
    int t0, t1, first;
    const int n_item = batch_share(j, m, t0, t1, first);
    if (GATED && warp == 0 && n_item) batch_fetch<GATED>(j, m, m.items()[0], 0);
    int t = batch_begin(j, m, b, t0, t1, first);
    if (!GATED) pdl_wait();

    // An item of up to 8 pairs takes one slot, so that the next one's pairs may come beside it.
    int at = 0, nth = 0;
    bool there = GATED;
    uint32_t phase = 0;
    for (int s = 0; s < n_item; s++) {
        const int4 item = m.items()[s];
        const int end = min(t1, (first + s + 1) * j.tiles), wide = item.z > 8 ? 2 : 1;
        if (s) __syncthreads(); // all are done with the items before
        const bool ahead = j.x_slots == 2 && wide == 1 && s + 1 < n_item && m.items()[s + 1].z <= 8;
        if (!there && wide == 2) at = 0;
        if (warp == 0) {
            if (!there) batch_fetch<GATED>(j, m, item, at);
            if (ahead) batch_fetch<GATED>(j, m, m.items()[s + 1], at ^ 1);
        }
        barrier_wait(smem_address(m.full() + at), phase >> at & 1);
        phase ^= 1u << at;
        batch_sum_columns<L>(j, m, at, wide);
        for (; t < end; t += b.by, nth++) {
            const int tile = t - (first + s) * j.tiles;
            if (wide == 1)
                batch_tile<L, GATED, 1>(j, m, b, item, tile, at, nth);
            else
                batch_tile<L, GATED, 2>(j, m, b, item, tile, 0, nth);
        }
        there = ahead;
        if (ahead) at ^= 1;
    }
}

#define BATCH_CODES(id)                                                                                      \
    extern const batch_kernel batch_##id;                                                                    \
    const batch_kernel batch_##id = {LAYOUT_##id, batch_groups<LAYOUT_##id>::columns * 4,                    \
                                     experts_batch_kernel<LAYOUT_##id, true>,                                \
                                     experts_batch_kernel<LAYOUT_##id, false>};
