// Experts of one row on int8 products (gemv_int8.cuh). A block of gate and up takes steps cta, cta + n_cta, .. of 16 columns of a
// choice, its warps the units of a step in turns; the input's codes are made in each block while one of its warps chooses.
// A block of down takes a row tile of all choices, a warp one choice or a part of it. Nothing depends on which experts are chosen but what is read.
#pragma once
#include "cuda/common/route.cuh"
#include "cuda/decode/experts_one.h"
#include "cuda/decode/gemv_epilogue.cuh"
#include "cuda/decode/gemv_int8.cuh"

// ---- shared memory: barriers and a few floats, the choice, records of the input, sums, slots
enum { EXPERTS_ASKED = 3 }; // units whose packets a warp of down asks for at once
enum { EXPERTS_HEAD = 1024, EXPERTS_FLOATS = 896, EXPERTS_ROUTE = (sizeof(route_scratch) + 127) / 128 * 128 };
struct experts_smem {
    int rec, red, sum, slots, bytes; // sum: of down alone, biases of 16 rows by choice
};
LAYOUT_FN experts_smem experts_gated_smem(const experts_one_job &j, int unit_bytes) {
    const int steps = (j.route.n_used * experts_steps(j.n_ff) + j.gated_blocks - 1) / j.gated_blocks;
    experts_smem m = {};
    m.rec = EXPERTS_HEAD + EXPERTS_ROUTE;
    m.red = m.rec + j.gate.u * REC_BYTES_32;
    m.slots = (m.red + steps * j.gated_warps * 128 + 127) / 128 * 128;
    m.bytes = m.slots + j.gated_warps * j.gated_slots * 2 * unit_bytes;
    return m;
}
LAYOUT_FN experts_smem experts_down_smem(const experts_one_job &j, int unit_bytes) {
    experts_smem m = {};
    m.rec = EXPERTS_HEAD + EXPERTS_ROUTE;
    m.red = m.rec + j.down_warps * EXPERTS_ASKED * REC_BYTES_16;
    m.sum = m.red + j.route.n_used * j.parts * 64;
    m.slots = (m.sum + j.route.n_used * 64 + 127) / 128 * 128;
    m.bytes = m.slots + j.down_warps * j.down_slots * unit_bytes;
    return m;
}

// ---- the choice
DEV const uint2 *own_logits(const experts_one_job &j) {
    return j.logits + blockIdx.x % (unsigned)j.copies * (unsigned)(j.route.n_expert + 1);
}
DEV float wait_for_logit(const uint2 *at, uint32_t tag) {
    uint2 v;
    while ((v = tagged_load(at)).y != tag) __nanosleep(20);
    return __uint_as_float(v.x);
}
// The row's experts, from packets. Of all threads: a thread an expert, whose place is how many come before it; leaves m.id, and m.s for
// route_weights, behind a barrier.
DEV void pick_packets(const experts_one_job &j, route_scratch &m, uint32_t tag) {
    const router &r = j.route;
    const uint2 *at = own_logits(j);
    const int e = threadIdx.x, n = r.n_expert;
    if (!j.together) {
        if (threadIdx.x < 32)
            route_pick_any(
                r, [&](int i) { return wait_for_logit(at + i, tag); }, m, e);
        __syncthreads();
        return;
    }
    if (e < n) {
        const float s = router_logit(&r, wait_for_logit(at + e, tag));
        m.s[e] = s;
        m.key[e] = router_key(s);
    } else if (e < ((n + 3) & ~3))
        m.key[e] = 0;
    __syncthreads();
    if (e >= n) return;
    const uint32_t own = m.key[e];
    int place = 0;
#pragma unroll 4
    for (int i = 0; i < n; i += 4) {
        const uint4 k = *(const uint4 *)(m.key + i);
        place += (k.x > own || (k.x == own && i < e)) + (k.y > own || (k.y == own && i + 1 < e)) +
                 (k.z > own || (k.z == own && i + 2 < e)) + (k.w > own || (k.w == own && i + 3 < e));
    }
    if (place < r.n_used) m.id[place] = e;
}

// ---- slots of a warp: R units each, filled in the order of next(first, second), which gives false when there is no more
template <int L, int R> struct experts_ring {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    const uint8_t *at;
    uint32_t base, bar, phase;
    uint64_t policy;
    int n, slot;
    MEM void init(const uint8_t *smem, uint64_t *bars, int n_slot) {
        const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
        n = n_slot;
        at = smem + (size_t)w * n * R * UB;
        base = smem_address(at);
        bar = smem_address(bars + w * n);
        policy = policy_evict_first();
        if (lane < n) {
            barrier_init(bar + 8 * lane, 1);
            barrier_fence();
        }
        __syncwarp();
    }
    template <class F> MEM void issue(int s, F &next) {
        const uint8_t *p[2];
        if (!next(p)) return;
        if (elect_one()) {
            barrier_expect(bar + 8 * s, R * UB);
#pragma unroll
            for (int h = 0; h < R; h++) bulk_copy(base + (s * R + h) * UB, p[h], UB, bar + 8 * s, policy);
        }
    }
    template <class F> MEM void start(F &next) {
        slot = 0;
        phase = 0;
#pragma unroll 1
        for (int s = 0; s < n; s++) issue(s, next);
    }
    template <class F> MEM void take(int_frag<L> (&f)[R], F &next) {
        barrier_wait(bar + 8 * slot, phase);
#pragma unroll
        for (int h = 0; h < R; h++) f[h].load(at + (slot * R + h) * UB, threadIdx.x & 31, 1.f);
        __syncwarp();
        issue(slot, next);
        if (++slot == n) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// ---- gate and up
// Units first, first + by, .. of the input's codes, from packets to records.
DEV void experts_codes(const experts_one_job &j, uint8_t *rec, int first, int by, uint32_t tag, int lane) {
    act_int8_reader<32> in;
    in.at = j.codes;
    in.tag = tag;
    in.columns = j.gate.u * 256;
    for (int u = first; u < j.gate.u; u += by) {
        for (in.ask(u, lane); __any_sync(~0u, in.v.w != tag); in.ask(u, lane)) __nanosleep(20);
        in.take(u, rec + (size_t)u * REC_BYTES_32, lane);
    }
}
DEV float experts_act(const experts_one_job &j, float g, float u) {
    if (j.act == ACT_SWIGLU_OAI) {
        g = g > j.limit ? j.limit : g;
        u = u > j.limit ? j.limit : u < -j.limit ? -j.limit : u;
        return __fdividef(g, 1.f + __expf(-j.alpha * g)) * (u + 1.f);
    }
    if (j.act == ACT_GELU_ERF) return 0.5f * g * (1.f + erff(g * 0.7071067811865476f)) * u;
    return act_apply(j.act, g) * u;
}
// Biases of gate and up of a step's column lane % 16.
DEV float2 experts_gated_bias(const experts_one_job &j, const route_scratch &m, int step, int lane) {
    const int n_step = experts_steps(j.n_ff), c = step / n_step, col = (step - c * n_step) * 16 + (lane & 15);
    if (c >= j.route.n_used || col >= j.n_ff) return make_float2(0.f, 0.f);
    const size_t at = (size_t)m.id[c] * j.n_ff + col;
    return make_float2(j.gate.bias ? j.gate.bias[at] : 0.f, j.up.bias ? j.up.bias[at] : 0.f);
}
// A step's sums of all warps, at sum: the product of 16 columns as packets.
DEV void experts_finish(const experts_one_job &j, const float *sum, int step, float2 bias, float rs,
                        uint32_t tag, int lane) {
    const int n_step = experts_steps(j.n_ff), c = step / n_step, t = step - c * n_step, of = lane & 15,
              col = t * 16 + of;
    float v = 0;
#pragma unroll 8
    for (int k = 0; k < j.gated_warps; k++) v += sum[k * 32 + lane];
    const int g = j.paired ? (of >> 3) * 16 + (of & 7) : of, u = j.paired ? g + 8 : of + 16;
    const float gate = fmaf(__shfl_sync(~0u, v, g), rs * j.gate.factor, bias.x),
                up = fmaf(__shfl_sync(~0u, v, u), rs * j.up.factor, bias.y),
                y = col < j.n_ff ? experts_act(j, gate, up) : 0.f;
    give_act_int8<16>(j.glu + c * experts_glu_bytes(j.n_ff), t * 16, y, tag);
}
// Units w, w + W, .. of the steps of a block, for a ring.
struct experts_gated_units {
    const experts_one_job &j;
    const route_scratch &m;
    int step, unit, unit_bytes;
    const uint8_t *a, *b;
    MEM void point() {
        const int n_step = experts_steps(j.n_ff), c = step / n_step;
        if (c >= j.route.n_used) return;
        const size_t e = (size_t)m.id[c], t = (size_t)(step - c * n_step);
        a = j.gate.first + e * j.gate.stack + t * j.gate.tile;
        b = j.up.first + e * j.up.stack + t * j.up.tile;
    }
    MEM bool operator()(const uint8_t *(&p)[2]) {
        if (step >= j.route.n_used * experts_steps(j.n_ff)) return false;
        p[0] = a + (size_t)unit * unit_bytes;
        p[1] = b + (size_t)unit * unit_bytes;
        unit += j.gated_warps;
        if (unit >= j.gate.u) {
            unit = threadIdx.x >> 5;
            step += gridDim.x;
            point();
        }
        return true;
    }
};
template <int L>
__global__ void __maxnreg__(112) experts_gated_kernel(const __grid_constant__ experts_one_job j) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr int UB = layout_unit_bytes((enum layout)L), XU = REC_BYTES_32;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, W = j.gated_warps,
              n_step = j.route.n_used * experts_steps(j.n_ff);
    const experts_smem at = experts_gated_smem(j, UB);
    route_scratch &m = *(route_scratch *)(smem + EXPERTS_HEAD);
    float *red = (float *)(smem + at.red);
    uint8_t *rec = smem + at.rec;
    experts_ring<L, 2> r;
    r.init(smem + at.slots, (uint64_t *)smem, j.gated_slots);
    pdl_trigger();
    if (!j.beside) pdl_wait();
    const uint32_t tag = handoff_tag(j.seq, j.tag);
    experts_codes(j, rec, w, W, tag, lane);
    // (asked for now: behind the weights' copies it would come late)
    const float squares = j.norm ? wait_for_logit(own_logits(j) + j.route.n_expert, tag) : 0.f;
    pick_packets(j, m, tag);
    __syncthreads();
    experts_gated_units next = {j, m, (int)blockIdx.x, w, UB, NULL, NULL};
    next.point();
    r.start(next);
    const float2 bias =
        experts_gated_bias(j, m, blockIdx.x + w * gridDim.x, lane); // of the warp's first step
    one_row<L, 32, 2> p;
    p.start(lane);
#pragma unroll 1
    for (int u = w; u < j.gate.u; u += W) p.template prepare<1>(rec + (size_t)u * XU, 0, 1, lane);
    const float rs = j.norm ? rsqrtf(squares / (float)j.k_router + j.eps) : 1.f;
    int n = 0;
#pragma unroll 1
    for (int step = blockIdx.x; step < n_step; step += gridDim.x, n++) {
        p.clear();
#pragma unroll 1
        for (int u = w; u < j.gate.u; u += W) {
            int_frag<L> f[2];
            r.take(f, next);
            p.unit(f, rec + (size_t)u * XU, lane);
        }
        p.leave(red + (n * W + w) * 32, lane);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = w; i < n; i += W) {
        const int step = blockIdx.x + i * gridDim.x;
        experts_finish(j, red + i * W * 32, step, i == w ? bias : experts_gated_bias(j, m, step, lane), rs,
                       tag, lane);
    }
    pdl_wait(); // what follows this kernel follows the one before, too
}

// ---- down
// Units part, part + parts, .. of the choices of a warp, for a ring.
struct experts_down_units {
    const experts_one_job &j;
    const route_scratch &m;
    int q, unit, unit_bytes;
    size_t tile;
    MEM bool operator()(const uint8_t *(&p)[2]) {
        if (q >= j.route.n_used * j.parts) return false;
        p[0] = j.down.first + (size_t)m.id[q / j.parts] * j.down.stack + tile + (size_t)unit * unit_bytes;
        unit += j.parts;
        if (unit >= j.down.u) {
            q += j.down_warps;
            unit = q % j.parts;
        }
        return true;
    }
};
// y, a column a lane of the first warp; in the first block of a cluster the second's 16 columns follow. Of all threads.
#if __CUDA_ARCH__ >= 900
DEV float of_both_blocks(float *meet, float y, uint32_t rank, int lane) {
    if (rank && threadIdx.x < 16) {
        uint32_t to;
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(to) : "r"(smem_address(meet + lane)));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(y) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
    return rank || lane < 16 || threadIdx.x >= 32 ? y : meet[lane - 16];
}
#endif
DEV void experts_cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
DEV void experts_cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// What follows a row tile's sums reads, fetched before these are waited for: of the first warp the residual stream and the weights of
// the next norm; the biases of its rows, by choice, go to bias.
struct experts_ahead {
    float x, norm, scale;
};
DEV experts_ahead experts_look_ahead(const experts_one_job &j, const route_scratch &m, float *bias) {
    const int of = threadIdx.x & 15, row = blockIdx.x * 16 + of;
    experts_ahead a = {};
    if (j.out_kind == EXPERTS_ADD && threadIdx.x < 32 && row < j.d) {
        a.x = __ldcg(j.out + row);
        a.norm = j.next_norm[row];
        a.scale = __ldcg(j.scale);
    }
#pragma unroll 1
    for (int c = threadIdx.x >> 4; c < j.route.n_used; c += blockDim.x >> 4)
        bias[c * 16 + of] = j.down.bias && row < j.d ? j.down.bias[(size_t)m.id[c] * j.d + row] : 0.f;
    return a;
}
// A row of choice c: the sum of its parts, at red.
DEV float experts_choice(const experts_one_job &j, const float *red, const float *bias, int c, int of) {
    float v = 0;
#pragma unroll 1
    for (int p = 0; p < j.parts; p++) v += red[(c * j.parts + p) * 16 + of];
    return fmaf(v, j.down.factor, bias[c * 16 + of]);
}
// The rows of all choices. Of all threads.
DEV void experts_each(const experts_one_job &j, const float *red, const float *bias) {
    const int of = threadIdx.x & 15, row = blockIdx.x * 16 + of;
#pragma unroll 1
    for (int c = threadIdx.x >> 4; c < j.route.n_used && row < j.d; c += blockDim.x >> 4)
        j.out[(size_t)c * j.d + row] = experts_choice(j, red, bias, c, of);
}
// Their sum, weighted, and what becomes of it. Of all threads; the first warp has the row.
DEV void experts_leave(const experts_one_job &j, const route_scratch &m, const float *red, const float *bias,
                       float *meet, const experts_ahead &a) {
    const int lane = threadIdx.x & 31, row = blockIdx.x * 16 + (lane & 15);
    const bool own = threadIdx.x < 32;
    float y = 0;
    if (own)
#pragma unroll 4
        for (int c = 0; c < j.route.n_used; c++)
            y = fmaf(m.w[c], experts_choice(j, red, bias, c, lane & 15), y);
    if (j.out_kind == EXPERTS_MIX) {
        if (threadIdx.x < 16 && row < j.d) j.out[row] = y;
        return;
    }
    if (own) { // d is a multiple of 32
        y += a.x;
        if (lane < 16) j.out[row] = y;
        const float ss = sum16(__fmul_rn(y, y));
        if (lane == 0) j.square_out[blockIdx.x] = ss;
        y = __fmul_rn(y, a.norm);
    }
    if (j.give == GIVE_RECORD) {
#if __CUDA_ARCH__ >= 900
        uint32_t rank;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        y = of_both_blocks(meet, y, rank, lane);
        if (own && !rank) put_act_int8<32>(j, blockIdx.x * 16 + lane, y);
#endif
    } else if (threadIdx.x < 16)
        put_column<false>(j, 0, 0, row, __fmul_rn(y, a.scale));
}
// Up to EXPERTS_ASKED units u, u + parts, .. of choice c, from packets to records; how many. Of a warp.
DEV int experts_take(const experts_one_job &j, uint8_t *rec, int c, int u, uint32_t tag, int lane) {
    act_int8_reader<16> in[EXPERTS_ASKED];
    const int left = (j.down.u - u + j.parts - 1) / j.parts, n = left < EXPERTS_ASKED ? left : EXPERTS_ASKED;
    const uint8_t *at = j.glu + c * experts_glu_bytes(j.n_ff);
    // of a thousand warps each asks for little until something is there
    while (handoff_load(at + (size_t)u * EXPERTS_UNIT_PACKETS).w != tag) __nanosleep(64);
#pragma unroll
    for (int i = 0; i < EXPERTS_ASKED; i++) {
        in[i].at = at;
        in[i].tag = tag;
        in[i].columns = experts_steps(j.n_ff) * 16;
        if (i < n) in[i].ask(u + i * j.parts, lane);
    }
#pragma unroll
    for (int i = 0; i < EXPERTS_ASKED; i++) {
        if (i >= n) break;
        while (in[i].v.w != tag) in[i].ask(u + i * j.parts, lane);
        in[i].take(u + i * j.parts, rec + i * REC_BYTES_16, lane);
    }
    return n;
}
template <int L>
__global__ void __maxnreg__(96) experts_down_kernel(const __grid_constant__ experts_one_job j) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr int UB = layout_unit_bytes((enum layout)L);
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, tiles = (j.d + 15) / 16,
              n_choice = (int)blockIdx.x < tiles ? j.route.n_used * j.parts : 0;
    const experts_smem at = experts_down_smem(j, UB);
    route_scratch &m = *(route_scratch *)(smem + EXPERTS_HEAD);
    float *meet = (float *)(smem + EXPERTS_FLOATS), *red = (float *)(smem + at.red);
    uint8_t *rec = smem + at.rec + w * EXPERTS_ASKED * REC_BYTES_16;
    experts_ring<L, 1> r;
    r.init(smem + at.slots, (uint64_t *)smem, j.down_slots);
    experts_cluster_arrive(); // both blocks have begun
    pdl_trigger();
    if (!j.beside) pdl_wait();
    const uint32_t tag = handoff_tag(j.seq, j.tag);
    pick_packets(j, m, tag);
    __syncthreads();
    experts_down_units next = {j, m, n_choice ? w : 1 << 20, w % j.parts, UB, blockIdx.x * j.down.tile};
    r.start(next);
    float *bias = (float *)(smem + at.sum);
    const experts_ahead a = experts_look_ahead(j, m, bias);
    if (w == 0) route_weights(j.route, m, lane); // taken behind the next barrier
    one_row<L, 16, 1> p;
    p.start(lane);
#pragma unroll 1
    for (int q = w; q < n_choice; q += j.down_warps) {
        p.clear();
#pragma unroll 1
        for (int u = q % j.parts; u < j.down.u; u += j.parts * EXPERTS_ASKED) {
            const int n = experts_take(j, rec, q / j.parts, u, tag, lane);
#pragma unroll 1
            for (int i = 0; i < n; i++) {
                int_frag<L> f[1];
                r.take(f, next);
                p.unit(f, rec + i * REC_BYTES_16, lane);
            }
        }
        p.leave(red + q * 16, lane);
    }
    __syncthreads();
    experts_cluster_wait();
    if ((int)blockIdx.x < tiles) {
        if (j.out_kind == EXPERTS_EACH)
            experts_each(j, red, bias);
        else
            experts_leave(j, m, red, bias, meet, a);
    }
    if (blockIdx.x == 0 && j.choice)
#pragma unroll 1
        for (int i = threadIdx.x; i < 2 * j.route.n_used; i += blockDim.x)
            j.choice[i] = i < j.route.n_used ? (float)m.id[i] : m.w[i - j.route.n_used];
    pdl_wait();
}

#define EXPERTS_CODES(id)                                                                                    \
    extern const experts_kernels experts_##id;                                                               \
    const experts_kernels experts_##id = {LAYOUT_##id, experts_gated_kernel<LAYOUT_##id>,                    \
                                          experts_down_kernel<LAYOUT_##id>};
