/* LINK_HEAD: the logits of the rows that are wanted, and the choice of a token. */
#include "cuda/plan/link_type.h"

static bool is_head(const struct link_case *c, struct cuda_link *k) {
    const struct op *o = &c->list->op[k->first];
    const struct cuda_group *g = &c->plan->group[o[2].matmul.w->id];
    return view_same(o[1].norm.x, o[0].rows.out) && list_hands_over(c->list, k->first) &&
           view_same(o[3].select.logits, o[2].matmul.out) && list_hands_over(c->list, k->matmul) &&
           g->n_member == 1 && link_front_fits(c, k);
}
static int kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)c, (void)k;
    return 2; /* the matmul, the choice */
}

const struct link_type link_head = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OP_ROWS, OP_NORM, OP_MATMUL, OP_SELECT)},
    .product = PRODUCT_CHOSEN,
    .fits = is_head,
    .kernels = kernels,
    .routes = LINK_ROUTES({ROW_DECODE, OP_SELECT, 0, 90, 129, true, "select_decode_kernel"})};
