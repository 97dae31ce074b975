// What decode does before and after the sums: the norm's factor, the residual, the gate, and the row as its next reader
// takes it.
#pragma once
#include "cuda/decode/gemv/act_tile.cuh"
#include "cuda/decode/gemv/handoff.cuh"
#include "cuda/decode/gemv/act_int8.cuh"
#include "cuda/decode/gemv/gemv.h"
#include "cuda/formats/unit_halves.cuh"

// ---- what follows a sum: lane = row of the step (R = 2), lane & 15 (R = 1); all lanes of a warp come here
struct best_value {
    float v;
    int i;
};
DEV bool better(const best_value &a, const best_value &b) { return a.v > b.v || (a.v == b.v && a.i < b.i); }
DEV best_value best_of_warp(best_value b) {
    for (int o = 16; o; o >>= 1) {
        const best_value c = {__shfl_xor_sync(~0u, b.v, o), __shfl_xor_sync(~0u, b.i, o)};
        if (better(c, b)) b = c;
    }
    return b;
}
// What EPI_ADD reads, fetched before the sums it waits for.
struct ahead {
    float x, norm, scale;
};
template <int R, int EPI> DEV ahead look_ahead(const gemv_args &j, int step, int t) {
    const int lane = threadIdx.x & 31, row = step * 16 * R + (R == 1 ? lane & 15 : lane);
    ahead a = {0, 0, 0};
    if (EPI == EPI_ADD) {
        a.x = __ldcg(j.res + t * j.res_row + row) + (j.bias ? j.bias[row] : 0.f);
        a.norm = j.next_norm[row];
        a.scale = __ldcg(j.scale + t);
    }
    return a;
}
// Sum over 16 lanes, in the order of skinny_epilogue.cuh.
DEV float sum16(float v) {
    for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
// PACKETS: the result goes in packets with this tag. RECORDS: it goes as records, or by packets as such. TILES: row t of
// several, which may go to tiles.
template <int R, int EPI, bool PACKETS, bool RECORDS, bool TILES = false>
DEV void finish(const gemv_args &j, int region, int step, float v, float rs, const ahead &a, best_value &best,
                uint32_t tag, int t = 0) {
    const int lane = threadIdx.x & 31, row = step * 16 * R + (R == 1 ? lane & 15 : lane);
    if constexpr (EPI == EPI_STORE || EPI == EPI_HEAD) {
        v = __fmul_rn(v, rs);
        for (int i = 0; i < j.n_seg; i++) {
            const int o = row - j.seg[i].row;
            if (j.seg[i].region != region || o < 0 || o >= j.seg[i].n) continue;
            const int col = j.seg[i].col + o;
            if (j.bias) v += j.bias[col];
            if (lane < 16 * R && !PACKETS) j.y[t * j.y_row + col] = v;
            if (lane < 16 * R && PACKETS) tagged_store((uint2 *)j.give_handoff + col, v, tag);
            if (EPI == EPI_HEAD && (v > best.v || (v == best.v && col < best.i))) best = {v, col};
        }
    } else if constexpr (EPI == EPI_ADD) {
        v += a.x;
        if (lane < 16 * R) j.res[t * j.res_row + row] = v;
        const float ss = sum16(__fmul_rn(v, v));
        if ((lane & 15) == 0 && lane < 16 * R) j.square_out[t * j.square_row + step * R + (lane >> 4)] = ss;
        if constexpr (RECORDS)
            put_act_int8<16 * R>(j, row, v * a.norm);
        else if (lane < 16 * R)
            put_column<TILES>(j, t, t, row, __fmul_rn(__fmul_rn(v, a.norm), a.scale));
    } else { // 8 gate rows, then the 8 up rows of the same columns
        v = __fmul_rn(v, rs);
        const float gate = __shfl_sync(~0u, v, lane & ~8), up = __shfl_sync(~0u, v, lane | 8);
        const int of = (R == 2 ? lane >> 4 << 3 : 0) | (lane & 7), col = step * 8 * R + of;
        const float y = col < j.n_out ? act_apply(j.act, gate) * up : 0.f;
        const float of_row =
            R == 1 ? y : __shfl_sync(~0u, y, (lane & 7) | (lane & 8) << 1); // columns in lanes 0 ..
        if constexpr (PACKETS && RECORDS)
            give_act_int8<8 * R>(j.give_handoff, step * 8 * R, of_row, tag);
        else if constexpr (PACKETS)
            give_handoff<8 * R>(j.give, j.give_handoff, step * 8 * R, of_row, tag);
        else if constexpr (RECORDS)
            put_act_int8<8 * R>(j, step * 8 * R + (lane & (8 * R - 1)), of_row);
        else if (lane < 16 * R && !(lane & 8) && col < j.n_out)
            put_column<TILES>(j, t, t, col, y);
    }
}

// 1 / rms of N rows row, row + by, .. (last at most), of one warp; the order of a row's sums is alike for all N.
template <int N> DEV void half_rms(const gemv_args &j, int row, int by, int last, float (&rs)[N]) {
    const int lane = threadIdx.x & 31;
    unsigned at[N]; // floats
#pragma unroll
    for (int r = 0; r < N; r++) {
        at[r] = min(row + r * by, last) * (unsigned)j.square_row;
        rs[r] = 0;
    }
#pragma unroll 2
    for (int i = lane * 4; i < j.n_square; i += 128) {
        float4 a[N];
#pragma unroll
        for (int r = 0; r < N; r++) a[r] = __ldcg((const float4 *)(j.square + at[r] + i));
#pragma unroll
        for (int r = 0; r < N; r++) {
            const float y = i + 1 < j.n_square ? a[r].y : 0.f, z = i + 2 < j.n_square ? a[r].z : 0.f,
                        w = i + 3 < j.n_square ? a[r].w : 0.f;
            rs[r] += (a[r].x + y) + (z + w);
        }
    }
#pragma unroll
    for (int r = 0; r < N; r++) rs[r] = rsqrtf(fmaf(warp_sum(rs[r]), j.inv_k, j.eps));
}
// What the sums of a row of halves are multiplied by: 1 / rms over the scale with which it was given; what the writer after
// the next one gives it with.
DEV float half_factor(float rs, float scale) { // scale: a power of two
    return rs * __uint_as_float(0x7f000000 - __float_as_uint(scale));
}
DEV float half_scale(float rs) { return __uint_as_float(__float_as_uint(rs) & 0x7f800000) * 0.0625f; }
// What the sums of a row of the step are multiplied by, of one warp.
template <bool RECORDS> DEV float row_factor(const gemv_args &j, int row) {
    float rs[1];
    const float scale = RECORDS ? 1.f : __ldcg(j.scale + row); // asked for before the sums
    half_rms(j, row, 0, row, rs);
    if (RECORDS) return rs[0];
    if (blockIdx.x == 0 && (threadIdx.x & 31) == 0) j.scale_next[row] = half_scale(rs[0]);
    return half_factor(rs[0], scale);
}

// Bytes of 256 columns of a plain row.
template <int L> DEV constexpr int x_unit() { return L == LAYOUT_BF16 ? 1024 : 512; }
