/* A rank in another process: what rank 0 asks it goes as messages, and the process that follows does it. */
#include "join/rank_message.h"
#include "join/join.h"
#include "base/mem.h"
#include "wire/group.h"

#include <stdio.h>
#include <string.h>

/* What a rank says when its backend is open. */
struct opened {
    char isa[128], device[128];
    int32_t n_thread, grid, async;
};

/* ---- at rank 0 ---- */

/* A step of a rank that computes it when it is asked to, and waits for it by itself: its one answer, which may come between others. */
struct early {
    enum infer_status status;
    char message[256];
};
struct rank_remote {
    struct rank base;
    struct infer_group *group;
    int rank;
    struct rank_limits limits;
    struct opened opened;
    bool open, pages_sent;
    uint64_t pages_version; /* of the tables that it has */
    enum infer_status sent; /* of the call */
    struct rank_call *call;
    unsigned asked, heard, told; /* steps: asked for, whose answer is here, which wait has told */
    struct early early[2 * PLAN_FLIGHTS];
    size_t most;
    char *bytes; /* [most] */
};

static bool at_once(const struct rank_remote *r) { return !r->opened.async; }
static void begin(struct rank *base, struct rank_call *call) {
    struct rank_remote *r = (struct rank_remote *)base;
    r->call = call;
    if (call->ask == RANK_WAIT && at_once(r)) return;
    const bool pages =
        call->ask == RANK_RUN && (!r->pages_sent || r->pages_version != call->step->pages_version);
    const size_t n = rank_message_put(r->bytes, &r->limits, call, pages);
    r->sent = group_send(r->group, r->rank, call->ask, 0, r->bytes, n);
    if (pages) r->pages_sent = true, r->pages_version = call->step->pages_version;
}
static enum infer_status answer(struct rank_remote *r, struct wire_head *head) {
    bool closed;
    TRY(r->sent);
    TRY(group_receive(r->group, r->rank, head, r->bytes, r->most - 1, &closed));
    if (head->kind != RANK_ANSWER) return err_set(INFER_E_DEVICE, "rank %d says what is no answer", r->rank);
    r->bytes[head->n] = 0;
    if (!head->status) return INFER_OK;
    const bool known = head->status <= INFER_E_WRITE;
    return err_set(known ? (enum infer_status)head->status : INFER_E_DEVICE, "%s", r->bytes);
}
static void hear_step(struct rank_remote *r) {
    struct early *e = &r->early[r->heard++ % (2 * PLAN_FLIGHTS)];
    struct wire_head head;
    e->status = answer(r, &head);
    snprintf(e->message, sizeof e->message, "%s", e->status ? err_message() : "");
}
/* Of a rank whose steps answer once: run says nothing, wait what both came to. */
static enum infer_status end_step(struct rank_remote *r) {
    if (r->call->ask == RANK_RUN) {
        r->asked++;
        return r->sent;
    }
    if (r->heard == r->told) hear_step(r);
    const struct early *e = &r->early[r->told++ % (2 * PLAN_FLIGHTS)];
    return e->status ? err_set(e->status, "%s", e->message) : INFER_OK;
}
static enum infer_status end(struct rank *base) {
    struct rank_remote *r = (struct rank_remote *)base;
    const struct rank_call *c = r->call;
    struct wire_head head;
    if (at_once(r) && (c->ask == RANK_RUN || c->ask == RANK_WAIT)) return end_step(r);
    while (r->heard != r->asked) hear_step(r);
    TRY(answer(r, &head));
    const size_t n = rank_call_reads(&r->limits, c);
    if (head.n != n) return err_set(INFER_E_DEVICE, "rank %d says what is no answer", r->rank);
    if (!n || c->ask != RANK_KV_READ) {
        if (n) memcpy(c->ask == RANK_KV_PAGE ? c->bytes : c->k, r->bytes, n);
        return INFER_OK;
    }
    const struct kv_store *s = &r->limits.store[c->store];
    const size_t k = (size_t)(s->n_kv_head * kv_page_rows(s)) * (size_t)s->head_dim_k * sizeof(float);
    memcpy(c->k, r->bytes, k);
    if (c->v) memcpy(c->v, r->bytes + k, n - k);
    return INFER_OK;
}
static void info(const struct rank *base, struct backend_info *out) {
    const struct rank_remote *r = (const struct rank_remote *)base;
    *out = (struct backend_info){.isa = r->opened.isa,
                                 .device_name = r->opened.device,
                                 .n_thread = r->opened.n_thread,
                                 .grid = r->opened.grid,
                                 .async = r->opened.async != 0};
}
static void free_remote(struct rank *base) {
    struct rank_remote *r = (struct rank_remote *)base;
    struct wire_head head;
    if (r->open) {
        begin(base, &(struct rank_call){.ask = RANK_CLOSE});
        while (r->heard != r->asked) hear_step(r);
        (void)answer(r, &head);
    }
    mem_free(r->bytes);
    mem_free(r);
}
static const struct rank_type type = {.begin = begin, .end = end, .info = info, .free = free_remote};

enum infer_status rank_remote_new(struct rank **out, struct infer_group *g, int rank,
                                  const struct rank_limits *limits) {
    struct rank_remote *r;
    *out = NULL;
    TRY(mem_new(&r, sizeof *r, "a rank"));
    *r = (struct rank_remote){.base = {&type}, .group = g, .rank = rank, .limits = *limits};
    r->most = rank_message_most(limits) + sizeof r->opened + 1;
    *out = &r->base;
    return mem_new(&r->bytes, r->most, "messages to a rank");
}
void rank_remote_open(struct rank *base, const void *order, size_t n) {
    struct rank_remote *r = (struct rank_remote *)base;
    r->sent = group_send(r->group, r->rank, RANK_OPEN, 0, order, n);
}
enum infer_status rank_remote_opened(struct rank *base) {
    struct rank_remote *r = (struct rank_remote *)base;
    struct wire_head head;
    char name[128];
    const enum infer_status st = answer(r, &head);
    group_name(r->group, r->rank, name, sizeof name);
    if (st) return st == INFER_E_DEVICE && infer_group_lost(r->group) ? st : err_prefix(st, "%s", name);
    if (head.n != sizeof r->opened) return err_set(INFER_E_DEVICE, "%s says what is no answer", name);
    memcpy(&r->opened, r->bytes, sizeof r->opened);
    r->opened.isa[127] = r->opened.device[127] = 0;
    r->open = true;
    return INFER_OK;
}

/* ---- at the others ---- */

static enum infer_status reply(struct infer_group *g, enum infer_status st, const void *bytes, size_t n) {
    if (st == INFER_OK) return group_send(g, 0, RANK_ANSWER, 0, bytes, n);
    const char *message = err_message();
    return group_send(g, 0, RANK_ANSWER, st, message, strlen(message));
}

enum infer_status join_refuse(struct infer_group *g, enum infer_status status) {
    return reply(g, status, NULL, 0);
}

/* What a follower has open. */
struct seat {
    struct infer_group *group;
    struct backend *backend;
    struct rank_limits limits;
    struct rank_inbox inbox;
    bool async;
    size_t most;
    void *bytes; /* [most] */
};

static enum infer_status serve(struct seat *s, bool *closed) {
    for (;;) {
        struct wire_head head;
        struct rank_call call;
        TRY(group_receive(s->group, 0, &head, s->bytes, s->most, closed));
        if (*closed) return INFER_OK;
        enum infer_status st = head.kind > RANK_CLOSE
                                   ? err_set(INFER_E_INPUT, "rank 0 asks what is no call")
                                   : rank_message_get(&call, &s->inbox, &s->limits, (enum rank_ask)head.kind,
                                                      s->bytes, (size_t)head.n);
        if (st) { /* rank 0 and this one are no longer of one mind */
            struct comm *c = group_comm(s->group);
            c->type->abort(c);
            return reply(s->group, err_prefix(INFER_E_DEVICE, "a message"), NULL, 0);
        }
        group_step(s->group, call.ask == RANK_RUN || call.ask == RANK_WAIT);
        st = rank_do(s->backend, &call);
        if (st == INFER_OK && call.ask == RANK_RUN && !s->async)
            st = rank_do(s->backend, &(struct rank_call){.ask = RANK_WAIT});
        group_step(s->group, false);
        if (call.ask == RANK_READY) group_comm(s->group)->type->ready(group_comm(s->group));
        const size_t n = rank_call_reads(&s->limits, &call);
        TRY(reply(s->group, st, s->inbox.numbers, n));
        if (call.ask == RANK_CLOSE) return INFER_OK;
    }
}

static enum infer_status take_seat(struct seat *s, struct plan *plan, const struct model *whole) {
    const int rank = group_rank(s->group), n = group_world(s->group);
    for (int k = 0; k < plan->n_part; k++) {
        plan->part[k].config.rank = rank, plan->part[k].config.n_rank = n;
        plan->part[k].config.comm = group_comm(s->group);
    }
    s->limits = rank_limits_of(plan, whole);
    s->most = rank_message_most(&s->limits);
    TRY(mem_new(&s->bytes, s->most, "messages of rank 0"));
    TRY(rank_inbox_new(&s->inbox, &s->limits));
    return join_open(&s->backend, plan);
}

enum infer_status join_follow(struct infer_group *g, struct plan *plan, const struct model *whole,
                              bool *closed) {
    struct seat s = {.group = g};
    struct backend_info info;
    struct opened opened = {.grid = 0};
    *closed = false;
    enum infer_status st = take_seat(&s, plan, whole);
    if (st == INFER_OK) {
        s.backend->type->info(s.backend, &info);
        snprintf(opened.isa, sizeof opened.isa, "%s", info.isa ? info.isa : "");
        snprintf(opened.device, sizeof opened.device, "%s", info.device_name ? info.device_name : "");
        opened.n_thread = info.n_thread, opened.grid = info.grid, opened.async = info.async;
        s.async = info.async;
        st = reply(g, INFER_OK, &opened, sizeof opened);
        if (st == INFER_OK) st = serve(&s, closed);
    } else {
        st = reply(g, st, NULL, 0);
    }
    if (s.backend) s.backend->type->close(s.backend);
    rank_inbox_free(&s.inbox);
    mem_free(s.bytes);
    return st;
}
