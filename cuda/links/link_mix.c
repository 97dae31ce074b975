/* LINK_MIX, LINK_MOE_GROUPED_MIX: the sum of experts, to the residual stream. */
#include "cuda/links/link_mix.h"
#include "cuda/plan/link_type.h"

struct mix_ops link_mix_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[link_last(k)];
    return (struct mix_ops){k->n_op == 3 ? &o[-2].matmul : NULL, &o[-1].mix, &o[0].add};
}

/* The sum of experts whose result goes to the residual stream, with the gate of their shared part, which nobody else wants. */
static bool is_mix(const struct link_case *c, struct cuda_link *k) {
    const struct mix_ops o = link_mix_ops(c->list, k);
    const struct cuda_group *g = o.gate ? &c->plan->group[o.gate->w->id] : NULL;
    if (g && (g->n != 1 || !view_same(o.mix->gate, o.gate->out) || !list_hands_over(c->list, k->first)))
        return false;
    return link_route(c->route, LINK_MIX, ROW_DECODE, 0) && view_same(o.add->b, o.mix->out) &&
           view_same(o.add->a, o.add->out) && list_hands_over(c->list, link_last(k) - 1) &&
           o.add->out.width % 32 == 0;
}

static bool is_moe_grouped_mix(const struct link_case *c, struct cuda_link *k) {
    const struct op_mix *m = &c->list->op[k->first].mix;
    const struct op_add *a = &c->list->op[k->first + 1].add;
    const int cols =
        m->x.col | m->shared.col | m->out.width | a->a.col | a->out.col; /* shared: may be absent, then 0 */
    return link_route(c->route, LINK_MOE_GROUPED_MIX, ROW_PROMPT, 0) && view_same(a->b, m->out) &&
           list_hands_over(c->list, k->first) && cols % 4 == 0;
}

const struct link_type link_mix = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OPT(1, OP_MATMUL), OP_MIX, OP_ADD)},
    .stream = true,
    .last = true,
    .fits = is_mix,
    .gives = link_gives_stream,
    .routes = LINK_ROUTES({ROW_DECODE, OP_MIX, 0, 90, 129, true, "mix_give_kernel"})};
const struct link_type link_moe_grouped_mix = {
    .classes = LINK_PROMPT,
    .pattern = {PATTERN(OP_MIX, OP_ADD)},
    .fits = is_moe_grouped_mix,
    .routes = LINK_ROUTES({ROW_PROMPT, OP_MIX, 0, 80, 129, true, "moe_grouped_mix_kernel"})};
