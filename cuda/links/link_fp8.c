/* LINK_FP8, LINK_FP8_SUM, LINK_FP8_GATED: decode rows by the products of prompt rows, in engines of many rows that were asked for FP8. All
 * begin and end with rows. A head, whose matrix is no FP8, goes the same way by halves. */
#include "cuda/links/link_fp8.h"
#include "cuda/plan/fp8_plan.h"
#include "cuda/plan/link_type.h"

struct fp8_ops link_fp8_ops(const struct op_list *l, const struct cuda_link *k) {
    struct fp8_ops f = {0};
    for (int i = k->first; i <= link_last(k); i++) {
        const struct op *o = &l->op[i];
        if (o->kind == OP_NORM)
            f.norm = &o->norm;
        else if (o->kind == OP_MATMUL)
            *(f.matmul ? &f.down : &f.matmul) = &o->matmul;
        else if (o->kind == OP_GLU)
            f.glu = &o->glu;
        else if (o->kind == OP_ROWS)
            f.rows = &o->rows;
        else if (o->kind == OP_SELECT)
            f.select = &o->select;
        else
            f.add = &o->add;
    }
    return f;
}

static bool fits(const struct link_case *c, const struct op_matmul *m, bool paired, enum route_group by) {
    const struct cuda_group *g = &c->plan->group[m->w->id];
    return c->route->block_scaled && fp8_decode(c->list) && !c->route->only_mma && c->route->sm / 10 == 9 &&
           g->n_region == 1 && route_prompt_group(c->route, g->region[0].layout) == by && !g->scaled &&
           !g->apart && !m->exact && g->paired == paired && m->x.col % 4 == 0 && m->x.width % 4 == 0;
}
static bool product_fits(const struct link_case *c, const struct op_matmul *m, bool paired) {
    return fits(c, m, paired, GROUP_MX);
}
/* Of whole rows, read by the matmul behind it alone. */
static bool norm_fits(const struct link_case *c, const struct cuda_link *k, const struct fp8_ops *f) {
    const struct op_norm *n = f->norm;
    const int at = k->first + (f->rows != NULL);
    return !n || (n->kind == NORM_RMS && n->w && !n->bias && n->dim == n->x.width && n->x.col % 4 == 0 &&
                  list_hands_over(c->list, at) && view_same(f->matmul->x, n->out));
}
static bool sum_fits(const struct link_case *c, const struct cuda_link *k, const struct op_matmul *m,
                     const struct op_add *a) {
    return view_same(a->a, a->out) && view_same(a->b, m->out) && list_hands_over(c->list, link_last(k) - 1) &&
           c->plan->group[m->w->id].n_member == 1;
}
static bool is_head(const struct link_case *c, const struct cuda_link *k, const struct fp8_ops *f) {
    return fits(c, f->matmul, false, GROUP_WGMMA) && norm_fits(c, k, f) &&
           view_same(f->norm->x, f->rows->out) && view_same(f->select->logits, f->matmul->out) &&
           list_hands_over(c->list, k->first) && list_hands_over(c->list, link_last(k) - 1);
}
static bool is_product(const struct link_case *c, struct cuda_link *k) {
    const struct fp8_ops f = link_fp8_ops(c->list, k);
    if (f.rows) return is_head(c, k, &f);
    return product_fits(c, f.matmul, false) && norm_fits(c, k, &f);
}
static bool is_sum(const struct link_case *c, struct cuda_link *k) {
    const struct fp8_ops f = link_fp8_ops(c->list, k);
    return product_fits(c, f.matmul, false) && sum_fits(c, k, f.matmul, f.add);
}
static bool is_gated(const struct link_case *c, struct cuda_link *k) {
    const struct fp8_ops f = link_fp8_ops(c->list, k);
    const int gate = k->first + (f.norm != NULL);
    return product_fits(c, f.matmul, true) && !c->plan->group[f.matmul->w->id].bias &&
           f.glu->act <= ACT_RELU2 && list_is_gated(c->list, gate) && list_hands_over(c->list, gate) &&
           list_hands_over(c->list, gate + 1) && view_same(f.down->x, f.glu->out) &&
           product_fits(c, f.down, false) && norm_fits(c, k, &f) && sum_fits(c, k, f.down, f.add);
}

static int two_kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)c, (void)k;
    return 2;
}
static int four_kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)c, (void)k;
    return 4;
}
#define FP8_ROUTES LINK_ROUTES({ROW_DECODE, OP_MATMUL, 0, 90, 90, false, "fp8_norm_kernel, gemm_fp8_kernel"})
const struct link_type link_fp8 = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL), PATTERN(OP_ROWS, OP_NORM, OP_MATMUL, OP_SELECT)},
    .by_product = true,
    .fits = is_product,
    .kernels = two_kernels,
    .routes = FP8_ROUTES};
const struct link_type link_fp8_sum = {.classes = LINK_DECODE,
                                       .pattern = {PATTERN(OP_MATMUL, OP_ADD)},
                                       .by_product = true,
                                       .fits = is_sum,
                                       .kernels = two_kernels,
                                       .routes = FP8_ROUTES};
const struct link_type link_fp8_gated = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL, OP_GLU, OP_MATMUL, OP_ADD)},
    .by_product = true,
    .fits = is_gated,
    .kernels = four_kernels,
    .routes = FP8_ROUTES};
