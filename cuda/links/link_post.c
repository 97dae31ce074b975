/* LINK_POST: a matmul whose result goes through a norm of the whole row, or is times a factor, on its way to the residual stream. */
#include "cuda/links/link_post.h"
#include "cuda/plan/link_type.h"

struct post_ops link_post_ops(const struct op_list *l, const struct cuda_plan *plan,
                              const struct cuda_link *k) {
    const struct op *o = &l->op[k->matmul + 1];
    struct post_ops p = {.factor = plan->group[l->op[k->matmul].matmul.w->id].member[0].factor, .scale = 1};
    if (o->kind == OP_NORM) p.norm = &o++->norm;
    p.add = &o++->add;
    if (o <= &l->op[link_last(k)]) p.scale = o->glu.k.limit;
    return p;
}

/* The result of a matmul goes through a norm of the whole row, or is times a factor, on its way to the residual stream. */
static bool is_post(const struct link_case *c, struct cuda_link *k) {
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct cuda_group *g = &c->plan->group[m->w->id];
    const struct post_ops p = link_post_ops(c->list, c->plan, k);
    const struct op_norm *n = p.norm;
    if (n && (n->kind != NORM_RMS || n->bias || n->dim != n->x.width || !view_same(n->x, m->out) ||
              !view_same(n->out, m->out)))
        return false;
    if (k->n_op > 2 + (n != NULL)) {
        const struct op_glu *s = &c->list->op[link_last(k)].glu;
        if (s->act != ACT_SCALE || !view_same(s->gate, p.add->out) || !view_same(s->out, p.add->out))
            return false;
    }
    return view_same(p.add->a, p.add->out) && view_same(p.add->b, m->out) &&
           c->list->buf[m->out.buf].last == k->matmul + 1 + (n != NULL) && g->n_member == 1 &&
           p.add->out.width % (c->list->cls == ROW_DECODE ? 32 : 4) == 0 && link_matmul_fits(c, k);
}
static unsigned gives(const struct link_case *c, const struct cuda_link *k, bool normed) {
    (void)normed;
    return link_gives_stream(c, k, true);
}
static int kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)c, (void)k;
    return 2; /* the matmul, the norm of its rows */
}

const struct link_type link_post = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OP_MATMUL, OP_NORM, OP_ADD, OPT(1, OP_GLU)), PATTERN(OP_MATMUL, OP_ADD)},
    .product = PRODUCT_LATER,
    .stream = true,
    .fits = is_post,
    .gives = gives,
    .takes = link_added_takes,
    .kernels = kernels,
    .routes = LINK_ROUTES({ROW_DECODE, OP_NORM, 0, 90, 129, true, "post_norm_kernel"},
                          {ROW_PROMPT, OP_NORM, 0, 80, 129, true, "prompt_post_kernel"})};
