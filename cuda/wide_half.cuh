// Decode rows, more than one, times halves.
//
// A block takes mw row tiles of 16 weight rows (a warp each) times 8 NT rows of the step times all columns. One more warp
// keeps a ring of stages full: span column tiles of 64 columns of every warp's weights and of the rows. The order of the
// sums is that of stream.cuh: class c holds the units c, c + 4, ..; the classes are added from 0 on. A row's bits are
// those it has alone. wgmma (sm_90a, NT = 16) and mma.sync sum the 16 products of a step and what was there before to the
// same bits (measured: 5.5e8 sums, halves and bfloat16).
//
// Up to 16 or 32 rows a row tile may have four warps, a class each, as one row has them (SHARED): a warp's loads and
// products wait for each other, so that few row tiles are done sooner. A stage then holds columns of all classes.
//
// Sums stay where the products leave them: lane (gid, tig) has weight rows gid and gid + 8 of rows 2 tig and 2 tig + 1.
#pragma once
#include "wgmma.cuh"
#include "wide_half_finish.cuh"

template <int L, int NT> struct half_shape {
    static constexpr int parts = L == LAYOUT_BF16 ? 2 : 1, x = NT * 8 * 128, tile = 2048, unit = 8192;
    static constexpr bool group = half_by_groups(NT); // warpgroups: wgmma
    static constexpr int threads = (HALF_WARPS + half_helpers(NT)) * 32;
};
enum { HALF_FULL = 0, HALF_EMPTY = 64 };

struct half_ring {
    int slot, phase;
    MEM void step(int stages) {
        if (++slot == stages) slot = 0, phase ^= 1;
    }
};
struct half_item {
    int tile0, n_tile, row0;
};
template <int NT> DEV half_item half_find(const half_job &k, int i) {
    half_item it;
    it.row0 = i % k.groups * (NT * 8);
    it.tile0 = i / k.groups * k.mw;
    it.n_tile = min(k.mw, k.tiles - it.tile0);
    return it;
}
// stage(first column tile, number of them) for all stages of an item, then added() where a class ends
template <class S, class A> DEV void half_columns(const half_job &k, S stage, A added) {
    for (int c = 0; c < HALF_CLASSES; c++) {
        for (int u = c; u < k.j.u; u += HALF_CLASSES) {
            const int end = min(4 * u + 4, k.n_column);
            for (int t = 4 * u; t < end; t += k.span) stage(t, min(k.span, end - t));
        }
        added();
    }
}
// visit(item, first column tile, number) for all that this block does
template <int NT, class V> DEV void half_each(const half_job &k, V visit) {
    for (int i = blockIdx.x; i < k.items; i += gridDim.x) {
        const half_item it = half_find<NT>(k, i);
        half_columns(
            k, [&](int t, int n) { visit(it, t, n); }, [] {});
    }
}

// ---- the classes of a row tile on four warps of its block
// Column tiles that class c has in part p of round i (units 4 i + c), and the first of them.
DEV int shared_first(const half_job &k, int i, int p, int c) {
    return 4 * (HALF_CLASSES * i + c) + p * k.span;
}
DEV int shared_count(const half_job &k, int i, int p, int c) {
    return max(0, min(k.span, k.n_column - shared_first(k, i, p, c)));
}
template <class V> DEV void shared_each(const half_job &k, V visit) {
    for (int i = 0; HALF_CLASSES * i < k.j.u; i++)
        for (int p = 0; p * k.span < 4; p++) visit(i, p);
}
template <int L, int NT>
DEV void shared_fetch(const half_job &k, const half_ring &r, uint32_t smem, const half_item &it, int i, int p,
                      bool weights, bool rows) {
    using S = half_shape<L, NT>;
    const int lane = threadIdx.x & 31, bytes = min(NT * 8, k.pitch - it.row0) * 128;
    const uint32_t bar = smem + HALF_FULL + 8 * r.slot, to = smem + HALF_RING_AT + r.slot * k.stage_bytes;
    const int c = lane & 3, n = shared_count(k, i, p, c), first = shared_first(k, i, p, c);
    if (weights) {
        int all = 0;
        for (int q = 0; q < HALF_CLASSES; q++) all += shared_count(k, i, p, q);
        if (lane == 0) barrier_expect(bar, all * (it.n_tile * S::tile + S::parts * bytes));
        __syncwarp();
        if (lane >> 2 < it.n_tile && n)
            bulk_copy(to + HALF_CLASSES * k.span * S::parts * S::x + lane * k.span * S::tile,
                      k.j.w[0] + ((size_t)(it.tile0 + (lane >> 2)) * k.j.u + HALF_CLASSES * i + c) * S::unit +
                          p * k.span * S::tile,
                      n * S::tile, bar);
    }
    const int x = lane >> 2, q = x / S::parts; // column tile and part of this lane
    if (rows && q < n)
        bulk_copy(to + ((c * k.span + q) * S::parts + x % S::parts) * S::x,
                  k.j.x + ((size_t)((first + q) * S::parts + x % S::parts) * k.pitch + it.row0) * 128, bytes,
                  bar);
}
template <int L, int NT> DEV void shared_produce(const half_job &k, uint32_t smem) {
    half_ring r = {0, 0};
    int v = 0;
    for (int m = blockIdx.x; m < k.items; m += gridDim.x)
        shared_each(k, [&](int i, int p) {
            if (v++ >= k.stages) return;
            shared_fetch<L, NT>(k, r, smem, half_find<NT>(k, m), i, p, true, false);
            r.step(k.stages);
        });
    pdl_wait();
    v = 0;
    r = {0, 0};
    for (int m = blockIdx.x; m < k.items; m += gridDim.x)
        shared_each(k, [&](int i, int p) {
            const bool again = v++ >= k.stages;
            if (again) barrier_wait(smem + HALF_EMPTY + 8 * r.slot, r.phase ^ 1);
            shared_fetch<L, NT>(k, r, smem, half_find<NT>(k, m), i, p, again, true);
            r.step(k.stages);
        });
}

// ---- the producer
template <int L, int NT>
DEV void half_fetch(const half_job &k, const half_ring &r, uint32_t smem, const half_item &it, int column,
                    int n, bool weights, bool rows) {
    using S = half_shape<L, NT>;
    const int lane = threadIdx.x & 31, bytes = min(NT * 8, k.pitch - it.row0) * 128;
    const uint32_t bar = smem + HALF_FULL + 8 * r.slot, to = smem + HALF_RING_AT + r.slot * k.stage_bytes;
    if (weights) {
        if (lane == 0) barrier_expect(bar, n * (it.n_tile * S::tile + S::parts * bytes));
        __syncwarp();
        if (lane < it.n_tile)
            bulk_copy(to + k.span * (S::parts * S::x + lane * S::tile),
                      k.j.w[0] + ((size_t)(it.tile0 + lane) * k.j.u + (column >> 2)) * S::unit +
                          (column & 3) * S::tile,
                      n * S::tile, bar);
    }
    if (rows && lane < S::parts * n)
        bulk_copy(to + lane * S::x, k.j.x + ((size_t)(column * S::parts + lane) * k.pitch + it.row0) * 128,
                  bytes, bar);
}
template <int L, int NT> DEV void half_produce(const half_job &k, uint32_t smem) {
    half_ring r = {0, 0};
    int v = 0;
    half_each<NT>(k, [&](const half_item &it, int column, int n) {
        if (v++ >= k.stages) return;
        half_fetch<L, NT>(k, r, smem, it, column, n, true, false); // weights depend on no kernel
        r.step(k.stages);
    });
    pdl_wait();
    v = 0;
    r = {0, 0};
    half_each<NT>(k, [&](const half_item &it, int column, int n) {
        const bool again = v++ >= k.stages;
        if (again) barrier_wait(smem + HALF_EMPTY + 8 * r.slot, r.phase ^ 1);
        half_fetch<L, NT>(k, r, smem, it, column, n, again, true);
        r.step(k.stages);
    });
}

// ---- a row tile times 8 NT rows, 64 columns
DEV uint4 half_load(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
}
template <int L> DEV void half_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (L == LAYOUT_F16)
        mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
    else
        mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
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

template <int L, int NT>
DEV void half_product_group(float (&acc)[half_shape<L, NT>::parts][NT][4], uint32_t x, uint32_t w, int lane) {
    using S = half_shape<L, NT>;
    float(&d)[S::parts][NT * 4] = *(float(*)[S::parts][NT * 4]) acc;
    const uint64_t b = wgmma_descriptor(x);
    uint4 v[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i >> 1][i & 1] = half_load(w + i * 512 + lane * 16);
#pragma unroll
    for (int p = 0; p < S::parts; p++) wgmma_pin(d[p]);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) {
        const uint4 lo = v[s >> 1][0], hi = v[s >> 1][1];
        const uint32_t a[4] = {s & 1 ? lo.z : lo.x, s & 1 ? hi.z : hi.x, s & 1 ? lo.w : lo.y,
                               s & 1 ? hi.w : hi.y};
        if constexpr (L == LAYOUT_F16)
            wgmma_rs(d[0], a, b + 2 * s);
        else
#pragma unroll
            for (int p = 0; p < 2; p++) half_wgmma_bf16(d[p], a, b + 2 * s + p * (S::x >> 4));
    }
    wgmma_commit();
    wgmma_wait<0>(); // the other warpgroup keeps the tensor cores busy meanwhile
#pragma unroll
    for (int p = 0; p < S::parts; p++) wgmma_pin(d[p]);
}
#endif
template <int L, int NT>
DEV void half_product(float (&acc)[half_shape<L, NT>::parts][NT][4], uint32_t x, uint32_t w, int lane) {
    using S = half_shape<L, NT>;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (S::group) {
        half_product_group<L, NT>(acc, x, w, lane);
        return;
    }
#endif
    // a lane's row and 16-byte chunk of ldmatrix: two groups of 8 rows, two halves of a step
    const int row = (lane & 7) + (lane >> 4 << 3), chunk = (lane >> 3 & 1) ^ (row & 7);
    uint4 v[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i >> 1][i & 1] = half_load(w + i * 512 + lane * 16);
#pragma unroll
    for (int s = 0; s < 4; s++) {
        const uint4 lo = v[s >> 1][0], hi = v[s >> 1][1];
        const uint32_t a[4] = {s & 1 ? lo.z : lo.x, s & 1 ? hi.z : hi.x, s & 1 ? lo.w : lo.y,
                               s & 1 ? hi.w : hi.y};
#pragma unroll
        for (int p = 0; p < S::parts; p++)
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                uint32_t b[4];
                ldmatrix4(b, x + p * S::x + (n * 8 + row) * 128 + ((chunk ^ 2 * s) << 4));
                half_mma<L>(acc[p][n], a, b[0], b[1]);
                half_mma<L>(acc[p][n + 1], a, b[2], b[3]);
            }
    }
}

template <int L, int NT>
DEV void half_consume(const half_job &k, uint32_t smem, int n_row, const half_shared &at) {
    using S = half_shape<L, NT>;
    constexpr int AHEAD = S::group ? 4 : 2; // groups of rows whose residual is asked for at once
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
    half_ring r = {0, 0};
    for (int i = blockIdx.x; i < k.items; i += gridDim.x) {
        const half_item it = half_find<NT>(k, i);
        float acc[S::parts][NT][4], sum[NT][4];
#pragma unroll
        for (int n = 0; n < NT * 4; n++)
            (&sum[0][0])[n] = (&acc[0][0][0])[n] = (&acc[S::parts - 1][0][0])[n] = 0;
        half_columns(
            k,
            [&](int, int n) {
                barrier_wait(smem + HALF_FULL + 8 * r.slot, r.phase);
                const uint32_t xt = smem + HALF_RING_AT + r.slot * k.stage_bytes,
                               wt = xt + k.span * (S::parts * S::x + w * S::tile);
                for (int q = 0; q < n; q++)
                    half_product<L, NT>(acc, xt + q * (S::parts * S::x), wt + q * S::tile, lane);
                __syncwarp();
                if (elect_one()) barrier_arrive(smem + HALF_EMPTY + 8 * r.slot);
                r.step(k.stages);
            },
            [&] {
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int o = 0; o < 4; o++) {
                        sum[n][o] += S::parts == 2 ? acc[0][n][o] + acc[S::parts - 1][n][o] : acc[0][n][o];
                        acc[0][n][o] = acc[S::parts - 1][n][o] = 0;
                    }
            });
        if (S::group && i == (int)blockIdx.x) half_met<NT>(k, true);
        if (w >= it.n_tile) continue;
        const half_rows f = half_look(k, it.tile0 + w, lane >> 2);
#pragma unroll 1
        for (int n0 = 0; n0 < NT && it.row0 + n0 * 8 < n_row;
             n0 += AHEAD) { // not unrolled: it would miss in the cache of code
            float res[AHEAD][4], v[AHEAD][4];
#pragma unroll
            for (int n = 0; n < NT; n++)
                if (n / AHEAD * AHEAD == n0)
#pragma unroll
                    for (int o = 0; o < 4; o++) v[n % AHEAD][o] = sum[n][o];
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
}

// Sums of four warps of a row tile, added by the warp that finishes the rows: group n of 8 by warp n % 4.
template <int L, int NT>
DEV void shared_consume(const half_job &k, uint32_t smem, float4 *sums, int n_row, const half_shared &at) {
    using S = half_shape<L, NT>;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, t = w >> 2, c = w & 3;
    half_ring r = {0, 0};
    sums += t * (HALF_CLASSES * NT * 32) + lane;
    for (int m = blockIdx.x; m < k.items; m += gridDim.x) {
        const half_item it = half_find<NT>(k, m);
        float acc[S::parts][NT][4];
#pragma unroll
        for (int n = 0; n < S::parts * NT * 4; n++) (&acc[0][0][0])[n] = 0;
        shared_each(k, [&](int i, int p) {
            barrier_wait(smem + HALF_FULL + 8 * r.slot, r.phase);
            const uint32_t xt = smem + HALF_RING_AT + r.slot * k.stage_bytes,
                           wt = xt + HALF_CLASSES * k.span * (S::parts * S::x) + w * k.span * S::tile;
            const int count = shared_count(k, i, p, c);
            for (int q = 0; q < count; q++)
                half_product<L, NT>(acc, xt + (c * k.span + q) * (S::parts * S::x), wt + q * S::tile, lane);
            __syncwarp();
            if (elect_one()) barrier_arrive(smem + HALF_EMPTY + 8 * r.slot);
            r.step(k.stages);
        });
        if (t >= it.n_tile) continue; // alike in the four warps
        const half_rows f = half_look(k, it.tile0 + t, lane >> 2);
        asm volatile("bar.sync %0, 128;" ::"r"(t + 2) : "memory"); // the sums of the item before are read
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float v[4];
#pragma unroll
            for (int o = 0; o < 4; o++)
                v[o] = S::parts == 2 ? acc[0][n][o] + acc[S::parts - 1][n][o] : acc[0][n][o];
            sums[(c * NT + n) * 32] = make_float4(v[0], v[1], v[2], v[3]);
        }
        asm volatile("bar.sync %0, 128;" ::"r"(t + 2) : "memory");
#pragma unroll 1
        for (int n = c; n < NT && it.row0 + n * 8 < n_row; n += HALF_CLASSES) {
            const int row0 = it.row0 + n * 8;
            float v[4] = {}, res[4];
            if (k.epilogue == EPI_ADD) half_residual(k, f, row0, n_row, res);
#pragma unroll
            for (int q = 0; q < HALF_CLASSES; q++) {
                const float4 a = sums[(q * NT + n) * 32];
                v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
            }
            half_finish(k, f, it.tile0 + t, row0, n_row, v, res, at);
        }
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
template <int L, int NT, bool SHARED> DEV void half_block(const half_job &k) {
    using S = half_shape<L, NT>;
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, warps = SHARED ? HALF_CLASSES * k.mw : k.mw;
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
                half_exchange(k, at.factor, w - warps - 1, half_helpers(NT) - 1, n_row);
            else
                half_count(k, at.factor, w - warps - 1, half_helpers(NT) - 1, n_row);
            if ((int)blockIdx.x < k.items) half_met<NT>(k, false);
        } else if constexpr (SHARED)
            shared_produce<L, NT>(k, base);
        else
            half_produce<L, NT>(k, base);
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
    if constexpr (SHARED)
        shared_consume<L, NT>(k, base, (float4 *)(smem + k.sums_at), n_row, own);
    else
        half_consume<L, NT>(k, base, n_row, own);
    if (k.epilogue == EPI_HEAD) half_chosen(k, at, warps);
}
template <int L, int NT, bool SHARED>
__global__ void __launch_bounds__(SHARED ? (HALF_CLASSES *HALF_SHARED + 1) * 32 : half_shape<L, NT>::threads,
                                  1) wide_half_kernel(const __grid_constant__ half_job k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    half_block<L, NT, SHARED>(k);
#else
    if constexpr (!half_shape<L, NT>::group) half_block<L, NT, SHARED>(k);
#endif
}
