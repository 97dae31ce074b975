// What follows the sums of skinny.cuh: the rows' factors, the residual, the gate, and the row as its next reader takes it.
#pragma once
#include "cuda/decode/gemv/act_tile.cuh"
#include "cuda/decode/gemv/gemv_epilogue.cuh"
#include "cuda/decode/skinny/skinny.h"

// In shared memory, by rows of the step: what they count, the head's outputs (-1: none), their best of this warp.
struct skinny_shared {
    float *factor;
    int *out;
    best_value *best;
};
// ---- what follows the sums, for 8 rows of the step from row0 on
struct half_rows { // what a lane knows of its two weight rows
    int col[2];    // column of y, -1: none
    float bias[2], norm[2];
};
DEV half_rows half_look(const skinny_job &k, int region, int tile, int gid) {
    half_rows f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = tile * 16 + gid + 8 * h;
        f.col[h] = k.epilogue == EPI_ADD ? row : -1;
        if (k.epilogue == EPI_STORE || k.epilogue == EPI_HEAD)
            for (int i = 0; i < k.j.n_seg; i++)
                if (k.j.seg[i].region == region && row >= k.j.seg[i].row &&
                    row - k.j.seg[i].row < k.j.seg[i].n)
                    f.col[h] = k.j.seg[i].col + row - k.j.seg[i].row;
        f.bias[h] = k.j.bias && f.col[h] >= 0 ? k.j.bias[f.col[h]] : 0.f;
        f.norm[h] = k.epilogue == EPI_ADD ? k.j.next_norm[row] : 0.f;
    }
    return f;
}
// What rows count, into shared memory: of EPI_ADD the result as it is given, else the sums. By one of n warps: rows t0 and
// then every n-th.
DEV void skinny_count(const skinny_job &k, float *factor, int t0, int n, int n_row) {
    constexpr int N = 4;
    const int lane = threadIdx.x & 31;
    const bool norm = k.j.n_square;
    for (int i = t0; i < n_row; i += N * n) { // lane r: row i + r n
        const int t = i + lane * n;
        const bool own = lane < N && t < n_row;
        const float scale = own ? __ldcg(k.j.scale + t) : 1.f; // asked for before the sums
        float factor_of = k.epilogue == EPI_ADD ? scale : 1.f;
        if (norm) {
            float rs[N], mine = 0;
            half_rms(k.j, i, n, n_row - 1, rs);
#pragma unroll
            for (int r = 0; r < N; r++) mine = lane == r ? rs[r] : mine;
            if (own && blockIdx.x == 0) k.j.scale_next[t] = half_scale(mine);
            factor_of = half_factor(mine, scale);
        }
        if (own) factor[t] = factor_of;
    }
}
// The same for many rows, which would be much to read for every block: each works out a few and tells the others.
DEV void half_exchange(const skinny_job &k, float *factor, int w, int n, int n_row) {
    const int lane = threadIdx.x & 31;
    const uint32_t tag = handoff_tag(k.seq, k.tag);
    for (int t = blockIdx.x + w * gridDim.x; t < n_row; t += n * gridDim.x) {
        float rs[1];
        half_rms(k.j, t, 0, t, rs);
        if (lane == 0) {
            tagged_store(k.rms + t, rs[0], tag);
            k.j.scale_next[t] = half_scale(rs[0]);
        }
    }
    for (int t = w * 32 + lane; t < n_row; t += n * 32) {
        const float scale = __ldcg(k.j.scale + t);
        uint2 v = tagged_load(k.rms + t);
        while (v.y != tag) v = tagged_load(k.rms + t);
        factor[t] = half_factor(__uint_as_float(v.x), scale);
    }
}
// Warpgroups: the factors come from warps beside the producer. wait: for them, else: they are there.
template <bool G> DEV void half_met(const skinny_job &k, bool wait) {
    const int threads = (k.mw + skinny_helpers(G) - 1) * 32;
    if (wait)
        asm volatile("bar.sync 15, %0;" ::"r"(threads) : "memory");
    else
        asm volatile("bar.arrive 15, %0;" ::"r"(threads) : "memory");
}
// All blocks that share the tile have left their sums: count[2 set] of them. The barrier orders a block's stores before its
// first thread's release.
DEV void half_meet(const skinny_job &k, int set) {
    int *n = k.count + set * 2, seen;
    asm volatile("bar.sync 1, %0;" ::"r"(k.mw * 32) : "memory");
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(n) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(n) : "memory");
        while (seen < k.splits);
    }
    asm volatile("bar.sync 1, %0;" ::"r"(k.mw * 32) : "memory");
}
// The last block to have seen that clears the counts.
DEV void half_leave(const skinny_job &k, int set) {
    int *n = k.count + set * 2;
    if (threadIdx.x == 0 && atomicAdd(n + 1, 1) == k.splits - 1) {
        n[1] = 0;
        n[0] = 0;
    }
}
// The residual of lane's four sums.
DEV void half_residual(const skinny_job &k, const half_rows &f, int row0, int n_row, float (&res)[4]) {
    const int t = row0 + 2 * (threadIdx.x & 3);
#pragma unroll
    for (int o = 0; o < 4; o++)
        res[o] = t + (o & 1) < n_row ? __ldcg(k.j.res + (t + (o & 1)) * k.j.res_row + f.col[o >> 1]) : 0.f;
}
// Column col (of gid) of rows t and t + 1; lanes of neighbour columns change one for one, so that each has two columns of a
// row.
DEV void half_give(const skinny_job &k, int col, int n_col, int t, int n_row, float y0, float y1) {
    const int by = tile_neighbour(k.j.give), odd = (threadIdx.x & by) != 0;
    const float other = __shfl_xor_sync(~0u, odd ? y0 : y1, by);
    const float a = odd ? other : y0, b = odd ? y1 : other;
    if (t + odd >= n_row || col >= n_col) return;
    col &= ~(by >> 2);
    if (k.j.xo_pitch)
        put_tile2(k.j.give, k.j.xo, k.j.xo_pitch, t + odd, col, a, b);
    else {
        put_column<false>(k.j, t + odd, 0, col, a);
        put_column<false>(k.j, t + odd, 0, col + (by >> 2), b);
    }
}
// v: sums [h * 2 + q] of columns h and rows 2 tig + q. They join the stream, and are what its next reader multiplies.
DEV void half_add(const skinny_job &k, const half_rows &f, int tile, int row0, int n_row, float (&v)[4],
                  const float (&res)[4], const float2 &scale) {
    const int lane = threadIdx.x & 31, t = row0 + 2 * (lane & 3);
#pragma unroll
    for (int q = 0; q < 2; q++) {
        float &a = v[q], &b = v[2 + q];
        a += res[q] + f.bias[0];
        b += res[2 + q] + f.bias[1];
        // the order of warp_sum over 16 rows: gid and gid + 8 first
        float ss = __fadd_rn(__fmul_rn(a, a), __fmul_rn(b, b));
        ss += __shfl_xor_sync(~0u, ss, 16);
        ss += __shfl_xor_sync(~0u, ss, 8);
        ss += __shfl_xor_sync(~0u, ss, 4);
        if (t + q < n_row) {
            k.j.res[(t + q) * k.j.res_row + f.col[0]] = a;
            k.j.res[(t + q) * k.j.res_row + f.col[1]] = b;
            if (lane < 4) k.j.square_out[(t + q) * k.j.square_row + tile] = ss;
        }
    }
#pragma unroll
    for (int o = 0; o < 4; o++) v[o] = __fmul_rn(__fmul_rn(v[o], f.norm[o >> 1]), o & 1 ? scale.y : scale.x);
}
// They as the next link takes them, where that is by single columns.
DEV void half_give_columns(const skinny_job &k, const half_rows &f, int row0, int n_row,
                           const float (&v)[4]) {
    const int t = row0 + 2 * (threadIdx.x & 3);
#pragma unroll
    for (int h = 0; h < 2; h++) half_give(k, f.col[h], k.j.n_out, t, n_row, v[2 * h], v[2 * h + 1]);
}
// The same in tiles of halves: columns c, c + 1, c + 8 and c + 9 of one row.
DEV void half_give_tiles(const skinny_job &k, const half_rows &f, int row0, int n_row, const float (&v)[4]) {
    const int lane = threadIdx.x & 31, t = row0 + 2 * (lane & 3), odd = lane >> 2 & 1;
    float a[2], b[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float other = __shfl_xor_sync(~0u, odd ? v[2 * h] : v[2 * h + 1], 4);
        a[h] = odd ? other : v[2 * h];
        b[h] = odd ? v[2 * h + 1] : other;
    }
    if (t + odd < n_row)
        put_tile4(k.j.give, k.j.xo, k.j.xo_pitch, t + odd, f.col[0] & ~1,
                  make_float4(a[0], b[0], a[1], b[1]));
}
DEV bool gives_columns(const skinny_job &k) { return k.j.give == GIVE_CODES || !k.j.xo_pitch; }
// The results of EPI_STORE and EPI_HEAD.
DEV void half_store(const skinny_job &k, const half_rows &f, int row0, int n_row, const float (&v)[4],
                    const skinny_shared &at) {
    const int lane = threadIdx.x & 31, gid = lane >> 2, t = row0 + 2 * (lane & 3);
#pragma unroll
    for (int q = 0; q < 2; q++) {
        float a = v[q], b = v[2 + q];
        if (k.j.bias) a += f.bias[0], b += f.bias[1];
        const int to = t + q >= n_row ? -1 : k.epilogue == EPI_HEAD ? at.out[t + q] : t + q;
        if (to >= 0 && f.col[0] >= 0) k.j.y[to * k.j.y_row + f.col[0]] = a;
        if (to >= 0 && f.col[1] >= 0) k.j.y[to * k.j.y_row + f.col[1]] = b;
        if (k.epilogue != EPI_HEAD) continue;
        best_value c = {-INFINITY, 0x7fffffff};
        const best_value a1 = {a, f.col[0]}, b1 = {b, f.col[1]};
        if (f.col[0] >= 0 && better(a1, c)) c = a1;
        if (f.col[1] >= 0 && better(b1, c)) c = b1;
#pragma unroll
        for (int o = 16; o >= 4; o >>= 1) {
            const best_value d = {__shfl_xor_sync(~0u, c.v, o), __shfl_xor_sync(~0u, c.i, o)};
            if (better(d, c)) c = d;
        }
        best_value *best = at.best + t + q;
        if (gid == 0 && better(c, *best)) *best = c;
    }
}
DEV void skinny_finish(const skinny_job &k, const half_rows &f, int tile, int row0, int n_row, float (&v)[4],
                       const float (&res)[4], const skinny_shared &at) {
    const int lane = threadIdx.x & 31, gid = lane >> 2, t = row0 + 2 * (lane & 3);
    const float2 scale = *(const float2 *)(at.factor + t);
    if (k.epilogue == EPI_ADD) {
        half_add(k, f, tile, row0, n_row, v, res, scale);
        if (gives_columns(k))
            half_give_columns(k, f, row0, n_row, v);
        else
            half_give_tiles(k, f, row0, n_row, v);
        return;
    }
#pragma unroll
    for (int o = 0; o < 4; o++) v[o] = __fmul_rn(v[o], o & 1 ? scale.y : scale.x);
    if (k.epilogue == EPI_GLU)
        half_give(k, tile * 8 + gid, k.j.n_out, t, n_row, act_apply(k.j.act, v[0]) * v[2],
                  act_apply(k.j.act, v[1]) * v[3]);
    else
        half_store(k, f, row0, n_row, v, at);
}
