/* What steers an answer beside its sampler: no end before so many tokens, texts that may not come, a budget of thinking, a constraint that begins on the way. */
#include <math.h>
#include <string.h>
#include "base/host.h"
#include "base/mem.h"
#include "request/request_impl.h"

enum { MARK_WEIGHT = 10 };      /* of the mark that ends thinking, at the end of the budget */
static const double NEAR = 0.9; /* of the budget, from where on it ends */

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
    if (r->weight > 0) r->barred[n++] = (struct infer_sample_bias){r->mark, r->weight};
    if (r->closed && r->opener >= 0) r->barred[n++] = (struct infer_sample_bias){r->opener, -INFINITY};
    r->p.sample.bias = r->barred, r->p.sample.n_bias = n;
    r->answer.n_stop = r->endless ? 0 : r->p.n_stop;
    return sample_set(r->sampler, &r->p.sample);
}

/* What of think_end ends thinking, and what would begin it. */
static void find_mark(struct infer_request *r) {
    const struct infer_model *m = r->sched->model;
    r->mark = r->opener = -1;
    for (int i = 0; i < r->p.n_think_end && r->mark < 0; i++) {
        size_t n, shown, many;
        int32_t id;
        const char *piece = infer_piece(m, r->p.think_end[i], true, false, &n),
                   *open = answer_opener(piece, n);
        infer_piece(m, r->p.think_end[i], false, false, &shown);
        if (open || (n && !shown)) r->mark = r->p.think_end[i];
        if (open && !infer_tokenize(m, open, NULL, strlen(open), INFER_TOK_SPECIAL, &id, 1, &many) &&
            many == 1)
            r->opener = id;
    }
}

/* What is barred changes from token to token, or holds until min_tokens. */
enum infer_status steer_open(struct infer_request *r) {
    r->awake = r->p.constraint && !r->p.wakes;
    r->endless = r->p.min_tokens > 0 && !r->p.constraint;
    r->bias = r->p.sample.bias, r->n_bias = r->p.sample.n_bias;
    find_mark(r);
    if (!r->endless && !r->p.avoid && !r->p.n_think_end) return INFER_OK;
    size_t n = (size_t)r->n_bias + 3;
    for (int32_t id = 0; r->endless && id < r->sched->n_vocab; id++) n += ends(r, id);
    if (r->p.avoid) {
        const size_t most = (size_t)avoid_most(r->p.avoid);
        n += most;
        TRY(mem_new(&r->shut, (most + 1) * sizeof *r->shut, "biases"));
    }
    TRY(mem_new(&r->barred, n * sizeof *r->barred, "biases"));
    return r->endless || r->p.avoid ? bar(r) : INFER_OK;
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
    bool changed = false;
    if (r->telling) {
        r->last = r->p.think_end[r->n_told++];
        r->telling = r->n_told < r->p.n_think_end;
        changed = !r->telling && !r->closed && r->opener >= 0;
        if (!r->telling) r->closed = r->figures.thought_ended = true;
    }
    if (!r->barred) return INFER_OK;
    if (r->endless && r->n_token + 1 >= r->p.min_tokens) {
        r->endless = false;
        changed = true;
    }
    if (r->p.avoid) add_tail(r);
    return changed || r->p.avoid ? bar(r) : INFER_OK;
}

/* ---- a budget of thinking ---- */

static bool has_budget(const struct infer_request *r) { return r->p.n_think || r->p.think_seconds > 0; }

/* How much of it is used up with so many tokens more, 1: all. */
static double used(const struct infer_request *r, int more) {
    double x = 0;
    if (r->p.n_think) x = (double)(r->figures.n_thought + more) / r->p.n_think;
    if (r->p.think_seconds > 0 && r->figures.n_thought) {
        const double time = (host_seconds() - r->thought_from) / r->p.think_seconds;
        if (time > x) x = time;
    }
    return x;
}

/* From here on think_end's tokens come. */
static enum infer_status end_thought(struct infer_request *r) {
    r->n_told = 0;
    r->telling = true;
    if (!(r->weight > 0)) return INFER_OK;
    r->weight = 0;
    return bar(r);
}

bool steer_loops(struct infer_request *r, int cycle) {
    if (!r->p.n_think_end || !r->thinks || r->telling) return false;
    if (!(cycle && r->p.loop_stop) && !(has_budget(r) && loop_cycle(&r->loop, LOOP_THOUGHT))) return false;
    return end_thought(r) == INFER_OK;
}

/* A token more of thinking, or of what is none. */
static enum infer_status weigh(struct infer_request *r) {
    r->thinks = r->p.thinks ? r->p.thinks(r->p.user) : answer_thinks(&r->answer);
    r->left |= r->closed && !r->thinks;
    if (r->thinks && !r->figures.n_thought++) r->thought_from = host_seconds();
    if (r->telling) return INFER_OK;
    if (r->closed) return r->thinks && r->left ? r->left = false, end_thought(r) : INFER_OK;
    const double x = used(r, 0);
    if (r->thinks && (x >= 1 || (x >= NEAR && answer_sentence(&r->answer)))) return end_thought(r);
    const float weight =
        r->thinks && r->mark >= 0 && x > NEAR ? (float)(MARK_WEIGHT * (x - NEAR) / (1 - NEAR)) : 0;
    if (weight == r->weight) return INFER_OK;
    r->weight = weight;
    return bar(r);
}

enum infer_status steer_told(struct infer_request *r) {
    if (r->p.constraint && !r->awake) {
        const char *had = r->p.wakes(r->p.user);
        if (had) {
            constrain_reset(r->p.constraint);
            r->awake = constrain_text(r->p.constraint, had, strlen(had));
        }
    }
    return r->p.n_think_end && !r->awake ? weigh(r) : INFER_OK;
}

bool steer_near(const struct infer_request *r, int n) {
    const int loop = has_budget(r) ? LOOP_THOUGHT : LOOP_TOKENS;
    if (!r->p.n_think_end || r->closed) return false;
    return used(r, n) >= NEAR || (r->thinks && r->loop.longest + n >= loop / LOOP_TIMES * (LOOP_TIMES - 1));
}

/* A step is queued behind one in flight: its token hangs on what is told of that one's. */
bool steer_waits(const struct infer_request *r) {
    return r->endless || r->p.avoid || r->telling || (!r->closed && r->p.n_think_end && used(r, 2) >= NEAR);
}
