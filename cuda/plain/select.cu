// select: the greatest logit of a row, or a token drawn from it (infer_draw.h). A row is cut into parts of SELECT_PART tokens,
// a block each: it leaves the first INFER_TOP candidates of its part and the sums of their exponentials; the block that comes
// last takes the first of all parts and draws. Sums have one order for a vocabulary. Candidates are ordered by a key of 64
// bits: the float's bits so that they ascend with it, then the id's complement; 0: no candidate.
#include <float.h>
#include "cuda/common/launch.h"
#include "cuda/common/util.cuh"
#include "cuda/plain/select.h"

enum { SELECT_THREADS = 256, SELECT_PER = SELECT_PART / SELECT_THREADS, SELECT_WARPS = SELECT_THREADS / 32 };
enum { SELECT_JOIN = SELECT_PARTS_MAX * INFER_TOP / SELECT_THREADS };
enum {
    KEPT_ALL = -1,
    KEPT_BEYOND = -2
}; // all candidates; a number above INFER_TOP that only the row can tell

DEV uint32_t float_key(float x) {
    const uint32_t b = __float_as_uint(__fadd_rn(x, 0.f)); // one zero
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
DEV float key_float(uint32_t k) { return __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k); }
DEV bool is_finite(float x) { return x - x == 0; }
DEV uint64_t order_key(uint32_t key, int id) { return key ? (uint64_t)key << 32 | (uint32_t)~id : 0; }
DEV float edited(float x, const infer_edit &e) {
    x = __fadd_rn(x, e.add);
    x = x > 0 ? __fdiv_rn(x, e.ratio) : __fmul_rn(x, e.ratio);
    return __fsub_rn(x, e.less);
}

// ---- sums and maxima of the block; every thread gets them. Two places in turn: one barrier each.
struct block_space {
    double d[2][2][SELECT_WARPS];
    uint64_t u[2][SELECT_WARPS];
    int n[2][SELECT_WARPS];
};
struct block_state {
    block_space *s;
    int turn;
};
DEV int block_count(block_state &b, int v) {
    int *at = b.s->n[b.turn ^= 1];
    v = __reduce_add_sync(~0u, v);
    if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < SELECT_WARPS; i++) v += at[i];
    return v;
}
DEV double warp_sum(double v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
DEV double2 block_sum(block_state &b, double x, double y) {
    double(*at)[SELECT_WARPS] = b.s->d[b.turn ^= 1];
    x = warp_sum(x), y = warp_sum(y);
    if ((threadIdx.x & 31) == 0) at[0][threadIdx.x >> 5] = x, at[1][threadIdx.x >> 5] = y;
    __syncthreads();
    x = y = 0;
    for (int i = 0; i < SELECT_WARPS; i++) x += at[0][i], y += at[1][i];
    return make_double2(x, y);
}
DEV uint64_t block_max(block_state &b, uint64_t v) {
    uint64_t *at = b.s->u[b.turn ^= 1];
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(~0u, v, o));
    if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < SELECT_WARPS; i++) v = max(v, at[i]);
    return v;
}

// ---- the first k of the block's keys
// key[N] of each thread, 0: none; low(i): the low half of the order of key i. The first k are those not below what is returned.
template <int N, class F>
DEV uint64_t first_keys(block_state &b, const uint32_t (&key)[N], uint32_t most, int k, F low) {
    uint32_t lo = 1, hi = most + 1, t = 1; // more than k keys are at least lo, fewer at least hi
    int at_hi = 0;
    for (int round = 0; hi > lo; round++) {
        int n = 0;
#pragma unroll
        for (int i = 0; i < N; i++) n += key[i] >= t;
        n = block_count(b, n);
        if (n == k || (n < k && t == 1)) return (uint64_t)t << 32;
        if (n > k)
            lo = t;
        else
            hi = t, at_hi = n;
        if (hi - lo == 1) break;
        const float top = key_float(most), middle = 0.5f * (key_float(lo) + key_float(hi));
        t = float_key(lo == 1 ? top - (float)(4 << min(round, 20))
                              : middle); // halves what the values span, as a rule
        if (t <= lo || t >= hi || round > 40) t = lo + (hi - lo) / 2;
    }
    const int left = k - at_hi; // of the equal ones, the lowest ids
    uint64_t from = 0,
             to = (uint64_t)1 << 32; // low halves: those at least from are too many, at least to too few
    while (to - from > 1) {
        const uint64_t mid = from + (to - from) / 2;
        int n = 0;
#pragma unroll
        for (int i = 0; i < N; i++) n += key[i] == lo && low(i) >= mid;
        n = block_count(b, n);
        if (n == left) {
            from = mid;
            break;
        }
        if (n > left)
            from = mid;
        else
            to = mid;
    }
    return (uint64_t)lo << 32 | from;
}

// ---- a part of a row
struct select_space {
    block_space block;
    uint64_t mask[SELECT_PART / 64];
    union {
        float x[SELECT_PART];
        struct {
            uint64_t key[INFER_TOP];
            float x[INFER_TOP];
            int id[INFER_TOP];
            float raw[INFER_EDITS_MAX];
        } top;
    };
    double sum, sum_temp, x0; // of the row
    int n, n_top, token, last;
    float chosen;
};

DEV double draw_scale(const dev_draw &d) {
    if (d.n_edit < 0) return 1;
    for (int i = 0; i < 4 && d.order[i]; i++)
        if (d.order[i] == INFER_DRAW_TEMP) return 1 / (double)d.temp;
    return 1;
}

// This block's part as the draw changes it: keys of SELECT_PER tokens a thread, SELECT_THREADS apart. best: the greatest logit
// as it is.
DEV void load_part(const select_job &j, const dev_draw &d, select_space &s, const float *row, int base,
                   uint32_t (&key)[SELECT_PER], uint64_t &best) {
    const int tid = threadIdx.x;
    float x[SELECT_PER];
    best = 0;
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        const int id = base + i * SELECT_THREADS + tid;
        x[i] = id < j.n_vocab ? __ldcg(row + id) : NAN;
        if (x[i] == x[i]) best = max(best, order_key(float_key(x[i]), id));
    }
    if (d.n_edit > 0) {
#pragma unroll
        for (int i = 0; i < SELECT_PER; i++) s.x[i * SELECT_THREADS + tid] = x[i];
        __syncthreads();
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

DEV void scan_part(const select_job &j, const dev_draw &d, bool list, select_space &s, int row, int part) {
    block_state b = {&s.block, 0};
    const int base = part * SELECT_PART;
    const size_t at = (size_t)row * j.parts + part;
    uint32_t key[SELECT_PER];
    uint64_t best;
    if (threadIdx.x == 0) s.n = 0;
    load_part(j, d, s, j.logits.p + row * j.logits.stride, base, key, best);
    best = block_max(b, best);
    if (threadIdx.x == 0) j.best[at] = best;
    if (!list) return;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) most = max(most, key[i]);
    most = (uint32_t)block_max(b, most);
    auto low = [&](int i) { return (uint32_t) ~(base + i * SELECT_THREADS + (int)threadIdx.x); };
    const uint64_t cut = most ? first_keys(b, key, most, INFER_TOP, low) : (uint64_t)1 << 32;
    const float greatest = key_float(most), scale = (float)draw_scale(d);
    float sum = 0, sum_temp = 0;
    int mine = 0;
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        if (!key[i]) continue;
        const float away = key_float(key[i]) - greatest;
        sum += expf(away);
        sum_temp += expf(away * scale);
        mine += ((uint64_t)key[i] << 32 | low(i)) >= cut;
    }
    int place = mine ? atomicAdd(&s.n, mine) : 0; // their order does not matter
#pragma unroll
    for (int i = 0; i < SELECT_PER; i++) {
        const uint64_t k = (uint64_t)key[i] << 32 | low(i);
        if (key[i] && k >= cut) j.found[at * INFER_TOP + place++] = k;
    }
    const double2 sums = block_sum(b, sum, sum_temp); // and all have counted
    for (int i = s.n + threadIdx.x; i < INFER_TOP; i += SELECT_THREADS) j.found[at * INFER_TOP + i] = 0;
    if (threadIdx.x == 0) {
        j.sums[at] = make_float4(greatest, (float)sums.x, (float)sums.y, most ? 1 : 0);
        j.cut[at] = cut;
    }
}

// ---- the whole row from its parts
// The first INFER_TOP of the row, sorted, and its sums.
DEV void join_parts(const select_job &j, const dev_draw &d, select_space &s, int row) {
    block_state b = {&s.block, 0};
    const uint64_t *found = j.found + (size_t)row * j.parts * INFER_TOP;
    const int tid = threadIdx.x, n_found = j.parts * INFER_TOP;
    uint32_t key[SELECT_JOIN], most = 0;
#pragma unroll
    for (int i = 0; i < SELECT_JOIN; i++) {
        const int at = i * SELECT_THREADS + tid;
        key[i] = at < n_found ? (uint32_t)(__ldcg(found + at) >> 32) : 0;
        most = max(most, key[i]);
    }
    if (tid == 0) s.n_top = 0;
    most = (uint32_t)block_max(b, most);
    auto low = [&](int i) { return (uint32_t)__ldcg(found + i * SELECT_THREADS + tid); };
    const uint64_t cut = most ? first_keys(b, key, most, INFER_TOP, low) : (uint64_t)1 << 32;
    uint32_t half[SELECT_JOIN]; // asked for together
    int mine = 0;
#pragma unroll
    for (int i = 0; i < SELECT_JOIN; i++) {
        const bool near = key[i] && key[i] >= (uint32_t)(cut >> 32);
        half[i] = near ? (uint32_t)__ldcg(found + i * SELECT_THREADS + tid) : 0;
    }
#pragma unroll
    for (int i = 0; i < SELECT_JOIN; i++) {
        if (((uint64_t)key[i] << 32 | half[i]) < cut) key[i] = 0;
        mine += key[i] != 0;
    }
    int at = mine ? atomicAdd(&s.n_top, mine) : 0;
#pragma unroll
    for (int i = 0; i < SELECT_JOIN; i++)
        if (key[i]) s.top.key[at++] = (uint64_t)key[i] << 32 | half[i];
    __syncthreads();
    const int n = s.n_top;
    if (tid < n) {
        const uint64_t k = s.top.key[tid];
        int place = 0;
#pragma unroll 16
        for (int i = 0; i < n; i++) place += s.top.key[i] > k;
        s.top.id[place] = (int)~(uint32_t)k;
        s.top.x[place] = key_float((uint32_t)(k >> 32));
    }
    if (tid < 32) {
        double sum = 0, sum_temp = 0;
        const double scale = draw_scale(d);
        for (int p = tid; p < j.parts; p += 32) {
            const float4 v = __ldcg(j.sums + (size_t)row * j.parts + p);
            if (v.w == 0) continue;
            const double away = (double)v.x - (double)key_float(most);
            sum += v.y * exp(away);
            sum_temp += v.z * exp(away * scale);
        }
        sum = warp_sum(sum), sum_temp = warp_sum(sum_temp);
        if (tid == 0) s.sum = sum, s.sum_temp = sum_temp, s.x0 = n ? key_float(most) : 0;
    }
    __syncthreads();
}

// Four candidates a lane: their weights and the sums up to each.
struct lane_sums {
    double w[4], c[4];
};
DEV void weigh(const select_space &s, double scale, lane_sums &l) {
    double sum = 0;
    const int lane = threadIdx.x & 31;
    for (int i = 0; i < 4; i++) {
        const int at = lane * 4 + i;
        l.w[i] = at < s.n_top ? exp(((double)s.top.x[at] - s.x0) * scale) : 0;
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
    return __reduce_add_sync(~0u, k);
}
// The place of the drawn token among the first; -1: the row has to tell. One warp; draw_from_top of seam/draw.c.
DEV int draw_from_top(const select_space &s, const dev_draw &d) {
    int n = s.n_top < INFER_TOP ? s.n_top : KEPT_ALL;
    double scale = 1, all = s.sum;
    lane_sums l;
    weigh(s, scale, l);
    auto seen = [&] { return n < 0 ? s.n_top : n; };
    auto sum_of = [&](int m) { // of the first m, m > 0
        double v = l.c[3];
        for (int i = 2; i >= 0; i--)
            if ((m - 1) % 4 == i) v = l.c[i];
        return __shfl_sync(~0u, v, (m - 1) / 4);
    };
    for (int k = 0; k < 4 && d.order[k]; k++) {
        if (d.order[k] == INFER_DRAW_TOP_K) {
            if (d.top_k <= s.n_top)
                n = n >= 0 && n < d.top_k ? n : d.top_k;
            else if (n == KEPT_ALL)
                n = KEPT_BEYOND;
        } else if (d.order[k] == INFER_DRAW_TOP_P) {
            if (d.top_p >= 1) continue;
            if (n == KEPT_BEYOND) return -1;
            const double limit = (n < 0 ? all : sum_of(n)) * (double)d.top_p;
            const int before = warp_prefix(seen(), [&](int i) { return l.c[i] < limit; });
            if (before < seen())
                n = before + 1;
            else if (n < 0)
                return -1;
        } else if (d.order[k] == INFER_DRAW_MIN_P && d.min_p > 0) {
            const double least = s.x0 + log((double)d.min_p) / scale - FLT_EPSILON * fabs(s.x0);
            const int m =
                warp_prefix(seen(), [&](int i) { return s.top.x[(threadIdx.x & 31) * 4 + i] >= least; });
            if (m < s.n_top || s.n_top < INFER_TOP)
                n = m;
            else if (n < 0)
                n = KEPT_BEYOND;
        } else if (d.order[k] == INFER_DRAW_TEMP) {
            scale = 1 / (double)d.temp, all = s.sum_temp;
            weigh(s, scale, l);
        }
    }
    if (n == KEPT_BEYOND) return -1;
    const double limit = d.u * (n < 0 ? all : sum_of(n));
    const int before = warp_prefix(seen(), [&](int i) { return l.c[i] <= limit; });
    if (before < seen()) return before;
    return n < 0 ? -1 : max(0, warp_prefix(n, [&](int i) { return l.w[i] > 0; }) - 1);
}

// ---- a draw that goes beyond the first candidates: the block looks again and again, some 20 times, through those that the
// parts have left, which are the row's first ones down to floor; if need be through the row.
struct row_walk {
    const uint64_t *found; // found[n]; NULL: the row
    const float *x;        // x[n], edited
    const uint64_t *mask;
    int n;
    uint64_t floor; // what is looked through holds all candidates not below
    double x0, sum, sum_temp;
};
struct measure {
    int n;
    double w;
};
template <class F> DEV void each_key(const row_walk &r, F f) {
    enum { AT_ONCE = 8 };
    for (int first = threadIdx.x; first < r.n; first += AT_ONCE * SELECT_THREADS) {
        uint64_t k[AT_ONCE]; // loads that do not wait for each other
        if (r.found) {
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++)
                k[a] = __ldcg(r.found + min(first + a * SELECT_THREADS, r.n - 1));
        } else {
            float x[AT_ONCE];
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++) x[a] = __ldcg(r.x + min(first + a * SELECT_THREADS, r.n - 1));
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++) {
                const int i = min(first + a * SELECT_THREADS, r.n - 1);
                const bool may = is_finite(x[a]) && (!r.mask || (r.mask[i >> 6] >> (i & 63) & 1));
                k[a] = may ? order_key(float_key(x[a]), i) : 0;
            }
        }
#pragma unroll
        for (int a = 0; a < AT_ONCE; a++)
            if (first + a * SELECT_THREADS < r.n) f(k[a]);
    }
}
DEV float key_weight(const row_walk &r, uint64_t k, float scale) {
    return expf((float)((double)key_float((uint32_t)(k >> 32)) - r.x0) * scale);
}
// Number and weights of the candidates not below cut, which is at least the floor.
__device__ __noinline__ measure measure_row(block_state &b, const row_walk &r, uint64_t cut, float scale) {
    int n = 0;
    float w = 0;
    each_key(r, [&](uint64_t k) {
        if (k < cut) return;
        n++;
        w += key_weight(r, k, scale);
    });
    n = block_count(b, n);
    return measure{n, block_sum(b, w, 0).x};
}
// The greatest cut, not below lo, with at least n candidates that weigh at least (over: more than) w; 0: it cannot be told.
__device__ __noinline__ uint64_t cut_row(block_state &b, const row_walk &r, uint64_t lo, float scale, int n,
                                         double w, bool over) {
    auto enough = [&](measure m) { return m.n >= n && (over ? m.w > w : m.w >= w); };
    uint64_t hi = order_key(float_key((float)r.x0), 0) + 1; // above all: id 0 has the greatest low half
    const uint64_t from = max(lo, r.floor);
    measure at_lo = measure_row(b, r, from, scale), at_hi = {0, 0};
    if (!enough(at_lo)) return from == lo || !r.found ? max(lo, (uint64_t)1) : 0;
    lo = from;
    while (hi - lo > 1 && at_lo.n - at_hi.n > 1) {
        const uint64_t mid = lo + (hi - lo) / 2;
        const measure m = measure_row(b, r, mid, scale);
        if (enough(m))
            lo = mid, at_lo = m;
        else
            hi = mid, at_hi = m;
    }
    return lo;
}
// The key of the token that is drawn; 0: it cannot be told. All threads.
__device__ __noinline__ uint64_t draw_from_row(block_state &b, const row_walk &r, const dev_draw &d) {
    uint64_t cut = 1; // all
    double scale = 1, all = r.sum;
    auto weight = [&] { return cut == 1 ? all : measure_row(b, r, cut, (float)scale).w; };
    for (int k = 0; k < 4 && d.order[k] && cut; k++) {
        if (d.order[k] == INFER_DRAW_TOP_K) {
            cut = cut_row(b, r, cut, (float)scale, d.top_k, 0, false);
        } else if (d.order[k] == INFER_DRAW_TOP_P && d.top_p < 1) {
            cut = cut_row(b, r, cut, (float)scale, 1, weight() * (double)d.top_p, false);
        } else if (d.order[k] == INFER_DRAW_MIN_P && d.min_p > 0) {
            const double least = r.x0 + log((double)d.min_p) / scale - FLT_EPSILON * fabs(r.x0);
            cut = max(cut, (uint64_t)float_key(__double2float_ru(least)) << 32);
            if (cut < r.floor) cut = 0;
        } else if (d.order[k] == INFER_DRAW_TEMP) {
            scale = 1 / (double)d.temp, all = r.sum_temp;
        }
    }
    if (cut) cut = cut_row(b, r, cut, (float)scale, 1, weight() * d.u, true);
    if (cut < r.floor) return 0;
    uint64_t last = 0; // the complement's maximum: the last that is kept and weighs anything
    each_key(r, [&](uint64_t k) {
        if (k >= cut && k && key_weight(r, k, (float)scale) > 0) last = max(last, ~k);
    });
    return ~block_max(b, last);
}
DEV void draw_beyond(const select_job &j, const dev_draw &d, select_space &s, int row) {
    block_state b = {&s.block, 0};
    uint64_t floor = 0;
    for (int p = threadIdx.x; p < j.parts; p += SELECT_THREADS)
        floor = max(floor, __ldcg(j.cut + (size_t)row * j.parts + p));
    floor = block_max(b, floor);
    row_walk r = {j.found + (size_t)row * j.parts * INFER_TOP,
                  NULL,
                  NULL,
                  j.parts * INFER_TOP,
                  floor,
                  s.x0,
                  s.sum,
                  s.sum_temp};
    uint64_t k = draw_from_row(b, r, d);
    if (!k) {
        float *x = j.logits.p + row * j.logits.stride;
        for (int i = threadIdx.x; i < d.n_edit; i += SELECT_THREADS) {
            const infer_edit e = d.edit[i];
            s.top.raw[i] = __ldcg(x + e.id);
            x[e.id] = edited(s.top.raw[i], e);
        }
        __threadfence_block();
        __syncthreads();
        r.found = NULL, r.x = x, r.mask = d.mask, r.n = j.n_vocab, r.floor = 1;
        k = draw_from_row(b, r, d);
        __syncthreads();
        for (int i = threadIdx.x; i < d.n_edit; i += SELECT_THREADS) x[d.edit[i].id] = s.top.raw[i];
    }
    if (threadIdx.x == 0) s.token = (int)~(uint32_t)k, s.chosen = key_float((uint32_t)(k >> 32));
    __syncthreads();
}

// ---- the result
DEV void give_token(const select_job &j, int row, int slot, int seq, int token, bool wanted) {
    j.token[row] = wanted ? token : -1;
    if (j.ring.host)
        ((int32_t *)(j.ring.host + (size_t)(seq % CUDA_FLIGHT) * j.ring.row))[row] = wanted ? token : -1;
    if (wanted) j.t.slot_last[slot] = token;
}
DEV void give_top(const select_job &j, const select_space &s, int row, int seq) {
    uint8_t *at = j.ring.host ? j.ring.host + (size_t)(seq % CUDA_FLIGHT) * j.ring.row + j.top_offset
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

// What a draw or the list of candidates needs; the block that comes last ends it. false: this was not the last.
DEV bool from_parts(const select_job &j, const dev_draw &d, bool list, select_space &s, int row, int part) {
    scan_part(j, d, list, s, row, part);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) s.last = atomicAdd(j.arrived + row, 1) == j.parts - 1;
    __syncthreads();
    if (!s.last) return false;
    __threadfence();
    if (threadIdx.x == 0) j.arrived[row] = 0;
    block_state b = {&s.block, 0};
    uint64_t best = 0;
    for (int p = threadIdx.x; p < j.parts; p += SELECT_THREADS)
        best = max(best, __ldcg(j.best + (size_t)row * j.parts + p));
    best = block_max(b, best);
    if (threadIdx.x == 0) {
        s.token = best ? (int)~(uint32_t)best : 0;
        s.chosen = best ? key_float((uint32_t)(best >> 32)) : 0;
    }
    __syncthreads();
    if (!list) return true;
    join_parts(j, d, s, row);
    if (d.n_edit < 0) return true;
    if (threadIdx.x < 32) {
        const int at = s.n_top ? draw_from_top(s, d) : 0;
        __syncwarp();
        if (threadIdx.x == 0) {
            s.last = at; // -1: not told
            s.token = s.n_top && at >= 0 ? s.top.id[at] : 0;
            s.chosen = s.n_top && at >= 0 ? s.top.x[at] : 0;
        }
    }
    __syncthreads();
    return true;
}

__global__ void __launch_bounds__(SELECT_THREADS) select_kernel(const __grid_constant__ select_job j) {
    __shared__ select_space s;
    pdl_trigger();
    pdl_wait();
    const int row = blockIdx.y, part = blockIdx.x, seq = j.t.step->seq, n_out = j.t.step->n_out;
    // asked for now, needed later
    const int want = j.t.want[row], out_row = j.t.out_row[row];
    const dev_draw d = j.t.draw[row];
    if (row == 0 && part == 0 && threadIdx.x == 0 && j.ring.next) *j.ring.next = seq + 1;
    if (row >= n_out) return;
    const bool list = d.n_edit >= 0 || want & WANT_TOP;
    const int slot = j.t.slot[out_row];
    if (!list && j.cand) {
        block_state b = {&s.block, 0};
        if (part) return;
        const uint64_t best = best_candidate(j, b, row);
        if (threadIdx.x == 0)
            give_token(j, row, slot, seq, best ? (int)~(uint32_t)best : 0, want & WANT_TOKEN);
        return;
    }
    if (!from_parts(j, d, list, s, row, part)) return;
    if (s.last < 0) draw_beyond(j, d, s, row);
    if (threadIdx.x == 0 && !(want & WANT_TOKEN)) s.chosen = 0;
    __syncthreads();
    if (want & WANT_TOP) give_top(j, s, row, seq);
    if (threadIdx.x == 0) give_token(j, row, slot, seq, s.token, want & WANT_TOKEN);
}

cudaError_t select_launch(const select_job &j, int n, op_queue q) {
    return launch_overlapped(select_kernel, dim3(j.parts, n), SELECT_THREADS, 0, q.overlap, q.stream, j);
}
