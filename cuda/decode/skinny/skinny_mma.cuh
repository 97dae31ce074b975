// The products of a stage of skinny.cuh: weights as operands, by mma.sync or wgmma.
#pragma once
#include "cuda/decode/gemv/gemv_mma.cuh"
#include "cuda/common/wgmma.cuh"
#include "cuda/decode/skinny/skinny.h"

// G: by warpgroups, wgmma
template <int L, int NT, bool G> struct skinny_shape {
    static constexpr bool codes = !format<L>::half, group = G;
    static constexpr int parts = L == LAYOUT_BF16 ? 2 : 1, x = NT * 8 * 128;
    static constexpr int unit = layout_unit_bytes((enum layout)L);
    static constexpr int tile = codes ? 0 : 2048; // from a column tile of weights to the next
    static constexpr int classes = skinny_classes((enum layout)L);
    static constexpr bool apart = codes && G && NT == 8;  // sums of the classes lie in shared memory
    static constexpr bool many = codes && G && NT <= 8;   // four warpgroups
    static constexpr bool whole = format<L>::whole_units; // no unit has less than 256 columns
};
enum { HALF_FULL = 0, HALF_EMPTY = 64 };

struct skinny_ring {
    int slot, phase;
    MEM void step(int stages) {
        if (++slot == stages) slot = 0, phase ^= 1;
    }
};
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

template <int L> DEV void skinny_multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (L == LAYOUT_BF16)
        mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
    else
        mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// 64 columns under way; what lies between start and end runs beside them.
template <int L, int NT, bool G> struct group_product {
    using S = skinny_shape<L, NT, G>;
    using sums = float[S::parts][NT][4];
    static MEM void start(sums &acc, uint32_t b, const uint32_t (&a)[4][4]) { // b: descriptor
        float(&d)[S::parts][NT * 4] = *(float(*)[S::parts][NT * 4]) acc;
#pragma unroll
        for (int p = 0; p < S::parts; p++) wgmma_pin(d[p]);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++)
            if constexpr (L == LAYOUT_BF16)
#pragma unroll
                for (int p = 0; p < 2; p++) wgmma_rs_bf16(d[p], a[s], b + 2 * s + p * (S::x >> 4));
            else
                wgmma_rs(d[0], a[s], b + 2 * s);
        wgmma_commit();
    }
    // All but the last PENDING are done, those with operands a among them.
    template <int PENDING> static MEM void end(sums &acc, uint32_t (&a)[4][4]) {
        float(&d)[S::parts][NT * 4] = *(float(*)[S::parts][NT * 4]) acc;
        wgmma_wait<PENDING>(); // the other warpgroups keep the tensor cores busy meanwhile
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
DEV void skinny_product(float (&acc)[skinny_shape<L, NT, G>::parts][NT][4], uint32_t x, uint32_t (&a)[4][4],
                        int lane) {
    using S = skinny_shape<L, NT, G>;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (S::group) {
        group_product<L, NT, G>::start(acc, wgmma_descriptor(x), a);
        group_product<L, NT, G>::template end<0>(acc, a);
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
                skinny_multiply<L>(acc[p][0], a[2 * i], b[0], b[1]);
                skinny_multiply<L>(acc[p][0], a[2 * i + 1], b[2], b[3]);
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
                    skinny_multiply<L>(acc[p][n], a[s], b[0], b[1]);
                    skinny_multiply<L>(acc[p][n + 1], a[s], b[2], b[3]);
                }
    }
}
// n column tiles, the rows' at x, the row tile's weights at w.
template <int L, int NT, bool G>
DEV void half_products(float (&acc)[skinny_shape<L, NT, G>::parts][NT][4], const uint8_t *x, const uint8_t *w,
                       int n, int lane, float up) {
    using S = skinny_shape<L, NT, G>;
    tile_operands<L> o;
    uint32_t a[4][4];
    o.start(w, lane, up);
    auto product = [&](int q) {
        o.get(a, w, q, lane);
        skinny_product<L, NT, G>(acc, smem_address(x) + q * S::x, a, lane);
    };
    if constexpr (S::codes) {
#pragma unroll
        for (int q = 0; q < 4; q++)
            if (S::whole || q < n) product(q);
    } else
        for (int q = 0; q < n; q++) {
            o.get(a, w + q * S::tile, q, lane);
            skinny_product<L, NT, G>(acc, smem_address(x) + q * (S::parts * S::x), a, lane);
        }
}

// ---- stages
// The products of a stage; then its slot may be filled again.
template <int L, int NT, bool G>
DEV void skinny_stage(const skinny_job &k, skinny_ring &r, float (&acc)[skinny_shape<L, NT, G>::parts][NT][4],
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
// Stages one after the other.
template <int L, int NT, bool G> struct plain_stages {
    using sums = float[skinny_shape<L, NT, G>::parts][NT][4];
    MEM void stage(const skinny_job &k, skinny_ring &r, sums &acc, uint8_t *smem, size_t w, int n, float up) {
        skinny_stage<L, NT, G>(k, r, acc, smem, 0, w, n, up);
    }
    MEM void done(sums &, uint32_t) {}
};
template <int L, int NT, bool LONG> struct group_stages;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The same for whole units by warpgroups: the next operands are made beside the products. LONG: those of two times 64 columns
// may be under way, also when a unit is left, with operands last; its slot is released behind them. That last's registers
// are kept until then is the compiler's doing (the empty asm of end names them, but is no instruction): check again with
// another compiler (`gpu 8b q4_k_m check 1`).
template <int L, int NT, bool LONG> struct group_stages {
    using P = group_product<L, NT, true>;
    using S = typename P::S;
    uint32_t last[4][4];
    int held = -1; // slot; -1: none
    MEM void release(uint32_t bars) {
        __syncwarp();
        if (held >= 0 && elect_one()) barrier_arrive(bars + HALF_EMPTY + 8 * held);
        held = -1;
    }
    MEM void done(typename P::sums &acc, uint32_t bars) {
        if (!LONG) return;
        P::template end<0>(acc, last);
        release(bars);
    }
    MEM void stage(const skinny_job &k, skinny_ring &r, typename P::sums &acc, uint8_t *smem, size_t w, int,
                   float up) {
        const int lane = threadIdx.x & 31;
        const uint32_t bars = smem_address(smem);
        barrier_wait(bars + HALF_FULL + 8 * r.slot, r.phase);
        const uint8_t *at = smem + HALF_RING_AT + r.slot * k.stage_bytes;
        // the same in all lanes, which the compiler cannot know
        const uint32_t x = __reduce_or_sync(~0u, wgmma_descriptor(smem_address(at)));
        tile_operands<L> o;
        uint32_t a[4][4];
        o.start(at + w, lane, up);
        o.get(a, at + w, 0, lane);
        if (LONG) done(acc, bars);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t(&now)[4][4] = q & 1 ? last : a, (&next)[4][4] = q & 1 ? a : last;
            P::start(acc, x + q * (S::x >> 4), now);
            if (LONG && q && q < 3) P::template end<1>(acc, next);
            if (q < 3) o.get(next, at + w, q + 1, lane);
            if (!LONG) P::template end<0>(acc, now);
        }
        if (LONG) P::template end<1>(acc, a);
        held = r.slot;
        if (!LONG) release(bars);
        r.step(k.stages);
    }
};
#endif
