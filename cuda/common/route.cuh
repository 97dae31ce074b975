// OP_ROUTE of one row by one warp, expert e in lane e % 32: the sums of router.c in its order, so that its choices are the same bits
// wherever they are made.
#pragma once
#include "cuda/common/util.cuh"
#include "seam/router.h"

struct route_scratch { // in shared memory
    float s[ROUTE_EXPERTS_MAX];
    alignas(16) uint32_t key[ROUTE_EXPERTS_MAX];
    uint32_t group[ROUTE_GROUPS_MAX];
    bool kept[ROUTE_GROUPS_MAX];
    // the result: experts of the row and their weights
    int id[ROUTE_USED_MAX];
    float w[ROUTE_USED_MAX];
};

// The expert that stands in a choice, one of the n there are whatever the memory holds: an operation that is measured alone reads what
// others have left there.
DEV int route_expert(float choice, int n) { return min(max((int)choice, 0), n - 1); }
// The matrix of a stack of n, which has the experts from `first` on of n_all (0: all of n); -1: another rank has it.
DEV int route_matrix(float choice, int n, int first, int n_all) {
    if (!n_all) return route_expert(choice, n);
    const int e = route_expert(choice, n_all) - first;
    return e >= 0 && e < n ? e : -1;
}

// The index of the greatest key, the lowest on ties; of all lanes.
DEV int route_first(const uint32_t *key, int n, int lane) {
    uint32_t best = 0;
    int at = n;
#pragma unroll 1
    for (int i = lane; i < n; i += 32)
        if (at == n || key[i] > best) best = key[i], at = i;
    const uint32_t top = __reduce_max_sync(~0u, best);
    return __reduce_min_sync(~0u, best == top ? at : n);
}
DEV float router_value(uint32_t key) { return router_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// (Loops that are rare or short stay loops: this is code that a kernel runs once.)
// Logits in m.s to scores.
DEV void route_act(const router &r, route_scratch &m, int lane) {
    float top = -INFINITY, sum = 0.f;
    if (r.act == ROUTE_SIGMOID)
#pragma unroll 1
        for (int e = lane; e < r.n_expert; e += 32) m.s[e] = router_sigmoid(m.s[e]);
    if (r.act == ROUTE_SOFTMAX) {
#pragma unroll 1
        for (int e = lane; e < r.n_expert; e += 32)
            if (m.s[e] > top) top = m.s[e];
#pragma unroll
        for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
#pragma unroll 1
        for (int e = lane; e < r.n_expert; e += 32) {
            m.s[e] = router_exp(__fadd_rn(m.s[e], -top));
            sum = __fadd_rn(sum, m.s[e]);
        }
#pragma unroll
        for (int o = ROUTER_PARTS / 2; o; o >>= 1) sum = __fadd_rn(sum, __shfl_down_sync(~0u, sum, o));
        sum = __shfl_sync(~0u, sum, 0);
#pragma unroll 1
        for (int e = lane; e < r.n_expert; e += 32) m.s[e] = __fdiv_rn(m.s[e], sum);
    }
    __syncwarp();
}
template <class F> DEV void route_scores(const router &r, F logit, route_scratch &m, int lane) {
#pragma unroll 1
    for (int e = lane; e < r.n_expert; e += 32) m.s[e] = router_logit(&r, logit(e));
    if (!router_by_logit(&r)) route_act(r, m, lane);
#pragma unroll 1
    for (int e = lane; e < r.n_expert; e += 32)
        m.key[e] = router_key(r.bias ? __fadd_rn(m.s[e], r.bias[e]) : m.s[e]);
    __syncwarp();
}
DEV void route_groups(const router &r, route_scratch &m, int lane) {
    const int size = r.n_expert / r.n_group;
#pragma unroll 1
    for (int g = lane; g < r.n_group; g += 32) {
        uint32_t best = 0, next = 0;
#pragma unroll 1
        for (int i = g * size; i < (g + 1) * size; i++) {
            const uint32_t k = m.key[i];
            if (k > best)
                next = best, best = k;
            else if (k > next)
                next = k;
        }
        m.group[g] =
            r.group_top2 && size > 1 ? router_key(__fadd_rn(router_value(best), router_value(next))) : best;
        m.kept[g] = false;
    }
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < r.n_group_used; i++) {
        const int g = route_first(m.group, r.n_group, lane);
        __syncwarp();
        if (lane == 0) m.kept[g] = true, m.group[g] = 0;
        __syncwarp();
    }
#pragma unroll 1
    for (int e = lane; e < r.n_expert; e += 32)
        if (!m.kept[e / size]) m.key[e] = 0;
    __syncwarp();
}
DEV void route_choose(const router &r, route_scratch &m, int lane) {
#pragma unroll 1
    for (int j = 0; j < r.n_used; j++) {
        const int e = route_first(m.key, r.n_expert, lane);
        __syncwarp();
        if (lane == 0) m.key[e] = 0, m.id[j] = e;
        __syncwarp();
    }
}
// Up to 32 N experts without groups: keys in registers, those of expert lane + 32 i in the ith. logits(v, n, lane) gives a lane's.
template <int N, class F> DEV void route_few(const router &r, F logits, route_scratch &m, int lane) {
    float s[N], bias[N];
    uint32_t key[N], most = 0;
#pragma unroll
    for (int i = 0; i < N; i++) bias[i] = r.bias && lane + 32 * i < r.n_expert ? r.bias[lane + 32 * i] : 0.f;
    logits(s, r.n_expert, lane);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < r.n_expert) m.s[lane + 32 * i] = s[i] = router_logit(&r, s[i]);
    if (!router_by_logit(&r)) {
        route_act(r, m, lane);
#pragma unroll
        for (int i = 0; i < N; i++) s[i] = m.s[lane + 32 * i];
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        key[i] = lane + 32 * i < r.n_expert ? router_key(r.bias ? __fadd_rn(s[i], bias[i]) : s[i]) : 0;
        most = max(most, key[i]);
    }
#pragma unroll 1
    for (int j = 0; j < r.n_used; j++) {
        const uint32_t top = __reduce_max_sync(~0u, most), who = __ballot_sync(~0u, most == top);
        int at = 0;
#pragma unroll
        for (int i = N - 1; i >= 0; i--)
            if (key[i] == top) at = i;
        int first = __ffs(who) - 1;
        if (who & (who - 1)) // a tie: the lowest index
            first = __reduce_min_sync(~0u, most == top ? lane + 32 * at : 32 * N) & 31;
        if (lane != first) continue;
        m.id[j] = lane + 32 * at;
        most = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i == at) key[i] = 0;
            most = max(most, key[i]);
        }
    }
    __syncwarp();
}
enum { ROUTE_FEW = 256 };
DEV bool route_is_few(const router &r) { return r.n_expert <= ROUTE_FEW && r.n_group <= 1; }
// Of one row, logit(e) its logits: m.id[n_used] for all lanes.
template <class F> DEV void route_pick_any(const router &r, F logit, route_scratch &m, int lane) {
    auto few = [&](auto &v, int n, int l) {
#pragma unroll
        for (int i = 0; i < (int)(sizeof v / sizeof *v); i++)
            v[i] = l + 32 * i < n ? logit(l + 32 * i) : -INFINITY;
    };
    if (!route_is_few(r)) {
        route_scores(r, logit, m, lane);
        if (r.n_group > 1) route_groups(r, m, lane);
        route_choose(r, m, lane);
    } else if (r.n_expert <= ROUTE_FEW / 2)
        route_few<ROUTE_FEW / 64>(r, few, m, lane);
    else
        route_few<ROUTE_FEW / 32>(r, few, m, lane);
}
// From the scores of the chosen ones in m.w to what they weigh.
DEV void route_share(const router &r, route_scratch &m, int lane) {
    float sum = 0.f;
#pragma unroll 1
    for (int j = 0; j < r.n_used; j++) sum = __fadd_rn(sum, m.w[j]);
    const float divisor = router_divisor(&r, sum);
    __syncwarp();
#pragma unroll 1
    for (int j = lane; j < r.n_used; j += 32)
        m.w[j] = router_weight(&r, m.w[j], divisor, r.expert_scale ? r.expert_scale[m.id[j]] : 1.f);
    __syncwarp();
}
// What the chosen ones weigh: m.w[n_used].
DEV void route_weights(const router &r, route_scratch &m, int lane) {
    if (router_by_logit(&r)) route_act(r, m, lane);
    float sum = 0.f, top = -INFINITY;
#pragma unroll 1
    for (int j = lane; j < r.n_used; j += 32) m.w[j] = m.s[m.id[j]];
    __syncwarp();
    if (r.act == ROUTE_CHOSEN) { // the sums are few: each lane makes them
#pragma unroll 1
        for (int j = 0; j < r.n_used; j++)
            if (m.w[j] > top) top = m.w[j];
        __syncwarp();
#pragma unroll 1
        for (int j = lane; j < r.n_used; j += 32) m.w[j] = router_exp(__fadd_rn(m.w[j], -top));
        __syncwarp();
#pragma unroll 1
        for (int j = 0; j < r.n_used; j++) sum = __fadd_rn(sum, m.w[j]);
        __syncwarp();
#pragma unroll 1
        for (int j = lane; j < r.n_used; j += 32) m.w[j] = __fdiv_rn(m.w[j], sum);
        __syncwarp();
    }
    route_share(r, m, lane);
}
// Of one row, logit(e) its logits: m.id[n_used] and m.w[n_used] for all lanes.
template <class F> DEV void route_row(const router &r, F logit, route_scratch &m, int lane) {
    route_pick_any(r, logit, m, lane);
    route_weights(r, m, lane);
}
