// What the jobs of experts have in common: of one decode row, of several, of prompt rows, and of the plain kernels.
#pragma once
#include "cuda/run/cuda_impl.h"
#include "seam/op_list.h"

static inline rows rows_or_none(const cuda_backend *b, const struct op_list *l, struct view v) {
    return v.buf < 0 ? rows{} : cuda_rows(b, l, v);
}
// The choice, with addresses on the device.
static inline struct router router_of(const cuda_backend *b, const struct op_route *o) {
    struct router r = *o->router;
    r.bias = cuda_constant(b, r.bias);
    r.expert_scale = cuda_constant(b, r.expert_scale);
    return r;
}
// The router's matrix and choice, the norm in front (NULL: none).
template <class J>
static void router_args(const cuda_backend *b, const struct op_norm *norm, const struct op_matmul *router,
                        const struct op_route *route, J *j) {
    const dev_matrix w = cuda_matrix(b, router->w->id, 0);
    if (norm) {
        j->norm = cuda_constant(b, norm->w);
        j->eps = norm->eps;
    }
    j->route = router_of(b, route);
    j->router = w.region;
    j->router_layout = w.layout;
    j->router_u = w.u;
    j->k_router = w.k;
    j->router_factor = w.factor;
    j->router_bias = w.bias;
}
// What becomes of gate and up.
template <class J> static void glu_args(const struct op_glu *o, J *j) {
    j->act = o->act;
    j->limit = o->k.limit;
    j->alpha = o->k.alpha;
}
// A member of a group of stacks in units: row tile t of matrix e is at first + e * step + t * tile.
struct stack_args {
    dev_matrix m;
    const uint8_t *first;
    size_t tile, step;
    int n_tile; // of a matrix, with those of up where rows of gate and up lie in turns
};
static inline stack_args stack_of(const cuda_backend *b, const struct weight_group *w, int member) {
    stack_args s = {cuda_matrix(b, w->id, member)};
    s.n_tile = b->plan.group[w->id].member[member].step / UNIT_ROWS;
    s.tile = (size_t)s.m.u * (size_t)layout_unit_bytes(s.m.layout);
    s.step = (size_t)s.n_tile * s.tile;
    s.first = s.m.region + (size_t)(s.m.base / UNIT_ROWS) * s.tile;
    return s;
}
// The sum of the chosen, of the shared expert and its gate.
template <class J>
static void mix_args(const cuda_backend *b, const struct op_list *l, const struct op_mix *o, J *j) {
    j->x = cuda_rows(b, l, o->x);
    if (!o->plain) j->w = cuda_rows(b, l, view_columns(o->choice, o->n_used, o->n_used));
    j->shared = rows_or_none(b, l, o->shared);
    j->gate = rows_or_none(b, l, o->gate);
    j->n_used = o->n_used;
}
