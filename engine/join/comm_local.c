#include "join/comm_local.h"
#include "base/mem.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { PAGE = 4096 };

struct local_rank {
    struct comm comm;
    struct comm_local *all;
    _Alignas(64) float *x; /* of the call that this rank is in */
};
struct comm_local {
    int n;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint turn;
    void *pages; /* two, of which one is that of left */
    int *left;
    unsigned char shared[2][RANKS_MAX][COMM_SHARE_MAX]; /* of the last call and the one before, by turns */
    struct local_rank rank[RANKS_MAX];
};

/* Spins for some 50 us, the difference between two ranks of the same work; then the processor is better given away. */
static enum infer_status meet(struct comm_local *l) {
    enum { SPINS = 2000 };
    const unsigned turn = atomic_load_explicit(&l->turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&l->arrived, 1, memory_order_acq_rel) + 1 == l->n) {
        atomic_store_explicit(&l->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&l->turn, turn + 1, memory_order_release);
        return INFER_OK;
    }
    for (int i = 0; atomic_load_explicit(&l->turn, memory_order_acquire) == turn; i++) {
        if (__atomic_load_n(l->left, __ATOMIC_ACQUIRE))
            return err_set(INFER_E_CANCEL, "cancelled: another rank left the step");
        if (i < SPINS)
            __builtin_ia32_pause();
        else
            sched_yield();
    }
    return INFER_OK;
}

/* Each rank adds up its share of the numbers and gives the sums to all. */
static enum infer_status reduce(struct comm *c, float *x, int n_row, size_t stride, int width) {
    struct comm_local *l = ((struct local_rank *)c)->all;
    const size_t n = (size_t)l->n, rank = (size_t)c->rank;
    const size_t a = (size_t)width * rank / n, b = (size_t)width * (rank + 1) / n;
    l->rank[c->rank].x = x;
    TRY(meet(l));
    for (int t = 0; t < n_row; t++)
        for (size_t i = (size_t)t * stride + a; i < (size_t)t * stride + b; i++) {
            float sum = l->rank[0].x[i];
            for (size_t r = 1; r < n; r++) sum += l->rank[r].x[i];
            for (size_t r = 0; r < n; r++) l->rank[r].x[i] = sum;
        }
    return meet(l);
}

static enum infer_status gather(struct comm *c, float *x, int n_row, size_t stride, const int *col) {
    struct comm_local *l = ((struct local_rank *)c)->all;
    l->rank[c->rank].x = x;
    TRY(meet(l));
    for (int r = 0; r < l->n; r++)
        for (int t = 0; r != c->rank && t < n_row; t++) {
            const size_t at = (size_t)t * stride + (size_t)col[r];
            memcpy(x + at, l->rank[r].x + at, (size_t)(col[r + 1] - col[r]) * sizeof *x);
        }
    return meet(l);
}

/* Who is two calls further has met the others in between, so they have read what this call overwrites. */
static enum infer_status share(struct comm *c, const void *own, size_t n, void *all) {
    struct comm_local *l = ((struct local_rank *)c)->all;
    const unsigned turn = atomic_load_explicit(&l->turn, memory_order_relaxed) & 1;
    if (n > COMM_SHARE_MAX) infer_bug("%zu bytes to share", n);
    memcpy(l->shared[turn][c->rank], own, n);
    TRY(meet(l));
    for (int r = 0; r < l->n; r++) memcpy((unsigned char *)all + (size_t)r * n, l->shared[turn][r], n);
    return INFER_OK;
}

static void leave(struct comm *c) {
    __atomic_store_n(((struct local_rank *)c)->all->left, 1, __ATOMIC_SEQ_CST);
}
/* All ranks are out of their steps. */
static void ready(struct comm *c) {
    struct comm_local *l = ((struct local_rank *)c)->all;
    atomic_store(&l->arrived, 0);
    __atomic_store_n(l->left, 0, __ATOMIC_SEQ_CST);
}

static const struct comm_type type = {
    .name = "local", .reduce = reduce, .gather = gather, .share = share, .abort = leave, .ready = ready};

enum infer_status comm_local_new(struct comm_local **out, int n) {
    struct comm_local *l;
    *out = NULL;
    if (n < 1 || n > RANKS_MAX) infer_bug("%d ranks", n);
    TRY(mem_new(&l, sizeof *l, "ranks"));
    l->pages = mem_alloc(2 * PAGE);
    if (!l->pages) {
        mem_free(l);
        return err_set(INFER_E_MEMORY, "out of memory for %d ranks", n);
    }
    l->left = (int *)(((uintptr_t)l->pages + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    l->n = n;
    for (int r = 0; r < n; r++)
        l->rank[r] = (struct local_rank){.comm = {&type, r, n, l->left, true, NULL}, .all = l};
    *out = l;
    return INFER_OK;
}
struct comm *comm_local_rank(struct comm_local *l, int rank) {
    return &l->rank[rank].comm;
}
void comm_local_free(struct comm_local *l) {
    if (l) mem_free(l->pages);
    mem_free(l);
}
