/* POST /completion as llama.cpp's server has it, and the shape of the answers of its own routes (/infill has it as well). */
#include <string.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

/* ---- fields ---- */

/* Texts and ids behind each other are one prompt: the texts become ids, the first of them with what the model adds. */
static enum infer_status read_mixed(struct job *j, const char *at, const json_t *v) {
    json_t *ids = json_array(), *x;
    size_t i;
    enum infer_status st = INFER_OK;
    json_array_foreach((json_t *)v, i, x) {
        struct infer_prompt p = {0};
        if (json_is_integer(x)) {
            json_array_append(ids, x);
            continue;
        }
        if (!json_is_string(x)) st = job_invalid(j, at, "'%s[%zu]' must be a string or a token id", at, i);
        if (!st)
            st = infer_prompt_text(&p, j->server->model, json_string_value(x), json_string_length(x), true);
        const int own = i && p.n && p.ids[0] == infer_bos(j->server->model);
        for (int k = own; !st && k < p.n; k++) json_array_append_new(ids, json_integer(p.ids[k]));
        infer_prompt_free(&p);
        if (st) break;
    }
    if (!st) st = openai_prompts(j, at, ids, 1);
    json_decref(ids);
    return st;
}

static enum infer_status read_prompt(struct job *j, const char *at, const json_t *v) {
    size_t n_text = 0, n_id = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        n_text += json_is_string(json_array_get(v, i));
        n_id += json_is_integer(json_array_get(v, i));
    }
    return n_text && n_id ? read_mixed(j, at, v) : openai_prompts(j, at, v, JOB_PROMPTS);
}

static enum infer_status read_most(struct job *j, const char *at, const json_t *v) {
    if (json_is_integer(v) && json_integer_value(v) == -2) return INFER_OK; /* until the context is full */
    return field_most(j, at, v, 0);
}

static enum infer_status read_probs(struct job *j, const char *at, const json_t *v) {
    int n = 0;
    TRY(field_int(j, at, v, 0, INFER_LOGPROBS_MAX, &n));
    if (n) j->ask.params.n_logprob = n;
    return INFER_OK;
}

#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"prompt", FIELD_HAND, .hand = read_prompt},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"n_predict max_tokens", FIELD_HAND, .hand = read_most},
    {"n_probs", FIELD_HAND, .hand = read_probs},
    {"n_cmpl n", FIELD_INT, 1, JOB_CHOICES, ASK(n)},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"return_tokens", FIELD_BOOL, ASK(return_ids)},
    {"t_max_predict_ms", FIELD_NEUTRAL, -1, 0, .why = "is not done here: X-Request-Timeout is"},
    {"n_keep", .type = FIELD_SILENT}, /* nothing is dropped from a full context */
    {"id_slot", FIELD_INT, -1, 65535, ASK(id_slot)},
    {"cache_prompt n_cache_reuse response_fields timings_per_token", .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

static enum infer_status completion_read(struct job *j, const json_t *body) {
    TRY(fields_read(j, "", body, FIELDS(rows, fields_sampling, fields_grammar, fields_undone)));
    return j->ask.prompt ? INFER_OK : job_invalid(j, "prompt", "'prompt' is missing");
}

/* ---- answers ---- */

/* tokens:[..], completion_probabilities:[..], where they are asked for */
static void tokens(struct job *j, const struct event_token *t, int n, struct buf *out) {
    if (j->ask.return_ids) openai_ids("tokens", t, n, out);
    if (j->ask.params.n_logprob < 0 || !n) return;
    json_put(out, "completion_probabilities:");
    openai_logprobs(j, t, n, out);
}

/* What stands behind the text at the end of a choice. */
static void told_at_end(struct job *j, int choice, struct buf *out) {
    const struct job_answer *a = job_answer(j, choice);
    const struct infer_sample_params *p = &j->ask.params.sample;
    json_put(out, "id_slot:%d stop:true model:%s tokens_predicted:%d tokens_evaluated:%d tokens_cached:%d",
             a->lane, j->server->name, j->counts.answer, j->counts.prompt,
             j->counts.prompt + j->counts.answer);
    json_put(out, "truncated:false has_new_line:%hhd stop_type:%s stopping_word:%s",
             (bool)(a->text.n && memchr(a->text.p, '\n', a->text.n)),
             a->finish == FINISH_LENGTH ? "limit"
             : a->stop_text             ? "word"
                                        : "eos",
             a->stop_text ? a->stop_text : "");
    json_put(out,
             "generation_settings:{n_predict:%d seed:%llu temperature:%g top_k:%d top_p:%g min_p:%g "
             "repeat_penalty:%g stream:%hhd}",
             j->ask.params.n_predict, (unsigned long long)j->seed, (double)p->temp, p->top_k,
             (double)p->top_p, (double)p->min_p, (double)p->repeat_penalty, j->ask.stream);
    openai_timings(j, out);
    openai_infer(j, out);
    json_put(out, "}");
}

void native_event(struct job *j, const struct event *e, struct buf *out) {
    if (e->kind == EVENT_PING) buf_text(out, ": ping\n\n");
    if (e->kind == EVENT_TEXT && (e->n || e->n_token)) {
        buf_text(out, "data: ");
        json_put(out, "{index:%d content:%.*s", e->choice, (int)e->n, e->text);
        tokens(j, e->token, e->n_token, out);
        json_put(out, "stop:false}\n\n");
    }
    for (int i = 0; e->kind == EVENT_DONE && i < j->n_choice; i++) {
        buf_text(out, "data: ");
        json_put(out, "{index:%d content:''", i);
        told_at_end(j, i, out);
        buf_text(out, "\n\n");
    }
}

void native_whole(struct job *j, struct buf *out) {
    const bool many = j->n_choice > 1;
    if (many) json_put(out, "[");
    for (int i = 0; i < j->n_choice; i++) {
        const struct job_answer *a = job_answer(j, i);
        json_put(out, "{index:%d content:%.*s", i, BUF_TEXT(a->text));
        tokens(j, a->token, a->n_token, out);
        told_at_end(j, i, out);
    }
    json_put(out, many ? "]\n" : "\n");
}

const struct front_end native_completion = {.prefix = "cmpl-",
                                            .read = completion_read,
                                            .event = native_event,
                                            .whole = native_whole,
                                            .error = openai_error};
