// What decode does before and after the sums: the norm's factor, the residual, the gate, and the row as its next reader
// takes it.
#pragma once
#include "half_tile.cuh"
#include "packet.cuh"
#include "record.cuh"
#include "stream.h"
#include "stream_frag.cuh"

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
    float x, norm, scale; // scale: of kernels of halves
};
template <int L, int R, int EPI> DEV ahead look_ahead(const mm_job &j, int step, int t) {
    const int lane = threadIdx.x & 31, row = step * 16 * R + (R == 1 ? lane & 15 : lane);
    ahead a = {0, 0, 0};
    if (EPI == EPI_ADD) {
        a.x = __ldcg(j.res + t * j.res_row + row) + (j.bias ? j.bias[row] : 0.f);
        a.norm = j.next_norm[row];
        if (frag<L>::half) a.scale = __ldcg(j.scale + t);
    }
    return a;
}
// TILES: many rows, whose halves may go to tiles, codes to slabs. PACKETS: one row, whose result goes in packets with this
// tag.
template <int L, int R, int EPI, bool TILES = true, bool PACKETS = false>
DEV void finish(const mm_job &j, int region, int step, int t, float v, float rs, const ahead &a,
                best_value &best, uint32_t tag = 0) {
    const int lane = threadIdx.x & 31, row = step * 16 * R + (R == 1 ? lane & 15 : lane);
    if constexpr (EPI == EPI_STORE || EPI == EPI_HEAD) {
        v = frag<L>::half ? __fmul_rn(v, rs) : v * rs;
        for (int i = 0; i < j.n_seg; i++) {
            const int o = row - j.seg[i].row;
            if (j.seg[i].region != region || o < 0 || o >= j.seg[i].n) continue;
            const int col = j.seg[i].col + o;
            if (j.bias) v += j.bias[col];
            if (lane < 16 * R && !PACKETS) j.y[t * j.y_row + col] = v;
            if (lane < 16 * R && PACKETS) tagged_store((uint2 *)j.give_packets + col, v, tag);
            if (EPI == EPI_HEAD && (v > best.v || (v == best.v && col < best.i))) best = {v, col};
        }
    } else if constexpr (EPI == EPI_ADD) {
        v += a.x;
        if (lane < 16 * R) j.res[t * j.res_row + row] = v;
        const float ss = warp_sum(R == 1 && lane >= 16 ? 0.f : __fmul_rn(v, v));
        if (lane == 0) j.square_out[t * j.square_row + step] = ss;
        if (j.give == GIVE_RECORD)
            put_record<16 * R, TILES>(j, t + (TILES && j.slab ? j.row0 : 0), row, v * a.norm);
        if constexpr (frag<L>::half)
            if (j.give > GIVE_RECORD && lane < 16)
                put_column<TILES>(j, L == LAYOUT_BF16, t, j.row0 + t, row,
                                  __fmul_rn(__fmul_rn(v, a.norm), a.scale));
    } else { // gate rows first, then up rows of the same columns
        constexpr int H = 8 * R;
        v *= rs;
        const float gate = __shfl_sync(~0u, v, lane & ~H), up = __shfl_sync(~0u, v, lane | H);
        const int col = step * H + (lane & (H - 1));
        const float y = col < j.n_out ? act_apply(j.act, gate) * up : 0.f;
        if (PACKETS) {
            if (j.give == GIVE_RECORD)
                give_codes<16>(j.give_packets, step * H, y, tag, j.range);
            else if (j.give == GIVE_HALF)
                give_halves<false, 8>(j.give_packets, step * H, y, tag);
            else
                give_halves<true, 8>(j.give_packets, step * H, y, tag);
        } else if (j.give == GIVE_RECORD) {
            if (R == 2) put_record<16, TILES>(j, t + (TILES && j.slab ? j.row0 : 0), col, y);
        } else if (lane < H && col < j.n_out)
            put_column<TILES>(j, j.give == GIVE_BF16, t, j.row0 + t, col, y);
    }
}

// ---- one region of a job by n_cta blocks
template <int N, class J>
DEV float rms_factor(const J &j, int row) // of one warp
{
    const float *s = j.square + row * j.square_row;
    const int lane = threadIdx.x & 31;
    float v = 0;
    for (int i0 = 0; i0 < j.n_square; i0 += 32 * N) {
        float a[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            a[i] = i0 + i * 32 + lane < j.n_square ? __ldcg(s + i0 + i * 32 + lane) : 0.f;
#pragma unroll
        for (int i = 0; i < N; i++) v += a[i];
    }
    return rsqrtf(warp_sum(v) * j.inv_k + j.eps);
}
// The same of N rows row, row + by, .. (last at most) for kernels of halves; the order of a row's sums is alike for all N.
template <int N> DEV void half_rms(const mm_job &j, int row, int by, int last, float (&rs)[N]) {
    const int lane = threadIdx.x & 31;
    unsigned at[N]; // floats
#pragma unroll
    for (int r = 0; r < N; r++) {
        at[r] = min(row + r * by, last) * (unsigned)j.square_row;
        rs[r] = 0;
    }
#pragma unroll(N == 1 ? 2 : 1)
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
template <int L> DEV float row_factor(const mm_job &j, int row) {
    if constexpr (frag<L>::half) {
        float rs[1];
        const float scale = __ldcg(j.scale + row);
        half_rms(j, row, 0, row, rs);
        if (blockIdx.x == 0 && (threadIdx.x & 31) == 0) j.scale_next[row] = half_scale(rs[0]);
        return half_factor(rs[0], scale);
    } else
        return rms_factor<4>(j, row);
}

template <int L> DEV constexpr int x_unit(int ga) {
    return L == LAYOUT_F16 ? 512 : L == LAYOUT_BF16 ? 1024 : ga == 16 ? REC_BYTES_16 : REC_BYTES_32;
}
