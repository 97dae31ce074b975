/* Sums between processes over sockets of the group: each two ranks have one. A frame is what one sends the other in an exchange, that it
 * left the step, or that it is ready for the next one. */
#define _GNU_SOURCE
#include "wire/comm_wire.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum frame { FRAME_DATA = 1, FRAME_LEFT, FRAME_READY };
struct head {
    uint32_t frame, pad;
    uint64_t n;
};
/* A direction of a connection. */
struct way {
    struct head head;
    char *bytes; /* NULL: nobody wants them */
    size_t done; /* of head and bytes */
    bool idle;   /* nothing is under way */
};
struct peer {
    struct way out, in;
    bool owes_left, owes_ready; /* frames to be sent behind this one */
    bool left, ready;           /* it said so */
};
struct comm_tcp {
    struct comm_wire wire;
    struct peer peer[RANKS_MAX];
    bool left;  /* this rank */
    int broken; /* a rank whose connection is of no use any more; -1: none */
    char waste[4096];
};

static size_t whole(const struct way *w) { return sizeof w->head + (size_t)w->head.n; }
static void start(struct way *w, enum frame frame, const void *bytes, size_t n) {
    *w = (struct way){.head = {frame, 0, n}, .bytes = (char *)bytes};
}

/* What goes out; whether anything did. */
static bool push(struct comm_tcp *c, int rank) {
    struct peer *p = &c->peer[rank];
    struct way *w = &p->out;
    if (w->idle && p->owes_left) start(w, FRAME_LEFT, NULL, 0), p->owes_left = false;
    if (w->idle && p->owes_ready) start(w, FRAME_READY, NULL, 0), p->owes_ready = false;
    if (w->idle) return false;
    struct iovec part[2];
    int n = 0;
    if (w->done < sizeof w->head)
        part[n++] = (struct iovec){(char *)&w->head + w->done, sizeof w->head - w->done};
    const size_t sent = w->done < sizeof w->head ? 0 : w->done - sizeof w->head;
    if (w->head.n > sent) part[n++] = (struct iovec){w->bytes + sent, (size_t)w->head.n - sent};
    const struct msghdr m = {.msg_iov = part, .msg_iovlen = (size_t)n};
    const ssize_t k = sendmsg(c->wire.g->data[rank], &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (k < 0 && errno != EAGAIN && errno != EINTR) c->broken = rank;
    if (k <= 0) return false;
    w->done += (size_t)k;
    if (w->done == whole(w)) w->idle = true;
    return true;
}

/* What comes in, into the bytes that are wanted, or away; whether anything did. A whole frame makes the way idle. */
static bool pull(struct comm_tcp *c, int rank, size_t wanted) {
    struct peer *p = &c->peer[rank];
    struct way *w = &p->in;
    const bool in_head = w->done < sizeof w->head;
    const size_t got = in_head ? 0 : w->done - sizeof w->head, left = in_head ? 0 : (size_t)w->head.n - got;
    char *to = in_head ? (char *)&w->head + w->done : w->bytes ? w->bytes + got : c->waste;
    size_t n = in_head ? sizeof w->head - w->done : left;
    if (!in_head && !w->bytes && n > sizeof c->waste) n = sizeof c->waste;
    const ssize_t k = recv(c->wire.g->data[rank], to, n, MSG_DONTWAIT);
    if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) c->broken = rank;
    if (k <= 0) return false;
    w->done += (size_t)k;
    if (w->done < sizeof w->head) return true;
    if (in_head &&
        (w->head.n > EXCHANGE_MAX || (w->bytes && w->head.frame == FRAME_DATA && w->head.n != wanted)))
        c->broken = rank; /* another step than this rank's */
    if (w->done < whole(w)) return true;
    w->idle = true;
    p->left |= w->head.frame == FRAME_LEFT;
    p->ready |= w->head.frame == FRAME_READY;
    return true;
}

/* ---- waiting ---- */

struct wait {
    int idle; /* turns in which nothing moved */
};
/* Nothing moved: looks again for a while, then sleeps until a socket has something. False: a rank is gone. */
static bool pause_for(struct comm_tcp *c, struct wait *wait, const bool *in, const bool *out) {
    enum { LOOKS = 200, YIELDS = 2000 };
    if (c->broken >= 0 || atomic_load(&c->wire.g->lost)) return false;
    if (wait->idle++ < LOOKS + YIELDS) {
        if (wait->idle < LOOKS)
            __builtin_ia32_pause();
        else
            sched_yield(); /* the rank that is waited for may be the one that has no processor */
        return true;
    }
    struct pollfd p[RANKS_MAX];
    int n = 0;
    for (int r = 0; r < c->wire.base.n_rank; r++)
        if (in[r] || out[r])
            p[n++] = (struct pollfd){.fd = c->wire.g->data[r],
                                     .events = (short)((in[r] ? POLLIN : 0) | (out[r] ? POLLOUT : 0))};
    (void)!poll(p, (nfds_t)n, 1000);
    return true;
}

/* ---- the carrier ---- */

static enum infer_status exchange(struct comm_wire *w, const struct exchange *x) {
    struct comm_tcp *c = (struct comm_tcp *)w;
    struct wait wait = {0};
    const int n = w->base.n_rank;
    bool in[RANKS_MAX] = {0}, out[RANKS_MAX] = {0}, left = false;
    for (int r = 0; r < n; r++) {
        struct peer *p = &c->peer[r];
        if (x->n_out[r]) start(&p->out, FRAME_DATA, x->out[r], x->n_out[r]);
        if (x->n_in[r]) p->in = (struct way){.bytes = x->in[r]};
        out[r] = x->n_out[r] != 0, in[r] = x->n_in[r] != 0;
    }
    for (bool more = true; more && !left;) {
        bool moved = false;
        more = false;
        for (int r = 0; r < n; r++) {
            if (out[r]) moved |= push(c, r), out[r] = !c->peer[r].out.idle;
            if (in[r]) moved |= pull(c, r, x->n_in[r]), in[r] = !c->peer[r].in.idle;
            more |= in[r] || out[r];
            left |= c->peer[r].left;
        }
        if (moved) wait.idle = 0;
        if (more && !moved && !left && !pause_for(c, &wait, in, out))
            return group_gone(w->g, c->broken >= 0 ? c->broken : 0);
    }
    if (!left) return INFER_OK;
    return err_set(INFER_E_CANCEL, "cancelled: another rank left the step");
}

/* Until every rank has what this one owes it, or (ready false) has left, too; what comes is thrown away. */
static void settle(struct comm_tcp *c, bool ready) {
    const int n = c->wire.base.n_rank, own = c->wire.base.rank;
    struct wait wait = {0};
    bool in[RANKS_MAX] = {0}, out[RANKS_MAX] = {0};
    for (bool more = true; more;) {
        bool moved = false;
        more = false;
        for (int r = 0; r < n; r++) {
            struct peer *p = &c->peer[r];
            if (r == own) continue;
            p->in.bytes = NULL;
            if (p->in.idle) p->in = (struct way){.bytes = NULL};
            moved |= push(c, r);
            out[r] = !p->out.idle || p->owes_left || p->owes_ready;
            in[r] = ready ? !p->ready : !p->left;
            if (in[r]) moved |= pull(c, r, 0);
            more |= ready ? out[r] || !p->ready : out[r] && !p->left;
        }
        if (moved) wait.idle = 0;
        if (more && !moved && !pause_for(c, &wait, in, out)) return;
    }
}
static void leave(struct comm_wire *w) {
    struct comm_tcp *c = (struct comm_tcp *)w;
    for (int r = 0; r < w->base.n_rank && !c->left; r++) c->peer[r].owes_left = r != w->base.rank;
    c->left = true;
    settle(c, false);
}
static void ready(struct comm_wire *w) {
    struct comm_tcp *c = (struct comm_tcp *)w;
    for (int r = 0; r < w->base.n_rank; r++) c->peer[r].owes_ready = r != w->base.rank;
    settle(c, true);
    for (int r = 0; r < w->base.n_rank; r++) {
        struct peer *p = &c->peer[r];
        p->left = p->ready = false;
        p->out.idle = p->in.idle = true;
    }
    c->left = false;
}

static const struct carrier carrier = {.exchange = exchange, .leave = leave, .ready = ready};

static void free_tcp(struct comm *c) {
    comm_wire_free((struct comm_wire *)c);
    mem_free(c);
}
enum infer_status comm_tcp_new(struct infer_group *g) {
    struct comm_tcp *c;
    TRY(mem_new(&c, sizeof *c, "a communicator"));
    c->broken = -1;
    g->comm = &c->wire.base, g->comm_free = free_tcp;
    for (int r = 0; r < RANKS_MAX; r++) c->peer[r].out.idle = c->peer[r].in.idle = true;
    return comm_wire_init(&c->wire, "tcp", &carrier, g);
}
