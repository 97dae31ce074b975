#include "cuda/plan/link_type.h"
#include "base/mem.h"

/* ---- what a link reads and leaves ---------------------------------------------------------------------------- */

static const struct view no_view = {-1, 0, 0};

struct view link_reads(const struct op_list *l, const struct cuda_link *k) {
    if (k->product == PRODUCT_CHOSEN) return l->op[k->first].rows.x;
    if (k->norm >= 0) return l->op[k->norm].norm.x;
    if (k->before >= 0) {
        const struct op *o = &l->op[k->before];
        return o->kind == OP_NORM ? o->norm.x : o->glu.gate;
    }
    return k->matmul >= 0 ? l->op[k->matmul].matmul.x : no_view;
}
struct view link_writes(const struct op_list *l, const struct cuda_link *k) {
    const struct op_use u = op_uses(&l->op[link_last(k)]);
    return u.n_write ? u.write[0] : no_view;
}
const char *link_name(const struct op_list *l, const struct cuda_link *k) {
    int i = k->matmul >= 0 ? k->matmul : link_last(k);
    if (link_types[k->kind]->by_experts)
        for (i = k->first; l->op[i].kind != OP_EXPERTS;) i++;
    if (link_types[k->kind]->by_product)
        for (i = k->first; l->op[i].kind != OP_MATMUL;) i++;
    return l->op[i].name;
}

/* ---- edges ------------------------------------------------------------------------------------------------------ */

unsigned link_gives_stream(const struct link_case *c, const struct cuda_link *k, bool normed) {
    (void)k;
    if (c->list->cls != ROW_DECODE || !normed) return 0;
    return c->int8 ? 1u << FORM_INT8_32 : LINK_HALVES;
}
unsigned link_gives_result(const struct link_case *c, const struct cuda_link *k, bool normed) {
    (void)k;
    if (normed) return 0;
    return c->list->cls == ROW_DECODE ? LINK_HALVES | 1u << FORM_INT8_32 : LINK_TILES;
}
/* The form of the edge from g to t. */
static enum link_form form_between(const struct link_case *c, const struct cuda_link *g,
                                   const struct cuda_link *t) {
    const struct link_type *type = link_types[g->kind];
    const bool normed = t->norm >= 0;
    const enum link_form want =
        g->product == PRODUCT_GATED && t->wants == FORM_INT8_32 ? FORM_INT8_16 : t->wants;
    if (t->matmul < 0 || t->before >= 0 || !type->gives || !(type->gives(c, g, normed) >> want & 1))
        return FORM_ROWS;
    const struct view v = link_writes(c->list, g);
    if (!view_same(v, link_reads(c->list, t))) return FORM_ROWS;
    if (link_types[t->kind]->reads_rows && !type->stream) return FORM_ROWS;
    /* the residual stream is there as rows, too; other results are not */
    if (!normed && !type->stream && c->list->buf[v.buf].last > link_last(t)) return FORM_ROWS;
    return link_has(c, g, g->wants, want) && link_has(c, t, want, FORM_ROWS) ? want : FORM_ROWS;
}

/* ---- the matcher ------------------------------------------------------------------------------------------------ */

const struct link_type *const link_types[LINK_KIND_COUNT] = {
#define LINK(id, name, file) &link_##name,
#include "cuda/plan/links.def"
};

const struct link_route *link_routes(enum link_kind k) {
    static const struct link_route none = {.kernel = NULL};
    return link_types[k]->routes ? link_types[k]->routes : &none;
}
const struct link_route *link_route(const struct route_case *c, enum link_kind k, enum row_class cls,
                                    int head) {
    for (const struct link_route *r = link_routes(k); r->kernel; r++)
        if (r->cls == cls && (!r->most_head || head <= r->most_head) && c->sm >= r->sm_least &&
            c->sm <= r->sm_most && (r->mma || !c->only_mma))
            return r;
    return NULL;
}

/* Whether a matmul takes what stands ready for the one in front of it: what is_twice saw. */
static bool is_again(const struct link_case *c, const struct cuda_link *front, const struct cuda_link *k) {
    return front->product == PRODUCT_ROWS && k->product == PRODUCT_ROWS && front->norm >= 0 && k->norm < 0 &&
           k->before < 0 && view_same(c->list->op[k->matmul].matmul.x, c->list->op[front->norm].norm.out);
}
/* What turns rows into another form reads four columns at once. */
static bool convertible(const struct link_case *c, const struct cuda_link *k) {
    const struct view x = link_reads(c->list, k);
    return x.col % 4 == 0 && x.width % 4 == 0;
}
/* Operations from at on that a pattern takes with these of its optional groups; 0: they are others. */
static int taken(const struct op_list *l, const struct link_pattern *p, unsigned groups, int at) {
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const int group = p->op[i] >> 8;
        if (group && !(groups >> (group - 1) & 1)) continue;
        if (at + n >= l->n_op || l->op[at + n].kind != (p->op[i] & 255)) return 0;
        n++;
    }
    return n;
}
/* Whether some pattern of a type takes n operations from at on. */
static bool takes(const struct op_list *l, const struct link_type *t, int at, int n) {
    if (!(t->classes >> l->cls & 1)) return false;
    for (const struct link_pattern *p = t->pattern; p < t->pattern + 3 && p->n; p++) {
        unsigned groups = 1;
        for (int i = 0; i < p->n; i++)
            if (1u << (p->op[i] >> 8) > groups) groups = 1u << (p->op[i] >> 8);
        while (groups--)
            if (taken(l, p, groups, at) == n) return true;
    }
    return false;
}
/* Whether n operations from at on are a link of that kind, behind the link in front (NULL: none). */
static bool matches(const struct link_case *c, enum link_kind kind, int at, int n,
                    const struct cuda_link *front, struct cuda_link *k) {
    const struct link_type *t = link_types[kind];
    if (!takes(c->list, t, at, n)) return false;
    *k = (struct cuda_link){kind, t->product, .first = at, .n_op = n, .norm = -1, .before = -1, .matmul = -1};
    if (t->product) {
        const struct op *o = &c->list->op[at];
        for (k->matmul = at; o->kind != OP_MATMUL; o++) k->matmul++;
        if (k->matmul > at)
            *(o[-1].kind == OP_NORM && o[-1].norm.kind == NORM_RMS ? &k->norm : &k->before) = k->matmul - 1;
    }
    if (!t->fits(c, k)) return false;
    if (front && is_again(c, front, k)) {
        k->norm = front->norm;
        k->in.form = k->wants;
    } else if (front)
        k->in.form = form_between(c, front, k);
    return k->matmul < 0 || k->in.form != FORM_ROWS || convertible(c, k);
}
/* The longest link from operation at on, behind the link in front (NULL: none). */
static struct cuda_link longest(const struct link_case *c, int at, const struct cuda_link *front) {
    struct cuda_link k;
    for (int last = 0; last <= 1; last++)
        for (int n = LINK_OPS; n; n--)
            for (int kind = 0; kind < LINK_KIND_COUNT; kind++)
                if (link_types[kind]->last == last && matches(c, (enum link_kind)kind, at, n, front, &k))
                    return k;
    return (struct cuda_link){
        .kind = LINK_PLAIN, .first = at, .n_op = 1, .norm = -1, .before = -1, .matmul = -1};
}

int links_make(const struct link_case *c, struct cuda_link *link) {
    int n = 0;
    for (int at = 0; at < c->list->n_op; at += link[n++].n_op) {
        struct cuda_link *front = n ? &link[n - 1] : NULL, *k = &link[n];
        *k = longest(c, at, front);
        if (!front) continue;
        if (k->in.form == FORM_INT8_16) k->wants = FORM_INT8_16;
        front->gives = k->norm >= 0 && k->norm < k->first ? FORM_ROWS : k->in.form;
        const struct link_type *t = link_types[k->kind];
        k->in.packets = c->list->cls == ROW_DECODE && t->takes && t->takes(c, front, k);
        /* what int8 codes have lost does not come back */
        if (c->int8 && front->product == PRODUCT_GATED && front->gives == FORM_ROWS) return 0;
    }
    return n;
}

enum infer_status links_kernels(int *out, const struct backend_config *config, int sm) {
    const struct op_list *l = config->list[ROW_DECODE];
    const struct route_case route = {.sm = sm, .shared_bytes = 227 << 10};
    struct cuda_plan plan;
    struct cuda_link *link;
    bool fused = false;
    TRY(cuda_plan_make(&plan, config));
    enum infer_status st = mem_new(&link, (size_t)(l->n_op + 1) * sizeof *link, "links of a list");
    const struct link_case c = {.list = l, .plan = &plan, .store = config->store, .route = &route};
    const int n = st ? 0 : links_make(&c, link);
    *out = 0;
    for (int i = 0; i < n; i++) {
        const struct link_type *t = link_types[link[i].kind];
        fused |= link[i].matmul >= 0;
        *out += (t->kernels ? t->kernels(&c, &link[i]) : 1) +
                (link[i].matmul >= 0 && link[i].in.form == FORM_ROWS);
    }
    if (!fused) *out = l->n_op;
    mem_free(link);
    cuda_plan_free(&plan);
    return st;
}
