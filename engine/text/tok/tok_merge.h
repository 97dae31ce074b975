/* The merge loop of BPE and SentencePiece: while two neighbours can be joined, joins the pair of lowest
 * priority value, the leftmost of equals. Short words scan an array, long ones keep a heap and a linked list,
 * so a word of n symbols costs O(n log n) comparisons whatever is in it.
 * source: Sennrich, Haddow, Birch 2016 (the merges); Kudo, Richardson 2018 (the heap). */
#pragma once
#include "text/tok/tok_impl.h"

struct tok_sym {
    uint32_t pos, len; /* bytes of the word; len 0: joined into its left neighbour */
    int32_t id;        /* -1: not a token */
};

/* Priority of joining a and b and the token that results; UINT32_MAX when they cannot be joined. */
typedef uint32_t tok_pair_fn(struct tok_work *w, const char *s, const struct tok_sym *a,
                             const struct tok_sym *b, int32_t *id);

enum { TOK_MERGE_SHORT = 40 };

/* sym[n], n <= TOK_MERGE_SHORT, is joined in place; returns how many are left. */
static inline int tok_merge_short(struct tok_work *w, const char *s, struct tok_sym *sym, int n,
                                  tok_pair_fn *pair) {
    uint32_t prio[TOK_MERGE_SHORT];
    int32_t id[TOK_MERGE_SHORT];
    for (int i = 0; i + 1 < n; i++) prio[i] = pair(w, s, &sym[i], &sym[i + 1], &id[i]);
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (prio[i] < prio[best]) best = i;
        if (prio[best] == UINT32_MAX) break;
        sym[best].len += sym[best + 1].len;
        sym[best].id = id[best];
        n--;
        memmove(&sym[best + 1], &sym[best + 2], (size_t)(n - best - 1) * sizeof *sym);
        if (best + 2 < n) { /* pairs behind (best + 1, best + 2) move up by one */
            memmove(&prio[best + 1], &prio[best + 2], (size_t)(n - best - 2) * sizeof *prio);
            memmove(&id[best + 1], &id[best + 2], (size_t)(n - best - 2) * sizeof *id);
        }
        if (best > 0) prio[best - 1] = pair(w, s, &sym[best - 1], &sym[best], &id[best - 1]);
        if (best + 1 < n) prio[best] = pair(w, s, &sym[best], &sym[best + 1], &id[best]);
    }
    return n;
}

/* ---- long words ---- */
struct tok_cand { /* a pair that could be joined when it was put on the heap */
    uint64_t key; /* priority << 32 | left symbol: equal priorities go leftmost first */
    uint32_t right, len;
    int32_t id;
};
struct tok_heap {
    struct tok_cand *c; /* c[n], room for cap; c[0] is the lowest */
    size_t n, cap;
};

static inline bool tok_heap_push(struct tok_heap *h, struct tok_cand x) {
    if (h->n == h->cap) {
        size_t cap = h->cap * 2, bytes;
        struct tok_cand *c = size_mul(cap, sizeof *c, &bytes) ? mem_realloc(h->c, bytes) : NULL;
        if (!c) return false;
        h->c = c;
        h->cap = cap;
    }
    size_t i = h->n++;
    for (; i > 0 && h->c[(i - 1) / 2].key > x.key; i = (i - 1) / 2) h->c[i] = h->c[(i - 1) / 2];
    h->c[i] = x;
    return true;
}

static inline struct tok_cand tok_heap_pop(struct tok_heap *h) {
    struct tok_cand top = h->c[0], x = h->c[--h->n];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < h->n; i = k) {
        if (k + 1 < h->n && h->c[k + 1].key < h->c[k].key) k++;
        if (h->c[k].key >= x.key) break;
        h->c[i] = h->c[k];
    }
    h->c[i] = x;
    return top;
}

/* sym[*n] is joined in place. errors: INFER_E_MEMORY. */
static inline enum infer_status tok_merge_long(struct tok_work *w, const char *s, struct tok_sym *sym,
                                               size_t *n, tok_pair_fn *pair) {
    struct tok_heap h = {.cap = *n};
    uint32_t *prev = NULL;
    enum infer_status st = mem_new(&h.c, *n * sizeof *h.c, "merging a long word");
    if (st == INFER_OK) st = mem_new(&prev, 2 * *n * sizeof *prev, "merging a long word");
    uint32_t *next = prev ? prev + *n : NULL;
    bool room = st == INFER_OK;
    for (uint32_t i = 0; room && i < *n; i++) {
        int32_t id;
        prev[i] = i ? i - 1 : UINT32_MAX;
        next[i] = i + 1 < *n ? i + 1 : UINT32_MAX;
        if (i + 1 == *n) break;
        uint32_t p = pair(w, s, &sym[i], &sym[i + 1], &id);
        if (p != UINT32_MAX)
            room = tok_heap_push(
                &h, (struct tok_cand){(uint64_t)p << 32 | i, i + 1, sym[i].len + sym[i + 1].len, id});
    }
    while (room && h.n) {
        struct tok_cand c = tok_heap_pop(&h);
        uint32_t l = (uint32_t)c.key, r = c.right;
        /* a pair that has changed since: one side joined elsewhere, or grew */
        if (!sym[l].len || !sym[r].len || sym[l].len + sym[r].len != c.len || next[l] != r) continue;
        sym[l].len = c.len;
        sym[l].id = c.id;
        sym[r].len = 0;
        next[l] = next[r];
        if (next[r] != UINT32_MAX) prev[next[r]] = l;
        uint32_t lo = prev[l], hi = next[l], p;
        int32_t id;
        if (lo != UINT32_MAX && (p = pair(w, s, &sym[lo], &sym[l], &id)) != UINT32_MAX)
            room =
                tok_heap_push(&h, (struct tok_cand){(uint64_t)p << 32 | lo, l, sym[lo].len + sym[l].len, id});
        if (room && hi != UINT32_MAX && (p = pair(w, s, &sym[l], &sym[hi], &id)) != UINT32_MAX)
            room =
                tok_heap_push(&h, (struct tok_cand){(uint64_t)p << 32 | l, hi, sym[l].len + sym[hi].len, id});
    }
    if (st == INFER_OK && !room)
        st = err_set(INFER_E_MEMORY, "out of memory: merging a word of %zu characters", *n);
    size_t k = 0;
    for (size_t i = 0; i < *n; i++)
        if (sym[i].len) sym[k++] = sym[i];
    *n = k;
    mem_free(h.c);
    mem_free(prev);
    return st;
}
