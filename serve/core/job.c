#include "serve/core/job.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include "base/mem.h"
#include "serve/core/answer_log.h"
#include "tools/sampling.h"
#include "serve/core/house.h"
#include "serve/core/server.h"
#include "serve/toolcall/tool_parser.h"
#include "base/host.h"

void job_random_id(char *out) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[JOB_ID];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) infer_bug("no random numbers");
    for (int i = 0; i < JOB_ID; i++) out[i] = letters[bytes[i] % 36];
    out[JOB_ID] = 0;
}

static void say_nothing(struct job *j) {
    const struct server *s = j->server;
    struct ask *a = &j->ask;
    a->n = 1;
    a->params = infer_request_defaults();
    a->params.end_ids = a->stop_id;
    a->n_think = a->id_slot = -1;
    a->parallel_calls = true;
    a->params.loop_stop = true;
    a->thinking_hidden = s->o.thinking == THINKING_HIDDEN;
    a->thinking_as_content = s->o.thinking == THINKING_SHOWN;
    a->params.sample = s->sample;
    a->params.sample.repeat_penalty = NAN; /* nothing is said about it yet */
    a->params.sample.seed = j->seed;
}

struct job *job_new(struct server *s, const struct front_end *f) {
    struct job *j = mem_alloc(sizeof *j);
    if (!j) return NULL;
    char id[JOB_ID + 1];
    job_random_id(id);
    snprintf(j->id, sizeof j->id, "%s%s", f->prefix, id);
    j->server = s;
    j->front = f;
    j->created = time(NULL);
    j->arrived = host_seconds();
    j->deadline = j->arrived + s->o.timeout;
    j->key = -1;
    j->seed = sampling_seed();
    say_nothing(j);
    atomic_init(&j->refs, 1);
    pthread_mutex_init(&j->lock, NULL);
    return j;
}

struct job *job_ref(struct job *j) {
    atomic_fetch_add(&j->refs, 1);
    return j;
}

static void free_choice(struct choice *c) {
    struct job_answer *a = &c->answer;
    infer_constraint_close(c->constraint);
    tool_close(c->parser);
    mem_free(c->made);
    log_free(&c->log);
    log_free(&c->read);
    buf_free(&a->reasoning);
    buf_free(&a->text);
    for (int i = 0; i < a->n_call; i++) {
        buf_free(&a->call[i].name);
        buf_free(&a->call[i].args);
        buf_free(&a->call[i].id);
    }
    mem_free(a->call);
    for (int i = 0; i < a->n_token; i++) mem_free((void *)a->token[i].top);
    mem_free(a->token);
}

static void free_ask(struct ask *a) {
    json_decref(a->messages);
    json_decref(a->tools);
    json_decref(a->variables);
    for (int i = 0; i < a->n_prompt; i++) {
        mem_free(a->prompt[i].text);
        mem_free(a->prompt[i].ids);
    }
    for (int i = 0; i < a->n_picture; i++) infer_picture_free(a->picture[i].picture);
    mem_free(a->picture);
    mem_free(a->prompt);
    mem_free(a->context);
    mem_free(a->bias);
    mem_free(a->adapter);
    for (int i = 0; i < a->n_stop; i++) mem_free(a->stop[i]);
    for (int i = 0; i < a->n_bad; i++) mem_free(a->bad[i]);
    mem_free(a->allowed);
    mem_free(a->prediction);
    mem_free(a->told);
    mem_free(a->form);
}

struct job_file *job_file(struct job *j, const char *url) {
    for (int i = 0; i < j->n_file; i++)
        if (strcmp(j->file[i].url, url) == 0) return &j->file[i];
    struct job_file *grown = mem_realloc(j->file, (size_t)(j->n_file + 1) * sizeof *grown);
    if (!grown) return NULL;
    j->file = grown;
    grown[j->n_file] = (struct job_file){.url = mem_strdup(url)};
    return grown[j->n_file].url ? &grown[j->n_file++] : NULL;
}

static void free_state(struct job *j) {
    if (j->state && j->front->done) j->front->done(j);
    mem_free(j->state);
    j->state = NULL;
}

void job_read_again(struct job *j) {
    free_state(j);
    free_ask(&j->ask);
    memset(&j->ask, 0, sizeof j->ask);
    say_nothing(j);
    buf_free(&j->warnings);
    j->warnings = (struct buf){0};
    j->fetches = false;
}

void job_move(struct job *j, struct server *s) {
    j->server = s;
    say_nothing(j);
}

int job_prompt_tokens(const struct job *j) {
    int n = 0;
    for (int i = 0; i < j->n_prompt; i++) n += j->prompt[i].n;
    return n;
}

enum infer_status ask_bias(struct ask *a, int32_t id, float bias) {
    const size_t n = (size_t)a->params.sample.n_bias;
    if (!(n & (n - 1))) { /* full: none, or a power of two */
        struct infer_sample_bias *grown = mem_realloc(a->bias, (n ? 2 * n : 1) * sizeof *grown);
        if (!grown) return err_set(INFER_E_MEMORY, "out of memory: biases");
        a->params.sample.bias = a->bias = grown;
    }
    a->bias[a->params.sample.n_bias++] = (struct infer_sample_bias){id, bias};
    return INFER_OK;
}

void job_drop_body(struct job *j) {
    mem_free(j->body);
    j->body = NULL;
    if (j->body_held) server_bodies_give(j->server, j->body_held);
    j->body_held = 0;
}

void job_unref(struct job *j) {
    if (!j || atomic_fetch_sub(&j->refs, 1) != 1) return;
    free_state(j);
    for (int i = 0; i < j->n_file; i++) {
        mem_free(j->file[i].url);
        mem_free(j->file[i].bytes);
        mem_free(j->file[i].why);
    }
    mem_free(j->file);
    json_decref(j->again);
    for (int i = 0; i < j->n_choice; i++) free_choice(&j->choice[i]);
    for (int i = 0; i < j->n_prompt; i++) infer_prompt_free(&j->prompt[i]);
    mem_free(j->choice);
    mem_free(j->think_end);
    mem_free(j->prompt);
    grammars_give(j->server->grammars, j->kept);
    infer_avoid_close(j->avoid);
    free_ask(&j->ask);
    buf_free(&j->warnings);
    buf_free(&j->reply);
    buf_free(&j->feed);
    job_drop_body(j);
    pthread_mutex_destroy(&j->lock);
    loras_release(j);
    if (j->server->house) house_left(j->server);
    mem_free(j);
}

void job_set_stage(struct job *j, enum job_stage stage) {
    pthread_mutex_lock(&j->lock);
    j->stage = stage;
    pthread_mutex_unlock(&j->lock);
}

void job_cancel(struct job *j, enum job_cancel why) {
    int none = CANCEL_NO;
    atomic_compare_exchange_strong(&j->cancelled, &none, (int)why);
}

void job_warn(struct job *j, const char *field, const char *format, ...) {
    char text[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (j->warnings.n > 2048) return;
    buf_printf(&j->warnings, "%s%s: %s", j->warnings.n ? "; " : "", field, text);
}

static const char *type_of(int status) {
    return status == 401                    ? "authentication_error"
           : status == 403                  ? "permission_error"
           : status == 408 || status == 504 ? "timeout_error"
           : status == 429                  ? "rate_limit_error"
           : status >= 500                  ? "server_error"
                                            : "invalid_request_error";
}

static void refusal_set(struct refusal *r, int status, const char *code, const char *param,
                        const char *format, va_list ap) {
    *r = (struct refusal){.type = type_of(status), .code = code};
    if (param) snprintf(r->param, sizeof r->param, "%s", param);
    vsnprintf(r->message, sizeof r->message, format, ap);
    r->status = status;
}

void refusal_make(struct refusal *r, int status, const char *code, const char *param, const char *format,
                  ...) {
    va_list ap;
    va_start(ap, format);
    refusal_set(r, status, code, param, format, ap);
    va_end(ap);
}

enum infer_status job_refuse(struct job *j, int status, const char *code, const char *param,
                             const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    pthread_mutex_lock(&j->lock);
    if (!j->refusal.status) refusal_set(&j->refusal, status, code, param, format, ap);
    pthread_mutex_unlock(&j->lock);
    va_end(ap);
    return INFER_E_INPUT;
}

void job_fail_status(struct job *j, enum infer_status st) {
    if (st == INFER_E_MEMORY)
        job_refuse(j, 503, "unavailable", NULL, "%s", err_message());
    else if (st == INFER_E_INPUT || st == INFER_E_UNSUPPORTED || st == INFER_E_FULL)
        job_invalid(j, NULL, "%s", err_message());
    else
        job_refuse(j, 500, "internal", NULL, "%s", err_message());
}
