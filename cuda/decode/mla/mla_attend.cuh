// MLA in its absorbed form: queries times their heads' matrices, against a store of latents: all heads of a row, and rows of a prompt, read
// the same keys, so (row, head) pairs are rows of tensor core tiles. A block has 32 or 64 pairs and walks over tiles of 32 positions, which
// come into shared memory once: of the scores each warp computes 16 pairs by a quarter of a key's numbers, then four pairs' softmax, then
// 64 of the 512 sums of 32 pairs. What it does to a pair depends on that pair's positions alone.
#pragma once
#include "cuda/common/kv_pages.cuh"
#include "cuda/decode/mla/mla_attend.h"

enum {
    LATENT_TILE = 32, // positions
    LATENT_PITCH =
        LATENT_K * 2 + 16, // bytes of a key in shared memory: rows of 8 halves fall into different banks
    LATENT_STAGE = LATENT_TILE * LATENT_PITCH,
    LATENT_SCORE = LATENT_TILE + 8,  // floats of a pair's scores
    LATENT_STEPS = LATENT_K / 4 / 16 // products of a warp's quarter
};
// MT: tiles of 16 pairs. Two are few enough for scores, weights and factors of two tiles, so that three tiles are under way at once.
template <int MT, int T> struct mla_shape {
    static constexpr int pairs = 16 * MT, warps = 4 * MT, stages = T == KV_F16 || MT == 2 ? 4 : 2,
                         turns = MT == 2 ? 2 : 1;
    static constexpr int score = stages * LATENT_STAGE, score_turn = 4 * pairs * LATENT_SCORE,
                         weight = score + turns * score_turn * 4, weight_turn = pairs * LATENT_SCORE,
                         factor = weight + turns * weight_turn * 2, limit = factor + turns * pairs * 4,
                         barrier = limit + pairs * 4, bytes = barrier + stages * 8;
};

// A walk over tiles: a sequence's first tile to end, the last of which has what is up to position last.
struct mla_walk {
    int slot, tile, end, last;
};

// One tile into a stage. F16: bulk copies, a few rows a warp; else all threads turn numbers into halves.
template <int MT, int T>
DEV void mla_fetch(const mla_job &j, uint8_t *smem, uint32_t full, int stage, const mla_walk &w, int tile) {
    const int p0 = tile * LATENT_TILE, n = min((int)LATENT_TILE, w.last + 1 - p0);
    const size_t bytes = kv_bytes((enum kv_type)T, LATENT_K);
    const uint8_t *from = j.kv.k + kv_row(j.kv, w.slot, p0, 0) * bytes;
    uint8_t *to = smem + stage * LATENT_STAGE;
    if constexpr (T == KV_F16) {
        constexpr int each = LATENT_TILE / (4 * MT); // rows of a warp
        const int lane = threadIdx.x & 31, r = lane + (threadIdx.x >> 5) * each;
        if (threadIdx.x == 0) barrier_expect(full + stage * 8, n * (uint32_t)bytes);
        if (lane < each && r < n)
            bulk_copy(smem_address(to) + r * LATENT_PITCH, from + r * bytes, (uint32_t)bytes,
                      full + stage * 8);
    } else
        for (int i = threadIdx.x; i < n * (LATENT_K / 8); i += 128 * MT) {
            const int r = i / (LATENT_K / 8), c = i % (LATENT_K / 8);
            *(uint4 *)(to + r * LATENT_PITCH + c * 16) = kv_chunk<T>(from + r * bytes, c);
        }
}
// Values behind the last position count nothing, whatever lies there.
DEV void mla_clear(uint8_t *stage, int n, int threads) {
    for (int i = n * (LATENT_V / 8) + threadIdx.x; i < LATENT_TILE * (LATENT_V / 8); i += threads)
        *(uint4 *)(stage + i / (LATENT_V / 8) * LATENT_PITCH + i % (LATENT_V / 8) * 16) =
            make_uint4(0, 0, 0, 0);
}

// A warp's 16 pairs by a quarter of the numbers, as operands.
template <class F> DEV void mla_query(uint32_t (&a)[LATENT_STEPS][4], F at, int lane) {
    const int g = lane >> 2, t = lane & 3;
    const float *lo = at(g), *hi = at(g + 8);
    auto two = [](const float *p) {
        if (!p) return 0u;
        const float2 v = __ldcg((const float2 *)p);
        return pack_half2(v.x, v.y);
    };
#pragma unroll
    for (int s = 0; s < LATENT_STEPS; s++) {
        const int k = s * 16 + t * 2;
        a[s][0] = two(lo ? lo + k : lo);
        a[s][1] = two(hi ? hi + k : hi);
        a[s][2] = two(lo ? lo + k + 8 : lo);
        a[s][3] = two(hi ? hi + k + 8 : hi);
    }
}
// Their part of the scores with the tile's positions, into score[pair][position].
DEV void mla_scores(const uint32_t (&a)[LATENT_STEPS][4], uint32_t stage, int quarter, float *score,
                    int lane) {
    float s[4][4] = {};
    const int m = lane >> 3, r = lane & 7;
    const uint32_t at =
        stage + ((m >> 1) * 8 + r) * LATENT_PITCH + (quarter * (LATENT_K / 4) + (m & 1) * 8) * 2;
#pragma unroll
    for (int k = 0; k < LATENT_STEPS; k++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            uint32_t b[4];
            ldmatrix4(b, at + n * 16 * LATENT_PITCH + k * 32);
            mma_f16(s[2 * n], a[k][0], a[k][1], a[k][2], a[k][3], b[0], b[1]);
            mma_f16(s[2 * n + 1], a[k][0], a[k][1], a[k][2], a[k][3], b[2], b[3]);
        }
    float *to = score + (lane >> 2) * LATENT_SCORE + (lane & 3) * 2;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        *(float2 *)(to + n * 8) = make_float2(s[n][0], s[n][1]);
        *(float2 *)(to + 8 * LATENT_SCORE + n * 8) = make_float2(s[n][2], s[n][3]);
    }
}
// The running softmax of one pair: 8 lanes have four positions each.
struct mla_sum {
    float most, sum; // sum: this lane's positions
};
DEV float mla_softmax(mla_sum &o, const float *score, int step, int open, float scale, __half *weight,
                      int lane) {
    const int c = (lane & 7) * 4;
    float4 v = *(const float4 *)(score + c);
#pragma unroll
    for (int q = 1; q < 4; q++) {
        const float4 x = *(const float4 *)(score + q * step + c);
        v.x += x.x, v.y += x.y, v.z += x.z, v.w += x.w;
    }
    float s[4] = {v.x * scale, v.y * scale, v.z * scale, v.w * scale}, most = -INFINITY, p[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (c + i <= open) most = fmaxf(most, s[i]);
#pragma unroll
    for (int i = 1; i < 8; i <<= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    most = fmaxf(most, o.most);
    const float f = exp2_fast(o.most - most);
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = c + i <= open ? exp2_fast(s[i] - most) : 0.f;
    o.most = most;
    o.sum = o.sum * f + ((p[0] + p[1]) + (p[2] + p[3]));
    *(uint2 *)(weight + c) = make_uint2(pack_half2(p[0], p[1]), pack_half2(p[2], p[3]));
    return f;
}
// 32 pairs' sums of 64 numbers: o = factor o + weight value
DEV void mla_values(float (&o)[2][8][4], const float *factor, uint32_t weight, uint32_t stage, int lane) {
    const int g = lane >> 2, m = lane >> 3, r = lane & 7;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float lo = factor[i * 16 + g], hi = factor[i * 16 + g + 8];
#pragma unroll
        for (int n = 0; n < 8; n++) o[i][n][0] *= lo, o[i][n][1] *= lo, o[i][n][2] *= hi, o[i][n][3] *= hi;
    }
    const uint32_t value = stage + ((m & 1) * 8 + r) * LATENT_PITCH + (m >> 1) * 16,
                   at = weight + (lane & 15) * (LATENT_SCORE * 2) + (lane >> 4) * 16;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t a[2][4];
        ldmatrix4(a[0], at + k * 32);
        ldmatrix4(a[1], at + 16 * (LATENT_SCORE * 2) + k * 32);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t b[4];
            ldmatrix4_t(b, value + k * 16 * LATENT_PITCH + n * 32);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mma_f16(o[i][2 * n], a[i][0], a[i][1], a[i][2], a[i][3], b[0], b[1]);
                mma_f16(o[i][2 * n + 1], a[i][0], a[i][1], a[i][2], a[i][3], b[2], b[3]);
            }
        }
    }
}

// What a block keeps from tile to tile.
template <int MT> struct mla_state {
    uint32_t query[LATENT_STEPS][4];
    mla_sum sum;
    float o[2][8][4];
    int fetched, used; // tiles, of all walks
};
// The walk's next tile that is not under way, into the next stage.
template <int MT, int T>
DEV void mla_next(const mla_job &j, uint8_t *smem, mla_state<MT> &x, const mla_walk &w, int &next, int end) {
    if (next >= end) return;
    mla_fetch<MT, T>(j, smem, smem_address(smem) + mla_shape<MT, T>::barrier,
                     x.fetched % mla_shape<MT, T>::stages, w, next++);
    x.fetched++;
}
// This warp's parts of what is done to a tile: scores of the tile that is used-th, weights, sums.
template <int MT, int T> struct mla_warp {
    using shape = mla_shape<MT, T>;
    uint8_t *smem;
    uint32_t base;
    int warp, lane, pair, limit;
    float scale;
    MEM mla_warp(uint8_t *s, float f)
        : smem(s), base(smem_address(s)), warp(threadIdx.x >> 5), lane(threadIdx.x & 31),
          pair(warp * 4 + (lane >> 3)), limit(((const int *)(s + shape::limit))[pair]), scale(f) {}
    MEM void scores(const mla_state<MT> &x, const mla_walk &w, int tile, int used) const {
        const int stage = used % shape::stages, left = w.last + 1 - tile * LATENT_TILE;
        if (T == KV_F16) barrier_wait(base + shape::barrier + stage * 8, used / shape::stages & 1);
        if (left < LATENT_TILE) mla_clear(smem + stage * LATENT_STAGE, left, 128 * MT);
        float *score = (float *)(smem + shape::score) + used % shape::turns * shape::score_turn;
        mla_scores(x.query, base + stage * LATENT_STAGE, warp & 3,
                   score + ((warp & 3) * shape::pairs + (warp >> 2) * 16) * LATENT_SCORE, lane);
    }
    MEM void weights(mla_state<MT> &x, int tile, int used) const {
        const int turn = used % shape::turns;
        const float *score = (const float *)(smem + shape::score) + turn * shape::score_turn;
        __half *weight = (__half *)(smem + shape::weight) + turn * shape::weight_turn;
        const float f = mla_softmax(x.sum, score + pair * LATENT_SCORE, shape::pairs * LATENT_SCORE,
                                    limit - tile * LATENT_TILE, scale, weight + pair * LATENT_SCORE, lane);
        if ((lane & 7) == 0) ((float *)(smem + shape::factor))[turn * shape::pairs + pair] = f;
    }
    MEM void values(mla_state<MT> &x, int used) const {
        const int turn = used % shape::turns, pairs = (warp >> 3) * 32;
        mla_values(x.o, (const float *)(smem + shape::factor) + turn * shape::pairs + pairs,
                   base + shape::weight + (turn * shape::weight_turn + pairs * LATENT_SCORE) * 2,
                   base + used % shape::stages * LATENT_STAGE + (warp & 7) * 128, lane);
    }
};
// One walk, of which the tiles before next are under way. limit[pair]: the last position that a pair sees, -1: none here.
template <int MT, int T>
DEV void mla_walk_tiles(const mla_job &j, uint8_t *smem, mla_state<MT> &x, const mla_walk &w, int next,
                        float scale) {
    using shape = mla_shape<MT, T>;
    constexpr int S = shape::stages;
    const mla_warp<MT, T> own(smem, scale);
    const int n = w.end - w.tile, first = x.used;
    while (next < w.end && next - w.tile < (T == KV_F16 ? S : MT == 2 ? 2 : 1))
        mla_next<MT, T>(j, smem, x, w, next, w.end);
    if (T != KV_F16) __syncthreads();
    if constexpr (MT == 2) // scores of a tile, weights of the one before, sums of the one before that
        for (int i = -1; i <= n; i++) {
            if (i + 1 < n) own.scores(x, w, w.tile + i + 1, first + i + 1);
            if (T != KV_F16 && i >= 0) mla_next<MT, T>(j, smem, x, w, next, w.end);
            if (i >= 0 && i < n) own.weights(x, w.tile + i, first + i);
            if (i > 0) own.values(x, first + i - 1);
            __syncthreads();
            if (T == KV_F16 && i > 0) mla_next<MT, T>(j, smem, x, w, next, w.end);
        }
    else
        for (int i = 0; i < n; i++) {
            own.scores(x, w, w.tile + i, first + i);
            __syncthreads();
            if (T != KV_F16 || i > 0)
                mla_next<MT, T>(j, smem, x, w, next, w.end); // into the stage of the tile before
            own.weights(x, w.tile + i, first + i);
            __syncthreads();
            own.values(x, first + i);
        }
    x.used = first + n;
    if (T == KV_F16) barrier_fence(); // what was cleared may be copied to next
    __syncthreads();
}
template <int MT, int T> DEV void mla_begin(uint8_t *smem, mla_state<MT> &x) {
    using shape = mla_shape<MT, T>;
    if (T == KV_F16 && threadIdx.x == 0) {
        for (int i = 0; i < shape::stages; i++) barrier_init(smem_address(smem) + shape::barrier + i * 8, 1);
        barrier_fence();
    }
    x.sum = {-1e30f, 0.f}; // finite: a pair that sees nothing of a tile stays as it is
    x.fetched = x.used = 0;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int k = 0; k < 4; k++) x.o[i][n][k] = 0;
}
DEV float mla_scale(const mla_job &j, int pos) {
    const float log2e = 1.4426950408889634f;
    float scale = j.scale * log2e;
    if (j.temp_beta != 0.f)
        scale *= 1.f + j.temp_beta * logf((float)(1 + (pos + j.temp_offset) / j.temp_len));
    return scale;
}
// The sums of this warp's 32 pairs: to(pair) says where a pair's 512 go, NULL: nowhere.
template <int MT, class F> DEV void mla_store(const mla_state<MT> &x, const float *factor, F to) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2,
              d = (warp & 7) * 64 + (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int pair = (warp >> 3) * 32 + i * 16 + h * 8 + g;
            float *p = to(pair);
            const float f = factor ? factor[pair] : 1.f;
            if (!p) continue;
#pragma unroll
            for (int n = 0; n < 8; n++)
                *(float2 *)(p + d + n * 8) = make_float2(x.o[i][n][2 * h] * f, x.o[i][n][2 * h + 1] * f);
        }
}

// Tiles of a part of a row's keys, and how many parts there are: of the row's position alone.
DEV int mla_part_tiles(int pos, int max_split) { return (pos / LATENT_TILE + max_split) / max_split; }
DEV int mla_parts(int pos, int max_split) { return pos / LATENT_TILE / mla_part_tiles(pos, max_split) + 1; }

// ---- decode rows: a block a part, a block of heads and a row
template <int MT, int T>
__global__ void __launch_bounds__(MT * 128, 1) mla_decode_kernel(const __grid_constant__ mla_job j) {
    extern __shared__ __align__(128) uint8_t smem[];
    using shape = mla_shape<MT, T>;
    const int split = blockIdx.x, h0 = blockIdx.y * shape::pairs, row = blockIdx.z, warp = threadIdx.x >> 5,
              lane = threadIdx.x & 31, pair = warp * 4 + (lane >> 3);
    mla_state<MT> x;
    mla_begin<MT, T>(smem, x);
    pdl_trigger();
    const int n_row = j.t.step->n_row;
    if (row >= n_row) {
        pdl_wait();
        return;
    }
    const int pos = j.t.pos[row], slot = j.t.slot[row], per = mla_part_tiles(pos, j.max_split);
    const mla_walk w = {slot, split * per, min((split + 1) * per, pos / LATENT_TILE + 1), pos};
    int fresh = pos, next = w.tile; // the first position that this step may still be writing
    for (int r = 0; r < n_row; r++)
        if (j.t.slot[r] == slot) fresh = min(fresh, j.t.pos[r]);
    if (threadIdx.x < shape::pairs) ((int *)(smem + shape::limit))[threadIdx.x] = pos;
    __syncthreads();
    if (T == KV_F16)
        while (next < min(w.end, fresh / LATENT_TILE) && next - w.tile < shape::stages)
            mla_next<MT, T>(j, smem, x, w, next, w.end);
    pdl_wait();
    if (w.tile >= w.end) return;
    const float *q = j.q + row * j.q_row + (warp & 3) * (LATENT_K / 4);
    mla_query(
        x.query,
        [&](int i) -> const float * {
            const int h = h0 + (warp >> 2) * 16 + i;
            return h < j.n_head ? q + (size_t)h * LATENT_K : NULL;
        },
        lane);
    mla_walk_tiles<MT, T>(j, smem, x, w, next, mla_scale(j, pos));
    const size_t at = ((size_t)row * j.max_split + split) * j.n_head;
    float l = x.sum.sum;
#pragma unroll
    for (int i = 1; i < 8; i <<= 1) l += __shfl_xor_sync(~0u, l, i);
    if ((lane & 7) == 0 && h0 + pair < j.n_head) j.weight[at + h0 + pair] = make_float2(x.sum.most, l);
    mla_store(x, NULL, [&](int i) { return h0 + i < j.n_head ? j.part + (at + h0 + i) * LATENT_V : NULL; });
}
// The parts of a row and a head to its 512 sums: a block 128 of them, 8 groups of threads a share of the parts
static __global__ void __launch_bounds__(256) mla_merge_kernel(const __grid_constant__ mla_job j) {
    __shared__ float share[LATENT_SPLIT], all[8];
    __shared__ float4 sum[8][32];
    const int h = blockIdx.x, row = blockIdx.z, tid = threadIdx.x, group = tid >> 5, lane = tid & 31;
    pdl_trigger();
    pdl_wait();
    if (row >= j.t.step->n_row) return;
    const int n = mla_parts(j.t.pos[row], j.max_split);
    const size_t at = (size_t)row * j.max_split * j.n_head + h;
    float most = -INFINITY, total = 0.f;
    float2 w = make_float2(-INFINITY, 0.f);
    if (tid < n) w = __ldcg(j.weight + at + (size_t)tid * j.n_head);
    most = warp_max(w.x);
    if (lane == 0) all[group] = most;
    __syncthreads();
    most = all[0];
    for (int i = 1; i < 8; i++) most = fmaxf(most, all[i]);
    __syncthreads();
    const float f = tid < n ? exp2_fast(w.x - most) : 0.f;
    if (tid < n) share[tid] = f;
    total = warp_sum(f * w.y);
    if (lane == 0) all[group] = total;
    __syncthreads();
    total = all[0];
    for (int i = 1; i < 8; i++) total += all[i];
    const float *part = j.part + at * LATENT_V + blockIdx.y * 128 + lane * 4;
    float4 a = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int s0 = group; s0 < n; s0 += 64) { // eight loads at a time
        float4 v[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (s0 + 8 * i < n)
                v[i] = __ldcg((const float4 *)(part + (size_t)(s0 + 8 * i) * j.n_head * LATENT_V));
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (s0 + 8 * i < n) {
                const float g = share[s0 + 8 * i];
                a.x = fmaf(g, v[i].x, a.x), a.y = fmaf(g, v[i].y, a.y), a.z = fmaf(g, v[i].z, a.z);
                a.w = fmaf(g, v[i].w, a.w);
            }
    }
    sum[group][lane] = a;
    __syncthreads();
    if (group) return;
    for (int i = 1; i < 8; i++) {
        const float4 v = sum[i][lane];
        a.x += v.x, a.y += v.y, a.z += v.z, a.w += v.w;
    }
    const float inv = 1.f / total;
    *(float4 *)(j.out + row * j.out_row + (size_t)h * LATENT_V + blockIdx.y * 128 + lane * 4) =
        make_float4(a.x * inv, a.y * inv, a.z * inv, a.w * inv);
}

// ---- prompt rows, of keys in halves: a block 16 MT pairs in the order of rows and heads; rows of several sequences one walk after the other
template <int MT>
__global__ void __launch_bounds__(MT * 128, 1) mla_prompt_kernel(const __grid_constant__ mla_job j) {
    extern __shared__ __align__(128) uint8_t smem[];
    constexpr int T = KV_F16;
    using shape = mla_shape<MT, T>;
    const int n_row = j.t.step->n_row, H = j.n_head, first = (gridDim.x - 1 - blockIdx.x) * shape::pairs,
              end = min(first + (int)shape::pairs, n_row * H), warp = threadIdx.x >> 5,
              lane = threadIdx.x & 31, pair = warp * 4 + (lane >> 3);
    if (first >= end) return;
    int *limit = (int *)(smem + shape::limit);
    float *factor = (float *)(smem + shape::factor);
    mla_state<MT> x;
    mla_begin<MT, T>(smem, x);
    mla_query(
        x.query,
        [&](int i) -> const float * {
            const int p = first + (warp >> 2) * 16 + i;
            return p < end ? j.q + p / H * j.q_row + (size_t)(p % H) * LATENT_K + (warp & 3) * (LATENT_K / 4)
                           : NULL;
        },
        lane);
    const int r0 = first / H, r1 = (end - 1) / H;
    const float scale = mla_scale(j, j.t.pos[min(first + pair, end - 1) / H]);
    for (int r = r0; r <= r1; r++) { // a walk for the first row of each sequence
        const int slot = j.t.slot[r];
        int last = 0;
        bool done = false;
        for (int i = r0; i <= r1; i++) {
            if (j.t.slot[i] != slot) continue;
            done |= i < r;
            last = max(last, j.t.pos[i]);
        }
        if (done) continue;
        if (threadIdx.x < shape::pairs) {
            const int p = first + threadIdx.x;
            limit[threadIdx.x] = p < end && j.t.slot[p / H] == slot ? j.t.pos[p / H] : -1;
        }
        __syncthreads();
        mla_walk_tiles<MT, T>(j, smem, x, mla_walk{slot, 0, last / LATENT_TILE + 1, last}, 0, scale);
    }
    float l = x.sum.sum;
#pragma unroll
    for (int i = 1; i < 8; i <<= 1) l += __shfl_xor_sync(~0u, l, i);
    if ((lane & 7) == 0) factor[pair] = 1.f / l;
    __syncthreads();
    mla_store(x, factor, [&](int i) {
        const int p = first + i;
        return p < end ? j.out + p / H * j.out_row + (size_t)(p % H) * LATENT_V : NULL;
    });
}
