/* Left recursion: a rule that begins with itself would be called for ever. Each rule's piece of the automaton is made anew in two layers:
 * LEFT, where nothing of the rule has been read yet, and RIGHT. A piece holds all rules of its circle. In LEFT a call within the circle is no
 * call: whichever rule's text comes first is read, and from the end of its RIGHT layer each call that could have asked for it goes on. So what a
 * rule reads is the same, from the bottom up ("left-corner" parsing). No rule is empty then: what could be is passed by an edge beside the call. */
#include "text/grammar/grammar_build.h"

struct left {
    struct infer_grammar *g, *to; /* the automaton, and the one that is made */
    struct reaching w;
    uint32_t *left, *right; /* new places of the piece at hand: left[n_node], right[n_node] */
    int *circle;            /* circle[n_rule]: rules of one number can begin with each other; -1: with none */
    int *member;            /* rules of the circle at hand, member[n_member] */
    int n_member;
    bool *gives; /* gives[n_rule]: some text ends the rule */
};

/* ---- circles (Tarjan's strongly connected components, without recursion) ---- */

struct tarjan {
    int *index, *low, *stack, *path;
    uint32_t *at; /* at[depth]: next call of path[depth] */
    bool *on;
    int n, n_stack;
};

static void enter(struct tarjan *t, const struct begins *b, int r, int depth) {
    t->index[r] = t->low[r] = ++t->n;
    t->stack[t->n_stack++] = r;
    t->on[r] = true;
    t->path[depth] = r;
    t->at[depth] = b->first[r];
}

/* r is done: if it began its circle, that is numbered, when it is one. */
static void leave(struct tarjan *t, const struct begins *b, int r, int *circle) {
    if (t->low[r] != t->index[r]) return;
    bool self = t->stack[t->n_stack - 1] != r;
    for (uint32_t i = b->first[r]; i < b->first[r + 1]; i++) self |= b->call[i] == r;
    for (int m = -1; m != r;) {
        m = t->stack[--t->n_stack];
        t->on[m] = false;
        circle[m] = self ? r : -1;
    }
}

static void find_circles(struct tarjan *t, const struct begins *b, int n_rule, int *circle) {
    for (int start = 0; start < n_rule; start++) {
        int depth = 0;
        if (t->index[start]) continue;
        enter(t, b, start, 0);
        while (depth >= 0) {
            const int r = t->path[depth];
            if (t->at[depth] < b->first[r + 1]) {
                const int c = b->call[t->at[depth]++];
                if (!t->index[c])
                    enter(t, b, c, ++depth);
                else if (t->on[c] && t->index[c] < t->low[r])
                    t->low[r] = t->index[c];
                continue;
            }
            leave(t, b, r, circle);
            if (depth-- && t->low[r] < t->low[t->path[depth]]) t->low[t->path[depth]] = t->low[r];
        }
    }
}

/* ---- rules without a text ---- */

static bool reaches_end(struct left *L, int r) {
    const struct infer_grammar *g = L->g;
    uint32_t n = 0;
    L->w.number++;
    L->w.stack[n++] = g->rule[r].start;
    L->w.seen[g->rule[r].start] = L->w.number;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t x = g->node[L->w.stack[i]].edge; x; x = g->edge[x].next) {
            const struct gedge *e = &g->edge[x];
            if ((e->kind == GX_CALL && !L->gives[e->rule]) || L->w.seen[e->to] == L->w.number) continue;
            L->w.seen[e->to] = L->w.number;
            L->w.stack[n++] = e->to;
        }
    return L->w.seen[g->rule[r].end] == L->w.number;
}

/* A circle that no text ends is a mistake. */
static enum infer_status check_texts(struct left *L) {
    const struct infer_grammar *g = L->g;
    bool again = true;
    for (int pass = 0; again; pass++) {
        again = false;
        for (int k = 0; k < g->n_rule; k++) {
            const int r = pass % 2 ? k : g->n_rule - 1 - k;
            if (!L->gives[r] && reaches_end(L, r)) L->gives[r] = again = true;
        }
    }
    for (int r = 0; r < g->n_rule; r++)
        if (L->circle[r] >= 0 && !L->gives[r])
            return err_set(
                INFER_E_INPUT, "grammar line %d: rule '%.*s' begins with itself, and no text ends it",
                g->rule[r].line, (int)(g->rule[r].n_name > 80 ? 80 : g->rule[r].n_name), g->rule[r].name);
    return INFER_OK;
}

/* ---- the new automaton ---- */

static enum infer_status place(struct left *L, uint32_t *of, uint32_t node) {
    return of[node] ? INFER_OK : grammar_node(L->to, &of[node]);
}

static enum infer_status edge(struct left *L, uint32_t from, struct gedge e, uint32_t to) {
    e.to = to;
    return grammar_edge(L->to, from, e);
}

static const struct gedge empty = {.kind = GX_EMPTY};

/* The edges of a place of LEFT. circle: of the piece. */
static enum infer_status left_edges(struct left *L, uint32_t node, int circle) {
    const struct infer_grammar *g = L->g;
    TRY(place(L, L->left, node));
    for (uint32_t x = g->node[node].edge; x; x = g->edge[x].next) {
        const struct gedge e = g->edge[x];
        const bool call = e.kind == GX_CALL;
        if (e.kind == GX_EMPTY || (call && g->rule[e.rule].nullable)) {
            TRY(place(L, L->left, e.to));
            TRY(edge(L, L->left[node], empty, L->left[e.to]));
        }
        if (e.kind == GX_EMPTY) continue;
        TRY(place(L, L->right, e.to));
        if (call && circle >= 0 && L->circle[e.rule] == circle) {
            const uint32_t end = g->rule[e.rule].end;
            TRY(place(L, L->right, end));
            TRY(edge(L, L->right[end], empty, L->right[e.to]));
        } else {
            TRY(edge(L, L->left[node], e, L->right[e.to]));
        }
    }
    return INFER_OK;
}

static enum infer_status right_edges(struct left *L, uint32_t node) {
    const struct infer_grammar *g = L->g;
    TRY(place(L, L->right, node));
    for (uint32_t x = g->node[node].edge; x; x = g->edge[x].next) {
        const struct gedge e = g->edge[x];
        TRY(place(L, L->right, e.to));
        TRY(edge(L, L->right[node], e, L->right[e.to]));
        if (e.kind == GX_CALL && g->rule[e.rule].nullable)
            TRY(edge(L, L->right[node], empty, L->right[e.to]));
    }
    return INFER_OK;
}

/* f for each place of a rule: its start, its end, and those of its body, which follow each other. */
static enum infer_status right_layer(struct left *L, const struct grule *r) {
    TRY(right_edges(L, r->start));
    TRY(right_edges(L, r->end));
    for (uint32_t node = r->body_from; node < r->body_to; node++) TRY(right_edges(L, node));
    return INFER_OK;
}

static void forget(struct left *L, const struct grule *r) {
    L->left[r->start] = L->right[r->start] = L->left[r->end] = L->right[r->end] = 0;
    for (uint32_t node = r->body_from; node < r->body_to; node++) L->left[node] = L->right[node] = 0;
}

/* The piece of rule r; *start and *end: where it begins and ends. */
static enum infer_status piece(struct left *L, int r, uint32_t *start, uint32_t *end) {
    const struct infer_grammar *g = L->g;
    L->n_member = 0;
    for (int k = 0; k < g->n_rule; k++)
        if (k == r || (L->circle[r] >= 0 && L->circle[k] == L->circle[r])) L->member[L->n_member++] = k;
    TRY(grammar_node(L->to, start));
    for (int i = 0; i < L->n_member; i++) {
        const struct grule *m = &g->rule[L->member[i]];
        const uint32_t n = grammar_reach(g, &L->w, m->start);
        for (uint32_t k = 0; k < n; k++) TRY(left_edges(L, L->w.stack[k], L->circle[r]));
        TRY(edge(L, *start, empty, L->left[m->start]));
    }
    for (int i = 0; i < L->n_member; i++) TRY(right_layer(L, &g->rule[L->member[i]]));
    *end = L->right[g->rule[r].end];
    L->to->node[*end].end = true;
    for (int i = 0; i < L->n_member; i++) forget(L, &g->rule[L->member[i]]);
    return INFER_OK;
}

static enum infer_status rebuild(struct left *L, uint32_t *start, uint32_t *end) {
    struct infer_grammar *g = L->g;
    uint32_t none;
    TRY(grammar_node(L->to, &none)); /* 0: no place */
    for (int r = 0; r < g->n_rule; r++) TRY(piece(L, r, &start[r], &end[r]));
    TRY(grammar_node(L->to, &L->to->start));
    L->to->node[L->to->start].end = g->rule[0].nullable;
    TRY(grammar_edge(L->to, L->to->start, (struct gedge){.kind = GX_EMPTY, .to = start[0]}));
    for (int r = 0; r < g->n_rule; r++) g->rule[r].start = start[r], g->rule[r].end = end[r];
    return INFER_OK;
}

static enum infer_status transform(struct left *L, const struct begins *b, struct arena *a, bool *there) {
    struct infer_grammar *g = L->g;
    const size_t rules = (size_t)g->n_rule;
    struct tarjan t = {.index = arena_alloc(a, rules * sizeof(int)),
                       .low = arena_alloc(a, rules * sizeof(int)),
                       .stack = arena_alloc(a, rules * sizeof(int)),
                       .path = arena_alloc(a, rules * sizeof(int)),
                       .at = arena_alloc(a, rules * sizeof(uint32_t)),
                       .on = arena_alloc(a, rules)};
    uint32_t *start = arena_alloc(a, rules * sizeof *start), *end = arena_alloc(a, rules * sizeof *end);
    L->left = arena_alloc(a, g->n_node * sizeof *L->left);
    L->right = arena_alloc(a, g->n_node * sizeof *L->right);
    L->circle = arena_alloc(a, rules * sizeof *L->circle);
    L->member = arena_alloc(a, rules * sizeof *L->member);
    L->gives = arena_alloc(a, rules);
    if (!t.index || !t.low || !t.stack || !t.path || !t.at || !t.on || !start || !end || !L->left ||
        !L->right || !L->circle || !L->member || !L->gives)
        return err_set(INFER_E_MEMORY, "out of memory: %u places of a grammar", g->n_node);
    find_circles(&t, b, g->n_rule, L->circle);
    *there = false;
    for (int r = 0; r < g->n_rule; r++) *there |= L->circle[r] >= 0;
    if (!*there) return INFER_OK;
    TRY(check_texts(L));
    return rebuild(L, start, end);
}

enum infer_status grammar_left(struct infer_grammar *g, const struct reaching *w, const struct begins *b) {
    struct arena a = {0};
    struct infer_grammar to = {0};
    struct left L = {.g = g, .to = &to, .w = *w};
    bool there = false;
    enum infer_status st = transform(&L, b, &a, &there);
    arena_free(&a);
    if (st || !there) {
        mem_free(to.node);
        mem_free(to.edge);
        return st;
    }
    mem_free(g->node);
    mem_free(g->edge);
    g->node = to.node, g->n_node = to.n_node, g->cap_node = to.cap_node;
    g->edge = to.edge, g->n_edge = to.n_edge, g->cap_edge = to.cap_edge;
    g->start = to.start;
    return INFER_OK;
}
