// select: the greatest logit of a row, or a token drawn from it (infer_draw.h). A row is cut into parts of SELECT_PART tokens,
// a block each: it leaves the first INFER_TOP candidates of its part and the sums of their exponentials; the block that comes
// last takes the first of all parts and draws. Sums have one order for a
// vocabulary, or none that counts.
#include <float.h>
#include "cuda/common/launch.h"
#include "cuda/plain/select.h"
#include "cuda/plain/select_keys.cuh"

enum { SELECT_PER = SELECT_PART / SELECT_THREADS };
enum { JOIN_FEW = 16, JOIN_MOST = SELECT_PARTS_MAX * INFER_TOP / SELECT_THREADS }; // keys of a thread
enum {
    KEPT_ALL = -1,
    KEPT_BEYOND = -2
}; // all candidates; a number above INFER_TOP that only the row can tell

// ---- a part of a row
struct select_space {
    block_space block;
    uint64_t mask[SELECT_PART / 64];
    union {
        float x[SELECT_PART];
        struct {
            uint64_t key[INFER_TOP];
            float x[INFER_TOP], w[INFER_TOP], w_temp[INFER_TOP];
            int id[INFER_TOP];
            float raw[INFER_EDITS_MAX];
        } top;
    };
    dev_draw draw;
    uint64_t floor;       // the parts have left all candidates not below it
    double sum, sum_temp; // of the row
    float x0, scale;      // the greatest; of the draw
    int n, n_top, token, last;
    bool all; // the first ones are all candidates that there are
    float chosen;
    int seq, want; // of the step
};

DEV float edited(float x, const infer_edit &e) {
    x = __fadd_rn(x, e.add);
    x = x > 0 ? __fdiv_rn(x, e.ratio) : __fmul_rn(x, e.ratio);
    return __fsub_rn(x, e.less);
}
DEV double draw_scale(const dev_draw &d) {
    if (d.n_edit < 0) return 1;
    for (int i = 0; i < 4 && d.order[i]; i++)
        if (d.order[i] == INFER_DRAW_TEMP) return 1 / (double)d.temp;
    return 1;
}

// This block's part as the draw changes it: keys of SELECT_PER tokens a thread, SELECT_THREADS apart. best: the greatest logit
// as it is.
DEV void load_part(const select_job &j, select_space &s, const float *row, int base,
                   uint32_t (&key)[SELECT_PER], uint64_t &best) {
    const dev_draw &d = s.draw;
    const int tid = threadIdx.x;
    float x[SELECT_PER];
    best = 0;
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        const int id = base + i * SELECT_THREADS + tid;
        x[i] = id < j.n_vocab ? __ldcg(row + id) : NAN;
    }
    if (d.n_edit < 0) {
#pragma unroll
        for (int i = 0; i < SELECT_PER; i++)
            if (x[i] == x[i]) best = max(best, order_key(float_key(x[i]), base + i * SELECT_THREADS + tid));
    }
    if (d.n_edit > 0) {
#pragma unroll
        for (int i = 0; i < SELECT_PER; i++) s.x[i * SELECT_THREADS + tid] = x[i];
        __syncthreads();
#pragma unroll 1
        for (int i = tid; i < d.n_edit; i += SELECT_THREADS) {
            const infer_edit e = d.edit[i];
            const int at = e.id - base;
            if (at >= 0 && at < SELECT_PART) s.x[at] = edited(s.x[at], e);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SELECT_PER; i++) x[i] = s.x[i * SELECT_THREADS + tid];
    }
    const bool masked = d.n_edit >= 0 && d.mask;
    if (masked) {
        if (tid < SELECT_PART / 64 && base + tid * 64 < j.n_vocab) s.mask[tid] = d.mask[base / 64 + tid];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        const int at = i * SELECT_THREADS + tid;
        const bool may = is_finite(x[i]) && (!masked || (s.mask[at >> 6] >> (at & 63) & 1));
        key[i] = may ? float_key(x[i]) : 0;
    }
}

DEV void scan_part(const select_job &j, select_space &s, bool list, int row, int part) {
    block_state b = {&s.block, 0};
    const int base = part * SELECT_PART;
    const size_t at = (size_t)row * j.parts + part;
    uint32_t key[SELECT_PER];
    uint64_t best;
    if (threadIdx.x == 0) s.n = 0;
    load_part(j, s, j.logits.p + row * j.logits.stride, base, key, best);
    if (s.draw.n_edit < 0) {
        best = block_max(b, best);
        if (threadIdx.x == 0) j.best[at] = best;
        if (!list) return;
    }
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) most = max(most, key[i]);
    most = block_max(b, most);
    auto low = [&](int i) { return (uint32_t) ~(base + i * SELECT_THREADS + (int)threadIdx.x); };
    const uint64_t cut = most ? first_keys(b, key, most, INFER_TOP, INFER_TOP, low) : (uint64_t)1 << 32;
    const float greatest = key_float(most);
    float2 sum = {0, 0};
    int mine = 0;
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        if (!key[i]) continue;
        const float away = key_float(key[i]) - greatest;
        sum.x += weight_of(away, 1);
        sum.y += weight_of(away, s.scale);
        mine += ((uint64_t)key[i] << 32 | low(i)) >= cut;
    }
    int place = claim(&s.n, mine);
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        const uint64_t k = (uint64_t)key[i] << 32 | low(i);
        if (key[i] && k >= cut) j.found[at * INFER_TOP + place++] = k;
    }
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) s.block.d[threadIdx.x >> 5] = sum;
    __syncthreads(); // and all have counted
    for (int i = s.n + threadIdx.x; i < INFER_TOP; i += SELECT_THREADS) j.found[at * INFER_TOP + i] = 0;
    if (threadIdx.x == 0) {
        sum = s.block.d[0];
        for (int i = 1; i < SELECT_WARPS; i++) sum.x += s.block.d[i].x, sum.y += s.block.d[i].y;
        j.sums[at] = make_float4(greatest, sum.x, sum.y, most ? 1 : 0);
        j.cut[at] = cut;
    }
}

// ---- the whole row from its parts
// One warp: the row's sums, down to where the parts have left all candidates, and its greatest logit.
DEV void join_sums(const select_job &j, select_space &s, int row) {
    const int lane = threadIdx.x & 31;
    const size_t at = (size_t)row * j.parts;
    float4 v[2];
    uint64_t floor = 0, best = 0;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int p = lane + 32 * i;
        v[i] = p < j.parts ? __ldcg(j.sums + at + p) : make_float4(0, 0, 0, 0);
        if (p < j.parts) floor = max(floor, __ldcg(j.cut + at + p));
        if (p < j.parts && s.draw.n_edit < 0) best = max(best, __ldcg(j.best + at + p));
        if (v[i].w != 0) most = max(most, float_key(v[i].x));
    }
    most = __reduce_max_sync(~0u, most);
    const float x0 = most ? key_float(most) : 0;
    double sum = 0, sum_temp = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (v[i].w == 0) continue;
        sum += v[i].y * weight_of(v[i].x - x0, 1);
        sum_temp += v[i].z * weight_of(v[i].x - x0, s.scale);
    }
    sum = warp_sum(sum), sum_temp = warp_sum(sum_temp);
    floor = warp_max(floor);
    if (s.draw.n_edit < 0) best = warp_max(best);
    if (lane) return;
    s.sum = sum, s.sum_temp = sum_temp, s.x0 = x0, s.floor = floor;
    s.token = best ? (int)~(uint32_t)best : -1;
    s.chosen = best ? key_float((uint32_t)(best >> 32)) : 0;
}

// The candidates that the parts have left, of a thread; 0: none.
template <int N> struct found_keys {
    enum { KEPT = N <= JOIN_FEW }; // weights, where there are registers for them
    uint32_t key[N], low[N], kept[KEPT ? N : 1];
    float x0, scale;
    MEM void load(const select_job &j, int row) {
        const uint64_t *found = j.found + (size_t)row * j.parts * INFER_TOP;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int at = i * SELECT_THREADS + (int)threadIdx.x;
            const uint64_t k = at < j.parts * INFER_TOP ? __ldcg(found + at) : 0;
            key[i] = (uint32_t)(k >> 32), low[i] = (uint32_t)k;
        }
    }
    MEM uint32_t weigh(int i) const { // in 2^-31, which are 32 bits
        return key[i] ? __float2uint_rn(weight_of(key_float(key[i]) - x0, scale) * 0x1p31f) : 0;
    }
    MEM void weigh(float greatest, float to) {
        x0 = greatest, scale = to;
#pragma unroll
        for (int i = 0; KEPT && i < N; i++) kept[i] = weigh(i);
    }
    MEM uint32_t weight(int i) const { return KEPT ? kept[KEPT ? i : 0] : weigh(i); }
    MEM measure above(block_state &b, uint64_t cut) const {
        measure m = measure_keys<true>(
            b, key, cut, [&](int i) { return low[i]; }, [&](int i) { return weight(i); });
        m.w <<= 9;
        return m;
    }
    template <class F> MEM void each(F f) const {
#pragma unroll
        for (int i = 0; i < N; i++) f((uint64_t)key[i] << 32 | low[i], (uint64_t)weight(i) << 9);
    }
};

// The first INFER_TOP of the row, sorted, and its sums.
template <int N> DEV void join_parts(const select_job &j, select_space &s, const found_keys<N> &f, int row) {
    block_state b = {&s.block, 0};
    const int tid = threadIdx.x;
    // a token has no use for just so many
    const int will_do = s.want & WANT_TOP ? INFER_TOP : INFER_TOP * 3 / 4;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < N; i++) most = max(most, f.key[i]);
    if (tid < INFER_TOP) s.top.key[tid] = 0;
    if (tid == 0) s.n_top = 0;
    most = block_max(b, most);
    const uint64_t cut = most
                             ? first_keys(b, f.key, most, INFER_TOP, will_do, [&](int i) { return f.low[i]; })
                             : (uint64_t)1 << 32;
    int mine = 0;
    auto first = [&](int i) { return f.key[i] && ((uint64_t)f.key[i] << 32 | f.low[i]) >= cut; };
#pragma unroll
    for (int i = 0; i < N; i++) mine += first(i);
    int at = claim(&s.n_top, mine);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (first(i)) s.top.key[at++] = (uint64_t)f.key[i] << 32 | f.low[i];
    __syncthreads();
    if (tid < s.n_top) {
        const uint64_t k = s.top.key[tid];
        int place = 0;
#pragma unroll 8
        for (int i = 0; i < INFER_TOP; i++) place += s.top.key[i] > k;
        const float x = key_float((uint32_t)(k >> 32)), away = x - key_float(most);
        s.top.id[place] = (int)~(uint32_t)k;
        s.top.x[place] = x;
        s.top.w[place] = weight_of(away, 1);
        s.top.w_temp[place] = weight_of(away, s.scale);
    }
    if (tid == 0) s.all = cut == (uint64_t)1 << 32;
    if (tid >= SELECT_THREADS - 32) join_sums(j, s, row); // while the others sort
    __syncthreads();
}

// Four candidates a lane: their weights and the sums up to each.
struct lane_sums {
    float w[4];
    double c[4];
};
DEV void weigh_top(const float *w, int n, lane_sums &l) {
    double sum = 0;
    const int lane = threadIdx.x & 31;
    for (int i = 0; i < 4; i++) {
        l.w[i] = lane * 4 + i < n ? w[lane * 4 + i] : 0;
        l.c[i] = sum += l.w[i];
    }
    double before = sum;
    for (int o = 1; o < 32; o <<= 1) {
        const double v = __shfl_up_sync(~0u, before, o);
        if (lane >= o) before += v;
    }
    before -= sum;
    for (int i = 0; i < 4; i++) l.c[i] += before;
}
// How many of the first n are chosen, where those that are come first.
template <class F> DEV int warp_prefix(int n, F chosen) {
    int k = 0;
    for (int i = 0; i < 4; i++) k += (int)(threadIdx.x & 31) * 4 + i < n && chosen(i);
    return (int)__reduce_add_sync(~0u, (unsigned)k);
}
DEV double least_of(const dev_draw &d, float x0, double scale) {
    return x0 + log((double)d.min_p) / scale - FLT_EPSILON * fabs((double)x0);
}
// The place of the drawn token among the first; -1: the row has to tell. One warp; draw_from_top of seam/draw.c.
DEV int draw_from_top(const select_space &s) {
    const dev_draw &d = s.draw;
    int n = s.all ? s.n_top : KEPT_ALL;
    double scale = 1, all = s.sum;
    bool known = false; // l
    lane_sums l = {};
    const float *weights = s.top.w;
    auto sum_of = [&](int m) { // of the first m, m > 0
        double v = l.c[3];
        for (int i = 2; i >= 0; i--)
            if ((m - 1) % 4 == i) v = l.c[i];
        return __shfl_sync(~0u, v, (m - 1) / 4);
    };
#pragma unroll 1
    for (int k = 0; k <= 4; k++) {
        const int step = k < 4 ? d.order[k] : INFER_DRAW_END;
        if (step == INFER_DRAW_TOP_K) {
            if (d.top_k <= s.n_top)
                n = n >= 0 && n < d.top_k ? n : d.top_k;
            else if (n == KEPT_ALL)
                n = KEPT_BEYOND;
        } else if (step == INFER_DRAW_MIN_P) {
            if (d.min_p <= 0) continue;
            const double least = least_of(d, s.x0, scale);
            const int m = warp_prefix(n < 0 ? s.n_top : n,
                                      [&](int i) { return s.top.x[(threadIdx.x & 31) * 4 + i] >= least; });
            if (m < s.n_top || s.all)
                n = m;
            else if (n < 0)
                n = KEPT_BEYOND;
        } else if (step == INFER_DRAW_TEMP) {
            scale = 1 / (double)d.temp, all = s.sum_temp, weights = s.top.w_temp, known = false;
        } else if (step == INFER_DRAW_END || d.top_p < 1) {
            if (n == KEPT_BEYOND) return -1;
            if (!known) weigh_top(weights, s.n_top, l);
            known = true;
            const int seen = n < 0 ? s.n_top : n;
            const double limit = (n < 0 ? all : sum_of(n)) * (step ? (double)d.top_p : d.u);
            const int before =
                warp_prefix(seen, [&](int i) { return step ? l.c[i] < limit : l.c[i] <= limit; });
            if (before == seen && n < 0) return -1;
            if (step) {
                n = min(before + 1, seen);
                continue;
            }
            return before < seen ? before : max(0, warp_prefix(n, [&](int i) { return l.w[i] > 0; }) - 1);
        }
    }
    return 0;
}

// ---- a draw that goes beyond the first candidates: the block looks again and again through those that the parts have left,
// which are the row's first ones down to the floor; if need be through the row.
struct row_keys {
    const float *x; // x[n], edited
    const uint64_t *mask;
    int n;
    float x0, scale;
    MEM void weigh(float greatest, float to) { x0 = greatest, scale = to; }
    template <class F> MEM void each(F f) const {
        enum { AT_ONCE = 16 }; // loads that do not wait for each other
        for (int first = threadIdx.x; first < n; first += AT_ONCE * SELECT_THREADS) {
            float v[AT_ONCE];
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++) v[a] = __ldcg(x + min(first + a * SELECT_THREADS, n - 1));
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++) {
                const int i = first + a * SELECT_THREADS;
                if (i >= n || !is_finite(v[a]) || (mask && !(mask[i >> 6] >> (i & 63) & 1))) continue;
                f(order_key(float_key(v[a]), i), __float2ull_rn(weight_of(v[a] - x0, scale) * 0x1p40f));
            }
        }
    }
    MEM measure above(block_state &b, uint64_t cut) const {
        int count = 0;
        uint64_t sum = 0;
        each([&](uint64_t k, uint64_t w) {
            if (k >= cut) count++, sum += w;
        });
        return block_measure<true>(b, count, sum);
    }
};
// The greatest cut, not below lo, behind which is enough; 0: it cannot be told. By weight: that is at least this share of the
// weight behind lo (over: more), or of all where all candidates are still kept, which weigh so much.
template <class K>
DEV uint64_t cut_keys(block_state &b, const K &keys, uint64_t lo, uint64_t floor, float x0, aim a,
                      double share, bool over, double all) {
    const uint64_t from = max(lo, floor);
    bounds v = {from, (uint64_t)(float_key(x0) + 1) << 32, {0, 0}, {0, 0}};
    uint64_t at = from;
#pragma unroll 1
    for (int round = -1;; round++) {
        const measure m = keys.above(b, at);
        if (round < 0) {
            if (a.by_weight) {
                const double w = (lo == 1 ? all * 0x1p40 : (double)m.w) * share;
                a.w = over ? __double2ull_rd(w) + 1 : __double2ull_ru(w);
            }
            if (!is_enough(a, m)) return from == lo ? lo : 0;
        }
        if (is_enough(a, m))
            v.lo = at, v.at_lo = m;
        else
            v.hi = at, v.at_hi = m;
        if (is_found(v)) return v.lo;
        if (v.at_lo.n - v.at_hi.n <= FEW) break;
        at = between(v, a, round + 1);
    }
    return among_few(*b.s, v, a, [&](auto f) { keys.each(f); });
}
// The key of the token that is drawn; 0: it cannot be told. All threads. Keys are all those not below floor; 1: all.
template <class K> DEV uint64_t draw_from(select_space &s, K &keys, uint64_t floor) {
    block_state b = {&s.block, 0};
    const dev_draw &d = s.draw;
    uint64_t cut = 1; // all
    double scale = 1, all = s.sum;
    keys.weigh(s.x0, 1);
#pragma unroll 1
    for (int k = 0; k <= 4 && cut; k++) {
        const int step = k < 4 ? d.order[k] : INFER_DRAW_END;
        if (step == INFER_DRAW_MIN_P) {
            if (d.min_p <= 0) continue;
            cut = max(cut, (uint64_t)float_key(__double2float_ru(least_of(d, s.x0, scale))) << 32);
            if (cut < floor) return 0;
        } else if (step == INFER_DRAW_TEMP) {
            scale = 1 / (double)d.temp, all = s.sum_temp;
            keys.weigh(s.x0, s.scale);
        } else if (step != INFER_DRAW_TOP_P || d.top_p < 1) {
            const bool count = step == INFER_DRAW_TOP_K;
            cut = cut_keys(b, keys, cut, floor, s.x0, aim{count ? d.top_k : 1, 0, !count},
                           step ? (double)d.top_p : d.u, !step, all);
            if (!step) break;
        }
    }
    if (cut < floor) return 0;
    uint64_t last = 0; // the complement's maximum: the last that is kept and weighs anything
    keys.each([&](uint64_t k, uint64_t w) {
        if (k >= cut && k && w) last = max(last, ~k);
    });
    return ~block_max(b, last);
}
// Through the row: the edits stand in it meanwhile.
__device__ __noinline__ uint64_t draw_from_row(const select_job &j, select_space &s, int row) {
    const dev_draw &d = s.draw;
    float *x = j.logits.p + row * j.logits.stride;
    for (int i = threadIdx.x; i < d.n_edit; i += SELECT_THREADS) {
        const infer_edit e = d.edit[i];
        s.top.raw[i] = __ldcg(x + e.id);
        x[e.id] = edited(s.top.raw[i], e);
    }
    __threadfence_block();
    __syncthreads();
    row_keys keys = {x, d.mask, j.n_vocab, 0, 0};
    const uint64_t k = draw_from(s, keys, 1);
    __syncthreads();
    for (int i = threadIdx.x; i < d.n_edit; i += SELECT_THREADS) x[d.edit[i].id] = s.top.raw[i];
    return k;
}

// ---- the result
DEV void give_token(const select_job &j, const select_space &s, int row, int slot, int token) {
    const bool wanted = s.want & WANT_TOKEN;
    // -1: no logit is finite, which the host tells; the next step has an embedding all the same
    j.token[row] = wanted ? token : -1;
    if (j.ring.host)
        ((int32_t *)(j.ring.host + (size_t)(s.seq % CUDA_FLIGHT) * j.ring.row))[row] = wanted ? token : -1;
    if (wanted) j.t.slot_last[slot] = max(token, 0);
}
DEV void give_top(const select_job &j, const select_space &s, int row) {
    uint8_t *at = j.ring.host ? j.ring.host + (size_t)(s.seq % CUDA_FLIGHT) * j.ring.row + j.top_offset
                              : (uint8_t *)j.token + j.top_offset;
    infer_top *t = (infer_top *)at + row;
    const int i = threadIdx.x;
    if (i == 0) t->sum = s.sum, t->sum_temp = s.sum_temp, t->n = s.n_top, t->chosen = s.chosen;
    if (i < INFER_TOP) t->id[i] = i < s.n_top ? s.top.id[i] : 0, t->x[i] = i < s.n_top ? s.top.x[i] : 0;
}

// The greatest of the candidates that the head left of each row.
DEV uint64_t best_candidate(const select_job &j, block_state &b, int row) {
    uint64_t best = 0;
    for (int i = threadIdx.x; i < j.n_cand; i += SELECT_THREADS) {
        const float2 c = __ldcg(j.cand + (size_t)row * j.n_cand + i);
        if (c.x > -INFINITY) best = max(best, order_key(float_key(c.x), __float_as_int(c.y)));
    }
    return block_max(b, best);
}

// Whether this block is the last of its row: what the others have left is there.
DEV bool is_last(const select_job &j, select_space &s, int row) {
    __syncthreads();
    if (threadIdx.x == 0) {
        int before; // after what all threads of the block wrote, and before what they read
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(j.arrived + row)
                     : "memory");
        s.last = before == j.parts - 1;
        if (s.last) j.arrived[row] = 0;
    }
    __syncthreads();
    return s.last;
}
// The row from its parts: its first candidates, and the token.
template <int N> DEV void finish_row(const select_job &j, select_space &s, bool list, int row) {
    found_keys<N> f;
    if (!list) {
        if (threadIdx.x < 32) join_sums(j, s, row);
        __syncthreads();
        return;
    }
    f.load(j, row);
    join_parts(j, s, f, row);
    if (s.draw.n_edit < 0) return;
    if (threadIdx.x < 32) {
        const int at = s.n_top ? draw_from_top(s) : 0;
        __syncwarp();
        if (threadIdx.x == 0) {
            s.last = at; // -1: not told
            s.token = s.n_top && at >= 0 ? s.top.id[at] : -1;
            s.chosen = s.n_top && at >= 0 ? s.top.x[at] : 0;
        }
    }
    __syncthreads();
    if (s.last >= 0) return;
    const uint64_t floor = s.floor >> 32 > 1 ? s.floor : 1;
    uint64_t k = draw_from(s, f, floor);
    if (!k) k = draw_from_row(j, s, row);
    if (threadIdx.x == 0) s.token = (int)~(uint32_t)k, s.chosen = key_float((uint32_t)(k >> 32));
    __syncthreads();
}

template <int N> // keys of a thread when the parts are joined
__global__ void __launch_bounds__(SELECT_THREADS, N > JOIN_FEW ? 1 : 2)
    select_kernel(const __grid_constant__ select_job j) {
    __shared__ select_space s;
    const int row = blockIdx.y, part = blockIdx.x;
    pdl_trigger();
    pdl_wait();
    // asked for now, needed later
    const int n_out = j.t.step->n_out, out_row = j.t.out_row[row];
    if (threadIdx.x < CUDA_DRAW_BYTES / 4)
        ((int *)&s.draw)[threadIdx.x] = ((const int *)(j.t.draw + row))[threadIdx.x];
    if (threadIdx.x == 32) s.seq = j.t.step->seq, s.want = j.t.want[row], s.block.n_few = 0;
    __syncthreads();
    if (threadIdx.x == 0) s.scale = (float)draw_scale(s.draw);
    if (row == 0 && part == 0 && threadIdx.x == 0 && j.ring.next) *j.ring.next = s.seq + 1;
    if (row >= n_out) return;
    const int slot = j.t.slot[out_row];
    const bool list = s.draw.n_edit >= 0 || s.want & WANT_TOP;
    if (!list && j.cand) {
        if (part) return;
        block_state b = {&s.block, 0};
        const uint64_t best = best_candidate(j, b, row);
        if (threadIdx.x == 0) give_token(j, s, row, slot, best ? (int)~(uint32_t)best : -1);
        return;
    }
    scan_part(j, s, list, row, part);
    if (!is_last(j, s, row)) return;
    finish_row<N>(j, s, list, row);
    if (threadIdx.x == 0 && !(s.want & WANT_TOKEN)) s.chosen = 0;
    __syncthreads();
    if (s.want & WANT_TOP) give_top(j, s, row);
    if (threadIdx.x == 0) give_token(j, s, row, slot, s.token);
}

static bool is_wide(const select_job &j) { return j.parts * INFER_TOP > JOIN_FEW * SELECT_THREADS; }
cudaError_t select_launch(const select_job &j, int n, op_queue q) {
    return launch_overlapped(is_wide(j) ? select_kernel<JOIN_MOST> : select_kernel<JOIN_FEW>,
                             dim3(j.parts, n), SELECT_THREADS, 0, q.overlap, q.stream, j);
}
