#include "wire/group_impl.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int group_rank(const struct infer_group *g) { return g->rank; }
int group_world(const struct infer_group *g) { return g->world; }
const struct group_member *group_who(const struct infer_group *g, int rank) { return &g->member[rank]; }
struct comm *group_comm(const struct infer_group *g) {
    return g->comm;
}
bool infer_group_lost(const struct infer_group *g) { return g && atomic_load(&g->lost); }

void group_name(const struct infer_group *g, int rank, char *out, size_t n) {
    const struct group_member *m = &g->member[rank];
    if (m->pid)
        snprintf(out, n, "rank %d of %d (%s, process %d)", rank, g->world, m->host, m->pid);
    else
        snprintf(out, n, "rank %d of %d", rank, g->world);
}

void group_step(struct infer_group *g, bool begins) {
    atomic_fetch_add(&g->exchanges, 1);
    atomic_store(&g->in_step, begins);
}

enum infer_status group_gone(struct infer_group *g, int rank) {
    char name[128], message[192];
    for (int i = 0; i < 100 && !atomic_load(&g->lost); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (!atomic_load(&g->lost)) {
        group_name(g, rank, name, sizeof name);
        snprintf(message, sizeof message, "%s is gone: its connection broke", name);
        group_lose(g, message);
    }
    pthread_mutex_lock(&g->lock);
    const enum infer_status st = err_set(INFER_E_DEVICE, "%s", g->message);
    pthread_mutex_unlock(&g->lock);
    return st;
}

enum infer_status group_send(struct infer_group *g, int rank, uint32_t kind, uint32_t status,
                             const void *bytes, size_t n) {
    return wire_send(g->control[rank], kind, status, bytes, n, INT64_MAX) ? group_gone(g, rank) : INFER_OK;
}
enum infer_status group_receive(struct infer_group *g, int rank, struct wire_head *head, void *bytes,
                                size_t cap, bool *closed) {
    *closed = false;
    if (wire_receive(g->control[rank], head, bytes, cap, INT64_MAX) == INFER_OK) return INFER_OK;
    for (int i = 0; i < 100 && !atomic_load(&g->lost) && !atomic_load(&g->closing); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    *closed = atomic_load(&g->closing);
    return *closed ? INFER_OK : group_gone(g, rank);
}

enum infer_status group_take(struct infer_group *g) {
    if (g->rank) return err_set(INFER_E_INPUT, ".group: rank %d follows, rank 0 makes engines", g->rank);
    if (atomic_load(&g->lost)) return group_gone(g, 0);
    if (atomic_exchange(&g->busy, true))
        return err_set(INFER_E_INPUT, ".group: has an engine, one at a time computes there");
    return INFER_OK;
}
void group_leave(struct infer_group *g) { atomic_store(&g->busy, false); }

/* ---- open and close ---- */

static enum infer_status check(const struct infer_group_options *o) {
    if (o->world < 2 || o->world > RANKS_MAX || o->rank < 0 || o->rank >= o->world)
        return err_set(INFER_E_INPUT, "rank %d of %d: ranks count from 0, and are 2 to %d", o->rank, o->world,
                       RANKS_MAX);
    if (o->comm && strcmp(o->comm, "tcp") && strcmp(o->comm, "mpi"))
        return err_set(INFER_E_INPUT, ".comm is '%s', must be tcp or mpi", o->comm);
    if (o->cards && strcmp(o->cards, "peer") && strcmp(o->cards, "nccl") && strcmp(o->cards, "host"))
        return err_set(INFER_E_INPUT, ".cards is '%s', must be peer, nccl or host", o->cards);
    if (o->secret && (!o->n_secret || o->n_secret > sizeof((struct wire_secret *)0)->bytes))
        return err_set(INFER_E_INPUT, "a secret has 1 to 256 bytes, not %zu", o->n_secret);
    return INFER_OK;
}

static enum infer_status open_group(struct infer_group *g, const struct infer_group_options *o) {
    const bool by_mpi = o->comm && strcmp(o->comm, "mpi") == 0;
    if (by_mpi || !o->rendezvous) {
        struct deadline d;
        deadline_begin(&d, g, group_wait_ms(o));
        const enum infer_status st = mpi_begin(&g->mpi, g->rank, g->world);
        deadline_end(&d);
        TRY(st);
    }
    TRY(group_meet(g, o));
    TRY(by_mpi ? comm_mpi_new(g) : comm_tcp_new(g));
    return group_watch_begin(g);
}

enum infer_status group_open(struct infer_group **out, const struct infer_group_options *o,
                             const char *version) {
    struct infer_group *g;
    *out = NULL;
    TRY(check(o));
    TRY(mem_new(&g, sizeof *g, "a group of ranks"));
    g->rank = o->rank, g->world = o->world;
    g->tell = o->lost, g->user = o->user, g->version = version;
    snprintf(g->cards, sizeof g->cards, "%s", o->cards ? o->cards : "");
    g->step_ms = o->step_seconds > 0 ? (int64_t)(1000 * o->step_seconds) : WATCH_STEP_MS;
    g->listener = -1;
    for (int r = 0; r < RANKS_MAX; r++) g->control[r] = g->beat[r] = g->data[r] = -1;
    pthread_mutex_init(&g->lock, NULL);
    const enum infer_status st = open_group(g, o);
    if (st != INFER_OK) {
        infer_group_close(g);
        return st;
    }
    *out = g;
    return INFER_OK;
}

static void close_fd(int fd) {
    if (fd >= 0) close(fd);
}
void infer_group_close(struct infer_group *g) {
    if (!g) return;
    group_watch_end(g);
    if (g->comm) g->comm_free(g->comm);
    for (int r = 0; r < RANKS_MAX; r++) {
        close_fd(g->control[r]);
        close_fd(g->beat[r]);
        close_fd(g->data[r]);
    }
    close_fd(g->listener);
    if (g->mpi && !atomic_load(&g->lost)) {
        struct deadline d;
        deadline_begin(&d, g, GROUP_TURN_MS);
        mpi_end(g->mpi);
        deadline_end(&d);
    }
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}
