// What the kernels of decode rows with a state share: clusters, the convolution of a channel, and to whom a column goes.
#pragma once
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/plan/delta_plan.h"

DEV void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
DEV void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Into the shared memory of block rank of the cluster, at the place that address is here.
DEV void cluster_store(uint32_t address, int rank, float v) {
#if __CUDA_ARCH__ >= 900
    uint32_t at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
#endif
}
DEV float state_silu(float y) { return __fdividef(y, 1.f + __expf(-y)); }

// A channel on its way through the convolution: its last inputs, oldest first.
struct state_channel {
    float past[DELTA_TAPS - 1];
    MEM void load(const float *conv_w, int c, const float *state, int C, bool none) {
        prefetch_l2_line(conv_w + c * DELTA_TAPS);
#pragma unroll
        for (int i = 0; i < DELTA_TAPS - 1; i++) past[i] = none ? 0.f : __ldcg(state + i * C + c);
    }
    MEM float step(const float *conv_w, const float *conv_bias, int c, float x) {
        return step(*(const float4 *)(conv_w + c * DELTA_TAPS), conv_bias ? conv_bias[c] : 0.f, x);
    }
    MEM float step(const float4 &w, float bias, float x) {
        const float y = fmaf(w.w, x, fmaf(w.z, past[2], fmaf(w.y, past[1], fmaf(w.x, past[0], bias))));
        past[0] = past[1];
        past[1] = past[2];
        past[2] = x;
        return state_silu(y);
    }
    MEM void store(float *state, int c, int C) const {
#pragma unroll
        for (int i = 0; i < DELTA_TAPS - 1; i++) state[i * C + c] = past[i];
    }
};
template <class J> DEV void state_give(const J &j, int r, int col, float y) {
    if (j.give == GIVE_RECORD)
        put_act_int8<32>(j, col, y);
    else
        put_column<true>(j, r, r, col, y);
}
