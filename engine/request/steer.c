/* What steers an answer beside its sampler: no end before so many tokens, a budget of thinking, a constraint that begins on the way. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "request/request_impl.h"

static bool ends(const struct request *r, int32_t id) {
    for (int i = 0; i < r->p.n_end_id; i++)
        if (r->p.end_ids[i] == id) return true;
    return id == r->p.end_id || infer_is_stop(r->sched->model, id);
}

/* The sampler's biases with those tokens that would end the answer, which are forbidden. */
static enum infer_status bar_ends(struct request *r) {
    const struct sample_params *p = &r->p.sample;
    int n = 0;
    for (int32_t id = 0; id < r->sched->n_vocab; id++) n += ends(r, id);
    TRY(mem_new(&r->barred, ((size_t)n + (size_t)p->n_bias + 1) * sizeof *r->barred, "biases"));
    n = 0;
    for (int i = 0; i < p->n_bias; i++)
        if (!ends(r, p->bias[i].id)) r->barred[n++] = p->bias[i];
    for (int32_t id = 0; id < r->sched->n_vocab; id++)
        if (ends(r, id)) r->barred[n++] = (struct sample_bias){id, -INFINITY};
    r->bias = p->bias, r->n_bias = p->n_bias;
    r->p.sample.bias = r->barred, r->p.sample.n_bias = n;
    r->answer.n_stop = 0;
    return sample_set(r->sampler, &r->p.sample);
}

enum infer_status steer_open(struct request *r) {
    r->awake = r->p.constraint && !r->p.wakes;
    return r->p.min_tokens > 0 && !r->p.constraint ? bar_ends(r) : INFER_OK;
}

void steer_close(struct request *r) {
    mem_free(r->barred);
    r->barred = NULL;
}

struct constraint *steer_constraint(const struct request *r) {
    return r->awake ? r->p.constraint : NULL;
}

enum infer_status steer_chosen(struct request *r) {
    if (r->telling) {
        r->last = r->p.think_end[r->n_told++];
        r->telling = r->n_told < r->p.n_think_end;
    }
    if (!r->barred || r->n_token + 1 < r->p.min_tokens) return INFER_OK;
    r->p.sample.bias = r->bias, r->p.sample.n_bias = r->n_bias;
    r->answer.n_stop = r->p.n_stop;
    TRY(sample_set(r->sampler, &r->p.sample));
    steer_close(r);
    return INFER_OK;
}

enum infer_status steer_told(struct request *r) {
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

bool steer_waits(const struct request *r) { return r->barred || r->telling; }
