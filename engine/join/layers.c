#include "join/layers.h"
#include "seam/last_tokens.h"
#include "seam/op_list.h"

#include <stdatomic.h>
#include <stdio.h>

enum { RING = 2 * ROW_CLASS_COUNT }; /* two steps in flight, each of both classes */

/* A run between run and wait. */
struct split_run {
    enum infer_status status; /* of the lower part: not INFER_OK: the upper part did not run */
    char message[256];
    int n_out;
    int32_t *slot; /* slot[max_out] of each output */
    bool known;    /* result is the upper part's, already waited for */
    struct step_result result;
};

struct split {
    struct backend base;
    struct backend_type type; /* with a name that says what is where: "cuda+cpu:12", 12 layers on the first */
    char name[48], isa[96];
    const struct plan *plan;
    struct backend *lower, *upper;
    struct arena arena;
    float *rows;      /* rows[n_row][n_embd]: the live embedding of the upper part */
    int32_t *counted; /* 0, 1, 2 ..: ids of the upper step */
    struct last_tokens last;
    struct split_run ring[RING];
    unsigned head, tail;
    atomic_bool in_lower, cancelled;
};

static void split_close(struct backend *b) {
    struct split *s = (struct split *)b;
    if (s->lower) s->lower->type->close(s->lower);
    if (s->upper) s->upper->type->close(s->upper);
    arena_free(&s->arena);
    mem_free(s);
}

static enum infer_status split_upload(struct backend *b) {
    struct split *s = (struct split *)b;
    TRY(s->lower->type->upload(s->lower));
    return s->upper->type->upload(s->upper);
}

static enum infer_status split_compile(struct backend *b, enum row_class cls) {
    struct split *s = (struct split *)b;
    TRY(s->lower->type->compile(s->lower, cls));
    return s->upper->type->compile(s->upper, cls);
}

/* Waits for the upper part of a run, unless that was done before, and keeps the tokens that it sampled. */
static enum infer_status finish(struct split *s, struct split_run *r) {
    if (r->status != INFER_OK) return err_set(r->status, "%s", r->message);
    if (r->known) return INFER_OK;
    r->status = s->upper->type->wait(s->upper, &r->result);
    r->known = true;
    if (r->status != INFER_OK) snprintf(r->message, sizeof r->message, "%s", err_message());
    for (int i = 0; r->status == INFER_OK && i < r->n_out; i++)
        if (r->result.token[i] >= 0) s->last.token[r->slot[i]] = r->result.token[i];
    return r->status;
}

/* Gives the step its ids. Those that a queued step selects: that step has to end first. */
static enum infer_status name_ids(struct split *s, struct step *step) {
    bool open = false;
    for (int t = 0; t < step->n_row; t++) open |= step->id[t] == STEP_LAST;
    for (unsigned i = s->tail; open && i != s->head; i++) TRY(finish(s, &s->ring[i % RING]));
    return last_tokens_resolve(&s->last, step);
}

/* The first layers of the step, up to the rows of the residual stream. */
static enum infer_status run_lower(struct split *s, enum row_class cls, const struct step *step) {
    const struct op_list *l = &s->plan->part[0].list[cls];
    struct step first = *step;
    struct step_result none;
    TRY(name_ids(s, &first));
    first.n_out = 0;
    atomic_store(&s->in_lower, true);
    enum infer_status st = s->lower->type->run(s->lower, cls, &first);
    if (st == INFER_OK) st = s->lower->type->wait(s->lower, &none);
    atomic_store(&s->in_lower, false);
    if (st == INFER_OK)
        st = s->lower->type->read(s->lower, cls, (struct view){0, 0, l->buf[0].width}, step->n_row, s->rows);
    return st;
}

static enum infer_status split_run(struct backend *b, enum row_class cls, const struct step *step) {
    struct split *s = (struct split *)b;
    if (s->head - s->tail >= RING) infer_bug("%u runs in flight", s->head - s->tail);
    struct split_run *r = &s->ring[s->head % RING];
    r->known = false;
    r->n_out = step->n_out;
    for (int i = 0; i < step->n_out; i++) r->slot[i] = step->slot[step->out_row[i]];
    r->status = run_lower(s, cls, step);
    if (r->status == INFER_OK) {
        struct step second = *step;
        second.id = s->counted;
        TRY(s->upper->type->run(s->upper, cls, &second));
    } else {
        snprintf(r->message, sizeof r->message, "%s", err_message());
    }
    s->head++;
    return INFER_OK;
}

static enum infer_status split_wait(struct backend *b, struct step_result *out) {
    struct split *s = (struct split *)b;
    struct split_run *r = &s->ring[s->tail++ % RING];
    enum infer_status st = finish(s, r);
    *out = r->result;
    if (atomic_exchange(&s->cancelled, false) && st == INFER_OK) return err_set(INFER_E_CANCEL, "cancelled");
    return st;
}

static enum infer_status split_read(struct backend *b, enum row_class cls, struct view v, int n_row,
                                    float *out) {
    struct split *s = (struct split *)b;
    return s->upper->type->read(s->upper, cls, v, n_row, out);
}

static struct backend *holder(const struct split *s, int store) {
    return config_uses_store(&s->plan->part[0].config, store) ? s->lower : s->upper;
}
static enum infer_status split_kv_read(struct backend *b, int store, int page, float *k, float *v) {
    struct backend *h = holder((struct split *)b, store);
    return h->type->kv_read(h, store, page, k, v);
}
static enum infer_status split_kv_write(struct backend *b, int store, int page, const float *k,
                                        const float *v) {
    struct backend *h = holder((struct split *)b, store);
    return h->type->kv_write(h, store, page, k, v);
}
static enum infer_status split_kv_page(struct backend *b, int store, int page, void *bytes, bool write) {
    struct backend *h = holder((struct split *)b, store);
    return h->type->kv_page(h, store, page, bytes, write);
}
static enum infer_status split_kv_copy(struct backend *b, int group, int from, int to) {
    struct split *s = (struct split *)b;
    TRY(s->lower->type->kv_copy(s->lower, group, from, to));
    return s->upper->type->kv_copy(s->upper, group, from, to);
}

static struct backend *state_holder(const struct split *s, int store) {
    return config_uses_state(&s->plan->part[0].config, store) ? s->lower : s->upper;
}
static enum infer_status split_state_read(struct backend *b, int store, int slot, float *out) {
    struct backend *h = state_holder((struct split *)b, store);
    return h->type->state_read(h, store, slot, out);
}
static enum infer_status split_state_write(struct backend *b, int store, int slot, const float *x) {
    struct backend *h = state_holder((struct split *)b, store);
    return h->type->state_write(h, store, slot, x);
}
static enum infer_status split_state_copy(struct backend *b, int from, int to) {
    struct split *s = (struct split *)b;
    TRY(s->lower->type->state_copy(s->lower, from, to));
    return s->upper->type->state_copy(s->upper, from, to);
}

static void split_cancel(struct backend *b) {
    struct split *s = (struct split *)b;
    atomic_store(&s->cancelled, true);
    if (atomic_load(&s->in_lower)) s->lower->type->cancel(s->lower);
}

static void split_info(const struct backend *b, struct backend_info *out) {
    const struct split *s = (const struct split *)b;
    struct backend_info lower;
    s->lower->type->info(s->lower, &lower);
    s->upper->type->info(s->upper, out);
    out->n_thread = lower.n_thread;
    out->isa = s->isa;
    if (lower.grid > out->grid) out->grid = lower.grid;
}

static enum infer_status take_memory(struct split *s) {
    const struct plan *p = s->plan;
    const struct plan_part *upper = &p->part[1];
    size_t n = (size_t)upper->config.embedding->n, outs = 0;
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        if ((size_t)upper->list[i].max_out > outs) outs = (size_t)upper->list[i].max_out;
    bool ok = (s->rows = arena_alloc(&s->arena, n * (size_t)upper->config.embedding->k * sizeof *s->rows));
    ok = ok && (s->counted = arena_alloc(&s->arena, n * sizeof *s->counted));
    void *last = ok ? arena_alloc(&s->arena, last_tokens_bytes(p->set.n_slot, (int)n)) : NULL;
    ok = ok && last;
    for (int i = 0; ok && i < RING; i++)
        ok = (s->ring[i].slot = arena_alloc(&s->arena, outs * sizeof *s->ring[i].slot)) != NULL;
    if (!ok) return err_set(INFER_E_MEMORY, "out of memory for rows between the host and the device");
    for (size_t i = 0; i < n; i++) s->counted[i] = (int32_t)i;
    last_tokens_open(&s->last, last, p->set.n_slot);
    return INFER_OK;
}

static const struct backend_type backend_split = {
    .upload = split_upload,
    .compile = split_compile,
    .run = split_run,
    .wait = split_wait,
    .read = split_read,
    .kv_read = split_kv_read,
    .kv_write = split_kv_write,
    .kv_page = split_kv_page,
    .kv_copy = split_kv_copy,
    .state_read = split_state_read,
    .state_write = split_state_write,
    .state_copy = split_state_copy,
    .cancel = split_cancel,
    .info = split_info,
    .close = split_close,
};

static enum infer_status open_parts(struct split *s) {
    const struct plan_part *p = s->plan->part;
    TRY(take_memory(s));
    /* the plan allocated the live weight for this: what it points at is only known now */
    p[1].range.rows->data = s->rows;
    TRY(p[0].type->open(&s->lower, &p[0].config));
    TRY(p[1].type->open(&s->upper, &p[1].config));
    struct backend_info lower, upper;
    s->lower->type->info(s->lower, &lower);
    s->upper->type->info(s->upper, &upper);
    snprintf(s->isa, sizeof s->isa, "%s; %s", upper.isa, lower.isa);
    return INFER_OK;
}

enum infer_status split_open(struct backend **out, const struct plan *plan) {
    struct split *s;
    *out = NULL;
    TRY(mem_new(&s, sizeof *s, "a backend of two parts"));
    snprintf(s->name, sizeof s->name, "%s+%s:%d", plan->part[1].type->name, plan->part[0].type->name,
             plan->set.n_device_layer);
    s->type = backend_split;
    s->type.name = s->name;
    s->base.type = &s->type;
    s->plan = plan;
    enum infer_status st = open_parts(s);
    if (st != INFER_OK) {
        split_close(&s->base);
        return st;
    }
    *out = &s->base;
    return INFER_OK;
}
