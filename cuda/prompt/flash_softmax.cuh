// What the attention kernels of prompt rows share: ranges of keys, loads of pages, online softmax, output.
#pragma once
#include <limits.h>
#include "cuda/common/kv_pages.cuh"
#include "cuda/formats/unit_operands.cuh"
#include "cuda/prompt/prompt_both.h"

enum { ATTEND_ROWS = 128 }; // of a block at most

// The last position that row t sees, of position pos; -1: there is no such row.
DEV int attend_last(const prompt_attend_job &, int pos, int) { return pos; }
DEV int attend_last(const prompt_attend_both &j, int pos, int t) {
    return pos < 0 ? pos : max(pos, j.until[t]);
}

// The sequences whose rows a block holds, each with its range of key tiles.
struct attend_run {
    int slot, tile, tile_end, end; // keys from end on have not been written
};
// Fills run[] and returns how many there are; called by all threads.
template <int KEYS, class J> DEV int attend_runs(const J &j, int t0, int n, attend_run *run) {
    __shared__ int slot[ATTEND_ROWS], pos[ATTEND_ROWS], lo, hi, n_run;
    int r = threadIdx.x;
    if (r < n) {
        slot[r] = j.slot[t0 + r];
        pos[r] = j.pos[t0 + r];
    }
    if (r == 0) {
        lo = INT_MAX;
        hi = 0;
        n_run = 1;
    }
    __syncthreads();
    bool one = __syncthreads_and(r >= n || slot[r] == slot[0]);
    if (one) {
        if (r < n) {
            atomicMin(&lo, pos[r]);
            atomicMax(&hi, attend_last(j, pos[r], t0 + r));
        }
        __syncthreads();
        if (r == 0)
            run[0] = {slot[0], j.window ? max(0, lo - j.window + 1) / KEYS : 0, hi / KEYS + 1, hi + 1};
    } else if (r == 0) { // several sequences: rare, and a block's rows are few
        int k = 0;
        for (int i = 0; i < n; i++) {
            int at = 0;
            while (at < k && run[at].slot != slot[i]) at++;
            int first = j.window ? max(0, pos[i] - j.window + 1) / KEYS : 0,
                last = attend_last(j, pos[i], t0 + i), end = last / KEYS + 1;
            if (at == k) run[k++] = {slot[i], first, end, last + 1};
            run[at].tile = min(run[at].tile, first);
            run[at].tile_end = max(run[at].tile_end, end);
            run[at].end = max(run[at].end, last + 1);
        }
        n_run = k;
    }
    __syncthreads();
    return n_run;
}

// Loads KEYS keys of one tensor into [D / 64][KEYS][128 bytes], swizzled, with 128 threads; dims beyond dim and keys
// from end on are zero. A thread keeps its chunk of 8 dims and goes down the rows, eight at least a time, so the
// swizzle stays the same.
template <int D, int KEYS>
DEV void attend_load(uint32_t dst, const uint8_t *pool, const prompt_attend_job &j, const int32_t *table,
                     int head, int tile, int end, int dim) {
    constexpr int CHUNKS = D / 8, ROWS = 128 / CHUNKS;
    int c = threadIdx.x % CHUNKS, r = threadIdx.x / CHUNKS;
    uint32_t bytes = c * 8 < dim ? 16 : 0,
             at = dst + (c >> 3) * (KEYS * 128) + r * 128 + (((c & 7) ^ (r & 7)) << 4);
#pragma unroll
    for (int p = 0; p < KEYS / 64; p++) {
        int index = tile * (KEYS / 64) + p, page = index * 64 < end ? __ldg(table + index) : 0,
            key = index * 64 + r;
        const int row = (int)kv_bytes(KV_F16, dim);
        const uint8_t *src = pool + (((size_t)page * j.n_kv_head + head) * 64 + r) * row;
        src += bytes ? c * 16 : 0;
#pragma unroll
        for (int i = 0; i < 64; i += ROWS) {
            cp_async16(at, src, key + i < end ? bytes : 0);
            at += ROWS * 128;
            src += ROWS * row;
        }
    }
}

// The two rows of a thread: fragment rows g and g + 8.
struct attend_rows {
    int row[2], pos[2], last[2], slot[2]; // row: in the block; slot -1: beyond the step
    float m[2], l[2]; // largest score so far, in powers of two; sum of this thread's probabilities
};
template <class J> DEV attend_rows attend_start(const J &j, int row0, int t0, int n, int head) {
    attend_rows r;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        r.row[h] = row0 + (lane >> 2) + 8 * h;
        bool in = r.row[h] < n;
        r.pos[h] = in ? j.pos[t0 + r.row[h]] : -1;
        r.last[h] = attend_last(j, r.pos[h], t0 + r.row[h]);
        r.slot[h] = in ? j.slot[t0 + r.row[h]] : -1;
        r.m[h] = j.sinks ? j.sinks[head] * 1.4426950408889634f : -INFINITY;
        r.l[h] = j.sinks && (lane & 3) == 0 ? 1.f : 0.f;
    }
    return r;
}
// q of a thread's rows as scaled halves to [D / 64][tile_rows][128 bytes], swizzled; tile_row: place of its first row
template <int D>
DEV void attend_query(const prompt_attend_job &j, const attend_rows &r, int t0, int head, uint32_t at,
                      int tile_row, int tile_rows) {
    float unit = j.softcap > 0 ? j.scale : j.scale * 1.4426950408889634f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = tile_row + 8 * h;
        bool in = r.slot[h] >= 0;
        const float *p = j.q + (size_t)(t0 + r.row[h]) * j.q_stride + (size_t)head * j.dk;
#pragma unroll 4
        for (int c = 2 * (threadIdx.x & 3); c < D; c += 8) {
            float a = in && c < j.dk ? p[c] : 0.f, b = in && c + 1 < j.dk ? p[c + 1] : 0.f;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + (c >> 6) * (tile_rows * 128) + i * 128 +
                                                         ((((c >> 3) & 7) ^ (i & 7)) << 4) + (c & 7) * 2),
                         "r"(pack_half2(a * unit, b * unit))
                         : "memory");
        }
    }
}
// Scores s of KEYS keys from k0 on to probabilities p (A fragments); rescales o.
template <int D, int KEYS>
DEV void attend_softmax(const prompt_attend_job &j, const attend_run &w, int k0, attend_rows &r,
                        float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 16][4], float (&o)[D / 2]) {
    const float log2e = 1.4426950408889634f;
    int t = threadIdx.x & 3;
    if (j.softcap > 0)
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) s[i] = j.softcap * log2e * tanhf(s[i] / j.softcap);
    // keys that a row may not see: beyond it, before its window, of another sequence
    float top[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int hi = r.slot[h] == w.slot ? r.last[h] - k0 : -1, lo = j.window ? r.pos[h] - j.window + 1 - k0 : -1;
        if (hi < KEYS - 1 || lo > 0) {
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    int key = 8 * i + 2 * t + c;
                    if (key > hi || key < lo) s[4 * i + 2 * h + c] = -INFINITY;
                }
        }
        top[h] = r.m[h];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
            top[h] = fmaxf(top[h], fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
        top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
        float base = top[h] == -INFINITY ? 0.f : top[h], alpha = exp2_fast(r.m[h] - base);
        r.m[h] = top[h];
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            float a = exp2_fast(s[4 * i + 2 * h] - base), b = exp2_fast(s[4 * i + 2 * h + 1] - base);
            sum += a + b;
            p[i >> 1][h + 2 * (i & 1)] = pack_half2(a, b);
        }
        r.l[h] = r.l[h] * alpha + sum;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[4 * i + 2 * h] *= alpha;
            o[4 * i + 2 * h + 1] *= alpha;
        }
    }
}
// o / l to the activation tiles.
template <int D>
DEV void attend_finish(const prompt_attend_job &j, const attend_rows &r, int t0, int head,
                       const float (&o)[D / 2]) {
    int t = threadIdx.x & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.l[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        float inv = 1.f / sum;
        if (r.slot[h] < 0) continue;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            int c = 8 * i + 2 * t;
            if (c < j.dv) // dv is even
                prompt_put2(j.out, t0 + r.row[h], head * j.dv + c, j.out_k_tiles, j.out_order,
                            o[4 * i + 2 * h] * inv, o[4 * i + 2 * h + 1] * inv);
        }
    }
}
