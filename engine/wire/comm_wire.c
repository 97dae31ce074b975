#include "wire/comm_wire.h"
#include "base/mem.h"

#include <string.h>

enum { PAGE = 4096 };

/* The rank that waits here is not the one that stands still. */
static enum infer_status meet(struct comm_wire *w, const struct exchange *e) {
    struct infer_group *g = w->g;
    atomic_store_explicit(&g->waits, true, memory_order_relaxed);
    const enum infer_status st = w->carrier->exchange(w, e);
    atomic_fetch_add_explicit(&g->exchanges, 1, memory_order_relaxed);
    atomic_store_explicit(&g->waits, false, memory_order_relaxed);
    return st;
}

static size_t part(size_t n, int i, int of) { return n * (size_t)i / (size_t)of; }

/* Everybody gets all of x[n], and adds up for itself. */
static enum infer_status one_shot(struct comm_wire *w, float *x, size_t n) {
    const int n_rank = w->base.n_rank, own = w->base.rank;
    struct exchange e = {.out = {NULL}};
    for (int r = 0; r < n_rank; r++) {
        if (r == own) continue;
        e.out[r] = x, e.in[r] = w->came + (size_t)r * n;
        e.n_out[r] = e.n_in[r] = n * sizeof *x;
    }
    TRY(meet(w, &e));
    memcpy(w->came + (size_t)own * n, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        float sum = w->came[i];
        for (int r = 1; r < n_rank; r++) sum += w->came[(size_t)r * n + i];
        x[i] = sum;
    }
    return INFER_OK;
}
/* Everybody adds up its part of x[n], then all get all parts. */
static enum infer_status two_shot(struct comm_wire *w, float *x, size_t n) {
    const int n_rank = w->base.n_rank, own = w->base.rank;
    const size_t a = part(n, own, n_rank), len = part(n, own + 1, n_rank) - a;
    struct exchange to = {.out = {NULL}}, back = {.out = {NULL}};
    for (int r = 0; r < n_rank; r++) {
        if (r == own) continue;
        const size_t b = part(n, r, n_rank), other = part(n, r + 1, n_rank) - b;
        to.out[r] = back.in[r] = x + b;
        to.n_out[r] = back.n_in[r] = other * sizeof *x;
        to.in[r] = w->came + (size_t)r * len, back.out[r] = x + a;
        to.n_in[r] = back.n_out[r] = len * sizeof *x;
    }
    TRY(meet(w, &to));
    memcpy(w->came + (size_t)own * len, x + a, len * sizeof *x);
    for (size_t i = 0; i < len; i++) {
        float sum = w->came[i];
        for (int r = 1; r < n_rank; r++) sum += w->came[(size_t)r * len + i];
        x[a + i] = sum;
    }
    return meet(w, &back);
}

static void rows(float *packed, float *x, int n_row, size_t stride, int width, bool back) {
    for (int t = 0; t < n_row; t++) {
        float *p = packed + (size_t)t * (size_t)width, *q = x + (size_t)t * stride;
        memcpy(back ? q : p, back ? p : q, (size_t)width * sizeof *x);
    }
}
/* By as many whole rows as fit. */
static enum infer_status reduce(struct comm *c, float *x, int n_row, size_t stride, int width) {
    struct comm_wire *w = (struct comm_wire *)c;
    const size_t row = (size_t)width * sizeof *x;
    /* what comes in one shot is a vector of each rank */
    const int most = row > EXCHANGE_MAX ? 1 : (int)(EXCHANGE_MAX / row);
    if (row > EXCHANGE_MAX)
        return err_set(INFER_E_UNSUPPORTED, "ranks add up rows of %d numbers at most", EXCHANGE_MAX / 4);
    for (int t = 0; t < n_row; t += most) {
        const int n = n_row - t < most ? n_row - t : most;
        const size_t all = (size_t)n * (size_t)width;
        const bool gaps = n > 1 && stride != (size_t)width;
        float *from = x + (size_t)t * stride, *v = gaps ? w->pack : from;
        if (gaps) rows(v, from, n, stride, width, false);
        const bool small =
            all * sizeof *x <= ONE_SHOT_MAX && all * sizeof *x * (size_t)c->n_rank <= EXCHANGE_MAX;
        TRY(small ? one_shot(w, v, all) : two_shot(w, v, all));
        if (gaps) rows(v, from, n, stride, width, true);
    }
    return INFER_OK;
}

/* The piece of a row of `len` bytes that begins at `at`. */
static size_t piece(size_t len, size_t at) {
    if (at >= len) return 0;
    return len - at < EXCHANGE_MAX ? len - at : EXCHANGE_MAX;
}
static enum infer_status gather(struct comm *c, float *x, int n_row, size_t stride, const int *col) {
    struct comm_wire *w = (struct comm_wire *)c;
    const int own = c->rank;
    for (int t = 0; t < n_row; t++) {
        char *row = (char *)(x + (size_t)t * stride);
        for (size_t at = 0, more = 1; more; at += EXCHANGE_MAX) {
            struct exchange e = {.out = {NULL}};
            more = 0;
            for (int r = 0; r < c->n_rank; r++) {
                const size_t len = (size_t)(col[r + 1] - col[r]) * sizeof *x,
                             mine = (size_t)(col[own + 1] - col[own]) * sizeof *x;
                more |= len > at + EXCHANGE_MAX;
                if (r == own) continue;
                e.out[r] = row + (size_t)col[own] * sizeof *x + at, e.n_out[r] = piece(mine, at);
                e.in[r] = row + (size_t)col[r] * sizeof *x + at, e.n_in[r] = piece(len, at);
            }
            TRY(meet(w, &e));
        }
    }
    return INFER_OK;
}

static enum infer_status share(struct comm *c, const void *own, size_t n, void *all) {
    struct comm_wire *w = (struct comm_wire *)c;
    struct exchange e = {.out = {NULL}};
    char *to = all;
    if (n > COMM_SHARE_MAX) infer_bug("%zu bytes to share", n);
    memcpy(to + (size_t)c->rank * n, own, n);
    for (int r = 0; r < c->n_rank; r++) {
        if (r == c->rank) continue;
        e.out[r] = own, e.in[r] = to + (size_t)r * n;
        e.n_out[r] = e.n_in[r] = n;
    }
    return meet(w, &e);
}

static void leave(struct comm *c) {
    struct comm_wire *w = (struct comm_wire *)c;
    __atomic_store_n(c->left, 1, __ATOMIC_SEQ_CST);
    w->carrier->leave(w);
}
static void ready(struct comm *c) {
    struct comm_wire *w = (struct comm_wire *)c;
    w->carrier->ready(w);
    __atomic_store_n(c->left, 0, __ATOMIC_SEQ_CST);
    if (atomic_load(&w->g->lost)) comm_wire_lost(c);
}
void comm_wire_lost(struct comm *c) { __atomic_store_n(c->left, 1, __ATOMIC_SEQ_CST); }

enum infer_status comm_wire_init(struct comm_wire *w, const char *name, const struct carrier *carrier,
                                 struct infer_group *g) {
    w->type = (struct comm_type){
        .name = name, .reduce = reduce, .gather = gather, .share = share, .abort = leave, .ready = ready};
    w->carrier = carrier, w->g = g;
    w->pages = mem_alloc(2 * PAGE);
    if (!w->pages) return err_set(INFER_E_MEMORY, "out of memory for a communicator");
    int *left = (int *)(((uintptr_t)w->pages + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    *left = 0;
    w->base = (struct comm){&w->type, g->rank, g->world, left, false, g->cards[0] ? g->cards : NULL};
    TRY(mem_new(&w->pack, EXCHANGE_MAX, "rows that ranks add up"));
    /* parts of RANKS_MAX ranks, each of which may be a number longer */
    return mem_new(&w->came, EXCHANGE_MAX + RANKS_MAX * RANKS_MAX * sizeof(float), "rows of other ranks");
}
void comm_wire_free(struct comm_wire *w) {
    mem_free(w->pages);
    mem_free(w->pack);
    mem_free(w->came);
}
