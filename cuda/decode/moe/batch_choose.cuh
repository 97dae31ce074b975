// The experts of few rows, which each block of experts_batch.cuh chooses by itself from the router's logits.
#pragma once
#include "cuda/common/route.cuh"
#include "cuda/decode/moe/experts_batch.h"

// The order of few rows.
struct batch_few {
    int4 item[1 + BATCH_FEW_PAIRS];
    int key[BATCH_FEW_PAIRS], pair[BATCH_FEW_PAIRS];
};
static_assert(sizeof(batch_few) <= BATCH_LISTS, "the list of few rows");
// The choice of a row by each of the first warps, and the order of their pairs: of all threads.
DEV void batch_choose(const batch_run &r, batch_few &f, route_scratch *scratch) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tid = threadIdx.x, n_row = *r.n_row,
              n_pair = r.gated.n_pair, shared = r.gated.w_shared != NULL, n = n_row * n_pair;
    if (warp < BATCH_FEW) { // those behind n_row are not waited for to be known
        route_scratch &m = scratch[warp];
        const float *logits = r.logits.p + warp * r.logits.stride;
        route_pick_any(
            r.route, [&](int i) { return __ldcg(logits + i); }, m, lane);
        for (int i = lane; i < n_pair && warp < n_row; i += 32)
            f.key[warp * n_pair + i] = i < shared ? 0 : m.id[i - shared] + shared;
    }
    barrier_fence(); // row tiles come where the scratch is
    __syncthreads();
    int before = 0, less = 0, same = 0;
    const int own = tid < n ? f.key[tid] : 0;
    if (tid < n)
#pragma unroll 4
        for (int q = 0; q < n; q++) {
            const int k = f.key[q];
            less += k < own;
            same += k == own;
            before += k == own && q < tid;
        }
    if (tid < n) f.pair[less + before] = tid;
    const bool leads = tid < n && !before;
    // its item is behind those of lower experts
    const int count = __syncthreads_count(leads);
    if (leads) {
        int i = 1, last = -1;
#pragma unroll 4
        for (int q = 0; q < less; q++) {
            const int k = f.key[f.pair[q]];
            i += k != last;
            last = k;
        }
        f.item[i] = make_int4(own - shared, less, same, 0);
    }
    if (tid == 0) f.item[0] = make_int4(count, 0, 0, 0);
    __syncthreads();
}
// What the chosen ones weigh, for their sum: by one block, while its first row tiles are on their way.
DEV void batch_weigh(const batch_run &r, route_scratch *scratch) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (blockIdx.x || warp >= *r.n_row) return;
    route_scratch &m = scratch[warp];
    float *out = r.choice.p + warp * r.choice.stride;
    route_weights(r.route, m, lane);
    for (int i = lane; i < r.route.n_used; i += 32) {
        out[i] = (float)m.id[i];
        out[r.route.n_used + i] = m.w[i];
    }
    barrier_fence();
}
