// Instances of rank_gemv.h.
//
// A block waits for the sums of blocks on other cards, which need nothing of it: each sends what it has of a step before it waits for
// anything of that step or a later one.
#pragma once
#include "cuda/decode/gemv/gemv.cuh"
#include "cuda/ranks/rank_gemv.h"
#include "cuda/ranks/rank_wires.cuh"

// What follows the sums of a warp's step: it is sent, and the one before it, whose sums the others have sent meanwhile, is finished.
template <int R, bool RECORDS> struct rank_finish {
    static constexpr bool there = true, apart = false, adds = false, twin = false;
    const rank_gemv_job &e;
    uint32_t epoch;
    int held;
    float sum;
    ahead stream;
    MEM rank_finish(const rank_gemv_job &job) : e(job), epoch(0), held(-1), sum(0), stream{0, 0, 0} {}
    MEM void step(int at, float v, const ahead &a) {
        const int lane = threadIdx.x & 31;
        epoch = rank_epoch(e.w, e.nth);
        if (lane < 16 * R) rank_send(e.w, epoch, at * 16 * R + lane, v);
        end();
        held = at;
        sum = v;
        stream = a;
    }
    MEM void end() {
        const int lane = threadIdx.x & 31, row = held * 16 * R + (R == 1 ? lane & 15 : lane);
        const bool mine = lane < 16 * R;
        if (held < 0) return;
        const float v = stream.x + (mine ? rank_sum(e.w, epoch, row, sum) : 0.f);
        if (mine) e.j.res[row] = v;
        if (!e.gives) return;
        __syncwarp();
        const float ss = sum16(__fmul_rn(v, v)), y = __fmul_rn(v, stream.norm);
        if ((lane & 15) == 0 && mine) e.j.square_out[held * R + (lane >> 4)] = ss;
        if constexpr (RECORDS)
            put_act_int8<16 * R>(e.j, row, y);
        else if (mine)
            put_column<false>(e.j, 0, 0, row, __fmul_rn(y, stream.scale));
    }
};

template <int L, int GA, int R, int W, int S, bool PACKETS>
__global__ void __launch_bounds__(W * 32, format<L>::half ? 1 : 2)
    rank_gemv_kernel_of(const __grid_constant__ rank_gemv_job e) {
    rank_finish<R, (GA > 0)> rest(e);
    gemv_one<L, GA, R, W, S, EPI_ADD, PACKETS>(e.j, 0, blockIdx.x, gridDim.x, rest);
}

#define RANK_GEMV(l, ga, r, w, s)                                                                            \
    {                                                                                                        \
        l, ga, r, w, (w) * (s) * (r)*layout_unit_bytes(l), {                                                 \
            rank_gemv_kernel_of<l, ga, r, w, s, false>, rank_gemv_kernel_of<l, ga, r, w, s, true>            \
        }                                                                                                    \
    }
#define RANK_GEMV_CODES(l) RANK_GEMV(l, 32, 2, 8, format<l>::slots), RANK_GEMV(l, 16, 2, 8, format<l>::slots)
