// Weights on their way in: each warp's ring of bulk copies.
#pragma once
#include "cuda/common/util.cuh"

// ---- the ring: S slots of R units a warp
template <int L, int R, int W, int S> struct ring {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    const uint8_t *p, *slots;
    uint64_t policy;
    uint32_t base, bar, phase;
    long jump;
    size_t hop;
    int left, units, steps, slot; // steps: still to fetch
    MEM void issue(int s) {
        if (steps <= 0) return;
        if (elect_one()) {
            const uint32_t b = bar + 8 * s;
            barrier_expect(b, R * UB);
#pragma unroll
            for (int h = 0; h < R; h++) bulk_copy(base + (s * R + h) * UB, p + h * hop, UB, b, policy);
        }
        p += W * UB;
        if (--left == 0) {
            left = units;
            p += jump;
            steps--;
        }
    }
    // steps cta, cta + n_cta, .. of n_step steps of R row tiles; u units a row tile. apart: bytes from a step's first row tile to the other
    // one, which is in another matrix; 0: they follow each other
    MEM void start(uint8_t *smem, uint64_t *bars, const uint8_t *w, int n_step, int u, int cta, int n_cta,
                   size_t apart = 0) {
        const int warp = threadIdx.x >> 5;
        slots = smem + (size_t)warp * S * R * UB;
        base = smem_address(slots);
        bar = smem_address(bars + warp * S);
        slot = 0;
        phase = 0;
        policy = policy_evict_first();
        if (elect_one()) {
            for (int s = 0; s < S; s++) barrier_init(bar + 8 * s, 1);
            barrier_fence();
        }
        __syncwarp();
        units = left = (u - warp + W - 1) / W;
        steps = units > 0 ? (n_step - cta + n_cta - 1) / n_cta : 0;
        hop = (size_t)u * UB;
        p = w + (size_t)cta * R * hop + (size_t)warp * UB;
        jump = (long)((size_t)n_cta * R * hop) - (long)units * W * UB;
        if (apart) {
            p = w + (size_t)cta * hop + (size_t)warp * UB;
            jump = (long)((size_t)n_cta * hop) - (long)units * W * UB;
            hop = apart;
        }
#pragma unroll
        for (int s = 0; s < S; s++) issue(s);
    }
    // The next unit: row tiles h of R, then its slot is filled again.
    MEM void wait() { barrier_wait(bar + 8 * slot, phase); }
    template <class F> MEM void load(F &f, int h, float up) {
        f.load(slots + (slot * R + h) * UB, threadIdx.x & 31, up);
    }
    MEM void release() {
        __syncwarp();
        issue(slot);
        if (++slot == S) {
            slot = 0;
            phase ^= 1;
        }
    }
    template <class F> MEM void next(F (&f)[R], float up) {
        wait();
#pragma unroll
        for (int h = 0; h < R; h++) load(f[h], h, up);
        release();
    }
};
