// What decode does before and after the sums: the norm's factor, the residual, the gate, and the row as its next reader
// takes it.
#pragma once
#include "half_tile.cuh"
#include "packet.cuh"
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
// Where a group of 32 or 16 columns of a row's record lies, in a job's output.
struct record_place {
    uint8_t *codes; // of the group; 4 columns 4 t .. at 8 t + 4 e
    float *scale;
    __nv_bfloat16 *sum; // the low part is 8 further
};
template <int G, class J> DEV record_place record_group(const J &j, int row, int col) {
    const int k = col & 255, g = k >> 5, p = g & 3, h = g >> 2, e = k >> 4 & 1,
              sum = (G == 16 ? e * 32 : 0) + p * 4 + h * 2;
    uint8_t *unit = j.xo + (size_t)(col >> 8) * j.xo_unit;
    if (j.octets) {
        uint8_t *o = unit + (size_t)(row >> 3) * octet_bytes(G);
        const int r = row & 7;
        return {o + r * 256 + (g ^ r) * 32,
                (float *)(o + OCTET_SCALE) + (G == 16 ? (p * 8 + r) * 4 + h * 2 + e : (p * 8 + r) * 2 + h),
                (__nv_bfloat16 *)(o + octet_sum(G) + r * (G == 16 ? 64 : 32) + sum)};
    }
    uint8_t *rec = unit + row * j.xo_row;
    return {rec + g * 32, (float *)(rec + REC_SCALE) + (G == 16 ? p * 4 + h * 2 + e : p * 2 + h),
            (__nv_bfloat16 *)(rec + REC_SUM + sum)};
}
DEV void put_scale(const record_place &at, float d, int sum) {
    const float v = __fmul_rn(d, (float)sum); // rounded, whatever the compiler would fuse
    const __nv_bfloat16 hi = __float2bfloat16(v);
    at.sum[0] = hi;
    at.sum[8] = __float2bfloat16(v - __bfloat162float(hi));
    *at.scale = d;
}
DEV float code_scale(float m) { return m > 1e-30f ? __fdividef(127.f, m) : 0.f; }
// A column a lane: q = round(y * 127 / max) over the group of G lanes; lanes beyond a group of 16 repeat it.
template <int G, class J> DEV void put_record(const J &j, int row, int col, float y) {
    const int lane = threadIdx.x & 31;
    const record_place at = record_group<G>(j, row, col);
    const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(y))));
    const int q = __float2int_rn(y * code_scale(m));
    int sum = __reduce_add_sync(~0u, q);
    if (G == 16) sum >>= 1; // every column twice
    if (lane < G) at.codes[((col >> 2) & 3) * 8 + (col >> 4 & 1) * 4 + (col & 3)] = (uint8_t)q;
    if (lane == 0) put_scale(at, m * (1.f / 127.f), sum);
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
// TILES: many rows, whose halves may go to tiles. PACKETS: one row, whose result goes in packets with this tag.
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
        if (j.give == GIVE_RECORD) put_record<16 * R>(j, t, row, v * a.norm);
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
                give_codes<16>(j.give_packets, step * H, y, tag);
            else if (j.give == GIVE_HALF)
                give_halves<false, 8>(j.give_packets, step * H, y, tag);
            else
                give_halves<true, 8>(j.give_packets, step * H, y, tag);
        } else if (j.give == GIVE_RECORD) {
            if (R == 2) put_record<16>(j, t, col, y);
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
