/* The engine behind the scheduler: a request of engine/request for each choice. */
#include <string.h>
#include "base/mem.h"
#include "serve/core/engine_port.h"
#include "serve/core/server.h"
#include "serve/toolcall/tool_parser.h"

struct engine_side {
    struct infer_engine *engine;
    const struct infer_model *model;
    struct infer_sched *sched;
};
struct engine_run {
    struct infer_request *request;
    int n_logged; /* tokens */
    bool scored;
};

static void on_token(void *user, int32_t id) {
    struct choice *c = user;
    struct engine_run *run = c->run;
    const struct infer_logprobs *l = run->request ? infer_request_logprobs(run->request) : NULL;
    port_token(c, id,
               l && l->n_top >= 0 && run->n_logged < l->n ? infer_logprobs_at(l, run->n_logged) : NULL);
    run->n_logged++;
}

/* The token that ended the turn: where tokens are scored it is one of them, as with OpenAI, and who counts from the back relies on it. */
static void on_token_end(struct choice *c, int32_t id) {
    struct engine_run *run = c->run;
    const struct infer_logprobs *l = infer_request_logprobs(run->request);
    if (run->n_logged < l->n) log_token(c, id, infer_logprobs_at(l, run->n_logged++));
}

static enum infer_status on_text(void *user, const char *text, size_t n, bool thinking) {
    return port_text(user, text, n, thinking);
}

/* The prompt with its log probabilities, in front of the answer. */
static void tell_scores(struct choice *c) {
    struct engine_run *run = c->run;
    const struct infer_logprobs *l = infer_request_scores(run->request);
    if (run->scored) return;
    run->scored = true;
    log_token(c, c->prompt->ids[0], NULL);
    for (int i = 0; i < l->n; i++) log_token(c, c->prompt->ids[i + 1], infer_logprobs_at(l, i));
}

static void on_prompt(void *user, int done, int n) {
    struct choice *c = user;
    if (!c->n_token) c->n_cached = c->prompt->n - n;
    port_prompt(c, done, n);
    if (c->job->ask.params.score && done == n) tell_scores(c);
}

static bool thinks(void *user) { return tool_reasons(((struct choice *)user)->parser); }
static const char *wakes(void *user) { return tool_opened(((struct choice *)user)->parser); }

static enum infer_status begin(struct engine_side *e, struct choice *c, struct engine_run *run) {
    const struct job *j = c->job;
    struct infer_request_params p = j->ask.params;
    p.ids = c->prompt->ids;
    p.n_id = c->prompt->n;
    p.rows = c->prompt->rows;
    p.n_rows = c->prompt->n_rows;
    p.n_predict = j->n_predict;
    p.sample.seed = c->seed;
    p.constraint = c->constraint;
    p.stop = j->stop;
    p.n_stop = j->n_stop;
    if (c->parser) { /* which looks for stop texts and reasoning itself */
        p.n_stop = 0;
        p.start = INFER_ANSWER_PLAIN;
        p.thinks = thinks;
    }
    if (j->wakes) p.wakes = wakes;
    p.on_token = on_token;
    p.on_text = on_text;
    p.on_prompt = on_prompt;
    p.user = c;
    /* where the prompt is scored nothing is taken over: of that nothing would be known */
    p.prefix =
        (struct infer_prefix){.salt = p.score ? j->seed | 1 : j->salt, .exact = j->server->o.cache_exact};
    return infer_request_new(&run->request, e->sched, &p);
}

static void engine_close(struct engine_port *m, struct choice *c) {
    struct engine_run *run = c->run;
    (void)m;
    if (!run) return;
    infer_request_free(run->request);
    mem_free(run);
    c->run = NULL;
}

static enum infer_status engine_start(struct engine_port *m, struct choice *c) {
    struct engine_run *run;
    TRY(mem_new(&run, sizeof *run, "a request"));
    c->run = run;
    enum infer_status st = begin(m->state, c, run);
    if (st) engine_close(m, c);
    return st;
}

static bool engine_step(struct engine_port *m) {
    struct engine_side *e = m->state;
    return infer_sched_step(e->sched);
}

static int engine_kv_free(struct engine_port *m) {
    struct engine_side *e = m->state;
    return infer_kv_free(e->engine);
}

static void engine_cancel(struct engine_port *m, struct choice *c) {
    struct engine_run *run = c->run;
    (void)m;
    if (run && run->request) infer_request_cancel(run->request);
}

/* The numbers that were asked for. errors: INFER_E_MEMORY */
static enum infer_status take_made(struct choice *c, const struct infer_request *r) {
    int n;
    const float *made = infer_request_made(r, &n);
    if (!n) return INFER_OK;
    TRY(mem_new(&c->made, (size_t)n * sizeof *c->made, "an embedding"));
    memcpy(c->made, made, (size_t)n * sizeof *c->made);
    c->n_made = n;
    return INFER_OK;
}

static bool engine_ended(struct engine_port *m, struct choice *c, struct port_end *end,
                         enum infer_status *st) {
    struct engine_run *run = c->run;
    (void)m;
    if (!infer_request_done(run->request)) return false;
    const struct infer_request_figures *f = infer_request_figures(run->request);
    if (c->job->ask.params.score && f->end_id >= 0) on_token_end(c, f->end_id);
    *end = (struct port_end){.why = infer_request_why(run->request),
                             .n_prompt = f->n_prompt,
                             .n_reused = f->n_reused,
                             .n_answer = f->n_answer,
                             .n_decoded = f->n_decoded,
                             .n_aside = f->n_aside,
                             .stop_id = f->end_id,
                             .stop = f->stop,
                             .prompt_seconds = f->prompt_seconds,
                             .answer_seconds = f->answer_seconds};
    *st = infer_request_status(run->request);
    if (!*st) *st = take_made(c, run->request);
    end->lost = *st == INFER_E_DEVICE || *st == INFER_E_NAN;
    return true;
}

static void engine_free(struct engine_port *m) {
    struct engine_side *e = m->state;
    infer_sched_close(e->sched);
    mem_free(e);
    mem_free(m);
}

enum infer_status engine_port_open(struct engine_port **out, struct infer_engine *engine,
                                   const struct infer_model *model, double gap_ms) {
    struct infer_engine_info place;
    struct engine_side *e;
    struct engine_port *m;
    struct infer_model_info info;
    infer_engine_info(engine, &place);
    infer_model_info(model, &info);
    TRY(mem_new(&e, sizeof *e, "the engine's side"));
    *e = (struct engine_side){engine, model, NULL};
    enum infer_status st = infer_sched_open(&e->sched, engine, model);
    if (!st) st = mem_new(&m, sizeof *m, "the engine's side");
    if (st) {
        infer_sched_close(e->sched);
        mem_free(e);
        return st;
    }
    infer_sched_pace(e->sched, 0, gap_ms);
    *m = (struct engine_port){.n_slot = place.n_slot,
                              .n_ctx = place.n_ctx,
                              .n_embd = place.hidden ? info.n_embd : 0,
                              .state = e,
                              .start = engine_start,
                              .kv_tokens = place.kv_tokens,
                              .kv_free = engine_kv_free,
                              .step = engine_step,
                              .cancel = engine_cancel,
                              .ended = engine_ended,
                              .close = engine_close,
                              .free = engine_free};
    *out = m;
    return INFER_OK;
}
