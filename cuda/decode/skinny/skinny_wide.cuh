// More than 64 decode rows on sm_90a, weights of codes in whole units: clusters of two blocks, each with 128 weight rows, share 128
// rows of the step.
//
// Each block copies half of the rows' tiles to both, so that L2 gives half of them; rows and weights have a ring each,
// so that a slot is asked for again as soon as its 64 columns (weights: its unit) are done. The order of the sums is
// that of skinny.cuh: a row's bits are those it has alone.
#pragma once
#include "cuda/common/cluster.cuh"
#include "cuda/decode/skinny/skinny_many.cuh"
#include "cuda/decode/skinny/skinny_mma.cuh"

// The factors of rows come from two warps. wait: for them, else: they are there.
DEV void wide_met(bool wait) {
    if (wait)
        asm volatile("bar.sync 15, 320;" ::: "memory");
    else
        asm volatile("bar.arrive 15, 320;" ::: "memory");
}
template <int L> struct wide_shape : skinny_shape<L, WIDE_NT, true> {
    static_assert(format<L>::whole_units, "units of 256 columns");
};
enum { WIDE_SLOT = WIDE_NT * 1024 }; // bytes of the rows' 64 columns
struct wide_rings {
    skinny_ring x = {0, 0}, w = {0, 0};
};
struct wide_item {
    int region, tile0, n_tile, row0, split, set;
};
DEV wide_item wide_find(const skinny_job &k, int i, int rank) {
    wide_item it;
    it.region = i >= k.items[0];
    const int own = it.region ? i - k.items[0] : i;
    it.split = own & (k.splits - 1);
    const int pair = own >> k.split_bits, tile = pair / k.groups;
    it.set = ((it.region ? k.items[0] >> k.split_bits : 0) + pair) * 2 + rank;
    it.row0 = (pair - tile * k.groups) * (WIDE_NT * 8);
    it.tile0 = (tile * 2 + rank) * k.mw;
    it.n_tile = max(0, min(k.mw, k.tiles[it.region] - it.tile0));
    return it;
}
// unit(u, number of column tiles) for all units of an item, then added(class)
template <class U, class A> DEV void wide_columns(const skinny_job &k, int split, U unit, A added) {
    const int n = k.classes >> k.split_bits;
    for (int c = split * n; c < (split + 1) * n; c++) {
        for (int u = c; u < k.j.u; u += k.classes) unit(u, min(4, k.n_column - 4 * u));
        added(c);
    }
}
template <class V> DEV void wide_each(const skinny_job &k, V visit) {
    const int rank = (int)cluster_rank();
    for (int i = blockIdx.x >> 1; i < k.items[0] + k.items[1]; i += gridDim.x >> 1)
        visit(wide_find(k, i, rank));
}

// ---- producers: a warp for the rows, one for the weights
DEV void wide_produce_rows(const skinny_job &k, uint32_t smem) {
    const int rank = (int)cluster_rank();
    skinny_ring r = {0, 0};
    wide_each(k, [&](const wide_item &it) {
        const int rows = min(WIDE_NT, (k.pitch - k.first - it.row0) >> 3), half = rows >> 1,
                  from = rank ? half : 0, n = rank ? rows - half : half; // of 8
        wide_columns(
            k, it.split,
            [&](int u, int columns) {
                for (int q = 0; q < columns; q++) {
                    const uint32_t full = smem + WIDE_X_FULL + 8 * r.slot;
                    barrier_wait(smem + WIDE_X_EMPTY + 8 * r.slot, r.phase ^ 1);
                    barrier_expect(full, rows * 1024);
                    if (n)
                        bulk_multicast(smem + WIDE_RING_AT + r.slot * WIDE_SLOT + from * 1024,
                                       k.j.x + ((size_t)(4 * u + q) * k.pitch + it.row0 + from * 8) * 128,
                                       n * 1024, full, 3);
                    r.step(k.stages);
                }
            },
            [](int) {});
    });
}
template <int L, class F> DEV void wide_weights(const skinny_job &k, const wide_item &it, F fetch) {
    const int lane = threadIdx.x & 31;
    constexpr int bytes = wide_shape<L>::unit;
    wide_columns(
        k, it.split,
        [&](int u, int) { fetch(k.j.w[it.region] + ((size_t)(it.tile0 + lane) * k.j.u + u) * bytes, bytes); },
        [](int) {});
}
template <int L, int M> DEV void wide_produce_weights(const skinny_job &k, uint32_t smem) {
    const int lane = threadIdx.x & 31;
    skinny_ring r = {0, 0};
    wide_each(k, [&](const wide_item &it) {
        auto fetch = [&](const uint8_t *from, int bytes) {
            const uint32_t full = smem + WIDE_W_FULL + 8 * r.slot,
                           to = smem + k.weights_at + r.slot * k.stage_bytes + lane * bytes;
            barrier_wait(smem + WIDE_W_EMPTY + 8 * r.slot, r.phase ^ 1);
            if (lane == 0) barrier_expect(full, it.n_tile * bytes);
            __syncwarp();
            if (lane < it.n_tile) bulk_copy(to, from, bytes, full);
            r.step(k.weight_stages);
        };
        if (L == M || !it.region)
            wide_weights<L>(k, it, fetch);
        else
            wide_weights<M>(k, it, fetch);
    });
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// ---- the products of a unit. a: operands of two times 64 columns; those of odd ones may be under way when it is left.
template <int L> struct wide_products {
    using P = group_product<L, WIDE_NT, true>;
    uint32_t a[2][4][4];
    int held = -1; // slot of the product under way
    MEM void release(uint32_t bars) {
        __syncwarp();
        if (held >= 0 && (threadIdx.x & 31) < 2)
            cluster_arrive(bars + WIDE_X_EMPTY + 8 * held, threadIdx.x & 31);
        held = -1;
    }
    MEM void done(typename P::sums &acc, uint32_t bars) {
        P::template end<0>(acc, a[1]);
        release(bars);
    }
    MEM void unit(const skinny_job &k, wide_rings &r, typename P::sums &acc, uint8_t *smem, float up) {
        const int lane = threadIdx.x & 31;
        const uint32_t bars = smem_address(smem);
        barrier_wait(bars + WIDE_W_FULL + 8 * r.w.slot, r.w.phase);
        const uint8_t *w =
            smem + k.weights_at + r.w.slot * k.stage_bytes + (threadIdx.x >> 5) * wide_shape<L>::unit;
        tile_operands<L> o;
        o.start(w, lane, up);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            o.get(a[q & 1], w, q, lane);
            if (q == 3) { // all of the unit is in registers
                __syncwarp();
                if (elect_one()) barrier_arrive(bars + WIDE_W_EMPTY + 8 * r.w.slot);
                r.w.step(k.weight_stages);
            }
            barrier_wait(bars + WIDE_X_FULL + 8 * r.x.slot, r.x.phase);
            // the same in all lanes, which the compiler cannot know
            const uint32_t x =
                __reduce_or_sync(~0u, wgmma_descriptor(bars + WIDE_RING_AT + r.x.slot * WIDE_SLOT));
            P::start(acc, x, a[q & 1]);
            P::template end<1>(acc, a[~q & 1]);
            release(bars);
            held = r.x.slot;
            r.x.step(k.stages);
        }
    }
};
// The sums of an item: where blocks share a tile, of each class to global memory; else of all to shared memory.
DEV float4 *wide_sums(const skinny_job &k, uint8_t *smem) {
    return (float4 *)(smem + k.sums_at) + (threadIdx.x >> 5) * (WIDE_NT * 32) + (threadIdx.x & 31);
}
DEV float4 *wide_part(const skinny_job &k, const wide_item &it, int c) {
    const size_t of_class =
        (size_t)((k.items[0] + k.items[1]) >> k.split_bits) * (2 * WIDE_TILES * WIDE_NT * 32);
    return k.part + c * of_class + ((size_t)it.set * WIDE_TILES + (threadIdx.x >> 5)) * (WIDE_NT * 32) +
           (threadIdx.x & 31);
}
template <int L> DEV void wide_sum(const skinny_job &k, wide_rings &r, const wide_item &it, uint8_t *smem) {
    constexpr int NT = WIDE_NT;
    float acc[1][NT][4] = {}, sum[NT][4] = {};
    const float up = k.j.up[it.region];
    wide_products<L> products;
    wide_columns(
        k, it.split, [&](int, int) { products.unit(k, r, acc, smem, up); },
        [&](int c) {
            products.done(acc, smem_address(smem));
            float4 *part = wide_part(k, it, c);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float(&v)[4] = acc[0][n];
                if (k.splits > 1)
                    __stcg(part + n * 32, make_float4(v[0], v[1], v[2], v[3]));
                else
#pragma unroll
                    for (int o = 0; o < 4; o++) sum[n][o] += v[o];
#pragma unroll
                for (int o = 0; o < 4; o++) v[o] = 0;
            }
        });
    if (k.splits > 1) return;
    if (k.sums_at == WIDE_RING_AT) asm volatile("bar.sync 1, 256;" ::: "memory"); // what was there is read
    float4 *to = wide_sums(k, smem);
#pragma unroll
    for (int n = 0; n < NT; n++) to[n * 32] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
}
// What follows the sums of warp w's row tile, of groups that others have a part of by turns.
DEV void wide_tile(const skinny_job &k, const wide_item &it, uint8_t *smem, int n_row,
                   const skinny_shared &at) {
    const int w = threadIdx.x >> 5, by = k.splits,
              n_group = w < it.n_tile ? min(WIDE_NT, (n_row - it.row0 + 7) / 8) : 0;
    half_rows f = {};
    if (n_group > 0) f = half_look(k, it.region, it.tile0 + w, (threadIdx.x & 31) >> 2);
    const float down = k.j.down[it.region];
    if (by == 1) {
        if (n_group > 0)
            skinny_many<WIDE_NT>{k, f, it.tile0 + w, it.row0, n_row, down, at}.finish_from(
                wide_sums(k, smem));
        return;
    }
    half_meet(k, it.set);
    const float4 *part = wide_part(k, it, 0);
    const size_t of_class = wide_part(k, it, 1) - part;
#pragma unroll 1
    for (int n = it.split; n < n_group; n += by) {
        float v[4], res[4];
        if (k.epilogue == EPI_ADD) half_residual(k, f, it.row0 + n * 8, n_row, res);
        half_gather(v, part + n * 32, of_class, k.classes);
#pragma unroll
        for (int o = 0; o < 4; o++) v[o] *= down;
        skinny_finish(k, f, it.tile0 + w, it.row0 + n * 8, n_row, v, res, at);
    }
    half_leave(k, it.set);
}
template <int L, int M>
DEV void wide_consume(const skinny_job &k, uint8_t *smem, int n_row, const skinny_shared &at) {
    const int step = gridDim.x >> 1, from = blockIdx.x >> 1;
    wide_rings r;
    for (int i = from; i < k.items[0] + k.items[1]; i += step) {
        const wide_item it = wide_find(k, i, (int)cluster_rank());
        if (L == M || !it.region)
            wide_sum<L>(k, r, it, smem);
        else
            wide_sum<M>(k, r, it, smem);
        if (i == from) wide_met(true);
        wide_tile(k, it, smem, n_row, at);
    }
}
template <int L, int M> DEV void wide_block(const skinny_job &k) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, items = k.items[0] + k.items[1];
    const uint32_t base = smem_address(smem);
    skinny_shared at = {(float *)(smem + WIDE_FACTOR), (int *)(smem + k.best_at + 8 * HALF_BEST * 8),
                        (best_value *)(smem + k.best_at)};
    if (threadIdx.x < WIDE_STAGES) {
        barrier_init(base + WIDE_X_FULL + 8 * threadIdx.x, 1);
        barrier_init(base + WIDE_X_EMPTY + 8 * threadIdx.x, 2 * 8);
        barrier_init(base + WIDE_W_FULL + 8 * threadIdx.x, 1);
        barrier_init(base + WIDE_W_EMPTY + 8 * threadIdx.x, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_fence();
    }
    cluster_sync();
    pdl_trigger();
    if (w >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (w == 9)
            wide_produce_weights<L, M>(k, base); // which depend on no kernel
        else {
            pdl_wait();
            if (w == 8) {
                if (elect_one()) wide_produce_rows(k, base);
            } else {
                const int n_row = half_rows_of(k, *k.j.n_row);
                if (k.j.n_square)
                    half_exchange(k, at.factor, w - 10, 2, n_row);
                else
                    skinny_count(k, at.factor, w - 10, 2, n_row);
                if ((int)(blockIdx.x >> 1) < items) wide_met(false);
            }
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        pdl_wait();
        const int n_out = *k.j.n_row, n_row = half_rows_of(k, n_out);
        if (k.epilogue == EPI_HEAD) half_head(k, at, 8, n_out);
        asm volatile("bar.sync 1, 256;" ::: "memory");
        skinny_shared own = at;
        own.best += w * HALF_BEST;
        wide_consume<L, M>(k, smem, n_row, own);
        if (k.epilogue == EPI_HEAD) skinny_chosen(k, at, 8);
    }
    cluster_sync();
}
#endif
template <int L, int L2>
__global__ void __launch_bounds__(384, 1) skinny_wide_kernel(const __grid_constant__ skinny_job k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    wide_block < L, L2<0 ? L : L2>(k);
#endif
}
