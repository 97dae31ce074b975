// Instances of gemv_adapted.h: gemv_one, whose blocks also have a piece of A x each, some columns of one rank: a unit of a warp, asked for before
// the row is there and multiplied as soon as it is. The last warp of a block that has its part gives their sum to all blocks as a packet. The warp
// that finishes a step asks for the packets while it waits for the other warps, and adds what B gives to its rows; B's first 16 ranks are in
// shared memory before the row is there. Sums have one order, and a row that has no adapter gets nothing. Code that runs once waits for its own
// instructions: loops are short.
#pragma once
#include "cuda/decode/gemv/gemv.cuh"
#include "cuda/decode/gemv/gemv_adapted.h"

enum { ADAPTED_NEAR = 16 }; // ranks of B that a warp fetches ahead

// Parts that the row has an adapter of, a bit each; *scale: of the lane's part, 0 where it has none.
DEV unsigned adapted_some(const gemv_adapted_job &e, float *scale) {
    const int lane = threadIdx.x & 31;
    *scale = lane < e.n_part ? __ldcg(e.scale + e.part[lane].adapter) : 0.f;
    return __ballot_sync(~0u, *scale != 0.f);
}
struct adapted_shared {
    __align__(16) __half b[8][2][ADAPTED_NEAR][16]; // of a warp's first step, a row tile each
    float part[ADAPTED_PIECES][8];                  // of a piece, by warps
    int count;                                      // warps that have left their parts
};

// ---- rows of A
// Eight columns a lane of a record of 256.
template <int GA> DEV void adapted_row(float (&x)[8], const uint8_t *rec) {
    const int lane = threadIdx.x & 31, g = lane >> 2, e = lane >> 1 & 1, p = g & 3, h = g >> 2;
    const uint32_t *c = (const uint32_t *)(rec + g * 32 + (lane & 1) * 16 + e * 4);
    const float d = ((const float *)(rec + REC_SCALE))[GA == 16 ? p * 4 + h * 2 + e : p * 2 + h];
    const uint32_t v[2] = {c[0], c[2]};
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = d * (float)(int8_t)(v[i >> 2] >> 8 * (i & 3));
}
// The block's pieces, a lane each: piece blockIdx.x + lane * blocks of all; piece p is columns of group p % groups of rank p / groups.
template <int W> struct adapted_pieces {
    const __half *a;        // the rank's row
    int columns, group, to; // of A, 0: a vector; to: which packet
    float factor;
    int n, left; // of the block; still to come, of the warp
    uint4 next;  // the lane's numbers of the first piece
    MEM void find(const gemv_adapted_job &e, unsigned some, float scale) {
        const int lane = threadIdx.x & 31, p = blockIdx.x + lane * e.blocks, t = p / e.groups;
        int first = 0;
        group = p - t * e.groups;
        to = -1, columns = 0, factor = 0, a = NULL;
#pragma unroll 1
        for (; some; some &= some - 1) {
            const int q = __ffs(some) - 1;
            const lowrank_dev_part &d = e.part[q];
            const float s = __shfl_sync(~0u, scale, q) * d.down_b;
            if (t >= first && t < first + d.r) {
                columns = d.vector ? 0 : (d.k + 7) & ~7;
                a = (const __half *)(e.weights + d.a) + (size_t)(t - first) * columns;
                to = (d.at + t - first) * ADAPTED_GROUPS + group;
                factor = d.vector ? s : s * d.down_a;
            }
            first += d.r;
        }
        n = left = (int)blockIdx.x < e.blocks ? __popc(__ballot_sync(~0u, to >= 0)) : 0;
        if (n) next = load(0);
    }
    // The lane's eight numbers of piece i.
    MEM uint4 load(int i) const {
        const __half *row = (const __half *)__shfl_sync(~0u, (unsigned long long)a, i);
        const int end = __shfl_sync(~0u, columns, i),
                  col = (__shfl_sync(~0u, group, i) * W + (threadIdx.x >> 5)) * 256 + (threadIdx.x & 31) * 8;
        return col < end ? __ldg((const uint4 *)(row + col)) : make_uint4(0, 0, 0, 0);
    }
    // A unit of the warp is there, the nth, as a record; or there is none.
    template <int GA>
    MEM void unit(const gemv_adapted_job &e, adapted_shared &m, int nth, const uint8_t *rec, bool there,
                  int seq) {
        const int w = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            if (__shfl_sync(~0u, group, i) != nth) continue;
            float sum = 0;
            if (there) {
                const uint4 f = i ? load(i) : next;
                const uint32_t h[4] = {f.x, f.y, f.z, f.w};
                float v[8];
                adapted_row<GA>(v, rec);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const float2 y = half2_bits(h[c]);
                    sum = fmaf(y.x, v[2 * c], sum);
                    sum = fmaf(y.y, v[2 * c + 1], sum);
                }
                sum = warp_sum(sum);
            }
            if (lane == 0) m.part[i][w] = sum;
            if (--left == 0) settle(e, m, seq);
        }
    }
    MEM void settle(const gemv_adapted_job &e, adapted_shared &m, int seq) const {
        const int lane = threadIdx.x & 31;
        int before = 0;
        if (lane == 0) {
            __threadfence_block();
            before = atomicAdd(&m.count, 1);
            __threadfence_block();
        }
        if (__shfl_sync(~0u, before, 0) != W - 1) return;
        float v = 0;
        if (lane >= n) return;
#pragma unroll
        for (int i = 0; i < W; i++) v += *(volatile float *)&m.part[lane][i];
        if (!columns) v = group ? 0.f : 1.f;
        tagged_store(e.sums + to, v * factor, handoff_tag(seq, e.tag));
    }
};

// ---- rows of B
// The operation's column of the first of 16 rows of the region; far below 0: none.
template <int R, int EPI> DEV int adapted_column(const gemv_adapted_job &e, int region, int step, int tile) {
    const gemv_args &j = e.j;
    if (EPI == EPI_GLU) return step * 16 + (tile ? j.n_out : 0); // 16 rows of gate, then those of up
    if (EPI == EPI_ADD) return (step * R + tile) * 16;
    int col = -1 << 30;
    for (int s = 0; s < j.n_seg; s++) {
        const int o = step * 16 - j.seg[s].row;
        if (j.seg[s].region == region && o >= 0 && o < j.seg[s].n) col = j.seg[s].col + o;
    }
    return col;
}
// What follows the sums of a warp's step. A lane has a row; of one row tile, lanes 16 and up have the odd ranks.
template <int GA, int R, int W, int EPI, bool PACKETS> struct adapted_finish {
    static constexpr bool there = true, apart = EPI == EPI_GLU, adds = true, twin = false;
    const gemv_adapted_job &e;
    adapted_shared &m;
    int region, cta, n_cta;
    adapted_pieces<W> pieces;
    unsigned some; // parts that the row has
    int near;      // the part whose first ranks of B are in shared memory, of the lane's row tile; -1: none
    bool wants;    // packets:
    uint4 packet[ADAPTED_GROUPS / 2];
    int seq;
    MEM size_t bytes_apart() const { return e.apart; }
    MEM int column(int of) const {
        return adapted_column<R, EPI>(e, region, of, R == 2 ? (int)(threadIdx.x & 31) >> 4 : 0);
    }
    MEM void begin() {
        const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, step = cta + w * n_cta, rank = lane & 15;
        float scale;
        if (threadIdx.x == 0) m.count = 0;
        near = -1;
        some = adapted_some(e, &scale);
        pieces.find(e, some, scale);
        if (step >= e.j.steps[region]) return;
        const int col = column(step);
#pragma unroll 1
        for (unsigned left = some; left; left &= left - 1) {
            const int q = __ffs(left) - 1, c = col - e.part[q].col;
            if (near < 0 && c >= 0 && !(c & 7) && c + 16 <= e.part[q].n) near = q;
        }
        if (near < 0) return;
        const lowrank_dev_part &p = e.part[near];
        const __half *b = (const __half *)(e.weights + p.b) + (size_t)min(rank, p.r - 1) * p.n + col - p.col;
        const uint32_t to = smem_address(m.b[w][R == 2 ? lane >> 4 : 0][rank]), bytes = rank < p.r ? 16 : 0;
        if (R == 2 || lane < 16) cp_async16(to, b, bytes);
        if (R == 2 || lane >= 16) cp_async16(to + 16, b + 8, bytes);
        cp_commit();
    }
    // What was there before this step's kernels can be read now.
    MEM void starts() { seq = __ldcg(e.seq); }
    MEM void unit(int nth, const uint8_t *rec, bool has) {
        if (pieces.left) pieces.template unit<GA>(e, m, nth, rec, has, seq);
    }
    MEM void load(int q, int rank) {
        const uint2 *from = e.sums + (e.part[q].at + rank) * ADAPTED_GROUPS;
#pragma unroll
        for (int i = 0; i < ADAPTED_GROUPS / 2; i++)
            if (2 * i < e.groups) packet[i] = handoff_load(from + 2 * i);
    }
    // In front of a wait for the sums: of the warp's first step; the others have nothing near.
    MEM void ask(int nth) {
        const int rank = threadIdx.x & 15;
        if (nth) near = -1;
        wants = near >= 0 && rank < e.part[max(near, 0)].r;
        if (wants) load(near, rank);
    }
    // The packets' sum; 0 where none is wanted.
    MEM float take(int q, int rank, uint32_t tag) {
        float sum;
        bool missing;
        do {
            missing = false;
            sum = 0;
#pragma unroll
            for (int i = 0; i < ADAPTED_GROUPS / 2; i++) {
                if (!wants || 2 * i >= e.groups) continue;
                missing |= packet[i].y != tag || (2 * i + 1 < e.groups && packet[i].w != tag);
                sum += __uint_as_float(packet[i].x);
                if (2 * i + 1 < e.groups) sum += __uint_as_float(packet[i].z);
            }
            if (missing) load(q, rank);
        } while (__any_sync(~0u, missing));
        return sum;
    }
    MEM float low(int of, uint32_t tag) {
        const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, odd = R == 1 ? lane >> 4 : 0;
        float sum = 0;
        if (!some) return 0;
        if (__any_sync(~0u, near >= 0)) {
            const float v = take(near, lane & 15, tag);
            const __half(*b)[16] = m.b[w][R == 2 ? lane >> 4 : 0];
            cp_wait<0>();
            __syncwarp();
#pragma unroll 4
            for (int i = odd; i < ADAPTED_NEAR; i += 2 / R)
                sum = fmaf(__shfl_sync(~0u, v, (lane & 16) | i),
                           near >= 0 ? __half2float(b[i][lane & 15]) : 0.f, sum);
        }
        const int col = column(of) + (lane & 15);
#pragma unroll 1
        for (unsigned left = some; left; left &= left - 1) {
            const int q = __ffs(left) - 1, c = col - e.part[q].col;
            const bool there = c >= 0 && c < e.part[q].n;
#pragma unroll 1
            for (int r = 0; r < e.part[q].r; r += 16) {
                const bool mine = there && (near != q || r);
                if (!__any_sync(~0u, mine)) continue;
                wants = r + (lane & 15) < e.part[q].r;
                if (wants) load(q, r + (lane & 15));
                const float v = take(q, r + (lane & 15), tag);
                const __half *b =
                    (const __half *)(e.weights + e.part[q].b) + (size_t)r * e.part[q].n + (mine ? c : 0);
#pragma unroll
                for (int i = odd; i < 16; i += 2 / R)
                    sum = fmaf(__shfl_sync(~0u, v, (lane & 16) | i),
                               mine && r + i < e.part[q].r ? __half2float(__ldg(b + (size_t)i * e.part[q].n))
                                                           : 0.f,
                               sum);
            }
        }
        return R == 1 ? sum + __shfl_xor_sync(~0u, sum, 16) : sum;
    }
    MEM void step(int of, float v, const ahead &a) {
        extern __shared__ __align__(1024) uint8_t smem[];
        const uint32_t gives = handoff_tag(seq, e.j.tag);
        best_value none = {0, 0};
        v += low(of, handoff_tag(seq, e.tag));
        const float rs = e.j.n_square ? *(const float *)(smem + GEMV_FACTOR) : 1.f;
        if constexpr (EPI == EPI_GLU)
            gate(of, __fmul_rn(v, rs), gives);
        else
            finish<R, EPI, PACKETS, true>(e.j, region, of, v, rs, a, none, gives);
    }
    // Lanes 0 .. 15 have gate, the others up.
    MEM void gate(int of, float v, uint32_t gives) {
        const int lane = threadIdx.x & 31, col = of * 16 + (lane & 15);
        const float g = __shfl_sync(~0u, v, lane & 15), up = __shfl_sync(~0u, v, lane | 16),
                    y = col < e.j.n_out ? act_apply(e.j.act, g) * up : 0.f;
        if constexpr (PACKETS)
            give_act_int8<16>(e.j.give_handoff, of * 16, y, gives);
        else
            put_act_int8<16>(e.j, col, y);
    }
    MEM void end() {}
};
template <int L, int L2, int GA, int R, int W, int S, int S2, int EPI, bool PACKETS>
__global__ void __launch_bounds__(W * 32, 2) gemv_adapted(const __grid_constant__ gemv_adapted_job e) {
    __shared__ adapted_shared m;
    const bool second = L2 >= 0 && (int)blockIdx.x >= e.j.split;
    const int cta = second ? blockIdx.x - e.j.split : blockIdx.x, n_cta = L2 < 0   ? gridDim.x
                                                                          : second ? gridDim.x - e.j.split
                                                                                   : e.j.split;
    static_assert(W == 8, "room");
    adapted_finish<GA, R, W, EPI, PACKETS> rest = {e, m, second, cta, n_cta};
    if (!second)
        gemv_one<L, GA, R, W, S, EPI, PACKETS>(e.j, 0, cta, n_cta, rest);
    else if constexpr (L2 >= 0)
        gemv_one<L2, GA, R, W, S2, EPI, PACKETS>(e.j, 1, cta, n_cta, rest);
}

#define ADAPTED_OF(l, lx, lc, ga, r, s, s2, epi, bytes)                                                      \
    {                                                                                                        \
        l, lc, ga, r, epi, 8, bytes, {                                                                       \
            gemv_adapted<l, lx, ga, r, 8, s, s2, epi, false>,                                                \
                gemv_adapted<l, lx, ga, r, 8, s, s2, epi, true>                                              \
        }                                                                                                    \
    }
#define ADAPTED(l, ga, r, s, epi)                                                                            \
    ADAPTED_OF(l, -1, LAYOUT_COUNT, ga, r, s, 1, epi, 8 * (s) * (r)*layout_unit_bytes(l))
// As GEMV_CODES has them.
#define ADAPTED_CODES(l)                                                                                     \
    ADAPTED(l, 32, 1, 2 * format<l>::slots, EPI_STORE), ADAPTED(l, 32, 2, format<l>::slots, EPI_ADD),        \
        ADAPTED(l, 32, 2, format<l>::glu_slots, EPI_GLU), ADAPTED(l, 16, 2, format<l>::slots, EPI_ADD)
#define ADAPTED_PAIR(l, l2, s, s2)                                                                           \
    ADAPTED_OF(l, l2, l2, 32, 1, s, s2, EPI_STORE,                                                           \
               8 * ((s)*layout_unit_bytes(l) > (s2)*layout_unit_bytes(l2) ? (s)*layout_unit_bytes(l)         \
                                                                          : (s2)*layout_unit_bytes(l2)))
