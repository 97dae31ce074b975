// One decode row of codes, the units of a matrix shared out evenly; gemv.cuh has what is alike.
//
// A block's units go to its warps in turn, whatever step they are of. Its first step may be one that a block in front began: then the
// block gives its sums to that one, in words with a tag. All blocks are on the card at once: those of the next kernel start when all
// of these have.
#pragma once
#include "cuda/decode/gemv/gemv.cuh"
#include "cuda/decode/gemv/gemv_streamk.h"

#define MM_MAX(a, b) ((a) > (b) ? (a) : (b))

// Slots of R units a warp; units lo + warp, lo + warp + W, .. of a region, U a row tile.
template <int L, int R, int W, int S> struct streamk_ring {
    static constexpr int UB = layout_unit_bytes((enum layout)L);
    const uint8_t *p, *slots;
    uint64_t policy;
    uint32_t base, bar, phase;
    size_t hop;
    int left, units, unit, slot;
    MEM void issue(int s) {
        if (left <= 0) return;
        if (elect_one()) {
            const uint32_t b = bar + 8 * s;
            barrier_expect(b, R * UB);
#pragma unroll
            for (int h = 0; h < R; h++) bulk_copy(base + (s * R + h) * UB, p + h * hop, UB, b, policy);
        }
        left--;
        p += W * UB;
        if constexpr (R == 1) return; // tiles lie one behind the other
        unit += W;
#pragma unroll 1
        while (unit >= units) {
            unit -= units;
            p += (R - 1) * hop;
        }
    }
    MEM void start(uint8_t *smem, uint64_t *bars, const uint8_t *w, int u, int lo, int hi) {
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
        left = (hi - lo - warp + W - 1) / W;
        units = u;
        hop = (size_t)u * UB;
        const int step = (lo + warp) / u;
        unit = lo + warp - step * u;
        p = w + (size_t)step * R * hop + (size_t)unit * UB;
#pragma unroll
        for (int s = 0; s < S; s++) issue(s);
    }
    // The next unit: row tiles h of R, then its slot is filled again.
    template <class F> MEM void next(F (&f)[R], float up) {
        barrier_wait(bar + 8 * slot, phase);
#pragma unroll
        for (int h = 0; h < R; h++) f[h].load(slots + (slot * R + h) * UB, threadIdx.x & 31, up);
        __syncwarp();
        issue(slot);
        if (++slot == S) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// A float that comes with its tag.
DEV float tagged_take(const uint2 *p, uint32_t tag) {
    uint2 x = tagged_load(p);
    while (x.y != tag) x = tagged_load(p);
    return __uint_as_float(x.x);
}
// 1 / rms of the product from all blocks' sums of squares, added in the order of post_norm.cu.
DEV float streamk_root(const streamk_job &e, uint32_t tag) {
    constexpr int AT_ONCE = 12;
    const int lane = threadIdx.x & 31, n = e.post.n_square;
    float s = 0;
#pragma unroll 1
    for (int i0 = lane; i0 < n; i0 += 32 * AT_ONCE) {
        uint2 q[AT_ONCE];
        bool missing;
        do {
            missing = false;
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                q[k] = i0 + k * 32 < n ? tagged_load(e.squares + i0 + k * 32) : make_uint2(0, tag);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) missing |= q[k].y != tag;
        } while (missing);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) s += __uint_as_float(q[k].x);
    }
    __syncwarp();
    return rsqrtf(fmaf(warp_sum(s), e.post.inv_width, e.post.eps));
}
// What a warp needs of the stream behind its 32 rows of a step.
struct streamk_stream {
    float x, norm, next;
};
DEV streamk_stream look_at_stream(const streamk_job &e, int step) {
    const int col = step * 32 + (threadIdx.x & 31);
    return {__ldcg(e.j.res + col), e.post.norm ? e.post.norm[col] : 1.f,
            e.post.hands_on ? e.j.next_norm[col] : 1.f};
}
// x = scale * (x + norm(factor * y)) and what its next reader takes, of 32 rows of a step.
DEV void finish_post(const streamk_job &e, int step, float y, const streamk_stream &a, uint32_t tag) {
    const int lane = threadIdx.x & 31, col = step * 32 + lane;
    const float root = e.post.n_square ? streamk_root(e, tag) : 1.f;
    const float v = (a.x + y * e.post.factor * root * a.norm) * e.post.scale;
    e.j.res[col] = v;
    if (!e.post.hands_on) return;
    const float ss = sum16(__fmul_rn(v, v));
    if ((lane & 15) == 0) e.j.square_out[col >> 4] = ss;
    put_act_int8<32>(e.j, col, __fmul_rn(v, a.next));
}

// The row to shared memory, for all warps; the norm's factor to *rs.
template <int GA, int W, int EPI, bool BESIDE, class M>
DEV void streamk_input(const gemv_args &j, M &m, uint8_t *x, uint64_t *xbar, float *rs) {
    constexpr int XU = GA == 16 ? REC_BYTES_16 : REC_BYTES_32, AT_ONCE = 4;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, U = j.u;
    if constexpr (
        BESIDE) { // packets say by themselves when they are there, and that the kernels before their writer are done
        act_int8_reader<GA> in[AT_ONCE];
        const uint32_t tag = handoff_tag(j.seq, j.tag);
#pragma unroll 1
        for (int u = w; u < U; u += AT_ONCE * W) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                in[i].at = j.take_handoff;
                in[i].tag = tag;
                in[i].columns = j.take_columns;
                if (u + i * W < U) in[i].ask(u + i * W, lane);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                uint8_t *to = x + (size_t)(u + i * W) * XU;
                if (u + i * W >= U) continue;
                in[i].take(u + i * W, to, lane);
                m.template prepare<1>(to, 0, 1, lane);
            }
        }
    } else {
        const uint32_t b = smem_address(xbar + w);
        if (w < U && elect_one()) {
            barrier_expect(b, (U - w + W - 1) / W * XU);
            for (int u = w; u < U; u += W)
                bulk_copy(smem_address(x + (size_t)u * XU), j.x + (size_t)u * j.x_unit, XU, b);
        }
        __syncwarp();
        if (EPI != EPI_POST && EPI != EPI_ADD && j.n_square && w == 0) {
            const float v = row_factor<true>(j, 0);
            if (lane == 0) *rs = v;
        }
        if (w < U) barrier_wait(b, 0);
        for (int u = w; u < U; u += 2 * W)
            m.template prepare<2>(x + (size_t)u * XU, (size_t)W * XU, u + W < U ? 2 : 1, lane);
    }
    __syncthreads(); // a warp's units are of all columns
}

// The units of a region that a block has: lo .. hi - 1, block cta of those of the region.
struct streamk_range {
    int share, more, cta, lo, hi;
    MEM int first_unit(int block) const { return block * share + min(block, more); }
};
// The sums v of a step's rows, of which this block has the first unit: with what the blocks behind have of them.
template <int ROWS>
DEV float streamk_sum(const streamk_job &e, const streamk_range &at, int end, float v, uint32_t tag) {
    if (at.hi >= end) return v;
#pragma unroll 1
    for (int c = at.cta + 1; at.first_unit(c) < end; c++)
        v += tagged_take(e.sums + (blockIdx.x + c - at.cta) * ROWS + (threadIdx.x & (ROWS - 1)), tag);
    __syncwarp();
    return v;
}

// PACKETS: the input (ADD, POST) or the result comes in packets.
template <int L, int GA, int R, int W, int S, int EPI, bool PACKETS>
DEV void streamk_one(const streamk_job &e, int region, int cta, int n_cta) {
    extern __shared__ __align__(1024) uint8_t smem[];
    constexpr int XU = GA == 16 ? REC_BYTES_16 : REC_BYTES_32, ROWS = 16 * R;
    constexpr bool beside = PACKETS && (EPI == EPI_ADD || EPI == EPI_POST);
    const gemv_args &j = e.j;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, U = j.u;
    streamk_range at = {e.share[region], e.more[region], cta, 0, 0};
    at.lo = at.first_unit(cta);
    at.hi = at.first_unit(cta + 1);
    uint64_t *bars = (uint64_t *)smem, *done = bars + W * S, *freed = done + W, *xbar = freed + W;
    const gemv_areas area = gemv_lay_out(W, R, j.x_bytes, 0);
    float *rs_at = (float *)(smem + GEMV_FACTOR), *red = (float *)(smem + GEMV_HEAD);
    uint8_t *x = smem + area.x, *slots = smem + area.rings;
    static_assert((W * S + 3 * W) * 8 <= GEMV_FACTOR, "room for the barriers");

    streamk_ring<L, R, W, S> r;
    r.start(slots, bars, j.w[region], U, at.lo, at.hi);
    if (threadIdx.x < 3 * W) barrier_init(smem_address(done + threadIdx.x), threadIdx.x < W ? W : 1);
    if (threadIdx.x < 3 * W) barrier_fence();
    __syncthreads();
    if (EPI == EPI_STORE && j.first) {
        pdl_wait();
        pdl_trigger();
    } else {
        pdl_trigger();
        if (!beside) pdl_wait();
    }
    one_row<L, GA, R> m;
    m.start(lane);
    streamk_input<GA, W, EPI, beside>(j, m, x, xbar, rs_at);
    const int seq = __ldcg(j.seq);
    const uint32_t tag = handoff_tag(seq, e.tag), given = handoff_tag(seq, j.tag);

    const int first = at.lo / U;
    const bool late = at.lo != first * U; // a block in front has units of the first step
    int u = at.lo - first * U + w, held = -1, mine = -1;
    best_value best = {-INFINITY, 0x7fffffff};
    streamk_stream stream = {0, 0, 0};
    ahead a = {0, 0, 0};
    float y = 0;
#pragma unroll 1
    for (int ti = 0;; ti++) {
        const int buf = ti % W, step = first + ti;
        const bool more = step * U < at.hi && at.lo < at.hi;
        ahead next = {0, 0, 0};
        if (more) {
            m.clear();
            if (EPI == EPI_POST && buf == w && !(late && ti == 0)) stream = look_at_stream(e, step);
            if (EPI == EPI_ADD && buf == w && !(late && ti == 0)) next = look_ahead<R, EPI>(j, step, 0);
            const int end = min(U, at.hi - step * U);
#pragma unroll 1
            for (; u < end; u += W) {
                int_frag<L> f[R];
                r.next(f, j.up[region]);
                m.unit(f, x + (size_t)u * XU, lane);
            }
            u -= U;
            if (ti >= W) barrier_wait(smem_address(freed + buf), (ti / W - 1) & 1);
            m.leave(red + (buf * W + w) * ROWS, lane);
            __syncwarp();
            if (elect_one()) barrier_arrive(smem_address(done + buf));
        }
        if (held >= 0) {
            barrier_wait(smem_address(done + w), held & 1);
            const float *part = red + w * W * ROWS;
            const int nth = held * W + w, of = first + nth;
            float v = 0;
#pragma unroll
            for (int k = 0; k < W; k++) v += part[k * ROWS + (lane & (ROWS - 1))];
            __syncwarp();
            if (elect_one()) barrier_arrive(smem_address(freed + w));
            if (late && nth == 0) {
                if (lane < ROWS) tagged_store(e.sums + blockIdx.x * ROWS + lane, v, tag);
            } else {
                v = streamk_sum<ROWS>(e, at, (of + 1) * U, v, tag);
                if constexpr (EPI == EPI_POST) {
                    const float ss = sum16(__fmul_rn(v, v));
                    if ((lane & 15) == 0) tagged_store(e.squares + of * R + (lane >> 4), ss, tag);
                    mine = of;
                    y = v;
                } else
                    finish<R, EPI, PACKETS, true>(j, region, of, v, j.n_square ? *rs_at : 1.f, a, best,
                                                  given);
            }
        }
        if (!more) break;
        held = buf == w ? ti / W : -1;
        a = next;
    }
    if (EPI == EPI_POST && mine >= 0) finish_post(e, mine, y, stream, tag);
    if (beside) pdl_wait(); // what follows this kernel follows the one before, too
}

// L2 < 0: one region
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI, bool PACKETS>
__global__ void __launch_bounds__(W * 32, 2) gemv_streamk_kernel(const __grid_constant__ streamk_job e) {
    if (L2 < 0 || (int)blockIdx.x < e.j.split)
        streamk_one<L, GA, R, W, S, EPI, PACKETS>(e, 0, blockIdx.x, L2 < 0 ? gridDim.x : e.j.split);
    else if constexpr (L2 >= 0)
        streamk_one<L2, GA, R, W, S2, EPI, PACKETS>(e, 1, blockIdx.x - e.j.split, gridDim.x - e.j.split);
}

#define STREAMK_ENTRY(l, lx, lc, ga, r, s, s2, epi, bytes)                                                   \
    {                                                                                                        \
        l, lc, ga, r, epi, 8, 8 * (bytes), {                                                                 \
            gemv_streamk_kernel<l, lx, ga, r, 8, s, s2, epi, false>,                                         \
                gemv_streamk_kernel<l, lx, ga, r, 8, s, s2, epi, true>                                       \
        }                                                                                                    \
    }
#define STREAMK_ONE(l, ga, r, s, epi)                                                                        \
    STREAMK_ENTRY(l, -1, LAYOUT_COUNT, ga, r, s, 1, epi, (s) * (r)*layout_unit_bytes(l))
