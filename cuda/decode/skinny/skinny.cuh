// Decode rows, more than one.
//
// A block takes mw row tiles of 16 weight rows (a warp each) times 8 NT rows of the step times all columns. One more warp
// keeps a ring of stages full: span column tiles of 64 columns of every warp's weights and of the rows (codes: a unit and
// its four column tiles). The order of the sums is that of gemv.cuh: class c holds the units c, c + C, .. where C warps
// share the columns for one row; the classes are added from 0 on. A row's bits are those it has alone. wgmma (sm_90a,
// NT = 16) and mma.sync sum the 16 products of a step and what was there before to the same bits (measured: 5.5e8 sums,
// halves and bfloat16).
//
// Few rows: a row tile may have C warps, a class each, as one row has them (SHARED): a warp's loads and products wait for
// each other, so that few row tiles are done sooner. A stage then holds columns of all classes.
//
// Sums stay where the products leave them: lane (gid, tig) has weight rows gid and gid + 8 of rows 2 tig and 2 tig + 1.
#pragma once
#include "cuda/decode/skinny/skinny_many.cuh"
#include "cuda/decode/skinny/skinny_mma.cuh"

// A tile of weights and rows, or a part of its classes.
struct skinny_item {
    int region, tile0, n_tile, row0, split, set; // set: of the parts of a tile
};
template <int NT> DEV skinny_item skinny_find(const skinny_job &k, int i) {
    skinny_item it;
    it.region = i >= k.items[0];
    if (it.region) i -= k.items[0];
    it.split = i & (k.splits - 1); // a power of two
    i >>= k.split_bits;
    it.set = it.region * (k.items[0] >> k.split_bits) + i;
    const int tile = k.groups == 1 ? i : i / k.groups;
    it.row0 = (i - tile * k.groups) * (NT * 8);
    it.tile0 = tile * k.mw;
    it.n_tile = min(k.mw, k.tiles[it.region] - it.tile0);
    return it;
}
// Bytes that a row tile's weights of n column tiles are.
template <int L> DEV int half_bytes(int n) {
    return format<L>::half ? n * 2048 : layout_unit_bytes((enum layout)L);
}
template <int L>
DEV const uint8_t *skinny_weights(const skinny_job &k, const skinny_item &it, int tile, int column) {
    return k.j.w[it.region] +
           ((size_t)(it.tile0 + tile) * k.j.u + (column >> 2)) * layout_unit_bytes((enum layout)L) +
           (format<L>::half ? (column & 3) * 2048 : 0);
}

// ---- stages of a block whose warps have row tiles
// stage(first column tile, number of them) for all stages of an item, then added() where a class ends
template <class S, class A> DEV void half_columns(const skinny_job &k, int split, S stage, A added) {
    const int n = k.classes >> k.split_bits;
    for (int c = split * n; c < (split + 1) * n; c++) {
        for (int u = c; u < k.j.u; u += k.classes) {
            const int end = min(4 * u + 4, k.n_column);
            for (int t = 4 * u; t < end; t += k.span) stage(t, min(k.span, end - t));
        }
        added(c);
    }
}
template <int L, int NT, bool G> struct tile_stages {
    using S = skinny_shape<L, NT, G>;
    template <class V> static MEM void each(const skinny_job &k, const skinny_item &it, V visit) {
        half_columns(k, it.split, visit, [](int) {});
    }
    static MEM void fetch(const skinny_job &k, const skinny_ring &r, uint32_t smem, const skinny_item &it,
                          int column, int n, bool weights, bool rows) {
        const int lane = threadIdx.x & 31, bytes = min(NT * 8, k.pitch - k.first - it.row0) * 128,
                  own = half_bytes<L>(n);
        const uint32_t bar = smem + HALF_FULL + 8 * r.slot, to = smem + HALF_RING_AT + r.slot * k.stage_bytes;
        if (weights) {
            if (lane == 0) barrier_expect(bar, it.n_tile * own + n * S::parts * bytes);
            __syncwarp();
            if (lane < it.n_tile)
                bulk_copy(to + k.span * S::parts * S::x + lane * half_bytes<L>(k.span),
                          skinny_weights<L>(k, it, lane, column), own, bar);
        }
        if (rows && k.pitch == NT * 8) { // all of a tile's rows: the tiles follow each other
            if (lane == 0)
                bulk_copy(to, k.j.x + (size_t)(column * S::parts) * S::x, n * S::parts * S::x, bar);
        } else if (rows && lane < S::parts * n)
            bulk_copy(to + lane * S::x,
                      k.j.x + ((size_t)(column * S::parts + lane) * k.pitch + it.row0) * 128, bytes, bar);
    }
};

// ---- stages of a block whose warps have a class of a row tile each
template <int L, int NT, bool G> struct class_stages {
    using S = skinny_shape<L, NT, G>;
    static constexpr int C = S::classes;
    // Column tiles that class c has in part p of round i (units C i + c), and the first of them.
    static MEM int first(const skinny_job &k, int i, int p, int c) { return 4 * (C * i + c) + p * k.span; }
    static MEM int count(const skinny_job &k, int i, int p, int c) {
        return max(0, min(k.span, k.n_column - first(k, i, p, c)));
    }
    template <class V> static MEM void each(const skinny_job &k, const skinny_item &, V visit) {
        for (int i = 0; C * i < k.j.u; i++)
            for (int p = 0; p * k.span < 4; p++) visit(i, p);
    }
    static MEM void fetch(const skinny_job &k, const skinny_ring &r, uint32_t smem, const skinny_item &it,
                          int i, int p, bool weights, bool rows) {
        const int lane = threadIdx.x & 31, bytes = min(NT * 8, k.pitch - k.first - it.row0) * 128;
        const uint32_t bar = smem + HALF_FULL + 8 * r.slot, to = smem + HALF_RING_AT + r.slot * k.stage_bytes;
        const int c = lane % C, n = count(k, i, p, c), own = half_bytes<L>(n);
        if (weights) {
            int all = 0;
            for (int q = 0; q < C; q++) {
                const int m = count(k, i, p, q);
                if (m) all += it.n_tile * half_bytes<L>(m) + m * S::parts * bytes;
            }
            if (lane == 0) barrier_expect(bar, all);
            __syncwarp();
            if (lane / C < it.n_tile && n)
                bulk_copy(to + C * k.span * S::parts * S::x + lane * half_bytes<L>(k.span),
                          skinny_weights<L>(k, it, lane / C, first(k, i, p, c)), own, bar);
        }
        if (rows && k.pitch == NT * 8) {
            if (lane < C && n)
                bulk_copy(to + c * k.span * S::parts * S::x,
                          k.j.x + (size_t)(first(k, i, p, c) * S::parts) * S::x, n * S::parts * S::x, bar);
            return;
        }
        for (int x = lane / C; rows && x < n * S::parts; x += 32 / C)
            bulk_copy(to + (c * k.span * S::parts + x) * S::x,
                      k.j.x + ((size_t)(first(k, i, p, c) * S::parts + x) * k.pitch + it.row0) * 128, bytes,
                      bar);
    }
};

// ---- the producer
// visit(item, a, b) for all stages that this block has
template <class T, int NT, class V> DEV void half_each(const skinny_job &k, V visit) {
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const skinny_item it = skinny_find<NT>(k, i);
        T::each(k, it, [&](int a, int b) { visit(it, a, b); });
    }
}
template <class T, class T2, int NT> DEV void skinny_produce(const skinny_job &k, uint32_t smem) {
    skinny_ring r = {0, 0};
    int v = 0;
    auto fetch = [&](const skinny_item &it, int a, int b, bool weights, bool rows) {
        if (it.region)
            T2::fetch(k, r, smem, it, a, b, weights, rows);
        else
            T::fetch(k, r, smem, it, a, b, weights, rows);
        r.step(k.stages);
    };
    half_each<T, NT>(k, [&](const skinny_item &it, int a, int b) {
        if (v++ < k.stages) fetch(it, a, b, true, false); // weights depend on no kernel
    });
    pdl_wait();
    v = 0;
    r = {0, 0};
    half_each<T, NT>(k, [&](const skinny_item &it, int a, int b) {
        const bool again = v++ >= k.stages;
        if (again) barrier_wait(smem + HALF_EMPTY + 8 * r.slot, r.phase ^ 1);
        fetch(it, a, b, again, true);
    });
}

// ---- the other warps
// The sums of all classes, in order.
DEV void half_gather(float (&v)[4], const float4 *part, size_t of_class, int classes) {
    float4 a[8];
#pragma unroll
    for (int c = 0; c < 8; c++) a[c] = c < classes ? __ldcg(part + c * of_class) : make_float4(0, 0, 0, 0);
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll
    for (int c = 0; c < 8; c++) v[0] += a[c].x, v[1] += a[c].y, v[2] += a[c].z, v[3] += a[c].w;
}
DEV void half_kept(float (&v)[4], const float4 &a) { v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w; }
// Those of group n out of registers.
template <int NT> DEV void half_pick(float (&v)[4], const float (&sum)[NT][4], int n) {
#pragma unroll
    for (int q = 0; q < NT; q++)
#pragma unroll
        for (int o = 0; o < 4; o++) v[o] = q == n || !q ? sum[q][o] : v[o];
}
template <int L, int NT, bool G, bool LONG>
DEV void skinny_consume(const skinny_job &k, skinny_ring &r, const skinny_item &it, uint8_t *smem, int n_row,
                        const skinny_shared &at, bool first) {
    using S = skinny_shape<L, NT, G>;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float acc[S::parts][NT][4], sum[S::apart ? 1 : NT][4] = {};
#pragma unroll
    for (int n = 0; n < NT * 4; n++) (&acc[0][0][0])[n] = (&acc[S::parts - 1][0][0])[n] = 0;
    float4 *kept = (float4 *)(smem + k.sums_at) + w * (NT * 32) + lane;
    const size_t own = (size_t)k.span * S::parts * S::x + (size_t)w * half_bytes<L>(k.span);
    const float up = k.j.up[it.region];
    // sums of a class that other blocks share: a float4 a lane for 8 rows
    const size_t of_class = (size_t)((k.items[0] + k.items[1]) >> k.split_bits) * (size_t)(k.mw * NT * 32);
    float4 *part = k.part + ((size_t)it.set * k.mw + w) * (NT * 32) + lane;
    conditional_t<S::whole && G, group_stages<L, NT, LONG>, plain_stages<L, NT, G>> stages;
    half_columns(
        k, it.split, [&](int, int n) { stages.stage(k, r, acc, smem, own, n, up); },
        [&](int c) {
            stages.done(acc, smem_address(smem));
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float v[4];
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    v[o] = S::parts == 2 ? acc[0][n][o] + acc[S::parts - 1][n][o] : acc[0][n][o];
                    acc[0][n][o] = acc[S::parts - 1][n][o] = 0;
                }
                if (k.splits > 1)
                    __stcg(part + c * of_class + n * 32, make_float4(v[0], v[1], v[2], v[3]));
                else if constexpr (S::apart) {
                    const float4 a = c ? kept[n * 32] : make_float4(0, 0, 0, 0);
                    kept[n * 32] = make_float4(a.x + v[0], a.y + v[1], a.z + v[2], a.w + v[3]);
                } else
#pragma unroll
                    for (int o = 0; o < 4; o++) sum[n][o] += v[o];
            }
        });
    if (G && first) half_met<G>(k, true);
    // What is read beside the sums is asked for before the other blocks' sums, and two groups of rows ahead. A loop that is
    // not unrolled: code that runs once waits for itself.
    constexpr bool MANY = G && NT == 16;
    const bool add = k.epilogue == EPI_ADD;
    const int by = k.splits, n_group = w < it.n_tile ? min(NT, (n_row - it.row0 + 7) / 8) : 0;
    half_rows f = {};
    float res[2][4] = {};
    if (n_group) f = half_look(k, it.region, it.tile0 + w, lane >> 2);
    const float down = S::codes ? k.j.down[it.region] : 1.f;
    if constexpr (MANY)
        if (by == 1)
            return skinny_many<NT>{k, f, it.tile0 + w, it.row0, n_group ? n_row : 0, down, at}.finish(sum);
    if (n_group && add)
#pragma unroll
        for (int i = 0; i < 2; i++) half_residual(k, f, it.row0 + (it.split + i * by) * 8, n_row, res[i]);
    if (by > 1) half_meet(k, it.set);
#pragma unroll 1
    for (int n = it.split; n < n_group; n += by) { // of the blocks that share the tile
        float v[4], now[4];
#pragma unroll
        for (int o = 0; o < 4; o++) now[o] = res[0][o], res[0][o] = res[1][o];
        if (add) half_residual(k, f, it.row0 + (n + 2 * by) * 8, n_row, res[1]);
        if (by > 1)
            half_gather(v, part + n * 32, of_class, k.classes);
        else if constexpr (S::apart)
            half_kept(v, kept[n * 32]);
        else if constexpr (!MANY)
            half_pick(v, sum, n);
#pragma unroll
        for (int o = 0; o < 4; o++) v[o] *= down;
        skinny_finish(k, f, it.tile0 + w, it.row0 + n * 8, n_row, v, now, at);
    }
    if (by > 1) half_leave(k, it.set);
}

// Sums of the warps of a row tile, added by the warp that finishes the rows: group n of 8 by warp n % C.
template <int L, int NT, bool G>
DEV void shared_consume(const skinny_job &k, skinny_ring &r, const skinny_item &it, uint8_t *smem, int n_row,
                        const skinny_shared &at) {
    using S = skinny_shape<L, NT, G>;
    using T = class_stages<L, NT, G>;
    constexpr int C = S::classes;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, t = w / C, c = w % C;
    float4 *sums = (float4 *)(smem + k.sums_at) + t * (C * NT * 32) + lane;
    float acc[S::parts][NT][4];
#pragma unroll
    for (int n = 0; n < S::parts * NT * 4; n++) (&acc[0][0][0])[n] = 0;
    const size_t x = (size_t)c * k.span * S::parts * S::x,
                 own = (size_t)C * k.span * S::parts * S::x + (size_t)w * half_bytes<L>(k.span);
    const float up = k.j.up[it.region];
    T::each(k, it, [&](int i, int p) {
        skinny_stage<L, NT, G>(k, r, acc, smem, x, own, t < it.n_tile ? T::count(k, i, p, c) : 0, up);
    });
    if (t >= it.n_tile) return; // alike in the warps of a tile
    const half_rows f = half_look(k, it.region, it.tile0 + t, lane >> 2);
    asm volatile("bar.sync %0, %1;" ::"r"(t + 2), "n"(C * 32)
                 : "memory"); // the sums of the item before are read
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float v[4];
#pragma unroll
        for (int o = 0; o < 4; o++)
            v[o] = S::parts == 2 ? acc[0][n][o] + acc[S::parts - 1][n][o] : acc[0][n][o];
        sums[(c * NT + n) * 32] = make_float4(v[0], v[1], v[2], v[3]);
    }
    asm volatile("bar.sync %0, %1;" ::"r"(t + 2), "n"(C * 32) : "memory");
#pragma unroll 1
    for (int n = c; n < NT && it.row0 + n * 8 < n_row; n += C) {
        const int row0 = it.row0 + n * 8;
        float v[4] = {}, res[4];
        if (k.epilogue == EPI_ADD) half_residual(k, f, row0, n_row, res);
#pragma unroll
        for (int q = 0; q < C; q++) {
            const float4 a = sums[(q * NT + n) * 32];
            v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
        }
        if (S::codes)
#pragma unroll
            for (int o = 0; o < 4; o++) v[o] *= k.j.down[it.region];
        skinny_finish(k, f, it.tile0 + t, row0, n_row, v, res, at);
    }
}

// Rows of this launch: none or less where the step ends before it.
DEV int half_rows_of(const skinny_job &k, int n) {
    return k.epilogue == EPI_HEAD ? k.rows : min(n - k.first, k.rows);
}
// Outputs of rows and an empty best of each, for the head.
DEV void half_head(const skinny_job &k, const skinny_shared &at, int warps, int n_out) {
    for (int i = threadIdx.x; i < warps * HALF_BEST; i += warps * 32) at.best[i] = {-INFINITY, 0x7fffffff};
    for (int t = threadIdx.x; t < k.rows; t += warps * 32) at.out[t] = -1;
    asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
    for (int t = threadIdx.x; t < n_out; t += warps * 32) {
        const unsigned row = __ldcg(k.j.rowmap + t) - k.first;
        if (row < (unsigned)k.rows) at.out[row] = t;
    }
}
DEV void skinny_chosen(const skinny_job &k, const skinny_shared &at, int warps) {
    asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
    for (int t = threadIdx.x; t < k.rows; t += warps * 32) {
        if (at.out[t] < 0) continue;
        best_value b = at.best[t];
        for (int i = 1; i < warps; i++)
            if (better(at.best[i * HALF_BEST + t], b)) b = at.best[i * HALF_BEST + t];
        k.j.cand[(size_t)at.out[t] * k.j.n_cand + blockIdx.x] = make_float2(b.v, __int_as_float(b.i));
    }
}
DEV void skinny_barriers(uint32_t base, int warps) {
    if (threadIdx.x < HALF_STAGES) {
        barrier_init(base + HALF_FULL + 8 * threadIdx.x, 1);
        barrier_init(base + HALF_EMPTY + 8 * threadIdx.x, warps);
        barrier_fence();
    }
    __syncthreads();
}
template <int L, int L2, int NT, bool G, bool SHARED> DEV void skinny_block(const skinny_job &k) {
    using S = skinny_shape<L, NT, G>;
    constexpr int M = L2 < 0 ? L : L2;                     // of region 1
    constexpr bool LONG = NT == 16 || (NT == 4 && L2 < 0); // others spill
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, warps = SHARED ? S::classes * k.mw : k.mw,
              items = k.items[0] + k.items[1];
    const uint32_t base = smem_address(smem);
    skinny_shared at = {(float *)(smem + HALF_FACTOR), (int *)(smem + k.best_at + warps * HALF_BEST * 8),
                        (best_value *)(smem + k.best_at)};
    skinny_barriers(base, warps);
    pdl_trigger();
    if (w >= warps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if constexpr (S::group) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::many ? 32 : 40));
#endif
        if (S::group && w > warps) {
            pdl_wait();
            const int n_row = half_rows_of(k, *k.j.n_row);
            if (k.j.n_square)
                half_exchange(k, at.factor, w - warps - 1, skinny_helpers(G) - 1, n_row);
            else
                skinny_count(k, at.factor, w - warps - 1, skinny_helpers(G) - 1, n_row);
            if ((int)blockIdx.x < items) half_met<G>(k, false);
        } else if constexpr (SHARED)
            skinny_produce<class_stages<L, NT, G>, class_stages<M, NT, G>, NT>(k, base);
        else
            skinny_produce<tile_stages<L, NT, G>, tile_stages<M, NT, G>, NT>(k, base);
        return;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (S::group) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::many ? 112 : 232));
#endif
    pdl_wait();
    const int n_out = *k.j.n_row, n_row = half_rows_of(k, n_out);
    if (k.epilogue == EPI_HEAD) half_head(k, at, warps, n_out);
    if (!S::group) skinny_count(k, at.factor, w, warps, n_row);
    asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
    skinny_shared own = at;
    own.best += w * HALF_BEST;
    skinny_ring r = {0, 0};
    for (int i = blockIdx.x; i < items; i += gridDim.x) {
        const skinny_item it = skinny_find<NT>(k, i);
        const bool first = i == (int)blockIdx.x;
        if constexpr (SHARED) {
            if (L2 < 0 || !it.region)
                shared_consume<L, NT, G>(k, r, it, smem, n_row, own);
            else
                shared_consume<M, NT, G>(k, r, it, smem, n_row, own);
        } else if (L2 < 0 || !it.region)
            skinny_consume<L, NT, G, LONG>(k, r, it, smem, n_row, own, first);
        else
            skinny_consume<M, NT, G, LONG>(k, r, it, smem, n_row, own, first);
    }
    if (k.epilogue == EPI_HEAD) skinny_chosen(k, at, warps);
}
template <int L, int L2, int NT, bool G, bool SHARED>
__global__ void __launch_bounds__(skinny_threads((enum layout)L, NT, G, SHARED), 1)
    skinny_kernel(const __grid_constant__ skinny_job k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    skinny_block<L, L2, NT, G, SHARED>(k);
#else
    if constexpr (!skinny_shape<L, NT, G>::group) skinny_block<L, L2, NT, G, SHARED>(k);
#endif
}
