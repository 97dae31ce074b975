// Experts of prompt rows, and the sum of their results, as links.
#include "cuda/plan/pairs_plan.h"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/run/prompt_program_impl.h"
#include "seam/op_list.h"

static const float *bias_of(const cuda_backend *b, const cuda_group *g, int member) {
    if (!g->bias) return NULL;
    return (const float *)(b->work + b->plan.constant + g->bias_offset) +
           (size_t)g->member[member].col * g->n_stack;
}
static int order_of(enum layout l) { return prompt_matmul_order(GROUP_WGMMA, l); }
static int tiles_of(int columns) { return (columns + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS; }

static void build_gemm(const cuda_backend *b, const struct op_experts *o, pair_order order, pair_gemm *j,
                       enum layout *l) {
    const cuda_group *g = &b->plan.group[o->w->id];
    const cuda_region *r = &g->region[0];
    *l = r->layout;
    j->w = b->weights + r->offset;
    j->u = r->u;
    j->slabs = g->member[0].step / UNIT_ROWS;
    j->n = g->member[0].n;
    j->factor = g->member[0].factor;
    for (int i = 0; i < g->n_member; i++) j->bias[i] = bias_of(b, g, i);
    j->k_tiles = tiles_of(g->k);
    j->o = order;
}
static void build_pairs(const cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct op *o = &l->op[d->is.first];
    const struct op_experts *up = &o[0].experts, *down = &o[2].experts;
    prompt_experts *e = &d->experts;
    e->order.n_row = d->out_rows ? &b->t.step->n_out : &b->t.step->n_row;
    e->order.choice = cuda_rows(b, l, up->choice);
    e->order.n_expert = b->plan.group[up->w->id].n_stack;
    e->order.n_used = up->n_used;
    uint8_t *at = b->work + b->plan.pairs;
    const struct pairs_plan place = pairs_plan_of(l);
    e->order.pair = (int *)(at + place.pair);
    e->order.next = (int *)(at + place.next);
    e->order.tile = (int4 *)(at + place.tile);
    build_gemm(b, up, e->order, &e->gated, &e->layout[0]);
    build_gemm(b, down, e->order, &e->down, &e->layout[1]);
    e->x = cuda_rows(b, l, up->x);
    e->x_order = order_of(e->layout[0]);
    e->gated.x = at + place.x;
    e->gated.glu = at + place.glu;
    e->gated.glu_k_tiles = e->down.k_tiles;
    e->gated.glu_order = order_of(e->layout[1]);
    e->gated.act = o[1].glu.act;
    e->gated.limit = o[1].glu.k.limit;
    e->gated.alpha = o[1].glu.k.alpha;
    e->down.x = e->gated.glu;
    e->down.out = cuda_rows(b, l, down->out);
}
static void build_mix(const cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    auto at = [&](struct view v) { return v.buf < 0 ? rows{} : cuda_rows(b, l, v); };
    const struct op_mix *o = &l->op[d->is.first].mix;
    const struct op_add *a = &l->op[d->is.first + 1].add;
    pair_mix *m = &d->experts.mix;
    m->n_row = d->out_rows ? &b->t.step->n_out : &b->t.step->n_row;
    m->x = at(o->x);
    if (!o->plain) m->w = at(view_columns(o->choice, o->n_used, o->n_used));
    m->shared = at(o->shared);
    m->gate = at(o->gate);
    m->add = at(a->a);
    m->out = at(a->out);
    m->n_used = o->n_used;
}
void prompt_experts_build(const cuda_backend *b, prompt_link *d) {
    if (d->is.kind == LINK_PAIRS)
        build_pairs(b, d);
    else
        build_mix(b, d);
}

enum infer_status prompt_experts_run(const cuda_backend *b, const prompt_link *d, int n, cudaStream_t s) {
    const prompt_experts *e = &d->experts;
    if (d->is.kind == LINK_PAIRS_MIX) {
        CU(pairs_mix_launch(e->mix, n, s));
        return INFER_OK;
    }
    CU(pairs_order_launch(e->order, s));
    CU(pairs_gather_launch(e->order, e->x, (uint8_t *)e->gated.x, e->gated.k_tiles, e->x_order, n, s));
    CU(pairs_gemm_launch(e->gated, e->layout[0], n, b->sm_count, s));
    CU(pairs_gemm_launch(e->down, e->layout[1], n, b->sm_count, s));
    return INFER_OK;
}
