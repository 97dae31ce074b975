/* Sums between processes by messages of MPI, each two ranks in order: of data, of no byte (the sender left the step), of one byte (it is
 * ready for the next one). Never a blocking call: a rank that is gone would never answer. */
#include "wire/comm_wire.h"
#include "wire/mpi.h"
#include "base/mem.h"

#include <sched.h>

enum { TAG = 1, LEFT_BYTES = 0, READY_BYTES = 1 };

struct peer {
    mpi_handle in, out, said[2]; /* requests that are under way, NULL: none; said: left, ready */
    bool left, ready;
};
struct comm_mpi {
    struct comm_wire wire;
    const struct mpi *mpi;
    struct peer peer[RANKS_MAX];
    bool left;   /* this rank */
    char *waste; /* [EXCHANGE_MAX] for each rank */
    char one;
};

static void send_to(struct comm_mpi *c, int rank, const void *bytes, size_t n, mpi_handle *request) {
    const struct mpi *m = c->mpi;
    m->isend(bytes, (int)n, m->byte, rank, TAG, m->world, request);
}
/* Whether a request is done; then *n: what came. */
static bool done(const struct comm_mpi *c, mpi_handle *request, int *n) {
    struct mpi_status status;
    int flag = 0;
    if (!*request) return true;
    c->mpi->test(request, &flag, &status);
    if (!flag) return false;
    if (n) c->mpi->get_count(&status, c->mpi->byte, n);
    *request = NULL;
    return true;
}
/* What a finished message said. */
static void heard(struct peer *p, int n) {
    p->left |= n == LEFT_BYTES;
    p->ready |= n == READY_BYTES;
}
/* Sees to it that waiting does not take the processor from a rank that computes; false: a rank is gone. */
static bool wait_on(const struct comm_mpi *c, int *idle) {
    enum { LOOKS = 500 };
    if ((*idle)++ > LOOKS) sched_yield();
    return !atomic_load(&c->wire.g->lost);
}

static enum infer_status exchange(struct comm_wire *w, const struct exchange *x) {
    struct comm_mpi *c = (struct comm_mpi *)w;
    const struct mpi *m = c->mpi;
    const int n = w->base.n_rank;
    bool left = false;
    for (int r = 0; r < n; r++)
        if (x->n_in[r]) m->irecv(x->in[r], (int)x->n_in[r], m->byte, r, TAG, m->world, &c->peer[r].in);
    for (int r = 0; r < n; r++)
        if (x->n_out[r]) send_to(c, r, x->out[r], x->n_out[r], &c->peer[r].out);
    int idle = 0;
    for (bool more = true; more && !left;) {
        more = false;
        for (int r = 0; r < n; r++) {
            struct peer *p = &c->peer[r];
            int came = (int)x->n_in[r];
            if (p->in && done(c, &p->in, &came)) heard(p, came == (int)x->n_in[r] ? EXCHANGE_MAX : came);
            done(c, &p->out, NULL);
            more |= p->in || p->out;
            left |= p->left;
        }
        if (more && !left && !wait_on(c, &idle)) return group_gone(w->g, 0);
    }
    return left ? err_set(INFER_E_CANCEL, "cancelled: another rank left the step") : INFER_OK;
}

/* As that of comm_tcp.c. */
static void settle(struct comm_mpi *c, bool ready) {
    const struct mpi *m = c->mpi;
    const int n = c->wire.base.n_rank;
    int idle = 0;
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < n; r++) {
            struct peer *p = &c->peer[r];
            const bool wants = ready ? !p->ready : !p->left;
            int came = EXCHANGE_MAX;
            if (r == c->wire.base.rank) continue;
            if (wants && !p->in)
                m->irecv(c->waste + (size_t)r * EXCHANGE_MAX, EXCHANGE_MAX, m->byte, r, TAG, m->world,
                         &p->in);
            if (wants && done(c, &p->in, &came)) heard(p, came);
            int out = !done(c, &p->out, NULL);
            for (int k = 0; k < 2; k++) out += !done(c, &p->said[k], NULL);
            more |= ready ? out || !p->ready : out && !p->left;
        }
        if (more && !wait_on(c, &idle)) return;
    }
}
static void leave(struct comm_wire *w) {
    struct comm_mpi *c = (struct comm_mpi *)w;
    for (int r = 0; r < w->base.n_rank && !c->left; r++)
        if (r != w->base.rank) send_to(c, r, &c->one, LEFT_BYTES, &c->peer[r].said[0]);
    c->left = true;
    settle(c, false);
}
static void ready(struct comm_wire *w) {
    struct comm_mpi *c = (struct comm_mpi *)w;
    for (int r = 0; r < w->base.n_rank; r++)
        if (r != w->base.rank) send_to(c, r, &c->one, READY_BYTES, &c->peer[r].said[1]);
    settle(c, true);
    for (int r = 0; r < w->base.n_rank; r++) c->peer[r].left = c->peer[r].ready = false;
    c->left = false;
}

static const struct carrier carrier = {.exchange = exchange, .leave = leave, .ready = ready};

static void free_mpi(struct comm *of) {
    struct comm_mpi *c = (struct comm_mpi *)of;
    comm_wire_free(&c->wire);
    mem_free(c->waste);
    mem_free(c);
}
enum infer_status comm_mpi_new(struct infer_group *g) {
    struct comm_mpi *c;
    TRY(mem_new(&c, sizeof *c, "a communicator"));
    g->comm = &c->wire.base, g->comm_free = free_mpi;
    c->mpi = g->mpi;
    TRY(mem_new(&c->waste, (size_t)g->world * EXCHANGE_MAX, "rows of steps that were left"));
    return comm_wire_init(&c->wire, "mpi", &carrier, g);
}
