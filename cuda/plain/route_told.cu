// As route_kernel (experts.cu), a warp a row, of what no fused kernel knows. Scores of ROUTE_ROOT are those of router.c, which chooses by
// logits where that is the same choice.
#include "cuda/plain/route_told.h"
#include "cuda/plain/plain.cuh"
#include "cuda/common/route.cuh"

// What the row is told; NULL: nothing. As step_told has it.
DEV const int32_t *told_of(const dev_tables &t, const dev_input &in, const route_told_job &j, int row) {
    if (!j.told || (in.at && in.at[row] >= 0)) return NULL;
    int id = t.id[row];
    if (id < 0) id = __ldcg(t.slot_last + t.slot[row]);
    return id >= 0 && id < j.n_told ? j.told + (size_t)id * j.r.n_used : NULL;
}
// Logits, or scores, in m.s to roots.
DEV void route_roots(const router &r, route_scratch &m, int lane) {
    if (r.act != ROUTE_ROOT) return;
#pragma unroll 1
    for (int e = lane; e < r.n_expert; e += 32) m.s[e] = router_root(m.s[e]);
    __syncwarp();
}
// The scores of all experts, and the ids of the row.
template <class F>
DEV void route_as_told(const router &r, F logit, const int32_t *ids, route_scratch &m, int lane) {
#pragma unroll 1
    for (int e = lane; e < r.n_expert; e += 32) m.s[e] = router_logit(&r, logit(e));
    __syncwarp();
    if (!router_by_logit(&r)) route_act(r, m, lane); // else route_weights does
    route_roots(r, m, lane);
    for (int i = lane; i < r.n_used; i += 32) m.id[i] = ids[i];
    __syncwarp();
}
template <class F> DEV void route_by_roots(const router &r, F logit, route_scratch &m, int lane) {
    if (router_by_logit(&r)) {
        route_pick_any(r, logit, m, lane);
        route_roots(r, m, lane);
        return;
    }
    router plain = r; // whose logits are scores already
    plain.softcap = 0;
    route_pick_any(
        plain, [&](int e) { return router_root(router_logit(&r, logit(e))); }, m, lane);
}
__global__ void __launch_bounds__(32)
    route_told_kernel(dev_tables t, dev_input in, const __grid_constant__ route_told_job j) {
    __shared__ route_scratch m;
    const int row = blockIdx.x, lane = threadIdx.x;
    op_begin();
    if (row >= row_count(t, j.out_rows)) return;
    const float *x = j.logits.p + row * j.logits.stride;
    float *out = j.choice.p + row * j.choice.stride;
    auto logit = [&](int e) { return __ldcg(x + e); };
    const int32_t *ids = told_of(t, in, j, row);
    if (ids)
        route_as_told(j.r, logit, ids, m, lane);
    else if (j.r.act == ROUTE_ROOT)
        route_by_roots(j.r, logit, m, lane);
    else
        route_pick_any(j.r, logit, m, lane);
    route_weights(j.r, m, lane);
    for (int i = lane; i < j.r.n_used; i += 32) {
        out[i] = (float)m.id[i];
        out[j.r.n_used + i] = m.w[i];
    }
}
cudaError_t op_route_told_run(dev_tables t, dev_input in, const route_told_job &j, int n, op_queue s) {
    return op_launch(route_told_kernel, n, 32, s, t, in, j);
}
