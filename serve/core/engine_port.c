/* The engine behind the scheduler: a request of engine/request for each choice. */
#include <string.h>
#include "base/host.h"
#include "base/mem.h"
#include "serve/core/engine_port.h"
#include "serve/core/lanes.h"
#include "serve/core/server.h"
#include "serve/toolcall/tool_parser.h"

struct engine_side {
    struct port_engine of;
    struct infer_sched *sched;
    double gap, step;    /* seconds: what a token may take, what the last step took */
    struct lanes *lanes; /* NULL: none are asked of */
    bool sees;           /* a picture is computed in turns with steps */
};
struct engine_run {
    struct infer_request *request;
    int n_logged; /* tokens */
    int32_t *ids; /* ids[n_id], with lanes: of the answer */
    int n_id, cap;
    bool noted;
    bool scored;
};

/* For its lane; without memory what comes later is left out. */
static void add_id(struct engine_run *run, int32_t id) {
    if (run->n_id == run->cap) {
        int32_t *more = mem_realloc(run->ids, (size_t)(run->cap = 2 * run->cap + 256) * sizeof *more);
        if (!more) run->cap = run->n_id;
        if (!more) return;
        run->ids = more;
    }
    run->ids[run->n_id++] = id;
}

static void on_token(void *user, int32_t id) {
    struct choice *c = user;
    struct engine_run *run = c->run;
    if (run->noted) add_id(run, id);
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
    p.n_first = c->prompt->n_first;
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
    p.drafter = j->ask.no_drafts ? INFER_DRAFT_NONE : e->of.draft;
    if (j->ask.no_drafts) p.n_told = 0;
    if (e->of.most && (!p.n_draft || p.n_draft > e->of.most)) p.n_draft = e->of.most;
    p.on_token = on_token;
    p.on_text = on_text;
    p.on_prompt = on_prompt;
    p.user = c;
    /* where the prompt is scored nothing is taken over: of that nothing would be known */
    p.prefix = (struct infer_prefix){.salt = p.score ? j->seed | 1 : j->salt,
                                     .exact = j->server->o.cache_exact,
                                     .alone = p.score,
                                     .adapter = j->ask.adapter};
    return infer_request_new(&run->request, e->sched, &p);
}

static void engine_close(struct engine_port *m, struct choice *c) {
    struct engine_run *run = c->run;
    (void)m;
    if (!run) return;
    infer_request_free(run->request);
    mem_free(run->ids);
    mem_free(run);
    c->run = NULL;
}

static enum infer_status engine_start(struct engine_port *m, struct choice *c) {
    struct engine_run *run;
    TRY(mem_new(&run, sizeof *run, "a request"));
    c->run = run;
    run->noted = ((struct engine_side *)m->state)->lanes && !c->prompt->n_rows && !c->job->ask.params.make;
    enum infer_status st = begin(m->state, c, run);
    if (st) engine_close(m, c);
    return st;
}

static bool engine_step(struct engine_port *m) {
    struct engine_side *e = m->state;
    const double begin = host_seconds();
    infer_sched_pace(e->sched, 0,
                     1e3 * (e->sees ? e->gap / 2 : e->gap)); /* prompts leave half of it to pictures */
    const bool did = infer_sched_step(e->sched);
    e->step = host_seconds() - begin;
    return did;
}

/* Half of what a token may take is left to what the machine does beside. Alone it looks up often enough for a request that comes. */
static bool engine_see(struct engine_port *m, bool beside) {
    static const double share = 0.5, least = 0.1, alone = 0.05;
    struct engine_side *e = m->state;
    const double left = share * e->gap - e->step;
    e->sees = infer_vision_work(e->of.vision, !beside                 ? alone
                                              : left > least * e->gap ? left
                                                                      : least * e->gap);
    return e->sees;
}

static bool engine_order(struct engine_port *m, struct lane_order *o) {
    const struct engine_side *e = m->state;
    if (!infer_sched_rests(e->sched)) return false;
    if (e->lanes && o->action != LANE_ADAPTER) return lanes_do(e->lanes, o);
    o->status = o->action == LANE_ADAPTER
                    ? infer_engine_adapter(e->of.engine, o->lane, o->put)
                    : err_set(INFER_E_UNSUPPORTED, "there are no slots that are asked of");
    if (o->status) snprintf(o->message, sizeof o->message, "%s", err_message());
    return true;
}

static bool engine_idle(struct engine_port *m) {
    static const double part = 0.02; /* seconds until it looks up */
    const struct engine_side *e = m->state;
    return infer_keep(e->of.engine, part);
}

static void engine_kept(struct engine_port *m, struct infer_kept_info *out) {
    const struct engine_side *e = m->state;
    infer_kept_info(e->of.engine, out);
}

static int engine_kv_free(struct engine_port *m) {
    struct engine_side *e = m->state;
    return infer_kv_free(e->of.engine);
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
    struct engine_side *e = m->state;
    if (!infer_request_done(run->request)) return false;
    const struct infer_request_figures *f = infer_request_figures(run->request);
    if (c->job->ask.params.score && f->end_id >= 0) on_token_end(c, f->end_id);
    *end = (struct port_end){.why = infer_request_why(run->request),
                             .n_prompt = f->n_prompt,
                             .n_reused = f->n_reused,
                             .n_answer = f->n_answer,
                             .n_decoded = f->n_decoded,
                             .n_guessed = f->n_guessed,
                             .n_right = f->n_right,
                             .n_aside = f->n_aside,
                             .stop_id = f->end_id,
                             .stop = f->stop,
                             .prompt_seconds = f->prompt_seconds,
                             .answer_seconds = f->answer_seconds,
                             .lane = -1};
    if (run->noted)
        end->lane = lanes_note(e->lanes, c->job->ask.id_slot, c->job->salt, c->job->ask.adapter,
                               c->prompt->ids, c->prompt->n, run->ids, run->n_id);
    *st = infer_request_status(run->request);
    if (!*st) *st = take_made(c, run->request);
    end->lost = *st == INFER_E_DEVICE;
    return true;
}

static void engine_free(struct engine_port *m) {
    struct engine_side *e = m->state;
    infer_sched_close(e->sched);
    lanes_close(e->lanes);
    mem_free(e);
    mem_free(m);
}

enum infer_status engine_port_open(struct engine_port **out, const struct port_engine *of) {
    struct infer_engine_info place;
    struct engine_side *e;
    struct engine_port *m;
    struct infer_model_info info;
    infer_engine_info(of->engine, &place);
    infer_model_info(of->model, &info);
    TRY(mem_new(&e, sizeof *e, "the engine's side"));
    *e = (struct engine_side){.of = *of, .gap = of->gap_ms / 1e3};
    enum infer_status st = infer_sched_open(&e->sched, of->engine, of->model);
    if (!st && of->drafter) st = infer_sched_draft_with(e->sched, of->drafter, of->draft_model);
    if (!st && of->lanes) st = lanes_open(&e->lanes, of->engine, place.n_slot);
    if (!st) st = mem_new(&m, sizeof *m, "the engine's side");
    if (st) {
        infer_sched_close(e->sched);
        lanes_close(e->lanes);
        mem_free(e);
        return st;
    }
    *m = (struct engine_port){
        .n_slot = place.n_slot,
        .n_ctx = place.n_ctx,
        /* without room of their own, in that of slots that are free; states then cannot go back */
        .guesses = of->draft || (place.n_decode_rows > 1 && !place.state_bytes),
        .n_embd = place.hidden ? info.n_embd : 0,
        .state = e,
        .start = engine_start,
        .kv_tokens = place.kv_tokens,
        .kv_free = engine_kv_free,
        .step = engine_step,
        .idle = engine_idle,
        .order = engine_order,
        .kept = engine_kept,
        .see = of->vision ? engine_see : NULL,
        .cancel = engine_cancel,
        .ended = engine_ended,
        .close = engine_close,
        .free = engine_free};
    *out = m;
    return INFER_OK;
}
