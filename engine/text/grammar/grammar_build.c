/* Expressions -> an automaton over bytes, one piece per rule; code points become the bytes of their UTF-8. */
#include "text/grammar/grammar_build.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes and edges ---- */

static enum infer_status grow(void *array, uint32_t *cap, uint32_t n, size_t size, const char *what) {
    void *old;
    memcpy(&old, array, sizeof old);
    if (n < *cap) return INFER_OK;
    if (n >= 4 * GRAMMAR_MAX_NODES)
        return err_set(INFER_E_INPUT, "grammar: more than %d %s", 4 * GRAMMAR_MAX_NODES, what);
    uint32_t more = *cap ? 2 * *cap : 256;
    void *p = mem_realloc(old, more * size);
    if (!p) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for a grammar", more * size);
    memcpy(array, &p, sizeof p);
    *cap = more;
    return INFER_OK;
}

enum infer_status grammar_node(struct infer_grammar *g, uint32_t *out) {
    if (g->n_node >= GRAMMAR_MAX_NODES)
        return err_set(INFER_E_INPUT, "grammar: more than %d places", GRAMMAR_MAX_NODES);
    TRY(grow(&g->node, &g->cap_node, g->n_node, sizeof *g->node, "places"));
    g->node[g->n_node] = (struct gnode){0};
    *out = g->n_node++;
    return INFER_OK;
}

enum infer_status grammar_edge(struct infer_grammar *g, uint32_t from, struct gedge e) {
    if (g->n_edge == 0) { /* 0 means none */
        TRY(grow(&g->edge, &g->cap_edge, 0, sizeof *g->edge, "edges"));
        g->edge[g->n_edge++] = (struct gedge){0};
    }
    TRY(grow(&g->edge, &g->cap_edge, g->n_edge, sizeof *g->edge, "edges"));
    e.next = g->node[from].edge;
    g->edge[g->n_edge] = e;
    g->node[from].edge = g->n_edge++;
    return INFER_OK;
}

static enum infer_status link(struct infer_grammar *g, uint32_t from, uint32_t to) {
    return grammar_edge(g, from, (struct gedge){.to = to, .kind = GX_EMPTY});
}

static enum infer_status byte_edge(struct infer_grammar *g, uint32_t from, unsigned lo, unsigned hi,
                                   uint32_t to) {
    return grammar_edge(g, from,
                        (struct gedge){.to = to, .kind = GX_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}

/* ---- classes of code points -> ranges of bytes ---- */

struct utf8_builder {
    struct infer_grammar *g;
    uint32_t from, to;
    uint32_t tail[3]; /* tail[k]: k more bytes of 80..BF lead to `to`; 0: not made yet */
};

static enum infer_status tail(struct utf8_builder *b, int k, uint32_t *out) {
    if (k == 0) {
        *out = b->to;
        return INFER_OK;
    }
    if (!b->tail[k - 1]) {
        uint32_t node, next;
        TRY(tail(b, k - 1, &next));
        TRY(grammar_node(b->g, &node));
        TRY(byte_edge(b->g, node, 0x80, 0xbf, next));
        b->tail[k - 1] = node;
    }
    *out = b->tail[k - 1];
    return INFER_OK;
}

/* Code points lo..hi whose encodings have k bytes behind the byte chosen at from; first: the bits of that byte. */
static enum infer_status byte_ranges(struct utf8_builder *b, uint32_t from, int32_t lo, int32_t hi, int k,
                                     unsigned first) {
    int shift = 6 * k;
    int32_t mask = (1 << shift) - 1;
    while (lo <= hi) {
        /* the longest run of leading bytes whose rest is free, or one leading byte with a part of its rest */
        int32_t a = lo >> shift, z = hi >> shift;
        bool low_free = (lo & mask) == 0, high_free = (hi & mask) == mask;
        if (a == z && !(low_free && high_free)) {
            uint32_t next;
            TRY(grammar_node(b->g, &next));
            TRY(byte_edge(b->g, from, first + (unsigned)a, first + (unsigned)a, next));
            return byte_ranges(b, next, lo & mask, hi & mask, k - 1, 0x80);
        }
        if (low_free) {
            int32_t last = high_free ? z : z - 1;
            uint32_t next;
            TRY(tail(b, k, &next));
            TRY(byte_edge(b->g, from, first + (unsigned)a, first + (unsigned)last, next));
            lo = (last + 1) << shift;
        } else {
            int32_t end = ((a + 1) << shift) - 1;
            uint32_t next;
            TRY(grammar_node(b->g, &next));
            TRY(byte_edge(b->g, from, first + (unsigned)a, first + (unsigned)a, next));
            TRY(byte_ranges(b, next, lo & mask, mask, k - 1, 0x80));
            lo = end + 1;
        }
    }
    return INFER_OK;
}

static enum infer_status code_points(struct utf8_builder *b, int32_t lo, int32_t hi) {
    static const int32_t least[] = {0, 0x80, 0x800, 0xe000, 0x10000},
                         most[] = {0x7f, 0x7ff, 0xd7ff, 0xffff, 0x10ffff};
    static const unsigned first[] = {0, 0xc0, 0xe0, 0xe0, 0xf0};
    static const int more[] = {0, 1, 2, 2, 3};
    for (int i = 0; i < 5; i++) {
        int32_t a = lo > least[i] ? lo : least[i], z = hi < most[i] ? hi : most[i];
        if (a <= z) TRY(byte_ranges(b, b->from, a, z, more[i], first[i]));
    }
    return INFER_OK;
}

static int by_low(const void *a, const void *b) {
    int32_t x = ((const struct grange *)a)->lo, y = ((const struct grange *)b)->lo;
    return (x > y) - (x < y);
}

static enum infer_status build_class(struct infer_grammar *g, const struct gexpr *e, uint32_t from,
                                     uint32_t to) {
    struct utf8_builder b = {.g = g, .from = from, .to = to};
    int32_t next = 0; /* the first code point not yet dealt with */
    if (e->n) qsort(e->range, e->n, sizeof *e->range, by_low);
    for (size_t i = 0; i < e->n; i++) {
        int32_t lo = e->range[i].lo > next ? e->range[i].lo : next, hi = e->range[i].hi;
        if (hi < lo) continue;
        if (!e->negated)
            TRY(code_points(&b, lo, hi));
        else if (lo > next)
            TRY(code_points(&b, next, lo - 1));
        next = hi + 1;
    }
    return e->negated ? code_points(&b, next, 0x10ffff) : INFER_OK;
}

/* ---- expressions ---- */

static enum infer_status build(struct infer_grammar *g, const struct gexpr *e, uint32_t from, uint32_t to);

static enum infer_status build_text(struct infer_grammar *g, const struct gexpr *e, uint32_t from,
                                    uint32_t to) {
    for (size_t i = 0; i < e->n; i++) {
        uint32_t next = to;
        if (i + 1 < e->n) TRY(grammar_node(g, &next));
        TRY(byte_edge(g, from, (unsigned char)e->text[i], (unsigned char)e->text[i], next));
        from = next;
    }
    return e->n ? INFER_OK : link(g, from, to);
}

static enum infer_status build_sequence(struct infer_grammar *g, const struct gexpr *e, uint32_t from,
                                        uint32_t to) {
    if (!e->first) return link(g, from, to);
    for (const struct gexpr *k = e->first; k; k = k->next) {
        uint32_t next = to;
        if (k->next) TRY(grammar_node(g, &next));
        TRY(build(g, k, from, next));
        from = next;
    }
    return INFER_OK;
}

static enum infer_status count_copy(struct infer_grammar *g) {
    if (++g->n_repeat > GRAMMAR_MAX_REPEAT)
        return err_set(INFER_E_INPUT, "grammar: repetitions make more than %d copies", GRAMMAR_MAX_REPEAT);
    return INFER_OK;
}

static enum infer_status build_repeat(struct infer_grammar *g, const struct gexpr *e, uint32_t from,
                                      uint32_t to) {
    for (int i = 0; i < e->min; i++) {
        uint32_t next;
        TRY(count_copy(g));
        TRY(grammar_node(g, &next));
        TRY(build(g, e->first, from, next));
        from = next;
    }
    if (e->max < 0) { /* a node of its own to turn round at, so that nothing outside can enter the circle */
        uint32_t turn;
        TRY(grammar_node(g, &turn));
        TRY(link(g, from, turn));
        TRY(build(g, e->first, turn, turn));
        return link(g, turn, to);
    }
    for (int i = e->min; i < e->max; i++) {
        uint32_t next;
        TRY(count_copy(g));
        TRY(link(g, from, to));
        TRY(grammar_node(g, &next));
        TRY(build(g, e->first, from, next));
        from = next;
    }
    return link(g, from, to);
}

static enum infer_status build(struct infer_grammar *g, const struct gexpr *e, uint32_t from, uint32_t to) {
    switch (e->kind) {
    case GE_TEXT:
        return build_text(g, e, from, to);
    case GE_CLASS:
        return build_class(g, e, from, to);
    case GE_RULE:
        return grammar_edge(g, from, (struct gedge){.to = to, .kind = GX_CALL, .rule = (uint16_t)e->rule});
    case GE_SEQ:
        return build_sequence(g, e, from, to);
    case GE_REPEAT:
        return build_repeat(g, e, from, to);
    case GE_ALT:
        for (const struct gexpr *k = e->first; k; k = k->next) {
            uint32_t start; /* a node of its own: a repetition inside must not turn into its neighbours */
            TRY(grammar_node(g, &start));
            TRY(link(g, from, start));
            TRY(build(g, k, start, to));
        }
        return INFER_OK;
    case GE_MEET: /* grammar_meets */
        break;
    }
    return INFER_OK;
}

/* ---- left recursion ---- */

uint32_t grammar_reach(const struct infer_grammar *g, struct reaching *w, uint32_t start) {
    uint32_t n = 0;
    w->number++;
    w->stack[n++] = start;
    w->seen[start] = w->number;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t x = g->node[w->stack[i]].edge; x; x = g->edge[x].next) {
            const struct gedge *e = &g->edge[x];
            if (e->kind == GX_BYTE || (e->kind == GX_CALL && !g->rule[e->rule].nullable)) continue;
            if (w->seen[e->to] == w->number) continue;
            w->seen[e->to] = w->number;
            w->stack[n++] = e->to;
        }
    }
    return n;
}

static void find_nullable(struct infer_grammar *g, struct reaching *w) {
    bool again = true;
    for (int pass = 0; again; pass++) { /* to and fro, so that long chains take few passes */
        again = false;
        for (int k = 0; k < g->n_rule; k++) {
            int i = pass % 2 ? k : g->n_rule - 1 - k;
            if (g->rule[i].nullable) continue;
            grammar_reach(g, w, g->rule[i].start);
            if (w->seen[g->rule[i].end] != w->number) continue;
            g->rule[i].nullable = again = true;
        }
    }
}

static void find_begins(const struct infer_grammar *g, struct reaching *w, struct begins *b) {
    uint32_t n = 0;
    for (int r = 0; r < g->n_rule; r++) {
        b->first[r] = n;
        const uint32_t m = grammar_reach(g, w, g->rule[r].start);
        for (uint32_t i = 0; i < m; i++)
            for (uint32_t x = g->node[w->stack[i]].edge; x; x = g->edge[x].next)
                if (g->edge[x].kind == GX_CALL && n < g->n_edge) b->call[n++] = g->edge[x].rule;
    }
    b->first[g->n_rule] = n;
}

static enum infer_status turn_left(struct infer_grammar *g) {
    struct arena a = {0};
    struct reaching w = {.seen = arena_alloc(&a, g->n_node * sizeof *w.seen),
                         .stack = arena_alloc(&a, g->n_node * sizeof *w.stack)};
    struct begins b = {arena_alloc(&a, (g->n_edge + 1) * sizeof *b.call),
                       arena_alloc(&a, ((size_t)g->n_rule + 1) * sizeof *b.first)};
    enum infer_status st;
    if (!w.seen || !w.stack || !b.first || !b.call) {
        st = err_set(INFER_E_MEMORY, "out of memory: %u places of a grammar", g->n_node);
    } else {
        find_nullable(g, &w);
        find_begins(g, &w, &b);
        st = grammar_left(g, &w, &b);
    }
    arena_free(&a);
    return st;
}

enum infer_status grammar_build(struct infer_grammar *g) {
    for (int i = 0; i < g->n_rule; i++) {
        TRY(grammar_node(g, &g->rule[i].start));
        TRY(grammar_node(g, &g->rule[i].end));
        g->node[g->rule[i].end].end = true;
    }
    for (int i = 0; i < g->n_rule; i++) {
        struct grule *r = &g->rule[i];
        r->body_from = g->n_node;
        if (r->body->kind != GE_MEET) TRY(build(g, r->body, r->start, r->end));
        r->body_to = g->n_node;
    }
    TRY(grammar_meets(g));
    g->start = g->rule[0].start;
    return turn_left(g);
}

/* ---- a grammar ---- */

enum infer_status infer_grammar_from_gbnf(struct infer_grammar **out, const char *text, size_t n) {
    struct infer_grammar *g;
    *out = NULL;
    TRY(mem_new(&g, sizeof *g, "a grammar"));
    enum infer_status st = gbnf_parse(g, text, n);
    if (!st) st = grammar_build(g);
    if (st) {
        infer_grammar_free(g);
        return st;
    }
    *out = g;
    return INFER_OK;
}

void infer_grammar_free(struct infer_grammar *g) {
    if (!g) return;
    mem_free(g->node);
    mem_free(g->edge);
    arena_free(&g->arena);
    mem_free(g);
}
