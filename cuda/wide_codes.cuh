// Quantised weights times many decode rows.
//
// A block takes mw row tiles times nw * 8 NT rows: warp (m, n) has row tile m and the rows of slice n. One more warp
// keeps a ring of stages full: a unit of weights for every row tile and the rows' slab of that unit. The sums are those of
// stream.cuh, in its order: class c holds the units c, c + 8, .. (as many classes as warps share the columns for one
// row), and the classes are added from 0 on. A row's bits are those it has alone: there a group's sum of codes times
// codes is an integer, times the scale of the row's group, exactly; here codes are halves and the rows are codes times
// that scale, halves too, whose products and sums for a group are the same number, exactly (below 2^24 times the last
// bit). So a sum costs one multiply-add for each group, and the products run as those of halves. Where a matrix has few
// row tiles an item is a part of the classes; their sums go through memory, and the blocks that share a tile add and
// finish a part of its rows each.
#pragma once
#include "stream_finish.cuh"
#include "stream_sums.cuh"
#include "wgmma.cuh"
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

// ---- the producer
// visit(item, unit) for all that this block does
template <class V> DEV void codes_each(const codes_job &k, V visit) {
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const codes_item it = codes_find(k, i);
        for (int c = it.c0; c < it.c1; c++)
            for (int u = c; u < k.j.u; u += k.classes) visit(it, u);
    }
}
// A stage: 4 column tiles of n rows, their sums, a unit of each row tile.
template <int L, int L2>
DEV void codes_fetch(const codes_job &k, const codes_ring &r, const codes_item &it, int u, bool weights,
                     bool rows) {
    constexpr int LB = L2 < 0 ? L : L2;
    const int lane = threadIdx.x & 31, unit = layout_unit_bytes((enum layout)(it.region ? LB : L)),
              row0 = it.group * k.n, n = min(k.n, k.pitch - row0); // rows that are there, whole groups of 8
    const uint32_t to = r.smem + k.fixed_bytes + r.slot * k.slot_bytes;
    if (weights) {
        if (lane == 0) barrier_expect(r.full(), it.n_tile * unit + n * SLAB_ROW);
        __syncwarp();
        if (lane < it.n_tile)
            bulk_copy(to + k.n * SLAB_ROW + lane * unit,
                      k.j.w[it.region] + ((size_t)(it.tile0 + lane) * k.j.u + u) * unit, unit, r.full());
    }
    const uint8_t *x = k.j.x + (size_t)u * slab_bytes(k.pitch);
    if (rows && lane < 4)
        bulk_copy(to + lane * k.n * 128, x + ((size_t)lane * k.pitch + row0) * 128, n * 128, r.full());
    if (rows && lane == 4)
        bulk_copy(to + k.n * SLAB_SUM, x + (size_t)k.pitch * SLAB_SUM + row0 * SLAB_SUM_ROW, n * SLAB_SUM_ROW,
                  r.full());
}
template <int L, int L2> DEV void codes_produce(const codes_job &k, uint32_t smem) {
    codes_ring r = {smem, 0, 0};
    int v = 0;
    codes_each(k, [&](const codes_item &it, int u) {
        if (v++ >= k.stages) return;
        codes_fetch<L, L2>(k, r, it, u, true, false); // weights depend on no kernel
        r.step(k.stages);
    });
    pdl_wait();
    v = 0;
    r = {smem, 0, 0};
    codes_each(k, [&](const codes_item &it, int u) {
        const bool again = v++ >= k.stages;
        if (again) barrier_wait(r.empty(), r.phase ^ 1);
        codes_fetch<L, L2>(k, r, it, u, again, true);
        r.step(k.stages);
    });
}

// ---- a unit of a row tile times 8 NT rows
DEV uint32_t half2_add(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
enum { LOP_AND_XOR = 0x6a }; // (a & b) ^ c
// Two codes of group g as halves, out of the low bytes of v's halves; x: their high or low bits, likewise. Codes without
// sign are subnormal halves, in units of 2^-24; others are taken from 1024 + 2^n.
template <int L> DEV uint32_t code_halves(uint32_t v, uint32_t x, int g) {
    const bool odd = g & 1;
    if constexpr (L == LAYOUT_Q4K || L == LAYOUT_Q4M)
        return v & (odd ? 0x00f000f0u : 0x000f000fu);
    else if constexpr (L == LAYOUT_Q5K)
        return odd ? lop3<LOP_AND_OR>(x << (8 - g), 0x01000100u, v & 0x00f000f0u)
                   : lop3<LOP_AND_OR>(g < 4 ? x << (4 - g) : x >> (g - 4), 0x00100010u, v & 0x000f000fu);
    else if constexpr (L == LAYOUT_Q4)
        return odd ? half2_add(lop3<LOP_AND_XOR>(v, 0x00f000f0u, 0x64806480u), 0xe480e480u)
                   : half2_add(lop3<LOP_AND_XOR>(v, 0x000f000fu, 0x64086408u), 0xe408e408u);
    else if constexpr (frag<L>::wide)
        return half2_add(lop3<LOP_AND_XOR>(v, 0x00ff00ffu, 0x64806480u), 0xe480e480u);
    else { // Q6K
        const uint32_t low = lop3<LOP_AND_XOR>(x >> (2 * (g & 3)), 0x00030003u, 0x64206420u);
        return half2_add(lop3<LOP_AND_XOR>(odd ? v >> 2 : v << 2, 0x003c003cu, low), 0xe420e420u);
    }
}
// What a sum with these halves must be multiplied by, to be the sum with the codes of one row.
template <int L> DEV constexpr float halves_factor(int g) {
    return L == LAYOUT_Q4K || L == LAYOUT_Q4M ? 0x1p24f
           : L == LAYOUT_Q5K                  ? (g & 1 ? 0x1p20f : 0x1p24f)
           : L == LAYOUT_Q4                   ? (g & 1 ? 1.f : 16.f)
           : L == LAYOUT_Q6K                  ? 4.f
                                              : 1.f;
}
// Operands of the two products of group g: columns 16 e ..; the even ones of 16 columns first.
template <int L> DEV void group_halves(uint32_t (&a)[2][4], const frag<L> &f, int g) {
    const uint4 c = f.c[code_part<L>(g)];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t v = word_of(c, i),
                       x = frag<L>::NX ? word_of(f.x[frag<L>::NX == 2 ? g >> 2 : 0], i) : 0;
        a[i >> 1][i & 1] = code_halves<L>(v, x, g);
        a[i >> 1][2 + (i & 1)] = code_halves<L>(v >> 8, x >> 8, g);
    }
}
DEV void mma_f16_from_0(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
// 8 NT rows of a stage: the first column tile, x as a lane of ldmatrix addresses its row of it, sums of the first row.
struct slab_rows {
    uint32_t first, x, tile; // tile: bytes of a column tile
    const uint8_t *sums;
    float whole; // what makes a half a code times its scale
};
template <int L, int GA, int NT, bool GROUP> struct slab_sums {
    float acc[NT][4][4]; // [8 rows][partial][output]
    MEM void clear() {
#pragma unroll
        for (int i = 0; i < NT * 16; i++) (&acc[0][0][0])[i] = 0;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    // The products of a warpgroup, four row tiles.
    MEM void group_wgmma(int p, int g, const uint32_t (&a)[2][4], const float (&s)[2][2],
                         const slab_rows &x) {
        constexpr bool halves = by_halves<L, GA>();
        const uint64_t b = wgmma_descriptor(x.first + (g >> 1) * x.tile) + (g & 1) * 4;
        float d[NT * 4];
#pragma unroll
        for (int e = 0; e < (halves ? 2 : 1); e++) {
            wgmma_fence();
            wgmma_rs_from_0(d, a[e], b + 2 * e);
            if (!halves) wgmma_rs(d, a[1], b + 2);
            wgmma_commit();
            wgmma_wait<0>(); // the other warpgroup keeps the tensor cores busy meanwhile
            wgmma_pin(d);
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int o = 0; o < 4; o++) acc[n][p][o] = fmaf(s[o >> 1][e], d[n * 4 + o], acc[n][p][o]);
        }
    }
#endif
    MEM void group(int p, int g, const uint32_t (&a)[2][4], const float (&s)[2][2], const slab_rows &x) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            uint32_t b[4];
            float d[2][4];
            ldmatrix4(b, (x.x ^ (g & 1) << 6) + (g >> 1) * x.tile + n * 1024);
            mma_f16_from_0(d[0], a[0], b[0], b[1]);
            if constexpr (by_halves<L, GA>())
                mma_f16_from_0(d[1], a[1], b[2], b[3]);
            else
                mma_f16(d[0], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
#pragma unroll
            for (int e = 0; e < (by_halves<L, GA>() ? 2 : 1); e++)
#pragma unroll
                for (int o = 0; o < 4; o++) acc[n][p][o] = fmaf(s[o >> 1][e], d[e][o], acc[n][p][o]);
        }
    }
    MEM void mins(const frag<L> &f, int p, const slab_rows &x, int tig) { // Q4M, Q8M
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                float s0, s1;
                group_sums<GA>(x.sums + (n * 8 + 2 * tig + (o & 1)) * SLAB_SUM_ROW, p, s0, s1);
                const float2 m = half2_bits(word_of(f.m[o >> 1], p));
                acc[n][p][o] = fmaf(m.x, s0 * min_factor<L>(p), acc[n][p][o]);
                acc[n][p][o] = fmaf(m.y, s1 * min_factor<L>(p), acc[n][p][o]);
            }
    }
    MEM void unit(const uint8_t *u, const slab_rows &x, int lane) {
        using F = frag<L>;
        const int tig = lane & 3;
        F f;
        load_scales<L, false>(f, u, lane);
        unit_scales<L> scales;
        scales.start(f, lane);
        if constexpr (F::super)
#pragma unroll
            for (int n = 0; n < NT; n++)
                many_mins<L, GA, false>(acc[n][0], f, x.sums + (n * 8 + (lane >> 2)) * SLAB_SUM_ROW, tig);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            if (!p || code_part<L>(p) != code_part<L>(p - 1)) {
                asm volatile("" ::: "memory"); // not earlier: registers are scarce
                load_part<L>(f, u, code_part<L>(p), lane);
                load_part<L>(f, u, code_part<L>(p + 4), lane);
            }
            const row_scales<L> k[2] = {scales.of(f, 0, p, lane), scales.of(f, 1, p, lane)};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int g = p + 4 * i;
                uint32_t a[2][4];
                float s[2][2];
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        s[r][e] = k[r].s[F::six ? 2 * i + e : i] * (halves_factor<L>(g) * x.whole);
                group_halves<L>(a, f, g);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
                if constexpr (GROUP) {
                    group_wgmma(p, g, a, s, x);
                    continue;
                }
#endif
                group(p, g, a, s, x);
            }
            if constexpr (F::mins) mins(f, p, x, tig);
        }
    }
    MEM float value(int n, int o) const {
        float v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) v[p] = acc[n][p][o] * code_factor<L>(p);
        return (v[0] + v[1]) + (v[2] + v[3]);
    }
};

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

// One item of a warp.
template <int L, int GA, int NT, bool GROUP>
DEV void codes_consume(const codes_job &k, codes_ring &r, const codes_item &it, int n_row, uint8_t *smem,
                       bool &ready) {
    constexpr int UB = layout_unit_bytes((enum layout)L), RS = RED_ROW;
    const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, tig = lane & 3, gid = lane >> 2, m = w % k.mw,
              pair = w >> 1, h = w & 1;
    // a warpgroup works on its tiles together, those that are not there included
    constexpr int together = GROUP ? 4 : 1;
    const bool on = m < it.n_tile, works = m / together * together < it.n_tile;
    const int slice0 = w / k.mw * (8 * NT), step = (it.tile0 + m) / 2, row0 = it.group * k.n + slice0;
    float *red = (float *)(smem + k.red_at) + pair * (8 * NT * RS);
    float4 *kept = (float4 *)red + h * 32 + lane; // of this thread alone
    const size_t of_class = (size_t)k.tiles[it.region] / 2 * (k.groups * k.n) * 32;
    float *part = k.part[it.region] + ((size_t)step * (k.groups * k.n) + row0) * 32;
    slab_sums<L, GA, NT, GROUP> s;
    for (int c = it.c0; c < it.c1; c++) {
        s.clear();
        for (int u = c; u < k.j.u; u += k.classes) {
            barrier_wait(r.full(), r.phase);
            const uint8_t *at = smem + k.fixed_bytes + r.slot * k.slot_bytes;
            if (works) {
                const uint32_t first = smem_address(at) + slice0 * 128;
                const slab_rows x = {first, first + (lane & 7) * 128 + ((lane >> 3 ^ (lane & 7)) << 4),
                                     (uint32_t)k.n * 128, at + k.n * SLAB_SUM + slice0 * SLAB_SUM_ROW,
                                     1.f / k.j.range.half};
                s.unit(at + k.n * SLAB_ROW + m * UB, x, lane);
            }
            __syncwarp();
            if (elect_one()) barrier_arrive(r.empty());
            r.step(k.stages);
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
    if (!ready)
        named_barrier(15, (k.mw * k.nw + codes_helpers(GROUP) - 1) * 32); // codes_start by other warps
    ready = true;
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
        codes_finish(k, it.region, step, row0 + t, red + t * RS, smem, best);
}

// 1 / rms of the step's rows, an empty best of each row for every pair of warps, the outputs of rows, all of which the
// rows' ends need: thread t of n.
DEV void codes_start(const codes_job &k, int n_row, int n_out, uint8_t *smem, int t, int n) {
    float *rs = (float *)(smem + CODES_RS);
    int *out = (int *)(smem + CODES_OUT);
    best_value *best = (best_value *)(smem + CODES_BEST);
    if (k.j.n_square) {
#pragma unroll 4
        for (int i = t >> 5; i < n_row; i += n / 32) {
            const float v = rms_factor<4>(k.j, i);
            if ((t & 31) == 0) rs[i] = v;
        }
    }
    if (k.epilogue == EPI_HEAD)
        for (int i = t; i < k.best_pairs * CODES_ROWS; i += n) best[i] = {-INFINITY, 0x7fffffff};
    if (k.j.rowmap) {
        for (int i = t; i < n_row; i += n) out[i] = -1;
        named_barrier(13, n);
        for (int i = t; i < n_out; i += n) {
            const int row = __ldcg(k.j.rowmap + i);
            if (row < n_row) out[row] = i;
        }
    }
}

template <int L, int L2, int GA, int NT, bool GROUP> DEV void codes_block(const codes_job &k) {
    extern __shared__ __align__(1024) uint8_t smem[];
    const int w = threadIdx.x >> 5, W = k.mw * k.nw;
    const uint32_t base = smem_address(smem);
    if (threadIdx.x < CODES_STAGES) {
        barrier_init(base + CODES_FULL + 8 * threadIdx.x, 1);
        barrier_init(base + CODES_EMPTY + 8 * threadIdx.x, W);
        barrier_fence();
    }
    __syncthreads();
    pdl_trigger();
    if (w >= W) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if constexpr (GROUP) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        if (w == W) {
            codes_produce<L, L2>(k, base);
            return;
        }
        pdl_wait(); // the others have time for what the ends of rows need
        const int n_out = min(k.rows, *k.j.n_row), n_row = k.j.rowmap ? k.rows : n_out;
        codes_start(k, n_row, n_out, smem, threadIdx.x - (W + 1) * 32, (codes_helpers(GROUP) - 1) * 32);
        asm volatile("bar.arrive 15, %0;" ::"r"((W + codes_helpers(GROUP) - 1) * 32) : "memory");
        return;
    }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (GROUP) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    pdl_wait();
    const int n_out = min(k.rows, *k.j.n_row), n_row = k.j.rowmap ? k.rows : n_out;
    if (!GROUP) {
        codes_start(k, n_row, n_out, smem, threadIdx.x, W * 32);
        named_barrier(14, W * 32);
    }
    codes_ring r = {base, 0, 0};
    bool ready = !GROUP;
    for (int i = blockIdx.x; i < k.items[0] + k.items[1]; i += gridDim.x) {
        const codes_item it = codes_find(k, i);
        if (L2 < 0 || !it.region)
            codes_consume<L, GA, NT, GROUP>(k, r, it, n_row, smem, ready);
        else
            codes_consume < L2<0 ? L : L2, GA, NT, GROUP>(k, r, it, n_row, smem, ready);
    }
    if (k.epilogue != EPI_HEAD) return;
    if (!ready) named_barrier(15, (W + codes_helpers(GROUP) - 1) * 32);
    named_barrier(14, W * 32);
    const best_value *best = (const best_value *)(smem + CODES_BEST);
    for (int t = threadIdx.x; t < n_out; t += W * 32) {
        best_value b = best[t];
        for (int i = 1; i < k.best_pairs; i++)
            if (better(best[i * CODES_ROWS + t], b)) b = best[i * CODES_ROWS + t];
        k.j.cand[(size_t)t * k.j.n_cand + blockIdx.x] = make_float2(b.v, __int_as_float(b.i));
    }
}
// GROUP: by warpgroups, where there is wgmma.
template <int L, int L2, int GA, int NT, bool GROUP>
__global__ void __launch_bounds__((codes_warps(NT, GROUP) + codes_helpers(GROUP)) * 32, 1)
    wide_codes_kernel(const __grid_constant__ codes_job k) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    codes_block<L, L2, GA, NT, GROUP>(k);
#else
    if constexpr (!GROUP) codes_block<L, L2, GA, NT, GROUP>(k);
#endif
}
