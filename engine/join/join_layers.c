/* Layers on two backends: the first ones on the host, the rest and the outputs behind them, on the rows of the residual stream that the
 * host left, which cross in float32 and so change no bit. Of several stages the rest is such a join, too. */
#include "join/join.h"
#include "seam/last_tokens.h"

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
    struct join join;
    const struct plan_part *lower; /* and the one behind it */
    struct arena arena;
    float *rows;         /* rows[n_row][n_embd]: the residual stream on its way */
    const float **input; /* input[n_row]: each of them */
    struct last_tokens last;
    struct split_run ring[RING];
    unsigned head, tail;
};

static void split_close(struct backend *b) {
    struct split *s = (struct split *)b;
    arena_free(&s->arena);
    join_close(b);
}

/* Waits for the upper part of a run, unless that was done before, and keeps the tokens that it sampled. */
static enum infer_status finish(struct split *s, struct split_run *r) {
    if (r->status != INFER_OK) return err_set(r->status, "%s", r->message);
    if (r->known) return INFER_OK;
    r->status = s->join.rest->type->wait(s->join.rest, &r->result);
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
    struct backend *lower = s->join.first;
    const struct op_list *l = &s->lower->list[cls];
    struct step first = *step;
    struct step_result none;
    TRY(name_ids(s, &first));
    first.n_out = 0;
    atomic_store(&s->join.in_first, true);
    enum infer_status st = lower->type->run(lower, cls, &first);
    if (st == INFER_OK) st = lower->type->wait(lower, &none);
    atomic_store(&s->join.in_first, false);
    if (st == INFER_OK)
        st = lower->type->read(lower, cls, (struct view){0, 0, l->buf[0].width}, step->n_row, s->rows);
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
        second.input = s->input;
        TRY(s->join.rest->type->run(s->join.rest, cls, &second));
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
    return join_wait(&s->join, st);
}

static enum infer_status take_memory(struct split *s, const struct plan *p) {
    const struct plan_part *upper = &p->part[p->n_part - 1];
    const size_t n = (size_t)upper->config.n_input, width = (size_t)upper->config.n_embd;
    size_t outs = 0;
    for (int i = 0; i < ROW_CLASS_COUNT; i++)
        if ((size_t)upper->list[i].max_out > outs) outs = (size_t)upper->list[i].max_out;
    bool ok = (s->rows = arena_alloc(&s->arena, n * width * sizeof *s->rows));
    ok = ok && (s->input = arena_alloc(&s->arena, n * sizeof *s->input));
    void *last = ok ? arena_alloc(&s->arena, last_tokens_bytes(p->set.n_slot, (int)n)) : NULL;
    ok = ok && last;
    for (int i = 0; ok && i < RING; i++)
        ok = (s->ring[i].slot = arena_alloc(&s->arena, outs * sizeof *s->ring[i].slot)) != NULL;
    if (!ok) return err_set(INFER_E_MEMORY, "out of memory for rows between the host and the device");
    for (size_t i = 0; i < n; i++) s->input[i] = s->rows + i * width;
    last_tokens_open(&s->last, last, p->set.n_slot);
    return INFER_OK;
}

static enum infer_status open_parts(struct split *s, const struct plan *p, int first) {
    struct join *j = &s->join;
    TRY(take_memory(s, p));
    TRY(s->lower->type->open(&j->first, &s->lower->config));
    TRY(join_rest(&j->rest, p, first + 1, NULL));
    join_describe(j);
    return INFER_OK;
}

enum infer_status join_layers(struct backend **out, const struct plan *plan, int first) {
    struct split *s;
    TRY(mem_new(&s, sizeof *s, "a backend of two parts"));
    struct join *j = &s->join;
    if (plan->set.n_stage)
        snprintf(j->name, sizeof j->name, "%s, %d stages", plan->part[first].type->name, plan->set.n_stage);
    else
        snprintf(j->name, sizeof j->name, "%s+%s:%d", plan->part[plan->n_part - 1].type->name,
                 plan->part[first].type->name, plan->set.n_device_layer);
    j->type = join_type;
    j->type.name = j->name;
    j->type.run = split_run;
    j->type.wait = split_wait;
    j->type.close = split_close;
    j->base.type = &j->type;
    j->first_part = s->lower = &plan->part[first];
    enum infer_status st = open_parts(s, plan, first);
    if (st != INFER_OK) {
        split_close(&j->base);
        return st;
    }
    *out = &j->base;
    return INFER_OK;
}
