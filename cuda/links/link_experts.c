/* LINK_EXPERTS: router, choice and experts of decode rows; LINK_MOE_GROUPED: experts of prompt rows. */
#include "cuda/links/link_experts.h"
#include "cuda/plan/link_type.h"

struct experts_ops link_experts_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first], *end = o + k->n_op;
    struct experts_ops e = {0};
    if (o->kind == OP_NORM) e.norm = &o++->norm;
    e.router = &o[0].matmul;
    e.route = &o[1].route;
    e.gated = &o[2].experts;
    e.glu = &o[3].glu;
    e.down = &o[4].experts;
    e.single = e.glu->up.buf < 0;
    o += 5;
    if (o < end && o->kind == OP_MATMUL) {
        e.shared = &o[0].matmul;
        e.shared_glu = &o[1].glu;
        e.shared_down = &o[2].matmul;
        o += 3;
        if (o->kind == OP_MATMUL) e.weigh = &o++->matmul;
    }
    if (o < end) e.mix = &o++->mix;
    if (o < end) e.add = &o->add;
    return e;
}

/* A norm that nobody but the router and the experts reads; a router whose logits nobody else reads. */
static bool router_fits(const struct link_case *c, const struct cuda_link *k, const struct experts_ops *o) {
    const struct op_norm *n = o->norm;
    const struct cuda_group *g = &c->plan->group[o->router->w->id];
    if (n &&
        (n->kind != NORM_RMS || !n->w || n->bias || n->dim != n->x.width || op_norm_weights(n) != n->dim ||
         !view_same(o->router->x, n->out) || !view_same(o->gated->x, n->out) || !link_ends(c, k, n->out)))
        return false;
    const enum route_act act = o->route->router->act;
    if (o->route->told || act == ROUTE_ROOT || act == ROUTE_NEAR) return false;
    return o->router->exact && g->n_member == 1 && layout_kind(g->region[0].layout) >= KIND_HALVES &&
           g->k % 8 == 0 && o->router->x.col % 4 == 0 && view_same(o->route->logits, o->router->out) &&
           link_ends(c, k, o->router->out);
}

/* Gate and up, or one matrix, of experts (operation i of the list) and nothing but the activation of their product behind it. */
static bool activates(const struct op_list *l, int i) {
    const struct op_experts *o = &l->op[i].experts;
    return list_is_gated(l, i) || (l->op[i + 1].kind == OP_GLU && l->op[i + 1].glu.up.buf < 0 &&
                                   o->w->n_member == 1 && view_same(l->op[i + 1].glu.gate, o->out));
}

/* The choice for both products, gate and up that nothing but their product reads, a sum of nothing but the chosen. */
static bool experts_fit(const struct link_case *c, const struct cuda_link *k, const struct experts_ops *o) {
    const struct view choice = o->route->choice;
    if (!activates(c->list, k->first + (o->norm != NULL) + 2) || o->gated->by_choice || o->gated->weighted ||
        !o->down->by_choice || o->down->weighted || !view_same(o->gated->choice, choice) ||
        !view_same(o->down->choice, choice) || !view_same(o->down->x, o->glu->out) ||
        !link_ends(c, k, o->gated->out) || !link_ends(c, k, o->glu->out) ||
        (o->glu->act > (o->single ? ACT_RELU2 : ACT_GELU_ERF) && o->glu->act != ACT_SWIGLU_OAI))
        return false;
    if (o->single && o->glu->act == ACT_SWIGLU_OAI) return false;
    if (o->mix && (o->mix->plain || (o->mix->shared.buf >= 0) != (o->shared != NULL) ||
                   !view_same(o->mix->x, o->down->out) || !view_same(o->mix->choice, choice) ||
                   !link_ends(c, k, o->down->out) || !link_ends(c, k, choice)))
        return false;
    return !o->add || (view_same(o->add->a, o->add->out) && view_same(o->add->b, o->mix->out) &&
                       link_ends(c, k, o->mix->out) && o->add->out.width % 32 == 0);
}

/* A part that all rows take, of the same function, whose result and weight nothing but the sum reads. */
static bool shared_fits(const struct link_case *c, const struct cuda_link *k, const struct experts_ops *o) {
    if (!o->shared) return true;
    const struct op_glu *g = o->shared_glu, *own = o->glu;
    const bool like = o->single
                          ? g->up.buf < 0 && o->shared->w->n_member == 1 && view_same(g->gate, o->shared->out)
                          : list_is_gated(c->list, k->first + (o->norm != NULL) + 5);
    if (!like || o->shared->exact || o->shared_down->exact || g->act != own->act ||
        g->k.limit != own->k.limit || g->k.alpha != own->k.alpha || !view_same(o->shared->x, o->gated->x) ||
        !view_same(o->shared_down->x, g->out) || !view_same(o->mix->shared, o->shared_down->out) ||
        !link_ends(c, k, o->shared->out) || !link_ends(c, k, g->out) ||
        !link_ends(c, k, o->shared_down->out) || (o->mix->gate.buf >= 0) != (o->weigh != NULL))
        return false;
    return !o->weigh || (view_same(o->weigh->x, o->gated->x) && view_same(o->mix->gate, o->weigh->out) &&
                         c->plan->group[o->weigh->w->id].n == 1 && link_ends(c, k, o->weigh->out));
}

static bool is_experts(const struct link_case *c, struct cuda_link *k) {
    const struct experts_ops o = link_experts_ops(c->list, k);
    return !o.gated->n_all && router_fits(c, k, &o) && experts_fit(c, k, &o) && shared_fits(c, k, &o) &&
           link_route(c->route, LINK_EXPERTS, c->list->cls, 0) && link_has(c, k, FORM_ROWS, FORM_ROWS);
}

/* Whether experts of a layout go to wgmma as halves; FP8 that is asked for is for matrices alone. */
static bool experts_by_wgmma(const struct link_case *c, enum layout l) {
    struct route_case r = *c->route;
    r.block_scaled = false;
    return route_prompt_group(&r, l) == GROUP_WGMMA && layout_kind(l) != KIND_FLOATS;
}
/* Experts of prompt rows, activated, then those of their results, which stay rows, one for each choice. */
static bool is_moe_grouped(const struct link_case *c, struct cuda_link *k) {
    const struct op_list *l = c->list;
    const struct op_experts *a = &l->op[k->first].experts, *b = &l->op[k->first + 2].experts;
    const struct op_glu *g = &l->op[k->first + 1].glu;
    const struct cuda_group *up = &c->plan->group[a->w->id], *down = &c->plan->group[b->w->id];
    const bool single = g->up.buf < 0, known = g->act <= ACT_RELU2 || (!single && g->act == ACT_SWIGLU_OAI);
    return !a->by_choice && !a->weighted && b->by_choice && !b->weighted && a->n_used == b->n_used && known &&
           view_same(a->choice, b->choice) && view_same(b->x, g->out) && activates(l, k->first) &&
           list_hands_over(l, k->first) && list_hands_over(l, k->first + 1) && (single || up->paired) &&
           up->n_region == 1 && down->n_member == 1 && down->n % 4 == 0 && up->n_stack <= ROUTE_EXPERTS_MAX &&
           a->x.col % 4 == 0 && a->x.width % 4 == 0 && experts_by_wgmma(c, up->region[0].layout) &&
           experts_by_wgmma(c, down->region[0].layout);
}
static unsigned gives(const struct link_case *c, const struct cuda_link *k, bool normed) {
    return link_experts_ops(c->list, k).add ? link_gives_stream(c, k, normed) : 0;
}
static int kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)k;
    return c->list->max_rows == 1 ? 2 : 3;
}

#define EXPERTS OP_MATMUL, OP_ROUTE, OP_EXPERTS, OP_GLU, OP_EXPERTS
#define SHARED  OP_MATMUL, OP_GLU, OP_MATMUL
const struct link_type link_experts = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OP_NORM, EXPERTS, SHARED, OPT(1, OP_MATMUL), OP_MIX, OP_ADD),
                PATTERN(OPT(1, OP_NORM), EXPERTS, OP_MIX, OPT(2, OP_ADD)), PATTERN(EXPERTS)},
    .stream = true,
    .by_experts = true,
    .fits = is_experts,
    .gives = gives,
    .kernels = kernels,
    .routes = LINK_ROUTES(
        {ROW_DECODE, OP_EXPERTS, 0, 90, 129, true,
         "experts_router_kernel, experts_gated_kernel, experts_down_kernel; several rows: batch_router_kernel, "
         "experts_batch_kernel, batch_mix_kernel"})};
const struct link_type link_moe_grouped = {
    .classes = LINK_PROMPT,
    .pattern = {PATTERN(OP_EXPERTS, OP_GLU, OP_EXPERTS)},
    .fits = is_moe_grouped,
    .routes = LINK_ROUTES({ROW_PROMPT, OP_EXPERTS, 0, 90, 99, false,
                           "moe_grouped_order_kernel, moe_grouped_gather_kernel, moe_grouped_wgmma_kernel"})};
