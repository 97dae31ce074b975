/* Bodies -> jobs that can run: JSON, the front end's fields, the chat template, tokens, the grammar. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/host.h"
#include "base/mem.h"
#include "files/json.h"
#include "serve/core/answer_log.h"
#include "serve/core/normalize_messages.h"
#include "serve/core/api_keys.h"
#include "serve/core/house.h"
#include "serve/core/server.h"
#include "serve/core/tool_job.h"
#include "tools/net/listed.h"

enum { JSON_LEVELS = 64, PREPARE_WAITING = 4096, PREPARE_THREADS = 4, PREPARE_FETCHES = 4 };

/* ---- JSON ---- */

static int hex4(const char *s, size_t n) {
    int x = 0;
    if (n < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (d < 0) return -1;
        x = x * 16 + d;
    }
    return x;
}

/* \ud83d alone, as JavaScript writes a cut emoji, is no character: it becomes \ufffd. at: behind the backslash. Returns how far to go on. */
static size_t mend_escape(char *s, size_t at, size_t n) {
    int x = s[at] == 'u' ? hex4(s + at + 1, n - at - 1) : -1;
    if (x < 0xd800 || x > 0xdfff) return at + 1;
    bool pair = x < 0xdc00 && n - at > 10 && s[at + 5] == '\\' && s[at + 6] == 'u';
    int low = pair ? hex4(s + at + 7, n - at - 7) : -1;
    if (low >= 0xdc00 && low <= 0xdfff) return at + 11;
    memcpy(s + at + 1, "fffd", 4);
    return at + 5;
}

/* Mends escapes in place; false: nested deeper than JSON_LEVELS. */
static bool scan(char *s, size_t n) {
    int depth = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] == '"') {
            for (i++; i < n && s[i] != '"';) i = s[i] == '\\' && i + 1 < n ? mend_escape(s, i + 1, n) : i + 1;
            i++;
            continue;
        }
        if ((s[i] == '{' || s[i] == '[') && ++depth > JSON_LEVELS) return false;
        depth -= s[i] == '}' || s[i] == ']';
        i++;
    }
    return true;
}

enum infer_status job_read_body(struct job *j, json_t **out) {
    *out = NULL;
    if (j->front->bodyless && !j->n_body) {
        job_drop_body(j);
        return (*out = json_object()) ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a request");
    }
    if (!scan(j->body, j->n_body))
        return job_refuse(j, 400, "invalid_json", NULL, "the JSON is nested deeper than %d", JSON_LEVELS);
    enum infer_status st =
        json_read(out, NULL, j->body, j->n_body, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY);
    job_drop_body(j);
    if (st == INFER_E_INPUT) return job_refuse(j, 400, "invalid_json", NULL, "%s", err_message());
    if (!st && !json_is_object(*out) && !(j->front->list && json_is_array(*out))) {
        json_decref(*out);
        *out = NULL;
        return job_refuse(j, 400, "invalid_json", NULL, "the body must be a JSON object%s",
                          j->front->list ? " or array" : "");
    }
    return st;
}

/* ---- prompts ---- */

static enum infer_status check_model(struct job *j) {
    struct server *s = j->server;
    if (!*j->ask.model || s->house || server_knows_model(s, j->ask.model)) return INFER_OK;
    const int lora = loras_named(s, j->ask.model); /* as vLLM has it: the model with this adapter */
    if (lora >= 0) {
        if (!j->ask.lora_said) j->ask.adapter[lora] = 1;
        return INFER_OK;
    }
    if (s->o.strict_model)
        return job_refuse(j, 404, "model_not_found", "model",
                          "the model '%s' does not exist here; this server has '%s'", j->ask.model, s->name);
    job_warn(j, "model", "answered by %s", s->name);
    return INFER_OK;
}

/* Puts the ids of an earlier answer in front of a prompt, whose own beginning of a text goes. */
static enum infer_status add_context(struct job *j, struct infer_prompt *p) {
    const struct ask *a = &j->ask;
    const int own = p->n && p->ids[0] == infer_bos(j->server->model);
    int32_t *ids;
    if (!a->n_context) return INFER_OK;
    TRY(mem_new(&ids, ((size_t)a->n_context + (size_t)p->n) * sizeof *ids, "a prompt"));
    memcpy(ids, a->context, (size_t)a->n_context * sizeof *ids);
    memcpy(ids + a->n_context, p->ids + own, (size_t)(p->n - own) * sizeof *ids);
    mem_free(p->ids);
    p->ids = ids;
    p->n += a->n_context - own;
    for (int i = 0; i < p->n_rows; i++) p->rows[i].at += a->n_context - own;
    return INFER_OK;
}

static enum infer_status make_prompts(struct job *j) {
    const struct server *s = j->server;
    struct ask *a = &j->ask;
    j->n_prompt = a->messages ? 1 : a->n_prompt;
    TRY(mem_new(&j->prompt, (size_t)j->n_prompt * sizeof *j->prompt, "prompts"));
    if (a->messages) {
        TRY(normalize_and_render(j, &j->prompt[0]));
        return add_context(j, &j->prompt[0]);
    }
    for (int i = 0; i < j->n_prompt; i++) {
        struct ask_prompt *p = &a->prompt[i];
        if (p->text) {
            TRY(infer_prompt_text(&j->prompt[i], s->model, p->text, p->n, !a->plain_text));
        } else {
            j->prompt[i] = (struct infer_prompt){.ids = p->ids, .n = p->n_id, .n_first = p->n_first};
            p->ids = NULL;
        }
    }
    j->ask.params.start = INFER_ANSWER_PLAIN;
    return INFER_OK;
}

static enum infer_status check_lengths(struct job *j) {
    const struct server *s = j->server;
    struct ask *a = &j->ask;
    int room = s->n_ctx;
    for (int i = 0; i < j->n_prompt; i++) {
        const int n = j->prompt[i].n;
        if (n < 1) return job_invalid(j, a->messages ? "messages" : "prompt", "the prompt is empty");
        if (n > s->n_ctx) {
            job_refuse(j, 400, "context_length_exceeded", a->messages ? "messages" : "prompt",
                       "This model's maximum context length is %d tokens. However, your messages resulted in "
                       "%d tokens. Please reduce the "
                       "length of the messages.",
                       s->n_ctx, n);
            j->refusal.n_prompt = n;
            j->refusal.n_limit = s->n_ctx;
            return INFER_E_INPUT;
        }
        /* the token that comes last needs no position */
        if (s->n_ctx - n + 1 < room) room = s->n_ctx - n + 1;
    }
    if (a->params.n_predict > room)
        job_warn(j, "max_tokens", "lowered to %d, the room that the prompt leaves", room);
    j->n_predict = a->params.n_predict < 0 || a->params.n_predict > room ? room : a->params.n_predict;
    return INFER_OK;
}

/* ---- what it may say ---- */

static enum infer_status make_grammar(struct job *j) {
    struct ask *a = &j->ask;
    enum infer_status st;
    if (!a->form) return INFER_OK;
    if (tool_job_forced(
            j)) { /* clients ask for a form twice: by the tool, and by the format of its arguments */
        job_warn(j, a->form_at, "has no effect beside tool_choice: the call wins");
        return INFER_OK;
    }
    st = grammars_take(j->server->grammars, a->form_kind, a->form, strlen(a->form), &j->kept, &j->grammar);
    if (st == INFER_E_INPUT || st == INFER_E_UNSUPPORTED)
        return job_refuse(j, 400, "invalid_schema", a->form_at, "%s", err_message());
    return st;
}

/* Biases that leave ask.allowed alone, and texts that may not come. */
static enum infer_status make_bounds(struct job *j) {
    const struct server *s = j->server;
    struct ask *a = &j->ask;
    if (a->n_bad) TRY(infer_avoid_open(&j->avoid, s->model, (const char *const *)a->bad, a->n_bad));
    if (!a->allowed) return INFER_OK;
    if (a->form || tool_job_forced(j))
        return job_invalid(
            j, "allowed_token_ids",
            "'allowed_token_ids' and a grammar, a schema or a forced call are both given, and one can hold");
    for (int32_t id = 0; id < s->info.n_vocab; id++)
        if (!a->allowed[id]) TRY(ask_bias(a, id, -__builtin_inff()));
    return INFER_OK;
}

/* What is said for the model when its thinking has used up its budget, or goes in circles. */
static enum infer_status make_think_end(struct job *j) {
    const struct server *s = j->server;
    const struct infer_prompt *p = &j->prompt[0];
    char text[96];
    size_t n;
    const bool budget = j->ask.n_think > 0 || j->ask.think_seconds > 0;
    if (j->ask.n_think == 0 || !j->ask.messages) return INFER_OK;
    if (budget && j->ask.thinking_as_content)
        job_warn(j, "thinking", "a budget has no effect where reasoning is not told apart");
    const char *close = infer_prompt_closing(p->text, p->n_text);
    const enum tool_shape shape = s->tools.format.row ? s->tools.format.row->shape : SHAPE_OBJECT;
    if (!close) close = s->tools.think[1];
    if (shape == SHAPE_HARMONY)
        snprintf(text, sizeof text, "<|end|><|start|>assistant<|channel|>final<|message|>");
    else if (close)
        snprintf(text, sizeof text, shape == SHAPE_GEMMA ? "%s" : "\n%s\n\n", close);
    else if (budget)
        job_warn(j, "thinking", "the model's template shows no reasoning that a budget could end");
    if (!close && shape != SHAPE_HARMONY) return INFER_OK;
    TRY(mem_new(&j->think_end, sizeof text * sizeof *j->think_end, "the end of thinking"));
    TRY(infer_tokenize(s->model, text, NULL, strlen(text), INFER_TOK_SPECIAL, j->think_end, sizeof text, &n));
    j->ask.params.think_end = j->think_end;
    j->ask.params.n_think_end = (int)(n < sizeof text ? n : 0);
    j->ask.params.n_think = j->ask.n_think > 0 ? j->ask.n_think : 0;
    j->ask.params.think_seconds = (double)j->ask.think_seconds;
    return INFER_OK;
}

/* The tokens of what the answer is thought to be, at most as many as a context has. */
static enum infer_status make_prediction(struct job *j) {
    const struct server *s = j->server;
    const char *text = j->ask.prediction;
    size_t n, most;
    if (!text || !*text) return INFER_OK;
    if (!s->guesses || j->ask.no_drafts) {
        job_warn(j, "prediction", "is not used: %s",
                 j->ask.no_drafts ? "the request wants no guesses"
                                  : "this server guesses no tokens (--lookup)");
        return INFER_OK;
    }
    most = strlen(text) + 16;
    TRY(mem_new(&j->ask.told, most * sizeof *j->ask.told, "a prediction"));
    TRY(infer_tokenize(s->model, text, NULL, strlen(text), 0, j->ask.told, most, &n));
    j->ask.params.told = j->ask.told;
    j->ask.params.n_told = n < (size_t)s->n_ctx ? (int)n : s->n_ctx;
    return INFER_OK;
}

/* What this request may not have. */
static enum infer_status check_class(struct job *j) {
    struct server *s = j->server;
    const int most = keys_class(s->keys, j->key);
    if (j->class == CLASS_PRIORITY && most < CLASS_PRIORITY)
        return job_refuse(j, 403, "forbidden", "priority",
                          "the API key is not of the class priority (service_tier, priority)");
    if (j->class > most) j->class = most;
    const double leaves = j->arrived + j->read_timeout;
    if (j->read_timeout > 0 && !j->ask.stream && leaves < j->deadline) j->deadline = leaves;
    return INFER_OK;
}

static enum infer_status make_params(struct job *j) {
    struct server *s = j->server;
    struct ask *a = &j->ask;
    for (int32_t id = 0; a->ignore_eos && id < s->info.n_vocab; id++)
        if (infer_is_stop(s->model, id)) TRY(ask_bias(a, id, -__builtin_inff()));
    TRY(make_bounds(j));
    for (int i = 0; i < a->n_stop; i++) j->stop[i] = a->stop[i];
    j->n_stop = a->n_stop;
    a->params.end_id = a->messages ? s->end.id : -1;
    a->params.first = a->messages && !a->go_on;
    a->params.avoid = j->avoid;
    a->params.priority = j->class;
    if (a->params.min_tokens && (a->form || tool_job_forced(j))) {
        job_warn(j, "min_tokens", "has no effect on an answer that a grammar holds");
        a->params.min_tokens = 0;
    }
    if (a->ignore_eos || a->params.min_tokens) a->params.loop_stop = false;
    if (a->messages && *s->end.text) j->stop[j->n_stop++] = s->end.text;
    if (isnan(a->params.sample.repeat_penalty)) /* greedy is greedy where nothing else is said */
        a->params.sample.repeat_penalty = a->params.sample.temp == 0 ? 1 : s->sample.repeat_penalty;
    if (infer_sample_check(&a->params.sample)) return job_invalid(j, NULL, "%s", err_message());
    return INFER_OK;
}

static enum infer_status make_choices(struct job *j) {
    const struct ask *a = &j->ask;
    struct infer_grammar_vocab *vocab = NULL;
    j->n_choice = 0;
    TRY(mem_new(&j->choice, (size_t)(j->n_prompt * a->n) * sizeof *j->choice, "choices"));
    if (j->grammar) TRY(server_vocab(j->server, &vocab));
    for (int p = 0; p < j->n_prompt; p++)
        for (int i = 0; i < a->n; i++) {
            struct choice *c = &j->choice[j->n_choice];
            *c = (struct choice){.job = j,
                                 .index = j->n_choice++,
                                 .prompt = &j->prompt[p],
                                 .before = i ? c - i : NULL,
                                 .seed = a->params.sample.seed + (uint64_t)i,
                                 .lane = -1,
                                 .stop_id = -1};
            if (j->grammar)
                TRY(infer_constraint_open(&c->constraint, j->grammar, vocab, j->server->info.n_vocab));
            TRY(tool_job_choice(c));
        }
    return INFER_OK;
}

static enum infer_status read_ask(struct job *j) {
    json_t *body = j->again;
    j->again = NULL;
    if (!body) TRY(job_read_body(j, &body));
    enum infer_status st = INFER_OK;
    if (j->front->state) st = mem_new(&j->state, j->front->state, "a request");
    if (!st) st = j->front->read(j, body);
    if (!st && !j->ask.adapter) st = server_scales(j->server, &j->ask.adapter);
    if (j->fetches)
        j->again = body;
    else
        json_decref(body);
    return st ? st : check_class(j);
}

static enum infer_status prompts(struct job *j) {
    TRY(read_ask(j));
    TRY(check_model(j));
    TRY(loras_hold(j));
    return make_prompts(j);
}

/* Pictures become rows of the prompt. */
static enum infer_status see(struct job *j) {
    for (int i = 0; i < j->ask.n_picture; i++) {
        const struct ask_picture *p = &j->ask.picture[i];
        const enum infer_status st = infer_picture_see(p->picture);
        if (st == INFER_E_INPUT) return job_invalid(j, p->at, "'%s': %s", p->at, err_message());
        if (st) return st;
    }
    return j->ask.n_picture ? infer_prompt_see(&j->prompt[0]) : INFER_OK;
}

static enum infer_status whole(struct job *j) {
    TRY(prompts(j));
    TRY(check_lengths(j));
    TRY(make_grammar(j));
    TRY(make_params(j));
    TRY(make_think_end(j));
    TRY(make_prediction(j));
    TRY(tool_job_prepare(j));
    return make_choices(j);
}

static enum infer_status told(struct job *j, enum infer_status st) {
    if (st && !j->refusal.status && !j->fetches) job_fail_status(j, st);
    return st;
}

enum infer_status prepare_job(struct job *j) { return told(j, whole(j)); }

/* ---- the threads ---- */

/* Jobs that wait for a thread. */
struct line {
    pthread_cond_t news;
    struct job *first, **last;
};
struct prepare {
    struct server *server;
    pthread_t thread[PREPARE_THREADS]; /* thread[n_thread] */
    int n_thread;
    pthread_t sight; /* computes pictures, which may take seconds: texts do not wait for them */
    bool sees;
    pthread_t fetch[PREPARE_FETCHES]; /* fetch[n_fetch]: wait for other hosts' answers */
    int n_fetch;
    pthread_mutex_t lock;
    struct line jobs, pictures, addresses;
    int n; /* in all */
    bool stopping;
};

static struct job *pop(struct prepare *p, struct line *l) {
    pthread_mutex_lock(&p->lock);
    while (!l->first && !p->stopping) pthread_cond_wait(&l->news, &p->lock);
    struct job *j = l->first;
    if (j) {
        l->first = j->next;
        if (!l->first) l->last = &l->first;
        p->n--;
    }
    pthread_mutex_unlock(&p->lock);
    return j;
}

/* With a reference, which the line has from now on. */
static void push(struct prepare *p, struct line *l, struct job *j) {
    j->next = NULL;
    *l->last = j;
    l->last = &j->next;
    p->n++;
    pthread_cond_signal(&l->news);
}

static void end_job(struct prepare *p, struct job *j) {
    web_wake(p->server->web, j);
    job_unref(j);
}

/* Of a server of several models: what is about them is answered here, all else goes to its model. */
static void run_of_house(struct prepare *p, struct job *j) {
    struct house *h = p->server->house;
    json_t *body;
    if (j->front->of_house && !j->front->reply) {
        if (!house_feed(h, j)) job_set_stage(j, JOB_REFUSED);
        return;
    }
    enum infer_status st = job_read_body(j, &body);
    if (!st && !j->front->of_house) {
        if (told(j, house_route(h, j, body))) job_set_stage(j, JOB_REFUSED);
        return;
    }
    if (!st) {
        st = j->front->read(j, body);
        json_decref(body);
    }
    if (!st) st = j->front->reply(j, &j->reply);
    told(j, st);
    job_set_stage(j, st ? JOB_REFUSED : JOB_REPLIED);
}

/* NULL: it is done here; else where it waits now. */
static struct line *run_job(struct prepare *p, struct job *j) {
    if (atomic_load(&j->cancelled)) return NULL;
    if (p->server->house && p->server->member < 0) {
        run_of_house(p, j);
        return NULL;
    }
    if (j->front->reply) {
        enum infer_status st = prompts(j);
        if (!st) st = j->front->reply(j, &j->reply);
        told(j, st);
        if (st && j->fetches) return &p->addresses;
        job_set_stage(j, st ? JOB_REFUSED : JOB_REPLIED);
        return NULL;
    }
    const enum infer_status st = prepare_job(j);
    if (st && j->fetches && !j->refusal.status) return &p->addresses;
    if (!st && j->ask.n_picture) return &p->pictures;
    if (st || !scheduler_push(p->server->scheduler, j)) job_set_stage(j, JOB_REFUSED);
    return NULL;
}

static void prepare_it(struct prepare *p, struct job *j) {
    struct line *next = run_job(p, j);
    if (!next) {
        end_job(p, j);
        return;
    }
    pthread_mutex_lock(&p->lock);
    push(p, next, j);
    pthread_mutex_unlock(&p->lock);
}

static void *run_prepare(void *user) {
    struct prepare *p = user;
    for (struct job *j; (j = pop(p, &p->jobs));) prepare_it(p, j);
    return NULL;
}

/* ---- pictures from other hosts ---- */

struct fetching {
    struct prepare *p;
    struct job *j;
};
static bool fetch_stops(void *user) {
    const struct fetching *f = user;
    pthread_mutex_lock(&f->p->lock);
    const bool stopping = f->p->stopping;
    pthread_mutex_unlock(&f->p->lock);
    return stopping || atomic_load(&f->j->cancelled);
}

static void fetch_files(struct prepare *p, struct job *j) {
    enum { ONE = 20 << 20, ALL = 32 << 20 }; /* bytes: of a picture, and of a request's */
    static const double seconds = 10;
    struct fetching f = {p, j};
    size_t all = 0;
    for (int i = 0; i < j->n_file; i++) all += j->file[i].n;
    for (int i = 0; i < j->n_file; i++) {
        struct job_file *file = &j->file[i];
        const size_t left = all < ALL ? ALL - all : 1;
        const struct http_limits most = {left < ONE ? left : ONE, seconds, fetch_stops, &f};
        if (file->bytes || file->why) continue;
        if (http_fetch_listed(file->url, p->server->o.image_urls, &most, &file->bytes, &file->n))
            file->why = mem_strdup(err_message());
        all += file->n;
    }
}

static void *run_fetch(void *user) {
    struct prepare *p = user;
    for (struct job *j; (j = pop(p, &p->addresses));) {
        fetch_files(p, j);
        job_read_again(j);
        prepare_it(p, j);
    }
    return NULL;
}

static enum infer_status see_all(struct prepare *p, struct job *j) {
    pthread_mutex_lock(&p->lock);
    const bool stopping = p->stopping;
    pthread_mutex_unlock(&p->lock);
    const enum infer_status st = stopping ? INFER_E_CANCEL : see(j);
    return st == INFER_E_CANCEL ? job_refuse(j, 503, "unavailable", NULL, "the server is stopping")
                                : told(j, st);
}

static void *run_sight(void *user) {
    struct prepare *p = user;
    for (struct job *j; (j = pop(p, &p->pictures));) {
        if (!atomic_load(&j->cancelled) && (see_all(p, j) || !scheduler_push(p->server->scheduler, j)))
            job_set_stage(j, JOB_REFUSED);
        end_job(p, j);
    }
    return NULL;
}

bool prepare_push(struct prepare *p, struct job *j) {
    pthread_mutex_lock(&p->lock);
    bool ok = p->n < PREPARE_WAITING + p->server->o.queue && !p->stopping;
    if (ok) push(p, &p->jobs, job_ref(j));
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static void line_open(struct line *l) {
    l->last = &l->first;
    pthread_cond_init(&l->news, NULL);
}

enum infer_status prepare_open(struct prepare **out, struct server *s) {
    struct prepare *p;
    TRY(mem_new(&p, sizeof *p, "the thread that reads requests"));
    *p = (struct prepare){.server = s};
    line_open(&p->jobs);
    line_open(&p->pictures);
    line_open(&p->addresses);
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    const int most = host_threads_pick(0) / 2, want = most < 1                 ? 1
                                                      : most > PREPARE_THREADS ? PREPARE_THREADS
                                                                               : most;
    while (p->n_thread < want && !pthread_create(&p->thread[p->n_thread], NULL, run_prepare, p))
        p->n_thread++;
    while (s->vision && s->o.image_urls && p->n_fetch < PREPARE_FETCHES &&
           !pthread_create(&p->fetch[p->n_fetch], NULL, run_fetch, p))
        p->n_fetch++;
    p->sees = s->vision && !pthread_create(&p->sight, NULL, run_sight, p);
    return p->n_thread && p->sees == (s->vision != NULL)
               ? INFER_OK
               : err_set(INFER_E_MEMORY, "no thread to read requests");
}

void prepare_close(struct prepare *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->jobs.news);
    pthread_cond_broadcast(&p->pictures.news);
    pthread_cond_broadcast(&p->addresses.news);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_thread; i++) pthread_join(p->thread[i], NULL);
    for (int i = 0; i < p->n_fetch; i++) pthread_join(p->fetch[i], NULL);
    if (p->sees) {
        infer_vision_cancel(p->server->vision);
        pthread_join(p->sight, NULL);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->jobs.news);
    pthread_cond_destroy(&p->pictures.news);
    pthread_cond_destroy(&p->addresses.news);
    mem_free(p);
}
