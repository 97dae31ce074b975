/* What steers an answer beside its sampler: no end before so many tokens, texts that may not come, a budget of thinking, a constraint that begins on the way. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "request/request_impl.h"

static bool ends(const struct infer_request *r, int32_t id) {
    for (int i = 0; i < r->p.n_end_id; i++)
        if (r->p.end_ids[i] == id) return true;
    return id == r->p.end_id || infer_is_stop(r->sched->model, id);
}

/* The biases that hold for the next token: those that were asked for, and of what may not come. Of an id that is there twice the sum holds. */
static enum infer_status bar(struct infer_request *r) {
    int n = r->n_bias;
    for (int i = 0; i < n; i++) r->barred[i] = r->bias[i];
    if (r->endless) {
        for (int i = 0; i < n; i++) /* a bias may be infinite as well */
            if (ends(r, r->barred[i].id)) r->barred[i].bias = 0;
        for (int32_t id = 0; id < r->sched->n_vocab; id++)
            if (ends(r, id)) r->barred[n++] = (struct infer_sample_bias){id, -INFINITY};
    }
    if (r->p.avoid) {
        const int shut = avoid_next(r->p.avoid, r->tail, r->n_tail, r->shut);
        for (int i = 0; i < shut; i++) r->barred[n++] = (struct infer_sample_bias){r->shut[i], -INFINITY};
    }
    r->p.sample.bias = r->barred, r->p.sample.n_bias = n;
    r->answer.n_stop = r->endless ? 0 : r->p.n_stop;
    return sample_set(r->sampler, &r->p.sample);
}

/* What is barred changes from token to token, or holds until min_tokens. */
enum infer_status steer_open(struct infer_request *r) {
    r->awake = r->p.constraint && !r->p.wakes;
    r->endless = r->p.min_tokens > 0 && !r->p.constraint;
    r->bias = r->p.sample.bias, r->n_bias = r->p.sample.n_bias;
    if (!r->endless && !r->p.avoid) return INFER_OK;
    size_t n = (size_t)r->n_bias + 1;
    for (int32_t id = 0; r->endless && id < r->sched->n_vocab; id++) n += ends(r, id);
    if (r->p.avoid) {
        const size_t most = (size_t)avoid_most(r->p.avoid);
        n += most;
        TRY(mem_new(&r->shut, (most + 1) * sizeof *r->shut, "biases"));
    }
    TRY(mem_new(&r->barred, n * sizeof *r->barred, "biases"));
    return bar(r);
}

void steer_close(struct infer_request *r) {
    mem_free(r->barred);
    mem_free(r->shut);
    r->barred = NULL;
    r->shut = NULL;
}

/* The end of the answer with r->last behind it. */
static void add_tail(struct infer_request *r) {
    size_t n;
    const char *piece = infer_piece(r->sched->model, r->last, false, false, &n);
    if (n > INFER_AVOID_BYTES) piece += n - INFER_AVOID_BYTES, n = INFER_AVOID_BYTES;
    const size_t keep = r->n_tail + n > INFER_AVOID_BYTES ? INFER_AVOID_BYTES - n : r->n_tail;
    memmove(r->tail, r->tail + r->n_tail - keep, keep);
    memcpy(r->tail + keep, piece, n);
    r->n_tail = keep + n;
}

struct infer_constraint *steer_constraint(const struct infer_request *r) {
    return r->awake ? r->p.constraint : NULL;
}

enum infer_status steer_chosen(struct infer_request *r) {
    if (r->telling) {
        r->last = r->p.think_end[r->n_told++];
        r->telling = r->n_told < r->p.n_think_end;
    }
    if (!r->barred) return INFER_OK;
    const bool ended = r->endless && r->n_token + 1 >= r->p.min_tokens;
    if (ended) r->endless = false;
    if (r->p.avoid) {
        add_tail(r);
        return bar(r);
    }
    if (!ended) return INFER_OK;
    r->p.sample.bias = r->bias, r->p.sample.n_bias = r->n_bias;
    r->answer.n_stop = r->p.n_stop;
    TRY(sample_set(r->sampler, &r->p.sample));
    steer_close(r);
    return INFER_OK;
}

enum infer_status steer_told(struct infer_request *r) {
    if (r->p.constraint && !r->awake) {
        const char *had = r->p.wakes(r->p.user);
        if (had) {
            constrain_reset(r->p.constraint);
            r->awake = constrain_text(r->p.constraint, had, strlen(had));
        }
    }
    if (!r->p.n_think || r->n_told || r->awake) return INFER_OK;
    const bool thinks = r->p.thinks ? r->p.thinks(r->p.user) : answer_thinks(&r->answer);
    r->n_thought += thinks;
    r->telling = thinks && r->n_thought >= r->p.n_think && r->p.n_think_end > 0;
    return INFER_OK;
}

bool steer_waits(const struct infer_request *r) { return r->barred || r->telling; }
