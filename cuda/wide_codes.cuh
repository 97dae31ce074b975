// Quantised weights times many decode rows.
//
// A block takes mw row tiles times nw * 8 NT rows: warp (m, n) has row tile m and the rows of slice n. Warp 0 keeps
// a ring of stages full: a unit of weights for every row tile and the rows' records of that unit. The sums are
// those of stream.cuh, in its order: class c holds the units c, c + 8, .. (as many classes as warps share the columns
// for one row), and the classes are added from 0 on. A row's bits are those it has alone. Where a matrix has few row
// tiles an item is a part of the classes; their sums go through memory, and the blocks that share a tile add and finish
// a part of its rows each.
#pragma once
#include "stream_finish.cuh"
#include "stream_sums.cuh"
#include "wide_codes.h"

// Where an item of the launch lies.
struct codes_item {
    int tile0, n_tile, c0, c1, split, group;
    int counter; // of the items that share its tiles and rows
};
DEV codes_item codes_find(const codes_job &k, int region, int i) {
    codes_item it;
    it.group = i % k.groups;
    i /= k.groups;
    it.split = i % k.splits;
    i /= k.splits;
    const int n = k.classes / k.splits;
    it.c0 = it.split * n;
    it.c1 = it.c0 + n;
    it.tile0 = i * k.mw;
    it.n_tile = min(k.mw, k.tiles[region] - it.tile0);
    it.counter = (region * CODES_COUNTS + i * k.groups + it.group) * 2;
    return it;
}

enum {
    CODES_FULL = 0,
    CODES_EMPTY = 64,
    CODES_CURSOR = 128,
    CODES_RS = 192,
    CODES_OUT = CODES_RS + CODES_ROWS * 4, // output of each row, -1: none (only where j.rowmap names rows)
    CODES_BEST = CODES_OUT + CODES_ROWS * 4
}; // bytes
struct codes_ring {
    uint32_t full, empty, slots;
    int slot, phase, done; // done: units left behind
    MEM void step(int stages) {
        done++;
        if (++slot == stages) slot = 0, phase ^= 1;
    }
};
DEV void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- fetching, by warp 0
// The next unit to fetch: of the block's item i (of all regions) class c, unit u; the n-th in all.
struct codes_cursor {
    int i, c, u, n;
};
template <int L>
DEV void codes_fetch_weights(const codes_job &k, const codes_item &it, int region, int u, uint32_t to,
                             uint32_t bar) {
    constexpr int UB = layout_unit_bytes((enum layout)L);
    const int lane = threadIdx.x & 31;
    if (lane < it.n_tile)
        bulk_copy(to + lane * UB, k.j.w[region] + ((size_t)(it.tile0 + lane) * k.j.u + u) * UB, UB, bar);
}
// Rows of an item that are copied: whole groups of 8, as many as there are room for in the workspace.
DEV int codes_filled(const codes_job &k, const codes_item &it) {
    return min(k.n, (k.rows + 7) / 8 * 8 - it.group * k.n);
}
enum { FETCH_WEIGHTS = 1, FETCH_ROWS = 2 };
// Fetches what the cursor names and moves it on.
template <int L, int L2, int GA>
DEV void codes_fetch(const codes_job &k, codes_cursor &at, const codes_ring &r, int what) {
    constexpr int LB = L2 < 0 ? L : L2, OCTET = octet_bytes(GA);
    if (at.i >= k.items[0] + k.items[1]) return;
    const int lane = threadIdx.x & 31, region = at.i >= k.items[0], slot = at.n % k.stages;
    const codes_item it = codes_find(k, region, region ? at.i - k.items[0] : at.i);
    const int unit = layout_unit_bytes((enum layout)(region ? LB : L)), n = codes_filled(k, it);
    const uint32_t bar = r.full + 8 * slot;
    const uint32_t to = r.slots + slot * k.slot_bytes;
    if (what & FETCH_WEIGHTS) {
        if (at.n >= k.stages) barrier_wait(r.empty + 8 * slot, (at.n / k.stages - 1) & 1);
        if (lane == 0) barrier_expect(bar, it.n_tile * unit + n / 8 * OCTET);
        __syncwarp();
        if (L2 < 0 || !region)
            codes_fetch_weights<L>(k, it, region, at.u, to, bar);
        else
            codes_fetch_weights<LB>(k, it, region, at.u, to, bar);
    }
    if ((what & FETCH_ROWS) && lane == 0) // the octets of a unit lie one after the other
        bulk_copy(to + k.mw * unit, k.j.x + (size_t)at.u * k.j.x_unit + it.group * k.n / 8 * OCTET,
                  n / 8 * OCTET, bar);
    at.n++;
    at.u += k.classes;
    while (at.u >= k.j.u) { // a class may be empty
        if (++at.c == it.c1) {
            at.i += gridDim.x;
            if (at.i >= k.items[0] + k.items[1]) break;
            const int next = at.i >= k.items[0];
            at.c = codes_find(k, next, next ? at.i - k.items[0] : at.i).c0;
            at.u = at.c;
            if (at.u < k.j.u) break;
            continue;
        }
        at.u = at.c;
    }
}
DEV codes_cursor codes_begin(const codes_job &k) {
    const int region = (int)blockIdx.x >= k.items[0];
    codes_cursor at = {(int)blockIdx.x, 0, 0, 0};
    if (at.i < k.items[0] + k.items[1])
        at.c = at.u = codes_find(k, region, region ? at.i - k.items[0] : at.i).c0;
    return at;
}

// ---- the warps that multiply
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
// put_record of a whole group by one thread, into octets
template <int G> DEV void put_group(const mm_job &j, int row, int col, const float *y) {
    const record_place at = record_group<G>(j, row, col);
    float m = 0;
#pragma unroll
    for (int i = 0; i < G; i++) m = fmaxf(m, fabsf(y[i]));
    const float f = code_scale(m);
    uint32_t w[G / 4];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < G / 4; i++) {
        w[i] = 0;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int q = __float2int_rn(y[i * 4 + b] * f);
            sum += q;
            w[i] |= (uint32_t)(q & 255) << 8 * b;
        }
    }
    if (G == 32) {
        ((uint4 *)at.codes)[0] = make_uint4(w[0], w[4 % (G / 4)], w[1], w[5 % (G / 4)]);
        ((uint4 *)at.codes)[1] = make_uint4(w[2], w[6 % (G / 4)], w[3], w[7 % (G / 4)]);
    } else
#pragma unroll
        for (int i = 0; i < 4; i++) ((uint32_t *)at.codes)[i * 2 + (col >> 4 & 1)] = w[i];
    put_scale(at, m * (1.f / 127.f), sum);
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
    for (int i = 0; i < 16; i++) {
        if (col + i >= j.n_out) continue;
        if (j.give == GIVE_HALF)
            put_half(j.xo + row * j.xo_row, col + i, v[i]);
        else
            put_bf16(j.xo + row * j.xo_row, col + i, v[i]);
    }
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

// One item of a warp.
template <int L, int GA, int NT, class F>
DEV void codes_consume(const codes_job &k, codes_ring &r, const codes_item &it, int region, int n_row,
                       uint8_t *smem, F fetch) {
    constexpr int UB = layout_unit_bytes((enum layout)L), RS = RED_ROW;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, tig = lane & 3, gid = lane >> 2, m = w % k.mw,
              pair = w >> 1, h = w & 1;
    const bool on = m < it.n_tile;
    const int slice0 = w / k.mw * (8 * NT), step = (it.tile0 + m) / 2, row0 = it.group * k.n + slice0;
    float *red = (float *)(smem + k.red_at) + pair * (8 * NT * RS);
    float4 *kept = (float4 *)red + h * 32 + lane; // of this thread alone
    const size_t of_class = (size_t)k.tiles[region] / 2 * (k.groups * k.n) * 32;
    float *part = k.part[region] + ((size_t)step * (k.groups * k.n) + row0) * 32;
    many_sums<L, GA, NT, false> s;
    for (int c = it.c0; c < it.c1; c++) {
        s.clear();
        for (int u = c; u < k.j.u; u += k.classes) {
            barrier_wait(r.full + 8 * r.slot, r.phase);
            const uint8_t *at = smem + k.fixed_bytes + r.slot * k.slot_bytes;
            if (on) {
                const octet_rows<GA> rows = {at + k.mw * UB + slice0 / 8 * octet_bytes(GA)};
                frag<L> f;
                load_scales<L, false>(f, at + m * UB, lane);
                s.template unit<true>(f, at + m * UB, rows, lane);
            }
            __syncwarp();
            if (elect_one()) barrier_arrive(r.empty + 8 * r.slot);
            r.step(k.stages);
            if (w == 0) fetch(r.done);
        }
        if (c == it.c0 && on) named_barrier(pair + 1, 64); // the sums of the item before are read
#pragma unroll
        for (int n = 0; n < NT && on; n++) {
            float4 v = make_float4(s.value(n, 0), s.value(n, 1), s.value(n, 2), s.value(n, 3));
            if (k.splits > 1) {
                float *to = part + c * of_class + (n * 8 + 2 * tig) * 32 + h * 16 + gid;
                __stcg(to, v.x), __stcg(to + 32, v.y), __stcg(to + 8, v.z), __stcg(to + 40, v.w);
            } else {
                const float4 o = c == it.c0 ? make_float4(0, 0, 0, 0) : kept[n * 64];
                v = make_float4(o.x + v.x, o.y + v.y, o.z + v.z, o.w + v.w);
                kept[n * 64] = v;
            }
        }
    }
    const int t1 = min(8 * NT, n_row - row0);
    if (k.splits > 1) {
        codes_meet(k, it);
        if (!on) return;
        codes_gather(k, red, part, of_class, it.split + k.splits * h, t1, 2 * k.splits);
    } else {
        if (!on) return;
        float4 v[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) v[n] = kept[n * 64];
        named_barrier(pair + 1, 64);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float *to = red + (n * 8 + 2 * tig) * RS + h * 16 + gid;
            to[0] = v[n].x, to[RS] = v[n].y, to[8] = v[n].z, to[RS + 8] = v[n].w;
        }
    }
    named_barrier(pair + 1, 64);
    best_value *best = (best_value *)(smem + CODES_BEST) + pair * CODES_ROWS;
    for (int t = it.split + k.splits * (h * 32 + lane); t < t1; t += 64 * k.splits)
        codes_finish(k, region, step, row0 + t, red + t * RS, smem, best);
}

// 1 / rms of the step's rows, an empty best of each row for every pair of warps, the outputs of rows
DEV void codes_start(const codes_job &k, int n_row, int n_out, uint8_t *smem) {
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, W = k.mw * k.nw;
    float *rs = (float *)(smem + CODES_RS);
    int *out = (int *)(smem + CODES_OUT);
    best_value *best = (best_value *)(smem + CODES_BEST);
    if (k.j.n_square) {
#pragma unroll 4
        for (int t = w; t < n_row; t += W) {
            const float v = rms_factor<4>(k.j, t);
            if (lane == 0) rs[t] = v;
        }
    }
    if (k.epilogue == EPI_HEAD)
        for (int i = threadIdx.x; i < CODES_WARPS / 2 * CODES_ROWS; i += W * 32)
            best[i] = {-INFINITY, 0x7fffffff};
    if (k.j.rowmap) {
        for (int t = threadIdx.x; t < n_row; t += W * 32) out[t] = -1;
        named_barrier(14, W * 32);
        for (int t = threadIdx.x; t < n_out; t += W * 32) {
            const int row = __ldcg(k.j.rowmap + t);
            if (row < n_row) out[row] = t;
        }
    }
    named_barrier(14, W * 32);
}

template <int L, int L2, int GA, int NT>
__global__ void __launch_bounds__(CODES_WARPS * 32, 1)
    wide_codes_kernel(const __grid_constant__ codes_job k) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, W = k.mw * k.nw;
    codes_ring r = {smem_address(smem + CODES_FULL),
                    smem_address(smem + CODES_EMPTY),
                    smem_address(smem + k.fixed_bytes),
                    0,
                    0,
                    0};
    codes_cursor *cursor = (codes_cursor *)(smem + CODES_CURSOR);
    if (threadIdx.x < CODES_STAGES) {
        barrier_init(r.full + 8 * threadIdx.x, 1);
        barrier_init(r.empty + 8 * threadIdx.x, W);
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    codes_cursor at = codes_begin(k);
    if (w == 0) // weights depend on no kernel
        for (int i = 0; i < k.stages; i++) codes_fetch<L, L2, GA>(k, at, r, FETCH_WEIGHTS);
    pdl_wait();
    const int n_out = min(k.rows, *k.j.n_row), n_row = k.j.rowmap ? k.rows : n_out;
    if (w == 0) {
        at = codes_begin(k);
        for (int i = 0; i < k.stages; i++) codes_fetch<L, L2, GA>(k, at, r, FETCH_ROWS);
        if (threadIdx.x == 0) *cursor = at;
        __syncwarp();
    }
    // Behind the unit just done: the one before has been left by the other warps by now, most likely.
    auto fetch = [&](int done) {
        codes_cursor next = *cursor;
        __syncwarp();
        if (next.n > done - 2 + k.stages) return;
        codes_fetch<L, L2, GA>(k, next, r, FETCH_WEIGHTS | FETCH_ROWS);
        if (threadIdx.x == 0) *cursor = next;
        __syncwarp();
    };
    codes_start(k, n_row, n_out, smem);
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const int region = i >= k.items[0];
        const codes_item it = codes_find(k, region, region ? i - k.items[0] : i);
        if (L2 < 0 || !region)
            codes_consume<L, GA, NT>(k, r, it, region, n_row, smem, fetch);
        else
            codes_consume < L2<0 ? L : L2, GA, NT>(k, r, it, region, n_row, smem, fetch);
    }
    if (k.epilogue != EPI_HEAD) return;
    named_barrier(14, W * 32);
    const best_value *best = (const best_value *)(smem + CODES_BEST);
    for (int t = threadIdx.x; t < n_out; t += W * 32) {
        best_value b = best[t];
        for (int i = 1; i < CODES_WARPS / 2; i++)
            if (better(best[i * CODES_ROWS + t], b)) b = best[i * CODES_ROWS + t];
        k.j.cand[(size_t)t * k.j.n_cand + blockIdx.x] = make_float2(b.v, __int_as_float(b.i));
    }
}
