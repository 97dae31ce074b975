/* What an adapter adds to the products of one rank's share of a model. B A x is linear: of columns that a rank has it needs those of B, and of
 * inputs that it has those of A, where what ranks make is added up. */
#include "model/adapter.h"

struct sharing {
    const struct adapter *of;
    const struct model *m; /* the share */
    struct adapter *a;
};

static float *numbers(struct sharing *s, const struct lowrank_part *p, int n) {
    const size_t all = (size_t)p->n_stack * (size_t)p->r * (size_t)n;
    s->a->bytes += all * sizeof(float);
    return arena_alloc(&s->a->arena, all * sizeof(float));
}

/* n of `wide` numbers of each row, from `from` on, to column `to` of rows of `narrow`. */
static void copy_columns(float *out, int narrow, int to, const float *x, int wide, int from, int n,
                         size_t rows) {
    for (size_t r = 0; r < rows; r++)
        memcpy(out + r * (size_t)narrow + to, x + r * (size_t)wide + from, (size_t)n * sizeof *out);
}

/* The columns of p among those that member i of a group has. */
struct overlap {
    int own, from, n; /* own: in the group's product; from: in p */
};
static struct overlap overlap_of(const struct weight_group *g, const struct group_share *s, int i,
                                 const struct lowrank_part *p) {
    struct overlap o = {0};
    for (int k = 0; k < i; k++) o.own += g->member[k].n;
    const int first = s->col[i], end = first + g->member[i].n, a = first > p->col ? first : p->col,
              b = end < p->col + p->n ? end : p->col + p->n;
    o.own += a - first, o.from = a - p->col, o.n = b - a;
    return o;
}

/* Those of all members, which follow each other; n 0: none. */
static enum infer_status take_part(struct sharing *s, const struct lowrank_part *p, int id,
                                   const struct group_share *share) {
    const struct weight_group *g = s->m->group[id];
    struct lowrank_part own = *p;
    float *a, *b;
    own.n = 0;
    own.n_stack = g->member[0].n_stack;
    if (p->a) own.a += (size_t)share->stack * (size_t)p->r * (size_t)p->k;
    own.b += (size_t)share->stack * (size_t)p->r * (size_t)p->n;
    for (int i = 0; i < g->n_member; i++) {
        const struct overlap o = overlap_of(g, share, i, p);
        if (o.n < 1) continue;
        if (!own.n) own.col = o.own;
        if (own.col + own.n != o.own) infer_bug("columns of %s with a gap", g->member[i].name);
        own.n += o.n;
    }
    if (!own.n) return INFER_OK;
    const struct lowrank_part from = own;
    const size_t rows = (size_t)own.n_stack * (size_t)own.r;
    if (g->k != p->k) {
        own.k = g->k;
        if (!(own.a = a = numbers(s, &from, g->k)))
            return err_set(INFER_E_MEMORY, "out of memory for adapters");
        copy_columns(a, g->k, 0, from.a, p->k, share->k, g->k, rows);
    }
    if (own.n != p->n) {
        if (!(own.b = b = numbers(s, &from, own.n)))
            return err_set(INFER_E_MEMORY, "out of memory for adapters");
        for (int i = 0; i < g->n_member; i++) {
            const struct overlap o = overlap_of(g, share, i, p);
            if (o.n > 0) copy_columns(b, own.n, o.own - own.col, from.b, p->n, o.from, o.n, rows);
        }
    }
    s->a->part[s->a->n_part++] = (struct adapter_part){id, 0, own};
    return INFER_OK;
}

/* Parts of `of` for each group of the share, in their order; vectors as they are: every rank has the whole residual stream. */
static enum infer_status take_parts(struct sharing *s, bool count, int *n) {
    *n = 0;
    for (int k = 0; k < s->of->n_part; k++) {
        const struct adapter_part *p = &s->of->part[k];
        if (p->group < 0) {
            if (!count) s->a->part[s->a->n_part++] = *p;
            ++*n;
        }
        for (int id = 0; p->group >= 0 && id < s->m->n_group; id++) {
            const struct group_share *g = &s->m->share.group[id];
            if (g->of != p->group) continue;
            if (!count) TRY(take_part(s, &p->low, id, g));
            ++*n;
        }
    }
    return INFER_OK;
}

enum infer_status adapter_share(struct adapter **out, const struct adapter *a, const struct model *share) {
    struct sharing s = {a, share, NULL};
    int n;
    *out = NULL;
    TRY(mem_new(&s.a, sizeof *s.a, "an adapter"));
    s.a->path = a->path, s.a->hash = a->hash;
    enum infer_status st = take_parts(&s, true, &n);
    s.a->part = arena_alloc(&s.a->arena, ((size_t)n + 1) * sizeof *s.a->part);
    st = !s.a->part ? err_set(INFER_E_MEMORY, "out of memory for adapters")
         : st       ? st
                    : take_parts(&s, false, &n);
    if (st)
        adapter_close(s.a);
    else
        *out = s.a;
    return st;
}
