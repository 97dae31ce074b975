// Keys of candidates, what a block's keys are and weigh together, and the search for the cut behind which they are not kept.
// Keys have 64 bits: the float's bits so that they ascend with it, then the id's complement; 0: no candidate. Sums of weights
// are those of integers, so their order does not matter.
#pragma once
#include <limits.h>
#include "cuda/common/util.cuh"

enum { SELECT_THREADS = 256, SELECT_WARPS = SELECT_THREADS / 32 };

DEV uint32_t float_key(float x) {
    const uint32_t b = __float_as_uint(__fadd_rn(x, 0.f)); // one zero
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
DEV float key_float(uint32_t k) { return __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k); }
DEV bool is_finite(float x) { return x - x == 0; }
DEV uint64_t order_key(uint32_t key, int id) { return key ? (uint64_t)key << 32 | (uint32_t)~id : 0; }
// exp(away * scale), away <= 0, to some 2e-7 of itself
DEV float weight_of(float away, float scale) {
    const float x = fmaxf(away * scale, -200.f), y = x * 1.44269504f, rest = fmaf(x, 1.44269504f, -y);
    float w;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(w) : "f"(y));
    return fmaf(w, rest * 0.693147181f, w);
}

// ---- of the block; every thread gets them. Two places in turn: one barrier each.
struct measure { // of the candidates not below a cut: how many, and what they weigh in 2^-40
    int n;
    uint64_t w;
};
enum { FEW = 32 };
struct block_space {
    int n_few; // 0 between uses
    uint64_t few[FEW], few_weight[FEW];
    float2 d[SELECT_WARPS];
    uint64_t u[2][SELECT_WARPS];
    measure m[2][SELECT_WARPS];
};
struct block_state {
    block_space *s;
    int turn;
};
template <bool WEIGHTS> DEV measure block_measure(block_state &b, int n, uint64_t w) {
    measure *at = b.s->m[b.turn ^= 1], v = {(int)__reduce_add_sync(~0u, (unsigned)n), 0};
    if (WEIGHTS) {
        const uint32_t low = __reduce_add_sync(~0u, (uint32_t)w & 0xffffff),
                       high = __reduce_add_sync(~0u, (uint32_t)(w >> 24));
        v.w = ((uint64_t)high << 24) + low;
    }
    if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
    __syncthreads();
    v = measure{0, 0};
#pragma unroll
    for (int i = 0; i < SELECT_WARPS; i++) {
        v.n += at[i].n;
        if (WEIGHTS) v.w += at[i].w;
    }
    return v;
}
DEV double warp_sum(double v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
DEV float2 warp_sum(float2 v) {
    for (int o = 16; o; o >>= 1) v.x += __shfl_xor_sync(~0u, v.x, o), v.y += __shfl_xor_sync(~0u, v.y, o);
    return v;
}
DEV uint64_t warp_max(uint64_t v) {
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
DEV uint64_t block_max(block_state &b, uint64_t v) {
    uint64_t *at = b.s->u[b.turn ^= 1];
    v = warp_max(v);
    if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
#pragma unroll
    for (int i = 0; i < SELECT_WARPS; i++) v = max(v, at[i]);
    return v;
}
DEV uint32_t block_max(block_state &b, uint32_t v) {
    uint32_t *at = (uint32_t *)b.s->u[b.turn ^= 1];
    v = __reduce_max_sync(~0u, v);
    if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
#pragma unroll
    for (int i = 0; i < SELECT_WARPS; i++) v = max(v, at[i]);
    return v;
}
// Places for what each lane has, in no order that counts.
DEV int claim(int *counter, int mine) {
    const uint32_t before = (1u << (threadIdx.x & 31)) - 1;
    int at = 0, all = 0;
#pragma unroll
    for (int bit = 0; bit < 6; bit++) { // mine <= 32
        const uint32_t m = __ballot_sync(~0u, mine >> bit & 1);
        at += __popc(m & before) << bit, all += __popc(m) << bit;
    }
    int first = 0;
    if ((threadIdx.x & 31) == 0 && all) first = atomicAdd(counter, all);
    return __shfl_sync(~0u, first, 0) + at;
}

// ---- the cut behind which candidates are not kept
// Enough candidates are not below lo, too few not below hi.
struct bounds {
    uint64_t lo, hi;
    measure at_lo, at_hi;
};
// What is asked for: at least n of them that weigh at least w. What is searched is n, or w (by_weight).
struct aim {
    int n;
    uint64_t w;
    bool by_weight;
};
DEV bool is_enough(const aim &a, const measure &m) { return m.n >= a.n && m.w >= a.w; }
// About the logarithm of what is searched.
DEV int size_of(bool by_weight, const measure &m, float least) {
    return __float_as_int(fmaxf(by_weight ? (float)m.w : (float)m.n, least));
}
// Where to look next. The logarithms of numbers and of weights fall about as lines do; each third time the middle, and what
// does not come nearer so is halved as an integer.
DEV uint64_t between(const bounds &b, const aim &a, int round) {
    const uint32_t lo = (uint32_t)(b.lo >> 32), hi = (uint32_t)(b.hi >> 32);
    if (hi - lo <= 1 || round >= 40) return b.lo + (b.hi - b.lo) / 2;
    const float top = key_float(hi);
    float x;
    if (lo <= 1) {
        x = top - (float)(4 << min(round, 20));
    } else {
        float part = 0.5f;
        if (round % 3 != 2) {
            const float want = a.by_weight ? (float)a.w : (float)a.n;
            const int least = size_of(a.by_weight, b.at_hi, a.by_weight ? 0.01f * want : 0.5f);
            part = __fdividef((float)(__float_as_int(want) - least),
                              (float)(size_of(a.by_weight, b.at_lo, 0) - least));
            part = fminf(fmaxf(part, 0.02f), 0.98f);
        }
        x = top - part * (top - key_float(lo));
    }
    const uint32_t t = float_key(x);
    return (uint64_t)(t > lo && t < hi ? t : lo + (hi - lo) / 2) << 32;
}
DEV bool is_found(const bounds &b) { return b.hi - b.lo <= 1 || b.at_lo.n - b.at_hi.n <= 1; }
// The end of a search, when few candidates are left between the bounds. each(f): f(key, weight) for all keys.
template <class E> DEV uint64_t among_few(block_space &s, const bounds &v, const aim &a, E each) {
    each([&](uint64_t k, uint64_t w) {
        if (k < v.lo || k >= v.hi) return;
        const int at = atomicAdd(&s.n_few, 1);
        if (at < FEW)
            s.few[at] = k, s.few_weight[at] = w; // (in a row that changes meanwhile there may be more)
    });
    __syncthreads();
    const int n = min(s.n_few, (int)FEW), lane = threadIdx.x & 31;
    const uint64_t key = lane < n ? s.few[lane] : 0;
    measure m = v.at_hi;
#pragma unroll 4
    for (int i = 0; i < n; i++)
        if (s.few[i] >= key) m.n++, m.w += s.few_weight[i];
    const uint64_t cut = warp_max(is_enough(a, m) ? key : 0);
    __syncthreads();
    if (threadIdx.x == 0) s.n_few = 0;
    return max(cut, v.lo);
}
// The keys of a thread. low(i): the low half of key i.
template <bool WEIGHTS, int N, class F, class G>
DEV measure measure_keys(block_state &b, const uint32_t (&key)[N], uint64_t cut, F low, G weight) {
    const uint32_t t = (uint32_t)(cut >> 32), rest = (uint32_t)cut;
    int n = 0;
    uint64_t w = 0;
    if (rest == 0) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (key[i] >= t) n++, w += WEIGHTS ? weight(i) : 0;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (key[i] > t || (key[i] == t && low(i) >= rest)) n++, w += WEIGHTS ? weight(i) : 0;
    }
    return block_measure<WEIGHTS>(b, n, w);
}
// The first k of the block's keys (0: none), or at least so many as will do, are those not below what is returned.
template <int N, class F>
DEV uint64_t first_keys(block_state &b, const uint32_t (&key)[N], uint32_t most, int k, int will_do, F low) {
    const aim a = {k, 0, false};
    bounds v = {(uint64_t)1 << 32, (uint64_t)(most + 1) << 32, {INT_MAX, 0}, {0, 0}};
    uint64_t at = between(v, a, 0);
#pragma unroll 1
    for (int round = 0;; round++) {
        const measure m = measure_keys<false>(b, key, at, low, [](int) { return 0u; });
        if (m.n <= k && m.n >= will_do) return at;
        if (m.n > k)
            v.lo = at, v.at_lo = m;
        else
            v.hi = at, v.at_hi = m;
        if (is_found(v)) return v.lo;
        if (v.at_lo.n - v.at_hi.n <= FEW) break;
        // are there k at all?
        at = round == 2 && v.at_lo.n == INT_MAX ? (uint64_t)1 << 32 : between(v, a, round + 1);
    }
    return among_few(*b.s, v, a, [&](auto f) {
#pragma unroll
        for (int i = 0; i < N; i++) f((uint64_t)key[i] << 32 | low(i), 0);
    });
}
