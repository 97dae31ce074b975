/* Rules of the texts that several rules have in common, without those of others: "& a b !c". The rules named there must be regular: they are
 * walked side by side, byte by byte, and each set of places that is met becomes a place of the automaton; places from which no text ends are
 * left out. source: Rabin and Scott 1959 (Finite automata and their decision problems) */
#include "text/grammar/grammar_build.h"

#include <stdlib.h>
#include <string.h>
#include "base/stbds.h"

enum {
    MOST_SPOTS = 1 << 16,
    MOST_SETS = 1 << 14,
    MOST_LOOKED = 1 << 22 /* spots, of all rules of a grammar */
};

/* A place, and the spot to go on at when its rule is done; 0: none. */
struct spot {
    uint32_t node, back;
};
/* Places that are met together: of each operand a number of spots and the spots, ascending. */
struct set {
    uint32_t *spot, node;
    size_t n;
    bool whole, live; /* a text may end here; it can from here on */
    struct gstep *step;
};
struct gstep { /* bytes lo..hi lead to a set */
    uint8_t lo, hi;
    uint32_t to;
    struct gstep *next;
};
struct meet {
    struct infer_grammar *g;
    const struct grule *rule;
    const struct gexpr *body;
    struct arena arena;
    struct strmap *spots, *sets;
    struct spot *spot;      /* spot[n_spot], from 1 on */
    uint32_t *mark, *stack; /* mark[spot]: the walk that met it last; each spot is on the stack once */
    uint32_t n_spot, cap_spot[3], marks; /* of spot, mark, stack */
    struct set *set;
    uint32_t n_set, cap_set, *looked;
};

static enum infer_status no_memory(void) { return err_set(INFER_E_MEMORY, "out of memory: rules that meet"); }
static enum infer_status too_large(const struct meet *M) {
    return err_set(INFER_E_INPUT, "grammar line %d: rule '%.*s': what & joins names itself, or is too large",
                   M->rule->line, (int)(M->rule->n_name > 80 ? 80 : M->rule->n_name), M->rule->name);
}

/* Room for n of array's elements in the arena, where what was there stays for those who point to it. */
static enum infer_status room(struct meet *M, void *array, uint32_t *cap, uint32_t n, size_t size) {
    void *old, *p;
    if (n <= *cap) return INFER_OK;
    const uint32_t more = n < 32 ? 64 : 2 * n;
    memcpy(&old, array, sizeof old);
    if (!(p = arena_alloc(&M->arena, more * size))) return no_memory();
    if (*cap) memcpy(p, old, *cap * size);
    memcpy(array, &p, sizeof p);
    *cap = more;
    return INFER_OK;
}
static enum infer_status find_spot(struct meet *M, uint32_t node, uint32_t back, uint32_t *out) {
    const struct spot s = {node, back};
    const int64_t at = strmap_get(M->spots, (const char *)&s, sizeof s);
    int64_t old;
    *out = (uint32_t)at;
    if (at >= 0) return INFER_OK;
    if (M->n_spot == MOST_SPOTS) return too_large(M);
    TRY(room(M, &M->spot, &M->cap_spot[0], M->n_spot + 1, sizeof *M->spot));
    TRY(room(M, &M->mark, &M->cap_spot[1], M->n_spot + 1, sizeof *M->mark));
    TRY(room(M, &M->stack, &M->cap_spot[2], M->n_spot + 1, sizeof *M->stack));
    *out = M->n_spot++;
    M->spot[*out] = s;
    return strmap_put(M->spots, (const char *)&M->spot[*out], sizeof s, *out, &old);
}

/* ---- a walk without a byte ---- */

static enum infer_status push(struct meet *M, uint32_t node, uint32_t back, uint32_t *n) {
    uint32_t spot;
    if (++*M->looked > MOST_LOOKED) return too_large(M);
    TRY(find_spot(M, node, back, &spot));
    if (M->mark[spot] == M->marks) return INFER_OK;
    M->mark[spot] = M->marks;
    M->stack[(*n)++] = spot;
    return INFER_OK;
}

/* All spots behind the n on M->stack that are marked; *whole: the operand may end. */
static enum infer_status close_spots(struct meet *M, uint32_t *n, bool *whole) {
    const struct infer_grammar *g = M->g;
    for (uint32_t i = 0; i < *n; i++) {
        const struct spot s = M->spot[M->stack[i]], back = s.back ? M->spot[s.back] : (struct spot){0};
        if (g->node[s.node].end && s.back) TRY(push(M, back.node, back.back, n));
        *whole |= g->node[s.node].end && !s.back;
        for (uint32_t x = g->node[s.node].edge; x; x = g->edge[x].next) {
            const struct gedge e = g->edge[x];
            uint32_t then;
            if (e.kind == GX_EMPTY) TRY(push(M, e.to, s.back, n));
            if (e.kind != GX_CALL) continue;
            TRY(find_spot(M, e.to, s.back, &then));
            TRY(push(M, g->rule[e.rule].start, then, n));
        }
    }
    return INFER_OK;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}
static bool has_bytes(const struct meet *M, uint32_t spot) {
    for (uint32_t x = M->g->node[M->spot[spot].node].edge; x; x = M->g->edge[x].next)
        if (M->g->edge[x].kind == GX_BYTE) return true;
    return false;
}

/* ---- sets ---- */

/* What is being put together: to[n], and whether all operands that must end may, and none of the others. */
struct draft {
    uint32_t *to, n, cap;
    bool whole, none; /* none: an operand that must match cannot any more */
};
/* The n spots on M->stack as the next operand's. */
static enum infer_status put_operand(struct meet *M, struct draft *d, uint32_t n, bool negated) {
    bool whole = false;
    uint32_t kept = 0;
    TRY(close_spots(M, &n, &whole));
    TRY(room(M, &d->to, &d->cap, d->n + 1 + n, sizeof *d->to));
    for (uint32_t i = 0; i < n; i++)
        if (has_bytes(M, M->stack[i])) d->to[d->n + 1 + kept++] = M->stack[i];
    qsort(d->to + d->n + 1, kept, sizeof *d->to, by_number);
    d->to[d->n] = 2 * kept + whole; /* sets that end and that do not are apart */
    d->n += 1 + kept;
    d->whole &= whole != negated;
    d->none |= !negated && !kept && !whole;
    return INFER_OK;
}
static enum infer_status find_set(struct meet *M, const struct draft *d, uint32_t *out) {
    const size_t bytes = d->n * sizeof *d->to;
    const int64_t at = strmap_get(M->sets, (const char *)d->to, bytes);
    int64_t old;
    *out = (uint32_t)at;
    if (at >= 0) return INFER_OK;
    if (M->n_set == MOST_SETS) return too_large(M);
    TRY(room(M, &M->set, &M->cap_set, M->n_set + 1, sizeof *M->set));
    struct set *s = &M->set[ *out = M->n_set++];
    *s = (struct set){.spot = arena_alloc(&M->arena, bytes), .n = d->n, .whole = d->whole, .live = d->whole};
    if (!s->spot) return no_memory();
    memcpy(s->spot, d->to, bytes);
    return strmap_put(M->sets, (const char *)s->spot, bytes, *out, &old);
}

/* Where the byte leads from a set; *any: somewhere. */
static enum infer_status walk(struct meet *M, uint32_t from, unsigned byte, struct draft *d, bool *any) {
    const struct infer_grammar *g = M->g;
    const uint32_t *p = M->set[from].spot;
    d->n = 0, d->whole = true, d->none = false;
    for (const struct gexpr *k = M->body->first; k && !d->none; k = k->next) {
        uint32_t n = 0;
        M->marks++;
        *M->looked += *p / 2;
        for (uint32_t i = *p++ / 2; i; i--, p++)
            for (uint32_t x = g->node[M->spot[*p].node].edge; x; x = g->edge[x].next)
                if (g->edge[x].kind == GX_BYTE && g->edge[x].lo <= byte && byte <= g->edge[x].hi)
                    TRY(push(M, g->edge[x].to, M->spot[*p].back, &n));
        TRY(put_operand(M, d, n, k->negated));
    }
    *any = !d->none;
    return INFER_OK;
}

/* cut[b]: at byte b begins another run of bytes that lead to the same places. */
static void find_cuts(const struct meet *M, uint32_t at, bool cut[257]) {
    const struct infer_grammar *g = M->g;
    const uint32_t *p = M->set[at].spot, *end = p + M->set[at].n;
    memset(cut, 0, 257 * sizeof *cut);
    cut[0] = true;
    while (p < end)
        for (uint32_t i = *p++ / 2; i; i--, p++)
            for (uint32_t x = g->node[M->spot[*p].node].edge; x; x = g->edge[x].next)
                if (g->edge[x].kind == GX_BYTE) cut[g->edge[x].lo] = cut[g->edge[x].hi + 1] = true;
}

static enum infer_status add_step(struct meet *M, uint32_t from, unsigned lo, unsigned hi, uint32_t to) {
    struct gstep *step = arena_alloc(&M->arena, sizeof *step);
    if (!step) return no_memory();
    *step = (struct gstep){(uint8_t)lo, (uint8_t)hi, to, M->set[from].step};
    M->set[from].step = step;
    return INFER_OK;
}
static enum infer_status explore(struct meet *M, struct draft *d) {
    uint32_t to;
    d->n = 0, d->whole = true, d->none = false;
    for (const struct gexpr *k = M->body->first; k; k = k->next) {
        uint32_t n = 0;
        M->marks++;
        TRY(push(M, M->g->rule[k->rule].start, 0, &n));
        TRY(put_operand(M, d, n, k->negated));
    }
    TRY(find_set(M, d, &to));
    for (uint32_t at = 0; at < M->n_set; at++) {
        bool cut[257], any;
        find_cuts(M, at, cut);
        for (unsigned b = 0, next; b < 256; b = next) {
            for (next = b + 1; next < 256 && !cut[next]; next++) {
            }
            TRY(walk(M, at, b, d, &any));
            if (!any) continue;
            TRY(find_set(M, d, &to));
            TRY(add_step(M, at, b, next - 1, to));
        }
    }
    return INFER_OK;
}

/* ---- the automaton ---- */

static void find_live(struct meet *M) {
    bool again = true;
    for (int pass = 0; again; pass++) { /* to and fro, so that long chains take few passes */
        again = false;
        for (uint32_t i = 0; i < M->n_set; i++) {
            struct set *s = &M->set[pass % 2 ? i : M->n_set - 1 - i];
            if (s->live) continue;
            for (const struct gstep *x = s->step; x && !s->live; x = x->next) s->live = M->set[x->to].live;
            again |= s->live;
        }
    }
}
static enum infer_status write_down(struct meet *M, struct grule *r) {
    struct infer_grammar *g = M->g;
    r->body_from = g->n_node;
    for (uint32_t i = 0; i < M->n_set; i++)
        if (M->set[i].live) TRY(grammar_node(g, &M->set[i].node));
    r->body_to = g->n_node;
    if (M->set[0].live)
        TRY(grammar_edge(g, r->start, (struct gedge){.to = M->set[0].node, .kind = GX_EMPTY}));
    for (uint32_t i = 0; i < M->n_set; i++) {
        const struct set *s = &M->set[i];
        if (s->live && s->whole)
            TRY(grammar_edge(g, s->node, (struct gedge){.to = r->end, .kind = GX_EMPTY}));
        for (const struct gstep *x = s->live ? s->step : NULL; x; x = x->next)
            if (M->set[x->to].live)
                TRY(grammar_edge(
                    g, s->node,
                    (struct gedge){.to = M->set[x->to].node, .kind = GX_BYTE, .lo = x->lo, .hi = x->hi}));
    }
    return INFER_OK;
}

static enum infer_status make(struct infer_grammar *g, int rule, uint32_t *looked) {
    struct meet M = {
        .g = g, .rule = &g->rule[rule], .body = g->rule[rule].body, .n_spot = 1, .looked = looked};
    struct draft d = {0};
    enum infer_status st = strmap_new(&M.spots, &M.arena);
    if (!st) st = strmap_new(&M.sets, &M.arena);
    if (!st) st = explore(&M, &d);
    if (!st) find_live(&M);
    if (!st) st = write_down(&M, &g->rule[rule]);
    arena_free(&M.arena);
    return st;
}

/* ---- which comes first ---- */

enum progress { UNTOUCHED, BEGUN, READY };
struct order {
    struct infer_grammar *g;
    enum progress *of; /* of[rule] */
    uint32_t looked;
};
static enum infer_status prepare(struct order *o, int rule);
static enum infer_status prepare_called(struct order *o, uint32_t node) {
    for (uint32_t x = o->g->node[node].edge; x; x = o->g->edge[x].next)
        if (o->g->edge[x].kind == GX_CALL) TRY(prepare(o, o->g->edge[x].rule));
    return INFER_OK;
}
/* What a rule reads, and the rule. */
static enum infer_status prepare(struct order *o, int rule) {
    struct infer_grammar *g = o->g;
    const struct grule *r = &g->rule[rule];
    const bool meets = r->body->kind == GE_MEET;
    if (o->of[rule] == BEGUN && meets)
        return err_set(INFER_E_INPUT, "grammar line %d: rule '%.*s': what & joins names itself", r->line,
                       (int)(r->n_name > 80 ? 80 : r->n_name), r->name);
    if (o->of[rule] != UNTOUCHED) return INFER_OK;
    o->of[rule] = BEGUN;
    if (meets) {
        for (const struct gexpr *k = r->body->first; k; k = k->next) TRY(prepare(o, k->rule));
        TRY(make(g, rule, &o->looked));
    } else {
        TRY(prepare_called(o, r->start));
        for (uint32_t node = r->body_from; node < r->body_to; node++) TRY(prepare_called(o, node));
    }
    o->of[rule] = READY;
    return INFER_OK;
}

enum infer_status grammar_meets(struct infer_grammar *g) {
    struct order o = {.g = g, .of = arena_alloc(&g->arena, (size_t)g->n_rule * sizeof *o.of)};
    if (!o.of) return no_memory();
    for (int i = 0; i < g->n_rule; i++)
        if (g->rule[i].body->kind == GE_MEET) TRY(prepare(&o, i));
    return INFER_OK;
}
