// One decode row: matrix times vector as one stream of weights.
//
// Every warp owns a ring of bulk copies and takes units w, w + W, .. of each row tile of its block; the sum over the
// warps goes through shared memory. R row tiles are done in one step; the warp that sums a step finishes it: scale by
// 1/rms, bias, residual, gate, halves for the reader that follows (epilogue). Weights never depend on the kernel before,
// so the ring starts before the dependency wait. More rows: skinny.cuh, which sums in the same order.
#pragma once
#include "cuda/decode/gemv/gemv_few_rows.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/decode/gemv/gemv_int8.cuh"
#include "cuda/decode/gemv/gemv_mma.cuh"

// Nobody but finish() follows a sum (else: rank_gemv.cuh). apart: a step's row tiles are of two matrices; adds: it looks at the row and adds to the
// sums (gemv_adapted.cuh); twin: what it reads is there when it begins (gemv_twin.cu).
struct only_finish {
    static constexpr bool there = false, apart = false, adds = false, twin = false;
};
// GA: the input is codes in groups of so many columns (gemv_int8.cuh); 0: halves. PACKETS: the input (EPI_ADD) or the
// result comes in packets.
template <int L, int GA, int R, int W, int S, int EPI, bool PACKETS, class REST>
DEV void gemv_one(const gemv_args &j, int region, int cta, int n_cta, REST &rest) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr bool half = format<L>::half, integers = GA > 0;
    constexpr int XU = integers ? (GA == 16 ? REC_BYTES_16 : REC_BYTES_32) : x_unit<L>(), ROWS = 16 * R;
    using unit_frag = conditional_t<integers, int_frag<L>, frag<L>>;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, U = j.u;
    uint64_t *bars = (uint64_t *)smem, *done = bars + W * S, *freed = done + W, *xbar = freed + W;
    const gemv_areas at = gemv_lay_out(W, R, j.x_bytes, 0);
    float *rs_at = (float *)(smem + GEMV_FACTOR), *red = (float *)(smem + GEMV_HEAD);
    uint8_t *x = smem + at.x, *slots = smem + at.rings;

    ring<L, R, W, S> r;
    size_t apart = 0;
    if constexpr (REST::apart) apart = rest.bytes_apart();
    r.start(slots, bars, j.w[region], j.steps[region], U, cta, n_cta, apart);
    if constexpr (REST::adds) rest.begin();
    if (threadIdx.x < 3 * W) barrier_init(smem_address(done + threadIdx.x), threadIdx.x < W ? W : 1);
    if (threadIdx.x < 3 * W) barrier_fence();
    __syncthreads();
    // Packets say by themselves when they are there. What a taker reads beside them is older than the giver's wait.
    constexpr bool beside = PACKETS && EPI == EPI_ADD;
    if (EPI == EPI_STORE && j.first) {
        pdl_wait();
        pdl_trigger();
    } else {
        pdl_trigger();
        if (!beside && !REST::twin) pdl_wait();
    }

    if constexpr (REST::adds) rest.starts();
    const int seq = PACKETS ? __ldcg(j.seq) : 0, row = EPI == EPI_HEAD ? j.rowmap[0] : 0;
    auto factor = [&] {
        if (EPI == EPI_ADD || !j.n_square || w) return;
        const float v = row_factor<integers>(j, row);
        if (lane == 0) *rs_at = v;
    };
    if (!beside) { // each warp takes the columns of its own units
        const uint32_t b = smem_address(xbar + w);
        if (w < U && elect_one()) {
            const uint8_t *src = j.x + row * j.x_row;
            barrier_expect(b, (U - w + W - 1) / W * XU);
            for (int u = w; u < U; u += W)
                bulk_copy(smem_address(x + (size_t)u * XU), src + (size_t)u * j.x_unit, XU, b);
        }
        __syncwarp();
        factor();
        if (w < U) barrier_wait(b, 0);
    }

    conditional_t<integers, one_row<L, GA ? GA : 32, R>, conditional_t<half, one_half<L, R>, one_codes<L, R>>>
        m;
    m.start(lane);
    if constexpr (integers && !beside)
        for (int u = w; u < U; u += 2 * W)
            m.template prepare<2>(x + (size_t)u * XU, (size_t)W * XU, u + W < U ? 2 : 1, lane);
    if constexpr (REST::adds && !beside)
        for (int u = w; u < U + w; u += W) rest.unit(u / W, x + (size_t)u * XU, u < U);
    // not ahead of the copies: they would wait for the step's number
    const uint32_t tag = handoff_tag(seq, j.tag);
    best_value best = {-INFINITY, 0x7fffffff};
    conditional_t<integers, act_int8_reader<GA>, handoff_reader<L>> in;
    if (beside && w < U) {
        in.at = j.take_handoff;
        in.tag = tag;
        in.columns = j.take_columns;
        in.ask(w, lane);
    }
    // A warp finishes a step when it has left its sums of the next one: then it need not wait for the others.
    int held = -1;
    ahead a = {0, 0, 0};
    for (int step = cta, ti = 0;; step += n_cta, ti++) {
        const int buf = ti % W;
        const bool more = step < j.steps[region];
        ahead next = {0, 0, 0};
        if (more) {
            m.clear();
            if (!beside && buf == w) next = look_ahead<R, EPI>(j, step, 0);
            for (int u = w; u < U; u += W) {
                unit_frag f[R];
                if (beside && ti == 0) {
                    in.take(u, x + (size_t)u * XU, lane);
                    if constexpr (REST::adds) rest.unit(u / W, x + (size_t)u * XU, true);
                    if constexpr (integers) m.template prepare<1>(x + (size_t)u * XU, 0, 1, lane);
                    if (u + W < U) in.ask(u + W, lane);
                }
                // (a packet of this step says that the kernels before its writer are done)
                if (beside && u == w && buf == w) next = look_ahead<R, EPI>(j, step, 0);
                r.next(f, j.up[region]);
                m.unit(f, x + (size_t)u * XU, lane);
            }
            if constexpr (REST::adds && beside)
                if (ti == 0 && U % W && w >= U % W) rest.unit(U / W, x, false);
            if (ti >= W) barrier_wait(smem_address(freed + buf), (ti / W - 1) & 1);
            m.leave(red + (buf * W + w) * ROWS, lane);
            __syncwarp();
            if (elect_one()) barrier_arrive(smem_address(done + buf));
        }
        if (held >= 0) {
            if constexpr (REST::adds) rest.ask(held);
            barrier_wait(smem_address(done + w), held & 1);
            const float *part = red + w * W * ROWS;
            float v = 0;
#pragma unroll
            for (int k = 0; k < W; k++) v += part[k * ROWS + (R == 1 ? lane & 15 : lane)];
            __syncwarp();
            if (elect_one()) barrier_arrive(smem_address(freed + w));
            if (!half && !integers) v *= j.down[region];
            const int of = cta + (held * W + w) * n_cta;
            if constexpr (REST::there)
                rest.step(of, v, a);
            else
                finish<R, EPI, PACKETS, integers>(j, region, of, v, j.n_square ? *rs_at : 1.f, a, best, tag);
        }
        if (!more) break;
        held = buf == w ? ti / W : -1;
        a = next;
    }
    if constexpr (REST::there) rest.end();
    if (EPI == EPI_HEAD) {
        best = best_of_warp(best);
        if (lane == 0) j.cand[blockIdx.x * W + w] = make_float2(best.v, __int_as_float(best.i));
    }
    if (beside || REST::twin) pdl_wait(); // what follows this kernel follows the one before, too
}

// L2 < 0: one region
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI, bool PACKETS>
__global__ void __launch_bounds__(W * 32, format<L>::half ? 1 : 2)
    gemv_one_kernel(const __grid_constant__ gemv_args j) {
    static_assert(((S > S2 ? S : S2) + 3) * W * 8 <= GEMV_FACTOR, "room for the barriers");
    only_finish none;
    if (L2 < 0 || (int)blockIdx.x < j.split)
        gemv_one<L, GA, R, W, S, EPI, PACKETS>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split, none);
    else if constexpr (L2 >= 0)
        gemv_one<L2, GA, R, W, S2, EPI, PACKETS>(j, 1, blockIdx.x - j.split, gridDim.x - j.split, none);
}
