// A mixture of experts of the decode list for steps of several rows, and for one row of an engine that may have more: its jobs, its launches.
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

static const int *rows_of(const cuda_backend *b, bool out_rows) {
    return out_rows ? &b->t.step->n_out : &b->t.step->n_row;
}
static void make_router(const cuda_backend *b, const struct experts_ops &o, bool out_rows,
                        batch_router_job *j) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const dev_matrix w = cuda_matrix(b, o.router->w->id, 0);
    j->o.n_row = rows_of(b, out_rows);
    j->o.choice = cuda_rows(b, l, o.route->choice);
    j->o.n_used = o.route->router->n_used;
    j->o.n_expert = o.route->router->n_expert;
    j->o.order.pair = (int *)(b->work + b->plan.batch_pairs);
    j->o.order.item = (int4 *)(b->work + b->plan.batch_items);
    j->r = *o.route->router;
    j->r.bias = cuda_constant(b, j->r.bias);
    j->r.expert_scale = cuda_constant(b, j->r.expert_scale);
    j->x = cuda_rows(b, l, o.norm ? o.norm->x : o.router->x);
    if (!o.norm && !view_same(o.router->x, o.gated->x)) j->other = cuda_rows(b, l, o.gated->x);
    j->logits = cuda_rows(b, l, o.router->out);
    if (o.norm) {
        j->norm = cuda_constant(b, o.norm->w);
        j->inv_k = 1.f / (float)o.norm->dim;
        j->eps = o.norm->eps;
    }
    j->xo = b->work + b->plan.half[ACT_NORMED];
    j->xo_row = b->plan.half_row_bytes;
    j->w = w.region;
    j->layout = w.layout;
    j->u = w.u;
    j->k = w.k;
    j->factor = w.factor;
    j->bias = w.bias;
    j->arrived = (int *)(b->work + b->plan.batch_count);
}
// The stacks of a group, which are one region.
static void make_stacks(const cuda_backend *b, const float (*up)[2], const struct weight_group *w,
                        const batch_router_job &r, batch_job *j) {
    const cuda_group *g = &b->plan.group[w->id];
    const dev_matrix m = cuda_matrix(b, w->id, 0);
    const int hop = m.u * layout_unit_bytes(m.layout);
    j->w = m.region;
    j->step = (size_t)(g->member[0].step / UNIT_ROWS) * (size_t)hop;
    j->u = m.u;
    j->k = m.k;
    j->tiles = (g->paired ? 2 * m.n : m.n + UNIT_ROWS - 1) / UNIT_ROWS;
    j->up = up[w->id][0];
    j->down = 0x1p24f / j->up;
    j->order = r.o.order;
    j->n_used = r.o.n_used;
    j->bias = m.bias;
    j->n = m.n;
}
static void make_gated(const cuda_backend *b, const float (*up)[2], const struct experts_ops &o,
                       batch_link *e) {
    batch_job &j = e->gated;
    make_stacks(b, up, o.gated->w, e->router, &j);
    if (j.bias) j.bias_up = (size_t)(cuda_matrix(b, o.gated->w->id, 1).bias - j.bias);
    j.x = e->router.xo;
    j.x_row = e->router.xo_row;
    j.act = o.glu->act;
    j.limit = o.glu->k.limit;
    j.alpha = o.glu->k.alpha;
    j.xo = b->work + b->plan.half[ACT_GATED];
    j.xo_row = (size_t)j.n * 2;
}
static void make_down(const cuda_backend *b, const float (*up)[2], const struct experts_ops &o,
                      batch_link *e) {
    batch_job &j = e->down;
    const rows y = cuda_rows(b, b->c.list[ROW_DECODE], o.down->out);
    make_stacks(b, up, o.down->w, e->router, &j);
    j.after = e->gated.tiles;
    j.x = e->gated.xo;
    j.x_row = e->gated.xo_row;
    j.y = y.p;
    j.y_row = y.stride;
}
static void make_mix(const cuda_backend *b, const struct cuda_link *k, const struct experts_ops &o,
                     batch_link *e) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    batch_mix_job &j = e->mix;
    e->mixes = o.mix != NULL;
    if (!o.mix) return;
    j.n_row = e->router.o.n_row;
    j.x = cuda_rows(b, l, o.mix->x);
    j.w = cuda_rows(b, l, view_columns(o.mix->choice, o.mix->n_used, o.mix->n_used));
    if (o.add) j.add = cuda_rows(b, l, o.add->a);
    j.out = cuda_rows(b, l, link_writes(l, k));
    j.n_used = o.mix->n_used;
}
// Whether the kernels take the matrices and the activation.
static bool fits(const cuda_backend *b, const struct experts_ops &o) {
    const cuda_group *g = &b->plan.group[o.gated->w->id], *d = &b->plan.group[o.down->w->id];
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct view x = o.norm ? o.norm->x : o.router->x;          // four columns at once, as of gated->x
    const int items = d->n_stack + l->max_rows * o.down->n_used / 8; // at most
    return items / b->sm_count + 2 <= BATCH_ITEMS && l->max_rows <= 8 * (BATCH_GROUPS - 1) && g->paired &&
           g->n_region == 1 && d->n_region == 1 && d->n_member == 1 && !g->scaled && !d->scaled &&
           g->k % 32 == 0 && d->k % 32 == 0 && x.col % 4 == 0 && o.gated->x.col % 4 == 0 &&
           (o.glu->act <= ACT_RELU2 || o.glu->act == ACT_SWIGLU_OAI) &&
           batch_router_fits(o.router->w->k, decode_shared_memory(b));
}
bool batch_make(const cuda_backend *b, const float (*up)[2], const struct cuda_link *k, batch_link *e) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct experts_ops o = link_experts_ops(l, k);
    memset(e, 0, sizeof *e);
    if (!fits(b, o)) return false;
    const size_t shared = decode_shared_memory(b);
    make_router(b, o, cuda_out_rows(l, link_writes(l, k)), &e->router);
    make_gated(b, up, o, e);
    make_down(b, up, o, e);
    make_mix(b, k, o, e);
    e->of_gated = batch_find(b->plan.group[o.gated->w->id].region[0].layout);
    e->of_down = batch_find(b->plan.group[o.down->w->id].region[0].layout);
    return e->of_gated && e->of_down && batch_plan(&e->gated, e->of_gated, shared) &&
           batch_plan(&e->down, e->of_down, shared);
}
enum infer_status batch_run(const cuda_backend *b, const batch_link *e, int rows, int pitch, cudaStream_t s) {
    CU(batch_router_launch(e->router, rows, b->sm_count, s));
    CU(batch_launch(&e->gated, e->of_gated, true, b->sm_count, s));
    CU(batch_launch(&e->down, e->of_down, false, b->sm_count, s));
    if (!e->mixes) return INFER_OK;
    batch_mix_job m = e->mix;
    m.next.xo_pitch = pitch;
    CU(batch_mix_launch(m, rows, s));
    return INFER_OK;
}
