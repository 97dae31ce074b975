/* LINK_REDUCED: a matmul whose product is a part of a sum over ranks, which goes to the residual stream; LINK_SUMMED: the same of rows. */
#include "cuda/plan/link_type.h"

static bool is_reduced(const struct link_case *c, struct cuda_link *k) {
    const struct op *o = &c->list->op[k->matmul];
    const struct view y = o[0].matmul.out;
    const struct op_add *a = &o[2].add;
    return view_same(o[1].reduce.x, y) && view_same(a->a, a->out) && view_same(a->b, y) &&
           c->list->buf[y.buf].last == k->matmul + 2 && c->plan->group[o->matmul.w->id].n_member == 1 &&
           a->out.width % 32 == 0 && link_front_fits(c, k);
}
static int kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)c, (void)k;
    return 2; /* the matmul, the sum */
}

const struct link_type link_reduced = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OPT(1, OP_GLU), OP_MATMUL, OP_REDUCE, OP_ADD)},
    .product = PRODUCT_LATER,
    .stream = true,
    .fits = is_reduced,
    .gives = link_gives_stream,
    .takes = link_added_takes,
    .kernels = kernels,
    .routes = LINK_ROUTES(
        {ROW_DECODE, OP_REDUCE, 0, 90, 129, true,
         "rank_reduced_kernel; cards that do not reach each other: rank_sum_kernel, post_norm_kernel"},
        {ROW_PROMPT, OP_REDUCE, 0, 80, 129, true, "rank_sum_kernel"})};

/* Rows that lie behind each other and that nobody else reads. */
static bool is_summed(const struct link_case *c, struct cuda_link *k) {
    const struct op *o = &c->list->op[k->first];
    const struct view y = o[0].reduce.x;
    const struct op_add *a = &o[1].add;
    const struct buf *b = &c->list->buf[y.buf];
    return view_same(a->a, a->out) && view_same(a->b, y) && b->last == link_last(k) &&
           b->row_bytes == (size_t)y.width * sizeof(float) && y.col == 0 && a->out.width % 32 == 0;
}
const struct link_type link_summed = {.classes = LINK_DECODE | LINK_PROMPT,
                                      .pattern = {PATTERN(OP_REDUCE, OP_ADD)},
                                      .stream = true,
                                      .fits = is_summed,
                                      .gives = link_gives_stream};
