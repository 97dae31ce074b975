#include "serve/core/answer_log.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "serve/core/server.h"
#include "base/host.h"

enum { JOIN_BEYOND = 4 }; /* pieces that wait */

void log_free(struct answer_log *l) {
    buf_free(&l->text);
    buf_free(&l->piece);
    buf_free(&l->top);
}

/* ---- the engine thread's side ---- */

static void add(struct choice *c, const struct piece *p, const char *text, const char *more,
                const struct infer_logprob *top) {
    static const struct infer_logprob none = {-1, -INFINITY};
    struct answer_log *l = &c->log;
    pthread_mutex_lock(&c->job->lock);
    buf_add(&l->piece, (const char *)p, sizeof *p);
    if (p->kind != EVENT_PROGRESS) buf_add(&l->text, text, p->n);
    if (more) buf_add(&l->text, more, p->id);
    for (int i = 0; p->kind == PIECE_TOKEN && i < c->job->ask.params.n_logprob; i++)
        buf_add(&l->top, (const char *)(top ? &top[i + 1] : &none), sizeof none);
    pthread_mutex_unlock(&c->job->lock);
}

void log_token(struct choice *c, int32_t id, const struct infer_logprob *top) {
    add(c, &(struct piece){.kind = PIECE_TOKEN, .a = id, .logprob = top ? top->logprob : NAN}, "", NULL, top);
}

void log_text(struct choice *c, enum event_kind kind, int call, const char *text, size_t n) {
    add(c, &(struct piece){.kind = (uint8_t)kind, .a = call, .n = (uint32_t)n}, text, NULL, NULL);
}

void request_line(struct choice *c, int call, const char *name, const char *id) {
    add(c,
        &(struct piece){.kind = EVENT_CALL,
                        .flag = id != NULL,
                        .a = call,
                        .n = (uint32_t)strlen(name),
                        .id = id ? (uint32_t)strlen(id) : 0},
        name, id, NULL);
}

void log_progress(struct choice *c, int done, int total) {
    add(c,
        &(struct piece){.kind = EVENT_PROGRESS, .a = done, .n = (uint32_t)total, .id = (uint32_t)c->n_cached},
        "", NULL, NULL);
}

void log_end(struct choice *c, enum job_finish finish, const char *stop_text, int32_t stop_id) {
    pthread_mutex_lock(&c->job->lock);
    if (!c->finish) c->job->n_done++;
    c->finish = finish;
    c->stop_text = stop_text;
    c->stop_id = stop_id;
    pthread_mutex_unlock(&c->job->lock);
}

/* ---- the HTTP thread's side ---- */

static void add_call(struct job_answer *a, const struct event *e) {
    struct answer_call *grown = mem_realloc(a->call, ((size_t)a->n_call + 1) * sizeof *grown);
    if (!grown) {
        a->text.failed = true;
        return;
    }
    a->call = grown;
    struct answer_call *c = &grown[a->n_call++];
    *c = (struct answer_call){0};
    buf_add(&c->name, e->text, e->n);
    buf_text(&c->id, e->call_id);
}

static void add_tokens(struct job_answer *a, const struct event *e) {
    if (!e->n_token) return;
    struct event_token *grown = mem_realloc(a->token, (size_t)(a->n_token + e->n_token) * sizeof *grown);
    if (!grown) {
        a->text.failed = true;
        return;
    }
    a->token = grown;
    for (int i = 0; i < e->n_token; i++) {
        struct event_token *t = &grown[a->n_token++];
        *t = e->token[i];
        struct infer_logprob *top = NULL;
        if (t->n_top && (top = mem_piece((size_t)t->n_top * sizeof *top)))
            memcpy(top, t->top, (size_t)t->n_top * sizeof *top);
        t->top = top;
        if (!top) t->n_top = 0;
    }
}

/* Adds an event to the answer, then tells it. */
static void tell_one(struct job *j, struct choice *c, const struct event *e, log_tell *tell, void *user) {
    struct job_answer *a = &c->answer;
    struct answer_call *call = a->n_call ? &a->call[a->n_call - 1] : NULL;
    if (e->kind == EVENT_REASONING) buf_add(&a->reasoning, e->text, e->n);
    if (e->kind == EVENT_TEXT) buf_add(&a->text, e->text, e->n);
    if (e->kind == EVENT_CALL) add_call(a, e);
    if (e->kind == EVENT_ARGS && call) buf_add(&call->args, e->text, e->n);
    if (e->kind == EVENT_END) {
        a->finish = e->finish;
        a->stop_text = e->stop_text;
        a->stop_id = e->stop_id;
        a->lane = c->lane;
    }
    add_tokens(a, e);
    tell(j, e, user);
}

/* Takes what the engine thread has added. */
static bool take(struct choice *c) {
    struct job *j = c->job;
    c->read.text.n = c->read.piece.n = c->read.top.n = 0;
    c->at_piece = c->at_text = c->at_top = 0;
    pthread_mutex_lock(&j->lock);
    struct answer_log l = c->log;
    bool ended = c->finish != FINISH_NONE;
    c->log = c->read;
    pthread_mutex_unlock(&j->lock);
    c->read = l;
    return ended;
}

static const struct piece *piece_at(const struct choice *c, size_t at) {
    return at + sizeof(struct piece) <= c->read.piece.n ? (const struct piece *)(c->read.piece.p + at) : NULL;
}

/* A piece of a token as an event has it. */
static struct event_token token_of(struct choice *c, const struct piece *p) {
    const int n_top = c->job->ask.params.n_logprob > 0 ? c->job->ask.params.n_logprob : 0;
    struct event_token t = {.id = p->a,
                            .logprob = p->logprob,
                            .n_top = n_top,
                            .top = n_top ? (const void *)(c->read.top.p + c->at_top) : NULL};
    t.piece = infer_piece(c->job->server->model, p->a, true, false, &t.n);
    c->at_top += (size_t)n_top * sizeof *t.top;
    return t;
}

enum { TOKENS = 64 }; /* of one event */

/* The next event: tokens, and the text behind them; joined: further ones of its kind as well. */
static void next_event(struct choice *c, bool joined, log_tell *tell, void *user) {
    struct event_token token[TOKENS];
    struct event e = {.kind = EVENT_TEXT, .choice = c->index, .token = token, .text = "", .stop_id = -1};
    const struct piece *p;
    bool has_text = false, own = false;
    while ((p = piece_at(c, c->at_piece)) && e.n_token < TOKENS) {
        if (p->kind == PIECE_TOKEN) {
            if (has_text && !joined) break;
            token[e.n_token++] = token_of(c, p);
            c->at_piece += sizeof *p;
            continue;
        }
        if (has_text ? !joined || p->kind != (uint8_t)e.kind || p->a != e.call : p->kind > EVENT_CALL_END)
            break;
        const bool text = p->kind == EVENT_REASONING || p->kind == EVENT_TEXT || p->kind == EVENT_ARGS;
        if (!has_text) e.kind = p->kind, e.call = p->a;
        if (!has_text && c->read.text.p) e.text = c->read.text.p + c->at_text;
        c->at_piece += sizeof *p;
        e.n += p->kind == EVENT_PROGRESS ? 0 : p->n;
        c->at_text += p->kind == EVENT_PROGRESS ? 0 : p->n;
        has_text = true;
        if (p->kind == EVENT_PROGRESS) e.ms = 1e3 * (host_seconds() - c->job->arrived);
        if (p->kind == EVENT_PROGRESS) e.call = 0, e.done = p->a, e.total = (int)p->n, e.cached = (int)p->id;
        if (p->kind == EVENT_CALL) own = p->flag, c->at_text += p->id;
        if (!text) break;
    }
    if (e.kind == EVENT_CALL) {
        const char *prefix = c->job->front->call_prefix;
        struct buf id = {0};
        char random[JOB_ID + 1];
        job_random_id(random);
        if (own)
            buf_add(&id, e.text + e.n, p->id);
        else
            buf_printf(&id, "%s%s", prefix ? prefix : "", random);
        c->answer.text.failed |= id.failed;
        e.call_id = id.p ? id.p : "";
        tell_one(c->job, c, &e, tell, user);
        buf_free(&id);
        return;
    }
    tell_one(c->job, c, &e, tell, user);
}

static void read_choice(struct choice *c, log_tell *tell, void *user) {
    if (c->end_told) return;
    const bool ended = take(c);
    if (c->read.text.failed || c->read.piece.failed || c->read.top.failed) c->answer.text.failed = true;
    const bool joined = !c->job->ask.stream || c->read.piece.n > JOIN_BEYOND * sizeof(struct piece);
    while (piece_at(c, c->at_piece)) next_event(c, joined, tell, user);
    if (!ended) return;
    c->end_told = true;
    tell_one(c->job, c,
             &(struct event){.kind = EVENT_END,
                             .choice = c->index,
                             .text = "",
                             .finish = c->finish,
                             .stop_text = c->stop_text,
                             .stop_id = c->stop_id,
                             .looped = c->looped},
             tell, user);
}

bool log_read(struct job *j, log_tell *tell, void *user) {
    bool all = true;
    for (int i = 0; i < j->n_choice; i++) {
        read_choice(&j->choice[i], tell, user);
        all = all && j->choice[i].end_told;
    }
    if (!all) return false;
    for (int i = 0; i < j->n_choice; i++)
        if (j->choice[i].looped) {
            job_warn(j, "loop_stop", JOB_LOOPED);
            break;
        }
    tell(j, &(struct event){.kind = EVENT_DONE, .text = "", .stop_id = -1}, user);
    return true;
}

const struct job_answer *job_answer(const struct job *j, int choice) { return &j->choice[choice].answer; }
