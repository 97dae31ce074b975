// Decode rows, more than one.
//
// A block takes mw row tiles of 16 weight rows (a warp each) times 8 NT rows of the step times all columns. One more warp
// keeps a ring of stages full: span column tiles of 64 columns of every warp's weights and of the rows (codes: a unit and
// its four column tiles). The order of the sums is that of stream.cuh: class c holds the units c, c + C, .. where C warps
// share the columns for one row; the classes are added from 0 on. A row's bits are those it has alone. wgmma (sm_90a,
// NT = 16) and mma.sync sum the 16 products of a step and what was there before to the same bits (measured: 5.5e8 sums,
// halves and bfloat16).
//
// Few rows: a row tile may have C warps, a class each, as one row has them (SHARED): a warp's loads and products wait for
// each other, so that few row tiles are done sooner. A stage then holds columns of all classes.
//
// Sums stay where the products leave them: lane (gid, tig) has weight rows gid and gid + 8 of rows 2 tig and 2 tig + 1.
#pragma once
#include "stream_sums.cuh"
#include "wgmma.cuh"
#include "wide_half_finish.cuh"

// G: by warpgroups, wgmma
template <int L, int NT, bool G> struct half_shape {
    static constexpr bool codes = !coded<L>::half, group = G;
    static constexpr int parts = L == LAYOUT_BF16 ? 2 : 1, x = NT * 8 * 128;
    static constexpr int unit = layout_unit_bytes((enum layout)L);
    static constexpr int tile = codes ? 0 : 2048; // from a column tile of weights to the next
    static constexpr int classes = half_classes((enum layout)L);
    static constexpr bool whole =
        coded<L>::super || coded<L>::six || L == LAYOUT_Q2K; // no unit has less than 256 columns
};
enum { HALF_FULL = 0, HALF_EMPTY = 64 };

struct half_ring {
    int slot, phase;
    MEM void step(int stages) {
        if (++slot == stages) slot = 0, phase ^= 1;
    }
};
// A tile of weights and rows, or a part of its classes.
struct half_item {
    int region, tile0, n_tile, row0, split, set; // set: of the parts of a tile
};
template <int NT> DEV half_item half_find(const half_job &k, int i) {
    half_item it;
    it.region = i >= k.items[0];
    if (it.region) i -= k.items[0];
    it.split = i % k.splits;
    i /= k.splits;
    it.set = it.region * (k.items[0] / k.splits) + i;
    it.row0 = i % k.groups * (NT * 8);
    it.tile0 = i / k.groups * k.mw;
    it.n_tile = min(k.mw, k.tiles[it.region] - it.tile0);
    return it;
}
// Bytes that a row tile's weights of n column tiles are.
template <int L> DEV int half_bytes(int n) {
    return coded<L>::half ? n * 2048 : layout_unit_bytes((enum layout)L);
}
template <int L>
DEV const uint8_t *half_weights(const half_job &k, const half_item &it, int tile, int column) {
    return k.j.w[it.region] +
           ((size_t)(it.tile0 + tile) * k.j.u + (column >> 2)) * layout_unit_bytes((enum layout)L) +
           (coded<L>::half ? (column & 3) * 2048 : 0);
}

// ---- stages of a block whose warps have row tiles
// stage(first column tile, number of them) for all stages of an item, then added() where a class ends
template <class S, class A> DEV void half_columns(const half_job &k, int split, S stage, A added) {
    const int n = k.classes / k.splits;
    for (int c = split * n; c < (split + 1) * n; c++) {
        for (int u = c; u < k.j.u; u += k.classes) {
            const int end = min(4 * u + 4, k.n_column);
            for (int t = 4 * u; t < end; t += k.span) stage(t, min(k.span, end - t));
        }
        added(c);
    }
}
template <int L, int NT, bool G> struct tile_stages {
    using S = half_shape<L, NT, G>;
    template <class V> static MEM void each(const half_job &k, const half_item &it, V visit) {
        half_columns(k, it.split, visit, [](int) {});
    }
    static MEM void fetch(const half_job &k, const half_ring &r, uint32_t smem, const half_item &it,
                          int column, int n, bool weights, bool rows) {
        const int lane = threadIdx.x & 31, bytes = min(NT * 8, k.pitch - it.row0) * 128,
                  own = half_bytes<L>(n);
        const uint32_t bar = smem + HALF_FULL + 8 * r.slot, to = smem + HALF_RING_AT + r.slot * k.stage_bytes;
        if (weights) {
            if (lane == 0) barrier_expect(bar, it.n_tile * own + n * S::parts * bytes);
            __syncwarp();
            if (lane < it.n_tile)
                bulk_copy(to + k.span * S::parts * S::x + lane * half_bytes<L>(k.span),
                          half_weights<L>(k, it, lane, column), own, bar);
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
    using S = half_shape<L, NT, G>;
    static constexpr int C = S::classes;
    // Column tiles that class c has in part p of round i (units C i + c), and the first of them.
    static MEM int first(const half_job &k, int i, int p, int c) { return 4 * (C * i + c) + p * k.span; }
    static MEM int count(const half_job &k, int i, int p, int c) {
        return max(0, min(k.span, k.n_column - first(k, i, p, c)));
    }
    template <class V> static MEM void each(const half_job &k, const half_item &, V visit) {
        for (int i = 0; C * i < k.j.u; i++)
            for (int p = 0; p * k.span < 4; p++) visit(i, p);
    }
    static MEM void fetch(const half_job &k, const half_ring &r, uint32_t smem, const half_item &it, int i,
                          int p, bool weights, bool rows) {
        const int lane = threadIdx.x & 31, bytes = min(NT * 8, k.pitch - it.row0) * 128;
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
                          half_weights<L>(k, it, lane / C, first(k, i, p, c)), own, bar);
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
template <class T, int NT, class V> DEV void half_each(const half_job &k, V visit) {
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const half_item it = half_find<NT>(k, i);
        T::each(k, it, [&](int a, int b) { visit(it, a, b); });
    }
}
template <class T, class T2, int NT> DEV void half_produce(const half_job &k, uint32_t smem) {
    half_ring r = {0, 0};
    int v = 0;
    auto fetch = [&](const half_item &it, int a, int b, bool weights, bool rows) {
        if (it.region)
            T2::fetch(k, r, smem, it, a, b, weights, rows);
        else
            T::fetch(k, r, smem, it, a, b, weights, rows);
        r.step(k.stages);
    };
    half_each<T, NT>(k, [&](const half_item &it, int a, int b) {
        if (v++ < k.stages) fetch(it, a, b, true, false); // weights depend on no kernel
    });
    pdl_wait();
    v = 0;
    r = {0, 0};
    half_each<T, NT>(k, [&](const half_item &it, int a, int b) {
        const bool again = v++ >= k.stages;
        if (again) barrier_wait(smem + HALF_EMPTY + 8 * r.slot, r.phase ^ 1);
        fetch(it, a, b, again, true);
    });
}

// ---- 64 columns of a row tile as operands of four products
template <int L> struct tile_operands {
    unit_factors<L> f;
    MEM void start(const uint8_t *u, int lane, float up) { f.load(u, lane, up); }
    MEM void get(uint32_t (&a)[4][4], const uint8_t *u, int q, int lane) const {
        tile_codes<L> t;
        t.load(u, q, lane);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            group_factors<L> k;
            k.get(f, 2 * q + i, lane);
            group_halves<L>(*(uint32_t(*)[2][4]) & a[2 * i], t, 2 * q + i, k);
        }
    }
};
struct tile_halves {
    MEM void start(const uint8_t *, int, float) {}
    MEM void get(uint32_t (&a)[4][4], const uint8_t *w, int, int lane) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 lo = *(const uint4 *)(w + i * 1024 + lane * 16),
                        hi = *(const uint4 *)(w + i * 1024 + 512 + lane * 16);
            a[2 * i][0] = lo.x, a[2 * i][1] = hi.x, a[2 * i][2] = lo.y, a[2 * i][3] = hi.y;
            a[2 * i + 1][0] = lo.z, a[2 * i + 1][1] = hi.z, a[2 * i + 1][2] = lo.w, a[2 * i + 1][3] = hi.w;
        }
    }
};
template <> struct tile_operands<LAYOUT_F16> : tile_halves {};
template <> struct tile_operands<LAYOUT_BF16> : tile_halves {};

template <int L> DEV void half_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (L == LAYOUT_BF16)
        mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
    else
        mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
DEV void half_wgmma_bf16(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
                 "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
                 "%56, %57, %58, %59, %60, %61, %62, %63"
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
                 : D64(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// 64 columns under way; what lies between start and end runs beside them.
template <int L, int NT, bool G> struct group_product {
    using S = half_shape<L, NT, G>;
    using sums = float[S::parts][NT][4];
    static MEM void start(sums &acc, uint32_t x, const uint32_t (&a)[4][4]) {
        float(&d)[S::parts][NT * 4] = *(float(*)[S::parts][NT * 4]) acc;
        const uint64_t b = wgmma_descriptor(x);
#pragma unroll
        for (int p = 0; p < S::parts; p++) wgmma_pin(d[p]);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++)
            if constexpr (L == LAYOUT_BF16)
#pragma unroll
                for (int p = 0; p < 2; p++) half_wgmma_bf16(d[p], a[s], b + 2 * s + p * (S::x >> 4));
            else
                wgmma_rs(d[0], a[s], b + 2 * s);
        wgmma_commit();
    }
    static MEM void end(sums &acc, uint32_t (&a)[4][4]) {
        float(&d)[S::parts][NT * 4] = *(float(*)[S::parts][NT * 4]) acc;
        wgmma_wait<0>(); // the other warpgroup keeps the tensor cores busy meanwhile
#pragma unroll
        for (int p = 0; p < S::parts; p++) wgmma_pin(d[p]);
#pragma unroll
        for (int s = 0; s < 4; s++) // until here nothing else may have these registers
#pragma unroll
            for (int i = 0; i < 4; i++) asm volatile("" : "+r"(a[s][i])::"memory");
    }
};
#endif
// A row tile times 8 NT rows, 64 columns.
template <int L, int NT, bool G>
DEV void half_product(float (&acc)[half_shape<L, NT, G>::parts][NT][4], uint32_t x, uint32_t (&a)[4][4],
                      int lane) {
    using S = half_shape<L, NT, G>;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (S::group) {
        group_product<L, NT, G>::start(acc, x, a);
        group_product<L, NT, G>::end(acc, a);
        return;
    }
#endif
    if constexpr (NT == 1) { // ldmatrix: 8 rows of four chunks, two products
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int p = 0; p < S::parts; p++) {
                uint32_t b[4];
                ldmatrix4(b, x + p * S::x + (lane & 7) * 128 + (((4 * i + (lane >> 3)) ^ (lane & 7)) << 4));
                half_mma<L>(acc[p][0], a[2 * i], b[0], b[1]);
                half_mma<L>(acc[p][0], a[2 * i + 1], b[2], b[3]);
            }
    } else {
        // a lane's row and 16-byte chunk of ldmatrix: two groups of 8 rows, two halves of a step
        const int row = (lane & 7) + (lane >> 4 << 3), chunk = (lane >> 3 & 1) ^ (row & 7);
#pragma unroll
        for (int s = 0; s < 4; s++)
#pragma unroll
            for (int p = 0; p < S::parts; p++)
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                    uint32_t b[4];
                    ldmatrix4(b, x + p * S::x + (n * 8 + row) * 128 + ((chunk ^ 2 * s) << 4));
                    half_mma<L>(acc[p][n], a[s], b[0], b[1]);
                    half_mma<L>(acc[p][n + 1], a[s], b[2], b[3]);
                }
    }
}
// n column tiles, the rows' at x, the row tile's weights at w.
template <int L, int NT, bool G>
DEV void half_products(float (&acc)[half_shape<L, NT, G>::parts][NT][4], const uint8_t *x, const uint8_t *w,
                       int n, int lane, float up) {
    using S = half_shape<L, NT, G>;
    tile_operands<L> o;
    uint32_t a[4][4];
    o.start(w, lane, up);
    auto product = [&](int q) {
        o.get(a, w, q, lane);
        half_product<L, NT, G>(acc, smem_address(x) + q * S::x, a, lane);
    };
    if constexpr (S::whole && S::group) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        using P = group_product<L, NT, G>; // the next operands are made beside the products
        uint32_t b[4][4];
        o.get(a, w, 0, lane);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t(&now)[4][4] = q & 1 ? b : a, (&next)[4][4] = q & 1 ? a : b;
            P::start(acc, smem_address(x) + q * S::x, now);
            if (q < 3) o.get(next, w, q + 1, lane);
            P::end(acc, now);
        }
#endif
    } else if constexpr (S::codes) {
#pragma unroll
        for (int q = 0; q < 4; q++)
            if (S::whole || q < n) product(q);
    } else
        for (int q = 0; q < n; q++) {
            o.get(a, w + q * S::tile, q, lane);
            half_product<L, NT, G>(acc, smem_address(x) + q * (S::parts * S::x), a, lane);
        }
}

// ---- the other warps
// The products of a stage; then its slot may be filled again.
template <int L, int NT, bool G>
DEV void half_stage(const half_job &k, half_ring &r, float (&acc)[half_shape<L, NT, G>::parts][NT][4],
                    uint8_t *smem, size_t x, size_t w, int n, float up) {
    const int lane = threadIdx.x & 31;
    const uint32_t bars = smem_address(smem);
    barrier_wait(bars + HALF_FULL + 8 * r.slot, r.phase);
    const uint8_t *at = smem + HALF_RING_AT + r.slot * k.stage_bytes;
    if (n) half_products<L, NT, G>(acc, at + x, at + w, n, lane, up);
    __syncwarp();
    if (elect_one()) barrier_arrive(bars + HALF_EMPTY + 8 * r.slot);
    r.step(k.stages);
}
// The sums of all classes, in order.
DEV void half_gather(float (&v)[4], const float4 *part, size_t of_class, int classes) {
    float4 a[8];
#pragma unroll
    for (int c = 0; c < 8; c++) a[c] = c < classes ? __ldcg(part + c * of_class) : make_float4(0, 0, 0, 0);
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll
    for (int c = 0; c < 8; c++) v[0] += a[c].x, v[1] += a[c].y, v[2] += a[c].z, v[3] += a[c].w;
}
template <int L, int NT, bool G>
DEV void half_consume(const half_job &k, half_ring &r, const half_item &it, uint8_t *smem, int n_row,
                      const half_shared &at, bool first) {
    using S = half_shape<L, NT, G>;
    constexpr int AHEAD = S::group  ? 4
                          : NT == 1 ? 1
                                    : 2; // groups of rows whose residual is asked for at once
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float acc[S::parts][NT][4], sum[NT][4];
#pragma unroll
    for (int n = 0; n < NT * 4; n++) (&sum[0][0])[n] = (&acc[0][0][0])[n] = (&acc[S::parts - 1][0][0])[n] = 0;
    const size_t own = (size_t)k.span * S::parts * S::x + (size_t)w * half_bytes<L>(k.span);
    const float up = k.j.up[it.region];
    // sums of a class that other blocks share: a float4 a lane for 8 rows
    const size_t of_class = (size_t)(k.items[0] + k.items[1]) / k.splits * (size_t)(k.mw * NT * 32);
    float4 *part = k.part + ((size_t)it.set * k.mw + w) * (NT * 32) + lane;
    half_columns(
        k, it.split, [&](int, int n) { half_stage<L, NT, G>(k, r, acc, smem, 0, own, n, up); },
        [&](int c) {
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
                else
#pragma unroll
                    for (int o = 0; o < 4; o++) sum[n][o] += v[o];
            }
        });
    if (G && first) half_met<G>(k, true);
    if (k.splits > 1) half_meet(k, it.set);
    if (w >= it.n_tile) return;
    const half_rows f = half_look(k, it.region, it.tile0 + w, lane >> 2);
    const float down = S::codes ? k.j.down[it.region] : 1.f;
#pragma unroll 1
    for (int n0 = 0; n0 < NT && it.row0 + n0 * 8 < n_row;
         n0 += AHEAD) { // not unrolled: it would miss in the cache of code
        float res[AHEAD][4], v[AHEAD][4];
        if (k.splits == 1) {
#pragma unroll
            for (int n = 0; n < NT; n++)
                if (n / AHEAD * AHEAD == n0)
#pragma unroll
                    for (int o = 0; o < 4; o++) v[n % AHEAD][o] = sum[n][o];
        } else if (n0 / AHEAD % k.splits == it.split) // of the blocks that share the tile
#pragma unroll
            for (int n = 0; n < AHEAD; n++) half_gather(v[n], part + (n0 + n) * 32, of_class, k.classes);
        else
            continue;
#pragma unroll
        for (int n = 0; n < AHEAD * 4; n++) (&v[0][0])[n] *= down;
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            if (k.epilogue == EPI_ADD) half_residual(k, f, it.row0 + (n0 + n) * 8, n_row, res[n]);
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const int row0 = it.row0 + (n0 + n) * 8;
            if (row0 < n_row) half_finish(k, f, it.tile0 + w, row0, n_row, v[n], res[n], at);
        }
    }
}

// Sums of the warps of a row tile, added by the warp that finishes the rows: group n of 8 by warp n % C.
template <int L, int NT, bool G>
DEV void shared_consume(const half_job &k, half_ring &r, const half_item &it, uint8_t *smem, int n_row,
                        const half_shared &at) {
    using S = half_shape<L, NT, G>;
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
        half_stage<L, NT, G>(k, r, acc, smem, x, own, t < it.n_tile ? T::count(k, i, p, c) : 0, up);
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
        half_finish(k, f, it.tile0 + t, row0, n_row, v, res, at);
    }
}

// Outputs of rows and an empty best of each, for the head.
DEV void half_head(const half_job &k, const half_shared &at, int warps, int n_out) {
    for (int i = threadIdx.x; i < warps * HALF_ROWS; i += warps * 32) at.best[i] = {-INFINITY, 0x7fffffff};
    for (int t = threadIdx.x; t < k.rows; t += warps * 32) at.out[t] = -1;
    asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
    for (int t = threadIdx.x; t < n_out; t += warps * 32) {
        const int row = __ldcg(k.j.rowmap + t);
        if (row < k.rows) at.out[row] = t;
    }
}
DEV void half_chosen(const half_job &k, const half_shared &at, int warps) {
    asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
    for (int t = threadIdx.x; t < k.rows; t += warps * 32) {
        if (at.out[t] < 0) continue;
        best_value b = at.best[t];
        for (int i = 1; i < warps; i++)
            if (better(at.best[i * HALF_ROWS + t], b)) b = at.best[i * HALF_ROWS + t];
        k.j.cand[(size_t)at.out[t] * k.j.n_cand + blockIdx.x] = make_float2(b.v, __int_as_float(b.i));
    }
}
template <int L, int L2, int NT, bool G, bool SHARED> DEV void half_block(const half_job &k) {
    using S = half_shape<L, NT, G>;
    constexpr int M = L2 < 0 ? L : L2; // of region 1
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, warps = SHARED ? S::classes * k.mw : k.mw,
              items = k.items[0] + k.items[1];
    const uint32_t base = smem_address(smem);
    half_shared at = {(float *)(smem + HALF_FACTOR), (int *)(smem + k.best_at + warps * HALF_ROWS * 8),
                      (best_value *)(smem + k.best_at)};
    if (threadIdx.x < HALF_STAGES) {
        barrier_init(base + HALF_FULL + 8 * threadIdx.x, 1);
        barrier_init(base + HALF_EMPTY + 8 * threadIdx.x, warps);
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    if (w >= warps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if constexpr (S::group) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        if (S::group && w > warps) {
            pdl_wait();
            const int n_row = k.epilogue == EPI_HEAD ? k.rows : *k.j.n_row;
            if (k.j.n_square)
                half_exchange(k, at.factor, w - warps - 1, half_helpers(G) - 1, n_row);
            else
                half_count(k, at.factor, w - warps - 1, half_helpers(G) - 1, n_row);
            if ((int)blockIdx.x < items) half_met<G>(k, false);
        } else if constexpr (SHARED)
            half_produce<class_stages<L, NT, G>, class_stages<M, NT, G>, NT>(k, base);
        else
            half_produce<tile_stages<L, NT, G>, tile_stages<M, NT, G>, NT>(k, base);
        return;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (S::group) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    pdl_wait();
    const int n_out = *k.j.n_row, n_row = k.epilogue == EPI_HEAD ? k.rows : n_out;
    if (k.epilogue == EPI_HEAD) half_head(k, at, warps, n_out);
    if (!S::group) half_count(k, at.factor, w, warps, n_row);
    asm volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
    half_shared own = at;
    own.best += w * HALF_ROWS;
    half_ring r = {0, 0};
    for (int i = blockIdx.x; i < items; i += gridDim.x) {
        const half_item it = half_find<NT>(k, i);
        const bool first = i == (int)blockIdx.x;
        if constexpr (SHARED) {
            if (L2 < 0 || !it.region)
                shared_consume<L, NT, G>(k, r, it, smem, n_row, own);
            else
                shared_consume<M, NT, G>(k, r, it, smem, n_row, own);
        } else if (L2 < 0 || !it.region)
            half_consume<L, NT, G>(k, r, it, smem, n_row, own, first);
        else
            half_consume<M, NT, G>(k, r, it, smem, n_row, own, first);
    }
    if (k.epilogue == EPI_HEAD) half_chosen(k, at, warps);
}
template <int L, int L2, int NT, bool G, bool SHARED>
__global__ void __launch_bounds__(half_threads((enum layout)L, NT, G, SHARED), 1)
    wide_half_kernel(const __grid_constant__ half_job k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    half_block<L, L2, NT, G, SHARED>(k);
#else
    if constexpr (!half_shape<L, NT, G>::group) half_block<L, L2, NT, G, SHARED>(k);
#endif
}
