/* LINK_MATMUL, LINK_GATED, LINK_ACTED, LINK_RESIDUAL: a matmul, with what stands in front and behind. LINK_LOW, LINK_LOW_GATED, LINK_LOW_SUM,
 * LINK_ADAPTED, LINK_ADAPTED_SUM: with what adapters add to it between. */
#include "cuda/plan/link_type.h"
#include "cuda/plan/adapted_plan.h"

/* The form in which the kernels of a group of matrices read their input; FORM_ROWS: no fused kernel has the layouts (or
 * a factor, or exact sums), or they disagree. */
static enum link_form form_of(const struct link_case *c, enum link_kind kind, const struct cuda_group *g) {
    enum link_form form = FORM_ROWS;
    const bool scales =
        kind == LINK_POST || (kind == LINK_MATMUL && g->n_member == 1); /* behind the products */
    if ((g->scaled && (!scales || g->bias)) || g->apart) return FORM_ROWS;
    for (int i = 0; i < g->n_region; i++) {
        const enum layout l = g->region[i].layout;
        const enum link_form f = route_form(c->route, c->list->cls, c->int8, l);
        if (f == FORM_ROWS || (i && f != form)) return FORM_ROWS;
        form = f;
    }
    return form;
}

/* Columns that pad a tile are never written: halves must not read what floats left there, in the same slot. */
static bool tiles_stay_clean(const struct link_case *c, enum act_slot slot) {
    bool floats = false, halves = false, pads = false;
    for (int i = 0; i < c->list->n_op; i++) {
        if (c->list->op[i].kind != OP_MATMUL || act_slot_of(c->list, i) != slot) continue;
        const struct cuda_group *g = &c->plan->group[c->list->op[i].matmul.w->id];
        if (g->apart) continue;
        (g->region[0].layout == LAYOUT_F32 ? &floats : &halves)[0] = true;
        pads |= g->k % 64 != 0;
    }
    return !(floats && halves && pads);
}

bool link_matmul_fits(const struct link_case *c, struct cuda_link *k) {
    const struct cuda_group *g = link_group(c, k->matmul);
    if (k->kind != LINK_GATED && g->paired) return false; /* rows of gate and up lie in turns */
    k->wants = form_of(c, k->kind, g);
    k->slot = act_slot_of(c->list, k->matmul);
    if (k->wants == FORM_ROWS || (k->wants == FORM_TF32 && !tiles_stay_clean(c, k->slot))) return false;
    return link_has(c, k, k->wants, FORM_ROWS);
}

/* Of a norm that a matmul and, right behind it, another one of its own read, and nothing else: whether that one takes what the
 * first takes, where it lies. */
static bool is_twice(const struct link_case *c, const struct cuda_link *k) {
    const struct op *o = &c->list->op[k->matmul + 1];
    const struct view x = c->list->op[k->norm].norm.out;
    struct cuda_link one = *k, next = {LINK_MATMUL, PRODUCT_ROWS, .norm = k->norm, .before = -1,
                                       .matmul = k->matmul + 1};
    return k->matmul + 2 < c->list->n_op && o[0].kind == OP_MATMUL && o[1].kind != OP_ADD &&
           o[1].kind != OP_GLU && view_same(o->matmul.x, x) && c->list->buf[x.buf].last == next.matmul &&
           link_matmul_fits(c, &one) && link_matmul_fits(c, &next) && one.wants == next.wants &&
           one.slot == next.slot;
}

/* Of a norm that a matmul and what adapters add to it read, and nothing else. */
static bool is_adapted_norm(const struct link_case *c, const struct cuda_link *k) {
    const struct op *low = &c->list->op[k->matmul + 1];
    const struct view x = c->list->op[k->norm].norm.out;
    const bool adapted = k->kind == LINK_ADAPTED || k->kind == LINK_LOW || k->kind == LINK_LOW_GATED;
    return adapted && view_same(low->lowrank.x, x) && c->list->buf[x.buf].last == k->matmul + 1;
}

/* The norm of a whole row, which nothing but the matmul reads. */
static bool norm_fits(const struct link_case *c, const struct cuda_link *k) {
    const struct op_norm *n = &c->list->op[k->norm].norm;
    return n->kind == NORM_RMS && n->w && !n->bias && n->dim == n->x.width &&
           n->dim % (c->list->cls == ROW_DECODE ? 32 : 4) == 0 &&
           (list_hands_over(c->list, k->norm) || (k->kind == LINK_MATMUL && is_twice(c, k)) ||
            is_adapted_norm(c, k)) &&
           view_same(c->list->op[k->matmul].matmul.x, n->out);
}

/* An activation; of decode rows also what a gate leaves of attention's result. */
static bool glu_fits(const struct link_case *c, const struct cuda_link *k, const struct op_glu *g) {
    if (g->up.buf < 0) return g->act <= ACT_GELU_ERF;
    return c->list->cls == ROW_DECODE && k->kind == LINK_RESIDUAL && g->act == ACT_SIGMOID &&
           g->gate.width == g->out.width && g->up.width == g->out.width;
}
/* What stands in front of a matmul instead: it is done to rows, on their way into the matmul's form. */
static bool before_fits(const struct link_case *c, const struct cuda_link *k) {
    const struct op *o = &c->list->op[k->before];
    const bool norm = o->kind == OP_NORM;
    const struct view x = norm ? o->norm.x : o->glu.gate, out = norm ? o->norm.out : o->glu.out;
    if (norm ? o->norm.dim != x.width || op_norm_weights(&o->norm) != x.width : !glu_fits(c, k, &o->glu))
        return false;
    return list_hands_over(c->list, k->before) && view_same(c->list->op[k->matmul].matmul.x, out);
}

static bool before(const struct link_case *c, const struct cuda_link *k) {
    return (k->norm < 0 || norm_fits(c, k)) && (k->before < 0 || before_fits(c, k));
}

bool link_front_fits(const struct link_case *c, struct cuda_link *k) {
    return before(c, k) && link_matmul_fits(c, k);
}

static bool is_gated(const struct link_case *c, struct cuda_link *k) {
    const struct cuda_group *g = link_group(c, k->matmul);
    if (c->list->op[k->matmul + 1].glu.act > ACT_RELU2)
        return false; /* which the fused kernels do not know */
    return list_is_gated(c->list, k->matmul) && list_hands_over(c->list, k->matmul) && g->paired &&
           !g->bias && g->n_region == 1 && link_front_fits(c, k);
}

/* Of halves; not of what an activation gave, whose tiles the result would overwrite. */
static bool is_acted(const struct link_case *c, struct cuda_link *k) {
    const struct cuda_group *g = link_group(c, k->matmul);
    const struct op_glu *a = &c->list->op[k->matmul + 1].glu;
    if (a->up.buf >= 0 || a->act > ACT_RELU2 || g->n_member != 1 || g->n_region != 1 ||
        !route_has_act(route_prompt_group(c->route, g->region[0].layout), g->region[0].layout) ||
        !view_same(a->gate, c->list->op[k->matmul].matmul.out) || !list_hands_over(c->list, k->matmul))
        return false;
    return link_front_fits(c, k) && k->slot != ACT_GATED;
}

static bool is_residual(const struct link_case *c, struct cuda_link *k) {
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct op_add *a = &c->list->op[k->matmul + 1].add;
    return view_same(a->a, a->out) && view_same(a->b, m->out) && list_hands_over(c->list, k->matmul) &&
           c->plan->group[m->w->id].n_member == 1 && a->out.width % 32 == 0 && link_front_fits(c, k);
}

/* What is added to the product of the same rows, and by no choice. */
static bool is_adapted(const struct link_case *c, struct cuda_link *k) {
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct op_lowrank *low = &c->list->op[k->matmul + 1].lowrank;
    return low->choice.buf < 0 && view_same(low->x, m->x) && view_same(low->out, m->out) &&
           link_front_fits(c, k);
}
/* In one kernel, which multiplies codes by codes: not too many parts and ranks, and a vector not behind a norm, whose root comes last. */
static bool is_low(const struct link_case *c, struct cuda_link *k) {
    const struct lowrank *w = c->list->op[k->matmul + 1].lowrank.w;
    if (!c->int8 || w->n_part > LOWRANK_ONE_PARTS || w->r > LOWRANK_ONE_RANKS ||
        link_group(c, k->matmul)->scaled)
        return false;
    for (int i = 0; i < w->n_part; i++)
        if ((!w->part[i].a && k->norm >= 0) || w->part[i].n_stack != 1 || w->part[i].n % 8 ||
            w->part[i].col % 8)
            return false;
    return is_adapted(c, k);
}
/* Gate and up lie after each other, for prompts. */
static bool is_low_gated(const struct link_case *c, struct cuda_link *k) {
    const struct cuda_group *g = link_group(c, k->matmul);
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct op_glu *u = &c->list->op[k->matmul + 2].glu;
    const int n = m->w->member[0].n;
    return g->n_member == 2 && g->member[1].n == n && n % 32 == 0 && g->n_region == 1 && !g->bias &&
           u->act <= ACT_RELU2 && view_same(u->gate, view_columns(m->out, 0, n)) &&
           view_same(u->up, view_columns(m->out, n, n)) && list_hands_over(c->list, k->matmul + 1) &&
           is_low(c, k);
}
static bool is_low_sum(const struct link_case *c, struct cuda_link *k) {
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct op_add *a = &c->list->op[k->matmul + 2].add;
    return view_same(a->a, a->out) && view_same(a->b, m->out) && list_hands_over(c->list, k->matmul + 1) &&
           c->plan->group[m->w->id].n_member == 1 && a->out.width % 32 == 0 && is_low(c, k);
}
/* Of decode rows: the product of gate and up, which nothing but the matmul and its adapters reads. */
static bool is_made(const struct link_case *c, const struct cuda_link *k) {
    const struct op_glu *g = &c->list->op[k->before].glu;
    return c->list->cls == ROW_DECODE && g->up.buf >= 0 && g->gate.width == g->out.width &&
           g->up.width == g->out.width && g->act <= ACT_RELU2 &&
           view_same(g->out, c->list->op[k->matmul].matmul.x) &&
           c->list->buf[g->out.buf].last == k->matmul + 1;
}
/* The sum takes first what adapters add, then the product. What is made in front goes into rows and the matmul's form at once. */
static bool is_adapted_sum(const struct link_case *c, struct cuda_link *k) {
    if (k->before >= 0 && !is_made(c, k)) return false;
    k->before = -1;
    const struct op_matmul *m = &c->list->op[k->matmul].matmul;
    const struct op_add *a = &c->list->op[k->matmul + 2].add;
    return view_same(a->a, a->out) && view_same(a->b, m->out) && list_hands_over(c->list, k->matmul + 1) &&
           c->plan->group[m->w->id].n_member == 1 && a->out.width % 32 == 0 && is_adapted(c, k);
}
static int three_kernels(const struct link_case *c, const struct cuda_link *k) {
    (void)c, (void)k;
    return 3;
}

static unsigned gated_gives(const struct link_case *c, const struct cuda_link *k, bool normed) {
    if (c->list->cls == ROW_DECODE) return normed ? 0 : c->int8 ? 1u << FORM_INT8_16 : LINK_HALVES;
    return normed ? 0 : k->wants == FORM_PANEL ? 1u << FORM_PANEL : LINK_TILES & ~(1u << FORM_PANEL);
}
static unsigned acted_gives(const struct link_case *c, const struct cuda_link *k, bool normed) {
    (void)c, (void)k;
    return normed ? 0 : 1u << FORM_HALVES | 1u << FORM_CODES;
}
bool link_added_takes(const struct link_case *c, const struct cuda_link *front, const struct cuda_link *k) {
    (void)c;
    return link_types[front->kind]->packets && k->in.form != FORM_ROWS;
}

const struct link_type link_matmul = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL), PATTERN(OP_GLU, OP_MATMUL)},
    .product = PRODUCT_ROWS,
    .fits = link_front_fits,
    .routes = LINK_ROUTES({ROW_PROMPT, OP_NORM, 0, 80, 129, true, "prompt_norm_kernel"})};
const struct link_type link_gated = {.classes = LINK_DECODE | LINK_PROMPT,
                                     .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL, OP_GLU)},
                                     .product = PRODUCT_GATED,
                                     .packets = true,
                                     .fits = is_gated,
                                     .gives = gated_gives};
const struct link_type link_acted = {.classes = LINK_PROMPT,
                                     .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL, OP_GLU)},
                                     .product = PRODUCT_ACTED,
                                     .fits = is_acted,
                                     .gives = acted_gives};
const struct link_type link_residual = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OPT(1, OP_GLU), OP_MATMUL, OP_ADD)},
    .product = PRODUCT_ADDED,
    .stream = true,
    .fits = is_residual,
    .gives = link_gives_stream,
    .takes = link_added_takes,
    .routes = LINK_ROUTES(
        {ROW_DECODE, OP_NORM, 0, 90, 129, true, "by the writer of the residual stream and the reader"})};
const struct link_type link_low = {.classes = LINK_DECODE,
                                   .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL, OP_LOWRANK)},
                                   .product = PRODUCT_ROWS,
                                   .fits = is_low};
const struct link_type link_low_gated = {.classes = LINK_DECODE,
                                         .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL, OP_LOWRANK, OP_GLU)},
                                         .product = PRODUCT_GATED,
                                         .packets = true,
                                         .fits = is_low_gated,
                                         .gives = gated_gives};
const struct link_type link_low_sum = {.classes = LINK_DECODE,
                                       .pattern = {PATTERN(OP_MATMUL, OP_LOWRANK, OP_ADD)},
                                       .product = PRODUCT_ADDED,
                                       .stream = true,
                                       .fits = is_low_sum,
                                       .gives = link_gives_stream,
                                       .takes = link_added_takes};
const struct link_type link_adapted = {.classes = LINK_DECODE,
                                       .pattern = {PATTERN(OPT(1, OP_NORM), OP_MATMUL, OP_LOWRANK)},
                                       .product = PRODUCT_ROWS,
                                       .reads_rows = true,
                                       .fits = is_adapted,
                                       .kernels = three_kernels};
const struct link_type link_adapted_sum = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OPT(1, OP_GLU), OP_MATMUL, OP_LOWRANK, OP_ADD)},
    .product = PRODUCT_ADDED,
    .stream = true,
    .reads_rows = true,
    .fits = is_adapted_sum,
    .gives = link_gives_stream,
    .kernels = three_kernels};
