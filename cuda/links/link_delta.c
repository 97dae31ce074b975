/* LINK_DELTA: a convolution, a gated delta rule, a norm of each head and a gate. */
#include "cuda/links/link_delta.h"
#include "cuda/plan/link_type.h"
#include "cuda/plan/delta_plan.h"

struct delta_ops link_delta_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first];
    return (struct delta_ops){&o[0].conv, &o[1].delta, &o[2].norm, &o[3].glu};
}

/* A delta rule of the kernels' size, whose states decay as a whole and whose steps reach 1. */
static bool is_known(const struct op_delta *d) {
    return d->dk == DELTA_DIM && d->dv == DELTA_DIM && !op_delta_by_row(d) && op_delta_beta(d) == 1;
}

/* A convolution, a delta rule, a norm of each head and a gate, each of what the one before it left and nobody else reads. */
static bool is_delta(const struct link_case *c, struct cuda_link *k) {
    const struct delta_ops o = link_delta_ops(c->list, k);
    const struct op_norm *n = o.norm;
    const struct view x = o.conv->x, z = o.glu->gate;
    return o.conv->K == DELTA_TAPS && o.conv->silu && view_same(o.conv->out, o.delta->qkv) &&
           list_hands_over(c->list, k->first) && view_same(o.delta->out, n->x) && view_same(n->x, n->out) &&
           n->kind == NORM_RMS && n->w && !n->bias && n->dim == o.delta->dv && op_norm_weights(n) == n->dim &&
           view_same(o.glu->up, n->out) && view_same(o.glu->out, n->out) && o.glu->act == ACT_SILU &&
           z.width == n->out.width && x.col % 4 == 0 && z.col % 4 == 0 && o.delta->n_key <= 256 &&
           is_known(o.delta) && (c->list->cls == ROW_DECODE || !c->route->strict_fp32) &&
           link_route(c->route, LINK_DELTA, c->list->cls, DELTA_DIM) && link_has(c, k, FORM_ROWS, FORM_BF16);
}

static size_t room(const struct op_list *l, const struct op *o, int n_slot) {
    const struct op_delta *d = &o->delta;
    if (o->kind != OP_DELTA || !is_known(d)) return 0;
    return delta_room_of(l->max_rows, n_slot, d->n_value).bytes;
}

const struct link_type link_delta = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OP_CONV, OP_DELTA, OP_NORM, OP_GLU)},
    .packets = true,
    .fits = is_delta,
    .gives = link_gives_result,
    .room = room,
    .routes = LINK_ROUTES({ROW_PROMPT, OP_DELTA, 128, 80, 129, true,
                           "chunk_conv_kernel, delta_pair_kernel, delta_scan_kernel, delta_norm_kernel"},
                          {ROW_DECODE, OP_DELTA, 128, 90, 129, true, "delta_decode_kernel"})};
