// What follows the sums of wide_codes.cuh: classes that other blocks left, and for each row and 32 weight rows what finish
// does for one row.
#pragma once
#include "stream_finish.cuh"
#include "wide_codes.h"

// Where an item of the launch lies.
struct codes_item {
    int tile0, n_tile, c0, c1, split, group, region;
    int counter; // of the items that share its tiles and rows
};
DEV codes_item codes_find(const codes_job &k, int i) {
    codes_item it;
    it.region = i >= k.items[0];
    if (it.region) i -= k.items[0];
    it.group = i % k.groups;
    i /= k.groups;
    it.split = i % k.splits;
    i /= k.splits;
    const int n = k.classes / k.splits;
    it.c0 = it.split * n;
    it.c1 = it.c0 + n;
    it.tile0 = i * k.mw;
    it.n_tile = min(k.mw, k.tiles[it.region] - it.tile0);
    it.counter = (it.region * CODES_COUNTS + i * k.groups + it.group) * 2;
    return it;
}

enum {
    CODES_FULL = 0,
    CODES_EMPTY = 64,
    CODES_RS = 128,
    CODES_OUT = CODES_RS + CODES_ROWS * 4, // output of each row, -1: none (only where j.rowmap names rows)
    CODES_BEST = CODES_OUT + CODES_ROWS * 4
}; // bytes
struct codes_ring {
    uint32_t smem;
    int slot, phase;
    MEM uint32_t full() const { return smem + CODES_FULL + 8 * slot; }
    MEM uint32_t empty() const { return smem + CODES_EMPTY + 8 * slot; }
    MEM void step(int stages) {
        if (++slot == stages) slot = 0, phase ^= 1;
    }
};
DEV void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

enum { RED_ROW = 36 }; // floats of a row's 32 sums: 16 bytes aligned, no bank twice in a quarter warp
DEV void get32(float (&v)[32], const float *from) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 a = *(const float4 *)(from + i * 4);
        v[i * 4] = a.x, v[i * 4 + 1] = a.y, v[i * 4 + 2] = a.z, v[i * 4 + 3] = a.w;
    }
}
DEV void put32(float *to, const float (&v)[32]) {
#pragma unroll
    for (int i = 0; i < 8; i++)
        *(float4 *)(to + i * 4) = make_float4(v[i * 4], v[i * 4 + 1], v[i * 4 + 2], v[i * 4 + 3]);
}
// put_record of a whole group by one thread
template <int G> DEV void put_group(const mm_job &j, int row, int col, const float *y) {
    const record_place at = record_group<G, true>(j, row, col);
    float m = 0;
#pragma unroll
    for (int i = 0; i < G; i++) m = fmaxf(m, fabsf(y[i]));
    const float d = group_scale(m, j.range), f = group_inverse(d);
    const float h = d * j.range.half;
    int sum = 0;
    if (!j.slab) {
#pragma unroll
        for (int i = 0; i < G / 4; i++) {
            uint32_t w = 0;
#pragma unroll
            for (int b = 0; b < 4; b++) {
                const int q = group_code(y[i * 4 + b], f);
                sum += q;
                w |= (uint32_t)(q & 255) << 8 * b;
            }
            *(uint32_t *)(at.codes + (i & 3) * 8 + ((G == 32 ? i >> 2 : col >> 4) & 1) * 4) = w;
        }
        *at.scale = d;
    } else
#pragma unroll
        for (int c = 0; c < G / 8; c++) { // chunks of the even and the odd columns of 16
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = c / 2 * 16 + (c & 1) + 4 * i, q0 = group_code(y[k], f),
                          q1 = group_code(y[k + 2], f);
                sum += q0 + q1;
                w[i] = pack_half2((float)q0 * h, (float)q1 * h);
            }
            *(uint4 *)(at.codes + slab_chunk(col + c / 2 * 16 + (c & 1), row)) =
                make_uint4(w[0], w[1], w[2], w[3]);
        }
    put_sum(at.sum, d * (float)sum);
}
// What finish does, for a row and 32 weight rows by one thread.
DEV void row_store(const mm_job &j, int region, int step, int row, float (&v)[32], best_value *best) {
    for (int s = 0; s < j.n_seg; s++) {
        const int o = step * 32 - j.seg[s].row, col = j.seg[s].col + o;
        if (j.seg[s].region != region || o <= -32 || o >= j.seg[s].n) continue;
        float *y = j.y + row * j.y_row + col;
        const bool whole = o >= 0 && o + 32 <= j.seg[s].n && !(((size_t)y & 15));
#pragma unroll
        for (int i = 0; i < 32; i++) {
            if (o + i < 0 || o + i >= j.seg[s].n) continue;
            if (j.bias) v[i] += j.bias[col + i];
            if (!whole) y[i] = v[i];
            if (best && better(best_value{v[i], col + i}, *best)) *best = {v[i], col + i};
        }
        if (whole) put32(y, v);
    }
}
DEV void row_add(const mm_job &j, int step, int row, float (&v)[32]) {
    float *res = j.res + row * j.res_row + step * 32, t[16];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 a = __ldcg((const float4 *)res + i);
        const float r[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int b = 0; b < 4; b++) v[i * 4 + b] += r[b] + (j.bias ? j.bias[step * 32 + i * 4 + b] : 0.f);
    }
    put32(res, v);
#pragma unroll
    for (int i = 0; i < 16; i++) t[i] = __fmul_rn(v[i], v[i]) + __fmul_rn(v[i + 16], v[i + 16]);
#pragma unroll
    for (int i = 0; i < 8; i++) t[i] += t[i + 8]; // in the order of warp_sum
    const float t0 = t[0] + t[4], t1 = t[1] + t[5], t2 = t[2] + t[6], t3 = t[3] + t[7];
    j.square_out[row * j.square_row + step] = (t0 + t2) + (t1 + t3);
    if (j.give != GIVE_RECORD) return;
#pragma unroll
    for (int i = 0; i < 32; i++) v[i] *= j.next_norm[step * 32 + i];
    put_group<32>(j, row, step * 32, v);
}
DEV void row_glu(const mm_job &j, int step, int row, float (&v)[32]) {
    const int col = step * 16;
#pragma unroll
    for (int i = 0; i < 16; i++) v[i] = col + i < j.n_out ? act_apply(j.act, v[i]) * v[16 + i] : 0.f;
    if (j.give == GIVE_RECORD) {
        put_group<16>(j, row, col, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        if (col + i < j.n_out) put_column<true>(j, j.give == GIVE_BF16, row, row, col + i, v[i]);
}
static __device__ __noinline__ void codes_finish(const codes_job &k, int region, int step, int row,
                                                 const float *red, const uint8_t *smem, best_value *best) {
    float v[32];
    get32(v, red);
    if (k.epilogue != EPI_ADD && k.j.n_square) {
        const float rs = ((const float *)(smem + CODES_RS))[row];
#pragma unroll
        for (int i = 0; i < 32; i++) v[i] *= rs;
    }
    if (k.epilogue == EPI_ADD)
        row_add(k.j, step, row, v);
    else if (k.epilogue == EPI_GLU)
        row_glu(k.j, step, row, v);
    else if (!k.j.rowmap)
        row_store(k.j, region, step, row, v, k.epilogue == EPI_HEAD ? best + row : nullptr);
    else if (const int out = ((const int *)(smem + CODES_OUT))[row]; out >= 0)
        row_store(k.j, region, step, out, v, best + out);
}
// Sums of the classes that other blocks left, in order, into red: rows t0, t0 + by, ..
DEV void codes_gather(const codes_job &k, float *red, const float *part, size_t of_class, int t0, int t1,
                      int by) {
    const int lane = threadIdx.x & 31;
#pragma unroll 4
    for (int t = t0; t < t1; t += by) {
        float a[8], v = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) a[c] = c < k.classes ? __ldcg(part + c * of_class + t * 32 + lane) : 0.f;
#pragma unroll
        for (int c = 0; c < 8; c++) v += a[c];
        red[t * RED_ROW + lane] = v;
    }
}
// All blocks that share the item's tiles and rows have left their sums.
DEV void codes_meet(const codes_job &k, const codes_item &it) {
    __threadfence();
    named_barrier(14, k.mw * k.nw * 32);
    if (threadIdx.x == 0) {
        volatile int *n = k.count + it.counter;
        atomicAdd((int *)n, 1);
        while (*n < k.splits) __nanosleep(100);
        __threadfence();
        if (atomicAdd((int *)n + 1, 1) == k.splits - 1) { // the last one to see it
            n[1] = 0;
            __threadfence();
            n[0] = 0;
        }
    }
    named_barrier(14, k.mw * k.nw * 32);
}
