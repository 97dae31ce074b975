/* The steps of all requests of one engine: one submit for all of them, one wait. */
#include <time.h>
#include "base/mem.h"
#include "request/request_impl.h"

double request_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum infer_status sched_open(struct sched **out, struct infer_engine *e, const struct infer_model *m) {
    struct infer_engine_info place;
    struct infer_model_info info;
    struct sched *s;
    *out = NULL;
    infer_engine_info(e, &place);
    infer_model_info(m, &info);
    TRY(mem_new(&s, sizeof *s, "requests"));
    *s = (struct sched){.engine = e,
                        .model = m,
                        .n_ctx = place.n_ctx,
                        .n_batch = place.n_batch,
                        .n_decode_rows = place.n_decode_rows,
                        .n_logits = place.n_logits,
                        .n_slot = place.n_slot,
                        .n_vocab = info.n_vocab,
                        .grid = place.grid,
                        .state_step = place.state_bytes ? INFER_STATE_STEP : 0,
                        .ahead = place.async};
    enum infer_status st =
        mem_new(&s->rows, (size_t)(s->n_batch + s->n_decode_rows) * sizeof *s->rows, "rows of a step");
    if (st)
        sched_close(s);
    else
        *out = s;
    return st;
}

void sched_close(struct sched *s) {
    if (!s) return;
    if (s->first) infer_bug("a request is left");
    drafter_close(s->drafter, s->n_slot);
    mem_free(s->rows);
    mem_free(s);
}

/* How many rows of decoding the requests from r on need at least. */
static int n_decoding(const struct request *r) {
    int n = 0;
    for (; r; r = r->next) n += !r->why && r->decodes;
    return n;
}

/* The first goes behind the others. */
static void rotate(struct sched *s) {
    struct request *first = s->first, **last = &first->next;
    while (*last) last = &(*last)->next;
    s->first = first->next ? first->next : first;
    *last = first;
    first->next = NULL;
}

/* The rows that the requests want now; each that decodes has its token's, what is left is for guesses. Where there is no room for
 * all, another one is the first next time. */
static int collect(struct sched *s) {
    struct request_room left = {s->n_batch, s->n_decode_rows, s->n_logits};
    bool all = true;
    int n = 0, n_out = 0, n_class[2] = {0};
    for (struct request *r = s->first; r; r = r->next) {
        int reserved = n_decoding(r->next);
        struct request_room room = {left.prompt, left.decode - reserved, left.logits};
        if (room.decode < 1) room.decode = left.decode > 0;
        int m = request_rows(r, s->rows + n, &room);
        all = all && (m || r->why);
        if (!m) continue;
        struct request_part *part = &r->part[r->n_part - 1];
        part->step = s->n_submit;
        part->row = n_class[s->rows[n].decode];
        n_class[s->rows[n].decode] += m;
        part->first = n_out;
        for (int i = n; i < n + m; i++) {
            n_out += s->rows[i].want != INFER_WANT_NONE;
            left.logits -= (s->rows[i].want & INFER_WANT_LOGITS) != 0;
        }
        part->n_out = n_out - part->first;
        *(s->rows[n].decode ? &left.decode : &left.prompt) -= m;
        n += m;
    }
    if (!all) rotate(s);
    return n;
}

/* Hands the results of a step to those that are in it. */
static void hand_out(struct sched *s, unsigned step, enum infer_status st, const struct infer_output *out,
                     double begin) {
    for (struct request *r = s->first; r; r = r->next)
        if (r->n_part && r->part[0].step == step) request_take(r, st, out, begin);
}

/* Takes a step back that could not be queued. */
static void take_back(struct sched *s, unsigned step) {
    for (struct request *r = s->first; r; r = r->next)
        if (r->n_part && r->part[r->n_part - 1].step == step) r->n_part--;
}

/* True when all that are in the step in flight can be queued once more behind it, so that the device need not wait for the host. */
static bool all_follow(const struct sched *s) {
    for (const struct request *r = s->first; r; r = r->next)
        if (r->n_part && !request_follows(r)) return false;
    return true;
}

bool sched_step(struct sched *s) {
    const double begin = request_seconds();
    struct infer_output out = {0};
    enum infer_status st;
    int n;
    if (s->n_submit == s->n_wait) {
        if (!(n = collect(s))) return false;
        st = infer_submit(s->engine, s->rows, n);
        if (st) {
            hand_out(s, s->n_submit, st, &out, begin);
            return true;
        }
        s->n_submit++;
    }
    if (all_follow(s) && (n = collect(s)) > 0) {
        if (infer_submit(s->engine, s->rows, n) == INFER_OK)
            s->n_submit++;
        else
            take_back(s, s->n_submit); /* asked again, and told, when it is the first in line */
    }
    st = infer_wait(s->engine, &out);
    hand_out(s, s->n_wait++, st, &out, begin);
    if (st && s->n_submit != s->n_wait) { /* it builds on what failed */
        infer_wait(s->engine, &out);
        hand_out(s, s->n_wait++, INFER_E_CANCEL, &out, begin);
    }
    return true;
}

enum infer_status request_run(struct request *r) {
    while (!request_done(r) && sched_step(r->sched)) continue;
    return request_status(r);
}
