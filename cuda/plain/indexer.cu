// The positions that attention looks at. Scores are sums of double numbers in ref's order, since a choice hangs on their last bit: what
// is chosen is what ref chooses, whoever is beside the row and however many rows a launch has.
#include "cuda/plain/indexer.h"
#include <float.h>
#include <limits.h>
#include "cuda/common/kv_pages.cuh"
#include "cuda/plain/plain.cuh"
#include "seam/router.h"

// Runs that there are to choose from.
DEV int index_runs(const index_job &j, int pos) {
    return j.whole || j.ends ? (pos + 1) / j.block : pos / j.block + 1;
}

// ---- scores: a block INDEX_KEYS keys at a time, for INDEX_ROWS rows that follow each other; a thread one key and some of the heads
enum { INDEX_KEYS = 32, INDEX_WARPS = 4, INDEX_EACH = 4, INDEX_HEADS = INDEX_WARPS * INDEX_EACH };
enum { INDEX_ROWS = 8, INDEX_DIMS = 128, INDEX_THREADS = INDEX_WARPS * 32 };
struct index_space {
    float key[INDEX_KEYS][INDEX_DIMS + 1];
    double q[INDEX_HEADS][INDEX_DIMS], part[INDEX_HEADS][INDEX_KEYS];
};
// A row of the step and the keys whose scores are made: those at the kept positions from the first-th on.
struct index_place {
    int r, slot, pos, first;
    MEM int position(const index_job &j, int key) const { return (first + key + 1) * j.every - 1; }
};
DEV const uint8_t *index_key(const index_job &j, int slot, int pos, size_t bytes) {
    const int page = j.kv.pages[slot * j.kv.max_pages + pos / KV_PAGE], n = (KV_PAGE + j.every - 1) / j.every;
    return j.kv.k + ((size_t)page * j.kv.n_kv_head * n + pos % KV_PAGE / j.every) * bytes;
}
// Numbers d0 .. d0 + n of the keys that the row sees, as they were before they were turned; 0 in place of others.
template <int T>
DEV void index_load_keys(const index_job &j, index_space &m, const index_place &at, int d0, int n) {
    const int lane = threadIdx.x & 31;
    const size_t bytes = kv_bytes((enum kv_type)T, j.kv.dk);
    for (int k = threadIdx.x >> 5; k < INDEX_KEYS; k += INDEX_WARPS) {
        const int p = at.position(j, k);
        const uint8_t *row = p <= at.pos ? index_key(j, at.slot, p, bytes) : nullptr;
        for (int i = lane; i < n; i += 32) m.key[k][i] = row ? kv_load((enum kv_type)T, row, d0 + i) : 0.f;
        if constexpr (T > KV_Q8_0) {
            __syncwarp();
            kv_turn_runs(m.key[k], n, j.turn, 0, 1);
        }
    }
}
DEV void index_load_queries(const index_job &j, index_space &m, int r, int h0, int d0, int n) {
    const float *q = j.q.p + r * j.q.stride + (size_t)h0 * j.kv.dk + d0;
    for (int i = threadIdx.x; i < INDEX_HEADS * INDEX_DIMS; i += INDEX_THREADS) {
        const int h = i / INDEX_DIMS, d = i % INDEX_DIMS;
        m.q[h][d] = h0 + h < j.n_head && d < n ? (double)__ldcg(q + (size_t)h * j.kv.dk + d) : 0.;
    }
}
// This thread's key times queries of INDEX_EACH heads, n numbers of them.
DEV void index_products(const index_space &m, int n, double (&sum)[INDEX_EACH]) {
    const int key = threadIdx.x & 31, head = (threadIdx.x >> 5) * INDEX_EACH;
    for (int i = 0; i < n; i++) {
        const double k = m.key[key][i];
#pragma unroll
        for (int e = 0; e < INDEX_EACH; e++)
            sum[e] += m.q[head + e][i] * k; // a product of two floats is exact
    }
}
// fresh: the keys do not lie there yet.
template <int T> DEV void index_row(const index_job &j, index_space &m, const index_place &at, bool fresh) {
    const int tid = threadIdx.x, dk = j.kv.dk, p = at.position(j, tid & 31);
    const float *w = j.w.p ? j.w.p + at.r * j.w.stride : nullptr;
    float *score = j.score + (size_t)(at.r - j.row0) * (j.by_head ? j.n_head : 1) * j.n_pos;
    double all = 0; // of the first warp's keys, over the heads in their order
    for (int h0 = 0; h0 < j.n_head; h0 += INDEX_HEADS) {
        double sum[INDEX_EACH] = {};
        for (int d0 = 0; d0 < dk; d0 += INDEX_DIMS) {
            const int n = min((int)INDEX_DIMS, dk - d0);
            if (dk > INDEX_DIMS || (fresh && h0 == 0)) index_load_keys<T>(j, m, at, d0, n);
            index_load_queries(j, m, at.r, h0, d0, n);
            __syncthreads();
            index_products(m, n, sum);
            __syncthreads();
        }
#pragma unroll
        for (int e = 0; e < INDEX_EACH; e++) m.part[tid / 32 * INDEX_EACH + e][tid & 31] = sum[e];
        __syncthreads();
        for (int h = h0; tid < 32 && h < min(h0 + (int)INDEX_HEADS, j.n_head); h++) {
            const double a = m.part[h - h0][tid];
            if (!j.by_head && !(a <= 0)) all = __dadd_rn(all, __dmul_rn(w ? (double)__ldcg(w + h) : 1., a));
            if (j.by_head && p <= at.pos) score[h * j.n_pos + p] = (float)a;
        }
        __syncthreads();
    }
    if (!j.by_head && tid < 32 && p <= at.pos) score[p] = (float)all;
}
template <int T>
__global__ void __launch_bounds__(INDEX_THREADS)
    index_score_kernel(dev_tables t, const __grid_constant__ index_job j) {
    __shared__ index_space m;
    op_begin();
    const int begin = j.row0 + blockIdx.y * INDEX_ROWS,
              end = min(min(begin + (int)INDEX_ROWS, j.row0 + j.n_row), t.step->n_row);
    for (int first = blockIdx.x * INDEX_KEYS;; first += gridDim.x * INDEX_KEYS) {
        bool any = false;
        int slot = -1, reach = -1; // whose keys lie in shared memory, and up to which position
        for (int r = begin; r < end; r++) {
            const index_place at = {r, t.slot[r], t.pos[r], first};
            if (at.position(j, 0) > at.pos) continue;
            any = true;
            if (index_runs(j, at.pos) <= j.n_top) continue; // all are chosen
            const bool fresh = at.slot != slot || at.pos > reach;
            if (fresh) slot = at.slot, reach = at.position(j, INDEX_KEYS - 1) <= at.pos ? INT_MAX : at.pos;
            index_row<T>(j, m, at, fresh);
        }
        if (!any) return;
    }
}

// ---- the choice: a block a list of a row. As seam/choose.c has it: the key that the last one chosen has is found by counting bits from the
// top, then what is greater, and so many of those that are equal, are taken in the order of their places.
enum { CHOOSE_THREADS = 256, CHOOSE_WARPS = CHOOSE_THREADS / 32, CHOOSE_BINS = 0x800 };
struct choose_space {
    int count[CHOOSE_BINS], warp[2][CHOOSE_WARPS];
    uint32_t found;
    int left;
};
// The keys of what competes: positions, or the best of runs of them.
struct choose_keys {
    const float *score;
    int block, pos, n, n_local;
    bool last_alone; // a run's last position stands for it
    MEM uint32_t operator[](int i) const {
        if (block == 1) return router_key(__ldcg(score + i));
        if (i >= n - n_local) return router_key(INFINITY);
        const int last = min((i + 1) * block - 1, pos);
        uint32_t best = router_key(__ldcg(score + last));
        for (int p = i * block; p < last && !last_alone; p++) best = max(best, router_key(__ldcg(score + p)));
        return min(best, router_key(FLT_MAX));
    }
};
// By the first warp: the bin of the k-th greatest, and how many of the bin are among the k; 0 < k <= all that is counted.
DEV void choose_bin(choose_space &m, uint32_t shift, int k) {
    const int lane = threadIdx.x & 31, first = lane * (CHOOSE_BINS / 32);
    int own = 0;
    for (int b = 0; b < CHOOSE_BINS / 32; b++) own += m.count[first + b];
    int above = own; // of this lane and those behind it
    for (int o = 1; o < 32; o <<= 1) {
        const int other = __shfl_down_sync(~0u, above, o);
        above += lane + o < 32 ? other : 0;
    }
    above -= own;
    if (above >= k || above + own < k) return; // one lane goes on
    int b = first + CHOOSE_BINS / 32 - 1;
    for (k -= above; m.count[b] < k; b--) k -= m.count[b];
    m.found |= (uint32_t)b << shift;
    m.left = k;
}
// The key of the k-th greatest of n, 0 < k <= n; *equal: how many of that key are among the k.
DEV uint32_t choose_key(choose_space &m, const choose_keys &keys, int k, int *equal) {
    uint32_t known = 0; // bits of the key
    if (threadIdx.x == 0) m.found = 0, m.left = k;
    for (int part = 0; part < 3; part++) {
        const uint32_t shift = part == 0 ? 21 : part == 1 ? 10 : 0, mask = part == 2 ? 0x3ff : 0x7ff;
        for (int i = threadIdx.x; i < CHOOSE_BINS; i += CHOOSE_THREADS) m.count[i] = 0;
        __syncthreads();
        const uint32_t found = m.found;
        for (int i = threadIdx.x; i < keys.n; i += CHOOSE_THREADS) {
            const uint32_t key = keys[i];
            if ((key & known) == found) atomicAdd(&m.count[key >> shift & mask], 1);
        }
        __syncthreads();
        if (threadIdx.x < 32) choose_bin(m, shift, m.left);
        known |= mask << shift;
        __syncthreads();
    }
    *equal = m.left;
    return m.found;
}
// Both halves of v summed over the threads before this one; *all: over all.
DEV int choose_before(choose_space &m, int v, int turn, int *all) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int sum = v, before = 0, total = 0;
    for (int o = 1; o < 32; o <<= 1) {
        const int other = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? other : 0;
    }
    if (lane == 31) m.warp[turn][warp] = sum;
    __syncthreads();
    for (int i = 0; i < CHOOSE_WARPS; i++) {
        before += i < warp ? m.warp[turn][i] : 0;
        total += m.warp[turn][i];
    }
    *all = total;
    return before + sum - v;
}
// The positions of run i, which stands at place `at` of the list.
DEV void choose_give(const index_job &j, int pos, int i, int at, float *out) {
    const int n = j.block;
    if (j.ends) out[at] = (float)(i * n + n - 1);
    for (int e = 0; !j.ends && e < n && i * n + e <= pos; e++) out[(size_t)at * n + e] = (float)(i * n + e);
}
DEV void choose_best(const index_job &j, choose_space &m, const choose_keys &keys, float *out) {
    int equal, at = 0;
    const uint32_t least = choose_key(m, keys, j.n_top, &equal);
    for (int i0 = 0, turn = 0; i0 < keys.n && at < j.n_top; i0 += CHOOSE_THREADS, turn ^= 1) {
        const int i = i0 + (int)threadIdx.x;
        const uint32_t key = i < keys.n ? keys[i] : 0; // which none has
        const bool more = key > least, same = key == least;
        int all;
        const int before = choose_before(m, (int)more | (int)same << 16, turn, &all), of_same = before >> 16;
        if (more || (same && of_same < equal))
            choose_give(j, keys.pos, i, at + (before & 0xffff) + min(of_same, equal), out);
        at += (all & 0xffff) + min(all >> 16, equal);
        equal -= min(all >> 16, equal);
    }
}
__global__ void __launch_bounds__(CHOOSE_THREADS)
    index_choose_kernel(dev_tables t, const __grid_constant__ index_job j) {
    __shared__ choose_space m;
    const int r = j.row0 + blockIdx.y, list = blockIdx.x, tid = threadIdx.x;
    op_begin();
    if (r >= t.step->n_row) return;
    const int pos = t.pos[r], runs = index_runs(j, pos), n = min(runs, j.n_top),
              behind = pos + 1 - runs * j.block;
    float *out = j.chosen.p + r * j.chosen.stride + (size_t)list * j.room;
    const float *score = j.score + ((size_t)(r - j.row0) * gridDim.x + list) * j.n_pos;
    if (runs > j.n_top)
        choose_best(j, m, choose_keys{score, j.block, pos, runs, j.n_local, j.whole || j.ends}, out);
    else
        for (int i = tid; i < runs; i += CHOOSE_THREADS) choose_give(j, pos, i, i, out);
    // positions behind the last whole run; or places of the last run, which is there in part and chosen, that no position has
    int count = j.ends ? n : n * j.block + min(behind, 0);
    for (int i = tid; !j.ends && i < behind; i += CHOOSE_THREADS)
        out[count + i] = (float)(runs * j.block + i);
    count += j.ends ? 0 : max(behind, 0);
    for (int i = count + tid; i < j.room; i += CHOOSE_THREADS) out[i] = -1.f;
}

cudaError_t op_index_run(dev_tables t, const index_job &j, int sm_count, op_queue s) {
    static void (*const kernels[])(dev_tables, index_job) = {
        index_score_kernel<KV_F32>, index_score_kernel<KV_F16>,  index_score_kernel<KV_Q8_0>,
        index_score_kernel<KV_F8>,  index_score_kernel<KV_Q5_0>, index_score_kernel<KV_Q4_0>};
    const int groups = (j.n_row + INDEX_ROWS - 1) / INDEX_ROWS, most = (int)(j.n_pos / INDEX_KEYS),
              wanted = 4 * sm_count / groups;
    const dim3 grid(wanted < 1 ? 1 : wanted < most ? wanted : most, groups);
    const cudaError_t e = op_launch(kernels[j.kv.type], grid, INDEX_THREADS, s, t, j);
    if (e != cudaSuccess) return e;
    return op_launch(index_choose_kernel, dim3(j.by_head ? j.n_head : 1, j.n_row), CHOOSE_THREADS, s, t, j);
}
