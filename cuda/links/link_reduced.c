/* LINK_REDUCED: a matmul whose product is a part of a sum over ranks, which goes to the residual stream. */
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

const struct link_type link_reduced = {.classes = LINK_DECODE | LINK_PROMPT,
                                       .pattern = {PATTERN(OPT(1, OP_GLU), OP_MATMUL, OP_REDUCE, OP_ADD)},
                                       .matmul = true,
                                       .stream = true,
                                       .fits = is_reduced,
                                       .gives = link_gives_stream,
                                       .takes = link_added_takes,
                                       .kernels = kernels};
