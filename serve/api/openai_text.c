/* POST /v1/completions */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

struct text_state {
    char *suffix;
    size_t offset[JOB_PROMPTS * JOB_CHOICES]; /* bytes of each choice that have been told */
    bool echoed[JOB_PROMPTS * JOB_CHOICES];
};

/* ---- fields ---- */

static enum infer_status add_prompt(struct job *j, const char *at, const json_t *v) {
    struct ask_prompt *p = &j->ask.prompt[j->ask.n_prompt];
    const char *text;
    size_t n;
    j->ask.n_prompt++;
    if (json_is_array(v)) return field_ids(j, at, v, &p->ids, &p->n_id);
    TRY(field_text(j, at, v, 32 << 20, &text, &n));
    TRY(mem_new(&p->text, n + 1, "a prompt"));
    memcpy(p->text, text, n);
    p->n = n;
    return INFER_OK;
}

enum infer_status openai_prompts(struct job *j, const char *at, const json_t *v, size_t most) {
    const bool many = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    TRY(mem_new(&j->ask.prompt, (many ? json_array_size(v) + 1 : 1) * sizeof *j->ask.prompt, "prompts"));
    return many ? field_each(j, at, v, 1, most, "prompts", add_prompt) : add_prompt(j, at, v);
}

static enum infer_status read_prompt(struct job *j, const char *at, const json_t *v) {
    return openai_prompts(j, at, v, JOB_PROMPTS);
}

static enum infer_status read_logprobs(struct job *j, const char *at, const json_t *v) {
    if (json_is_false(v)) return INFER_OK;
    return field_int(j, at, v, 0, INFER_LOGPROBS_MAX, &j->ask.params.n_logprob);
}

/* With a suffix each prompt is what stands in front of the text that is asked for. */
static enum infer_status fill_in(struct job *j) {
    const struct text_state *s = j->state;
    struct ask *a = &j->ask;
    if (!s->suffix) return INFER_OK;
    if (a->echo) return job_invalid(j, "echo", "'echo' and 'suffix' are both given, and one can hold");
    for (int i = 0; i < a->n_prompt; i++) {
        struct ask_prompt *p = &a->prompt[i];
        if (!p->text) return job_invalid(j, "suffix", "'suffix' goes with prompts that are texts");
        TRY(fim_prompt(j, "suffix",
                       &(struct fim_parts){p->text, s->suffix, p->n, strlen(s->suffix), NULL, NULL}, p));
    }
    return INFER_OK;
}

#define OWN(field) .offset = offsetof(struct text_state, field), .own = true
#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"prompt", FIELD_HAND, .hand = read_prompt},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"max_tokens n_predict", FIELD_MOST, .least = 0},
    {"n", FIELD_INT, 1, JOB_CHOICES, ASK(n)},
    {"best_of", FIELD_INT, 1, JOB_CHOICES, ASK(best_of)},
    {"echo", FIELD_BOOL, ASK(echo)},
    {"include_energy", FIELD_BOOL, ASK(energy)},
    {"logprobs", FIELD_HAND, .hand = read_logprobs},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"stream_options", FIELD_HAND, .hand = openai_stream_options},
    {"response_format", FIELD_HAND, .hand = openai_format},
    {"parse_special", FIELD_NOT, ASK(plain_text)},
    {"id_slot", FIELD_INT, -1, 65535, ASK(id_slot)},
    {"suffix", FIELD_KEEP, 0, 32 << 20, OWN(suffix)},
    {"user store metadata cache_prompt", .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

static enum infer_status text_read_body(struct job *j, const json_t *body) {
    struct ask *a = &j->ask;
    a->params.n_predict = json_is_null(json_object_get(body, "max_tokens")) ? -1 : 16;
    TRY(fields_read(j, "", body, FIELDS(rows, fields_sampling, fields_grammar, fields_undone)));
    if (!a->prompt) return job_invalid(j, "prompt", "'prompt' is missing");
    if (a->best_of && a->best_of != a->n)
        return job_refuse(j, 400, "unsupported_parameter", "best_of",
                          "'best_of' must equal 'n': %d is not %d", a->best_of, a->n);
    if (a->usage_chunk && !a->stream) job_warn(j, "stream_options", "the answer is no stream");
    a->params.score = a->echo && a->params.n_logprob >= 0;
    return fill_in(j);
}

/* ---- answers ---- */

/* logprobs:{tokens:[..], token_logprobs:[..], top_logprobs:[..], text_offset:[..]} */
static void logprobs(struct job *j, const struct event_token *t, int n, size_t offset, struct buf *out) {
    json_put(out, "logprobs:{tokens:[");
    for (int i = 0; i < n; i++) openai_token(out, t[i].piece, t[i].n);
    json_put(out, "] token_logprobs:[");
    for (int i = 0; i < n; i++) json_put(out, "%g", isinf(t[i].logprob) ? -9999 : (double)t[i].logprob);
    json_put(out, "] top_logprobs:[");
    for (int i = 0; i < n; i++) {
        json_put(out, isnan(t[i].logprob) ? "null" : "{");
        for (int k = 0; !isnan(t[i].logprob) && k < t[i].n_top && t[i].top[k].id >= 0; k++) {
            size_t len;
            const char *piece = infer_piece(j->server->model, t[i].top[k].id, true, false, &len);
            openai_token(out, piece, len);
            json_put(out, ":%g", (double)t[i].top[k].logprob);
        }
        if (!isnan(t[i].logprob)) json_put(out, "}");
    }
    json_put(out, "] text_offset:[");
    for (int i = 0; i < n; offset += t[i++].n) json_put(out, "%zu", offset);
    json_put(out, "]}");
}

/* The text of the prompt, as it goes in front of the answer with echo. */
static void echo(const struct job *j, int choice, struct buf *out) {
    const struct infer_prompt *p = &j->prompt[choice / j->ask.n];
    const struct ask_prompt *asked = &j->ask.prompt[choice / j->ask.n];
    if (asked->text) {
        buf_add(out, asked->text, asked->n);
        return;
    }
    for (int i = 0; i < p->n; i++) {
        size_t n;
        const char *piece = infer_piece(j->server->model, p->ids[i], true, i == 0, &n);
        buf_add(out, piece, n);
    }
}

static void text_event(struct job *j, const struct event *e, struct buf *out) {
    struct text_state *s = j->state;
    if (e->kind == EVENT_PING) buf_text(out, ": ping\n\n");
    if (e->kind == EVENT_DONE) openai_done(j, "text_completion", out);
    if (e->kind != EVENT_TEXT && e->kind != EVENT_END) return;
    struct buf text = {0};
    if (j->ask.echo && !s->echoed[e->choice]) echo(j, e->choice, &text);
    s->echoed[e->choice] = true;
    buf_add(&text, e->text, e->n);
    buf_text(out, "data: ");
    openai_head(j, "text_completion", out);
    json_put(out, "choices:[{index:%d text:%.*s", e->choice, BUF_TEXT(text));
    if (j->ask.params.n_logprob >= 0 && e->n_token)
        logprobs(j, e->token, e->n_token, s->offset[e->choice], out);
    else
        json_put(out, "logprobs:null");
    openai_finish(e->kind == EVENT_END ? e->finish : FINISH_NONE, out);
    s->offset[e->choice] += text.n;
    buf_free(&text);
    json_put(out, "}");
    openai_chunk_end(j, e, out);
}

static void text_whole(struct job *j, struct buf *out) {
    openai_head(j, "text_completion", out);
    json_put(out, "choices:[");
    for (int i = 0; i < j->n_choice; i++) {
        const struct job_answer *a = job_answer(j, i);
        struct buf text = {0};
        if (j->ask.echo) echo(j, i, &text);
        buf_add(&text, a->text.p ? a->text.p : "", a->text.n);
        out->failed |= text.failed;
        json_put(out, "{index:%d text:%.*s", i, BUF_TEXT(text));
        buf_free(&text);
        if (j->ask.params.n_logprob >= 0)
            logprobs(j, a->token, a->n_token, 0, out);
        else
            json_put(out, "logprobs:null");
        openai_finish(a->finish, out);
        openai_stop_reason(a->stop_text, a->stop_id, out);
        json_put(out, "}");
    }
    openai_end(j, out);
}

static void text_done(struct job *j) {
    struct text_state *s = j->state;
    mem_free(s->suffix);
}

const struct front_end openai_text = {.prefix = "cmpl-",
                                      .state = sizeof(struct text_state),
                                      .read = text_read_body,
                                      .event = text_event,
                                      .whole = text_whole,
                                      .error = openai_error,
                                      .done = text_done};
