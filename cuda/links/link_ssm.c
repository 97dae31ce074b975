/* LINK_SSM: a convolution, Mamba-2's recurrence, a gate, and a norm of each group of heads. */
#include "cuda/links/link_ssm.h"
#include "cuda/plan/delta_plan.h"
#include "cuda/plan/link_type.h"

struct ssm_ops link_ssm_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first];
    return (struct ssm_ops){&o[0].conv, &o[1].ssm, &o[2].glu, k->n_op > 3 ? &o[3].norm : NULL};
}

/* A norm of what the gate left, in whole groups of heads. */
static bool norm_fits(const struct link_case *c, const struct ssm_ops *o) {
    const struct op_norm *n = o->norm;
    const int each = o->ssm->n_head / o->ssm->n_group, width = o->glu->out.width;
    if (!n) return true;
    if (!view_same(n->x, o->glu->out) || !view_same(n->x, n->out) || n->kind != NORM_RMS || !n->w ||
        n->bias || width % n->dim || (op_norm_weights(n) != n->dim && op_norm_weights(n) != width))
        return false;
    if (c->list->cls == ROW_PROMPT) return n->dim % 4 == 0 && n->dim <= SSM_NORM_DIM;
    return n->dim == each * SSM_COLS && each <= SSM_CLUSTER && !(each & (each - 1));
}
static bool sizes_fit(const struct link_case *c, const struct op_ssm *s) {
    if (s->n_state != DELTA_DIM || s->n_head % s->n_group || s->n_group > 256) return false;
    if (c->list->cls == ROW_DECODE) return s->head_dim == SSM_COLS;
    return s->head_dim % 16 == 0 && s->n_head * s->head_dim % DELTA_DIM == 0;
}
/* Each of what the one before it left and nobody else reads. */
static bool is_ssm(const struct link_case *c, struct cuda_link *k) {
    const struct ssm_ops o = link_ssm_ops(c->list, k);
    const struct view x = o.conv->x, z = o.glu->gate, dt = o.ssm->dt;
    return o.conv->K == DELTA_TAPS && o.conv->silu && view_same(o.conv->out, o.ssm->xbc) &&
           list_hands_over(c->list, k->first) && view_same(o.ssm->out, o.glu->up) &&
           list_hands_over(c->list, k->first + 1) && view_same(o.glu->out, z) && o.glu->act == ACT_SILU &&
           x.col % 4 == 0 && z.col % 4 == 0 && dt.width == o.ssm->n_head && sizes_fit(c, o.ssm) &&
           norm_fits(c, &o) && (c->list->cls == ROW_DECODE || !c->route->strict_fp32) &&
           link_route(c->route, LINK_SSM, c->list->cls, DELTA_DIM) && link_has(c, k, FORM_ROWS, FORM_BF16);
}

static size_t room(const struct op_list *l, const struct op *o, int n_slot) {
    const struct op_ssm *s = &o->ssm;
    if (o->kind != OP_SSM || s->n_state != DELTA_DIM) return 0;
    return chunk_room_of(l->max_rows, n_slot, s->n_head, SSM_PAIR_BYTES).bytes;
}

const struct link_type link_ssm = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OP_CONV, OP_SSM, OP_GLU, OPT(1, OP_NORM))},
    .packets = true,
    .fits = is_ssm,
    .gives = link_gives_result,
    .room = room,
    .routes = LINK_ROUTES({ROW_PROMPT, OP_SSM, 128, 80, 129, true,
                           "chunk_conv_kernel, ssm_pair_kernel, ssm_scan_kernel, ssm_norm_kernel"},
                          {ROW_DECODE, OP_SSM, 128, 90, 129, true, "ssm_decode_kernel"})};
