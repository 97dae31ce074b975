/* Ranks that compute one model together, as one backend: every call goes to all, outputs come from rank 0. What layers keep is divided by
 * heads; whoever reads a page or a state gets all of them. */
#include "join/comm_local.h"
#include "join/join.h"
#include "join/rank_call.h"
#include "join/rank_message.h"
#include "wire/group.h"

#include <stdio.h>
#include <string.h>

struct ranks {
    struct backend base;
    struct backend_type type;
    char name[64], isa[128];
    int n;
    const struct rank_plan *plan; /* plan[n] */
    const struct model *whole;
    struct comm_local *local;       /* of threads */
    const struct rank_order *order; /* of processes; NULL: threads */
    struct comm *comm;              /* rank 0's */
    struct rank **rank;             /* rank[n]; rank 0: NULL */
    struct rank_call *call;         /* call[n] */
    struct backend *own;            /* rank 0's */
    unsigned char *piece;           /* of a page or a state: what one rank has */
    struct kv_store *store; /* of processes, store[n][n_store]: each rank's, in the types of the plan */
};

static struct ranks *ranks_of(struct backend *b) { return (struct ranks *)b; }

/* The call on all ranks, rank 0's on this thread; the first fault, where there are several one that is not that another left. */
static enum infer_status on_all(struct ranks *r, const struct rank_call *call) {
    for (int i = 0; i < r->n; i++) r->call[i] = *call;
    for (int i = 1; i < r->n; i++) r->rank[i]->type->begin(r->rank[i], &r->call[i]);
    if (r->order) group_step(r->order->group, call->ask == RANK_RUN || call->ask == RANK_WAIT);
    enum infer_status st = rank_do(r->own, &r->call[0]);
    if (r->order) group_step(r->order->group, false);
    if (call->ask == RANK_READY) r->comm->type->ready(r->comm);
    char message[512];
    snprintf(message, sizeof message, "%s", st != INFER_OK ? err_message() : "");
    for (int i = 1; i < r->n; i++) {
        const enum infer_status s = r->rank[i]->type->end(r->rank[i]);
        if (s == INFER_OK || (st != INFER_OK && (st != INFER_E_CANCEL || s == INFER_E_CANCEL))) continue;
        st = s;
        snprintf(message, sizeof message, "rank %d: %s", i, err_message());
    }
    return st == INFER_OK ? INFER_OK : err_set(st, "%s", message);
}
/* A call in which ranks speak to each other: where it fails all are out of it. */
static enum infer_status all_speak(struct ranks *r, const struct rank_call *call) {
    const enum infer_status st = on_all(r, call);
    if (st == INFER_OK) return st;
    char message[512];
    snprintf(message, sizeof message, "%s", err_message());
    const enum infer_status ready = on_all(r, &(struct rank_call){.ask = RANK_READY});
    return ready ? ready : err_set(st, "%s", message);
}

static enum infer_status upload(struct backend *b) {
    return all_speak(ranks_of(b), &(struct rank_call){.ask = RANK_UPLOAD});
}
static enum infer_status compile(struct backend *b, enum row_class cls) {
    return all_speak(ranks_of(b), &(struct rank_call){.ask = RANK_COMPILE, .cls = cls});
}
static enum infer_status run(struct backend *b, enum row_class cls, const struct step *step) {
    return all_speak(ranks_of(b), &(struct rank_call){.ask = RANK_RUN, .cls = cls, .step = step});
}
static enum infer_status wait(struct backend *b, struct step_result *out) {
    struct ranks *r = ranks_of(b);
    enum infer_status st = all_speak(r, &(struct rank_call){.ask = RANK_WAIT});
    *out = r->call[0].result;
    return st;
}
static enum infer_status read_rows(struct backend *b, enum row_class cls, struct view v, int n_row,
                                   float *out) {
    struct backend *own = ranks_of(b)->own;
    return own->type->read(own, cls, v, n_row, out);
}
static enum infer_status kv_copy(struct backend *b, int group, int from, int to) {
    return on_all(ranks_of(b),
                  &(struct rank_call){.ask = RANK_KV_COPY, .store = group, .from = from, .to = to});
}
static enum infer_status state_copy(struct backend *b, int from, int to) {
    return on_all(ranks_of(b), &(struct rank_call){.ask = RANK_STATE_COPY, .from = from, .to = to});
}

/* ---- pages and states: heads of all ranks ---- */

static enum infer_status on_one(struct ranks *r, int rank, struct rank_call *call) {
    if (!rank) return rank_do(r->own, call);
    r->rank[rank]->type->begin(r->rank[rank], call);
    return r->rank[rank]->type->end(r->rank[rank]);
}

/* A store of the whole model, in the types of the plan. */
static struct kv_store store_of(const struct ranks *r, int i) {
    return kv_store_typed(&r->whole->store[i], &r->plan[0].plan->store[i]);
}

/* Heads of a rank between its page and the whole one; head_bytes of each. */
static void move_heads(const struct ranks *r, int rank, int store, size_t head_bytes, unsigned char *page,
                       unsigned char *piece, bool write) {
    const struct model *m = r->plan[rank].model;
    unsigned char *at = page + (size_t)m->share.key_head[store] * head_bytes;
    const size_t n = (size_t)m->store[store].n_kv_head * head_bytes;
    memcpy(write ? piece : at, write ? at : piece, n);
}

static enum infer_status kv_page(struct backend *b, int store, int page, void *bytes, bool write) {
    struct ranks *r = ranks_of(b);
    const struct kv_store s = store_of(r, store);
    const size_t rows = (size_t)kv_page_rows(&s), k = rows * kv_k_bytes(&s), v = rows * kv_v_bytes(&s);
    unsigned char *values = (unsigned char *)bytes + (size_t)s.n_kv_head * k;
    for (int i = 0; i < r->n; i++) {
        unsigned char *own_values = r->piece + (size_t)r->plan[i].model->store[store].n_kv_head * k;
        struct rank_call call = {
            .ask = RANK_KV_PAGE, .store = store, .page = page, .write = write, .bytes = r->piece};
        if (write) move_heads(r, i, store, k, bytes, r->piece, true);
        if (write) move_heads(r, i, store, v, values, own_values, true);
        TRY(on_one(r, i, &call));
        if (!write) move_heads(r, i, store, k, bytes, r->piece, false);
        if (!write) move_heads(r, i, store, v, values, own_values, false);
    }
    return INFER_OK;
}
static enum infer_status kv_numbers(struct backend *b, int store, int page, float *k, float *v, bool write) {
    struct ranks *r = ranks_of(b);
    const struct kv_store *s = &r->whole->store[store];
    const size_t rows = (size_t)kv_page_rows(s), row_k = rows * (size_t)s->head_dim_k,
                 row_v = rows * (size_t)kv_v_dim(s);
    for (int i = 0; i < r->n; i++) { /* heads follow each other, in the whole page, too */
        const size_t first = (size_t)r->plan[i].model->share.key_head[store];
        struct rank_call call = {.ask = RANK_KV_READ,
                                 .store = store,
                                 .page = page,
                                 .write = write,
                                 .k = k + first * row_k,
                                 .v = v ? v + first * row_v : NULL};
        TRY(on_one(r, i, &call));
    }
    return INFER_OK;
}
static enum infer_status kv_read(struct backend *b, int store, int page, float *k, float *v) {
    return kv_numbers(b, store, page, k, v, false);
}
static enum infer_status kv_write(struct backend *b, int store, int page, const float *k, const float *v) {
    return kv_numbers(b, store, page, (float *)k, (float *)v, true);
}

/* Numbers of a rank between its state and the whole one. */
static void move_sections(const struct state_share *s, float *whole, float *own, bool write) {
    for (int row = 0; row < s->n_row; row++, whole += s->whole)
        for (int i = 0; i < s->n_section; own += s->section[i++].n) {
            float *at = whole + s->section[i].first;
            memcpy(write ? own : at, write ? at : own, (size_t)s->section[i].n * sizeof *own);
        }
}
/* A state that is not divided every rank has, the same. */
static enum infer_status state_of_all(struct backend *b, int store, int slot, float *x, bool write) {
    struct ranks *r = ranks_of(b);
    for (int i = 0; i < r->n; i++) {
        const struct state_share *s = &r->plan[i].model->share.state[store];
        float *own = s->n_row ? (float *)(void *)r->piece : x;
        struct rank_call call = {
            .ask = RANK_STATE_READ, .store = store, .page = slot, .write = write, .k = own};
        if (write && s->n_row) move_sections(s, x, own, true);
        if (write || s->n_row || !i) TRY(on_one(r, i, &call));
        if (!write && s->n_row) move_sections(s, x, own, false);
    }
    return INFER_OK;
}
static enum infer_status state_read(struct backend *b, int store, int slot, float *out) {
    return state_of_all(b, store, slot, out, false);
}
static enum infer_status state_write(struct backend *b, int store, int slot, const float *x) {
    return state_of_all(b, store, slot, (float *)x, true);
}

/* ---- the rest ---- */

/* Rank 0 leaves the step, and the others with it. */
static void cancel(struct backend *b) {
    struct backend *own = ranks_of(b)->own;
    own->type->cancel(own);
}
static void info(const struct backend *b, struct backend_info *out) {
    const struct ranks *r = (const struct ranks *)b;
    r->own->type->info(r->own, out);
    out->isa = r->isa;
    for (int i = 1; i < r->n; i++) {
        struct backend_info other;
        r->rank[i]->type->info(r->rank[i], &other);
        out->n_thread += other.n_thread;
    }
}
static void ranks_close(struct backend *b) {
    struct ranks *r = ranks_of(b);
    for (int i = 1; r->rank && i < r->n; i++)
        if (r->rank[i]) r->rank[i]->type->free(r->rank[i]);
    if (r->own) r->own->type->close(r->own);
    comm_local_free(r->local);
    mem_free(r->rank);
    mem_free(r->call);
    mem_free(r->piece);
    mem_free(r->store);
    mem_free(r);
}

static const struct backend_type ranks_type = {.upload = upload,
                                               .compile = compile,
                                               .run = run,
                                               .wait = wait,
                                               .read = read_rows,
                                               .kv_read = kv_read,
                                               .kv_write = kv_write,
                                               .kv_page = kv_page,
                                               .kv_copy = kv_copy,
                                               .state_read = state_read,
                                               .state_write = state_write,
                                               .state_copy = state_copy,
                                               .cancel = cancel,
                                               .info = info,
                                               .close = ranks_close};

static size_t largest_piece(const struct ranks *r) {
    size_t most = 0;
    for (int i = 0; i < r->whole->n_store; i++) {
        const struct kv_store s = store_of(r, i);
        const size_t n = kv_page_bytes(&s);
        if (n > most) most = n;
    }
    for (int i = 0; i < r->whole->n_state; i++) {
        const size_t n = (size_t)r->whole->state[i].n_elem * sizeof(float);
        if (n > most) most = n;
    }
    return most;
}
static enum infer_status open_rank(void *user, struct backend **out) { return join_open(out, user); }
static void configure(struct plan *p, int rank, int n, struct comm *comm) {
    for (int k = 0; k < p->n_part; k++) {
        p->part[k].config.rank = rank, p->part[k].config.n_rank = n;
        p->part[k].config.comm = comm;
    }
}
static enum infer_status open_threads(struct ranks *r) {
    TRY(comm_local_new(&r->local, r->n));
    r->comm = comm_local_rank(r->local, 0);
    for (int i = 0; i < r->n; i++) {
        configure(r->plan[i].plan, i, r->n, comm_local_rank(r->local, i));
        if (i) TRY(rank_thread_new(&r->rank[i]));
        TRY(i ? rank_thread_open(r->rank[i], open_rank, r->plan[i].plan)
              : join_open(&r->own, r->plan[i].plan));
    }
    return INFER_OK;
}
/* Ranks whose kernels differ would differ in the last bits of what each computes whole, and then in choices. */
static enum infer_status same_kernels(struct ranks *r) {
    struct backend_info own, other;
    r->own->type->info(r->own, &own);
    for (int i = 1; i < r->n; i++) {
        r->rank[i]->type->info(r->rank[i], &other);
        const char *a = own.isa ? own.isa : "", *b = other.isa ? other.isa : "";
        if (strcmp(a, b))
            return err_set(INFER_E_INPUT,
                           "rank %d computes with %s, rank 0 with %s: .isa says what all of them have", i, b,
                           a);
    }
    return INFER_OK;
}
static enum infer_status open_processes(struct ranks *r) {
    struct rank_limits limits = rank_limits_of(r->plan[0].plan, r->whole);
    r->comm = group_comm(r->order->group);
    const int n = r->whole->n_store;
    TRY(mem_new(&r->store, ((size_t)r->n * (size_t)n + 1) * sizeof *r->store, "stores of ranks"));
    for (int i = 1; i < r->n; i++) {
        struct kv_store *own = r->store + (size_t)i * (size_t)n;
        for (int k = 0; k < n; k++)
            own[k] = kv_store_typed(&r->plan[i].model->store[k], &r->plan[0].plan->store[k]);
        limits.store = own, limits.state = r->plan[i].model->state;
        TRY(rank_remote_new(&r->rank[i], r->order->group, i, &limits));
    }
    for (int i = 1; i < r->n; i++) rank_remote_open(r->rank[i], r->order->bytes, r->order->n);
    configure(r->plan[0].plan, 0, r->n, r->comm);
    enum infer_status st = join_open(&r->own, r->plan[0].plan);
    char message[512];
    snprintf(message, sizeof message, "%s", st ? err_message() : "");
    for (int i = 1; i < r->n; i++) {
        const enum infer_status s = rank_remote_opened(r->rank[i]);
        if (s && !st) snprintf(message, sizeof message, "%s", err_message()), st = s;
    }
    return st ? err_set(st, "%s", message) : same_kernels(r);
}
static enum infer_status open_all(struct ranks *r) {
    TRY(mem_new(&r->rank, (size_t)r->n * sizeof *r->rank, "ranks"));
    TRY(mem_new(&r->call, (size_t)r->n * sizeof *r->call, "ranks"));
    TRY(mem_new(&r->piece, largest_piece(r), "a page or a state"));
    return r->order ? open_processes(r) : open_threads(r);
}

enum infer_status join_ranks(struct backend **out, const struct rank_plan *plan, int n,
                             const struct model *whole, const struct rank_order *order) {
    struct ranks *r;
    struct backend_info info;
    *out = NULL;
    TRY(mem_new(&r, sizeof *r, "ranks"));
    r->n = n, r->plan = plan, r->whole = whole, r->order = order;
    r->type = ranks_type;
    r->base.type = &r->type;
    enum infer_status st = open_all(r);
    if (st != INFER_OK) {
        ranks_close(&r->base);
        return st;
    }
    r->own->type->info(r->own, &info);
    snprintf(r->name, sizeof r->name, "%s x%d", r->own->type->name, n);
    snprintf(r->isa, sizeof r->isa, "%s", info.isa ? info.isa : "");
    r->type.name = r->name;
    *out = &r->base;
    return INFER_OK;
}
