/* POST /v1/chat/completions */
#include <string.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

struct chat_state {
    int top_logprobs;
    bool logprobs, has_top, has_go_on;
    bool role_told[JOB_CHOICES];
};

/* ---- fields ---- */

static enum infer_status read_messages(struct job *j, const char *at, const json_t *v) {
    return openai_messages(j, at, v, openai_message);
}

/* max_tokens and max_completion_tokens: the lesser of both */
static enum infer_status read_most(struct job *j, const char *at, const json_t *v) {
    const int before = j->ask.params.n_predict;
    TRY(field_most(j, at, v, 1));
    const int n = j->ask.params.n_predict;
    if (before >= 0 && (n < 0 || before < n)) j->ask.params.n_predict = before;
    return INFER_OK;
}

static enum infer_status read_top_logprobs(struct job *j, const char *at, const json_t *v) {
    struct chat_state *c = j->state;
    c->has_top = true;
    return field_int(j, at, v, 0, INFER_LOGPROBS_MAX, &c->top_logprobs);
}

static enum infer_status read_turn(struct job *j, const char *at, const json_t *v) {
    bool turn = true;
    TRY(field_bool(j, at, v, &turn));
    j->ask.no_turn = !turn;
    struct chat_state *c = j->state;
    c->has_go_on |= turn;
    return INFER_OK;
}

static enum infer_status read_modalities(struct job *j, const char *at, const json_t *v) {
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)v, i,
                       x) if (!json_is_string(x) ||
                              strcmp(json_string_value(x), "text") !=
                                  0) return job_refuse(j, 400, "unsupported_parameter", at,
                                                       "'%s': this model answers in text alone", at);
    return INFER_OK;
}

/* {type: "content", content: text or [{type: "text", text}]}: predicted outputs. */
static enum infer_status read_prediction(struct job *j, const char *at, const json_t *v) {
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *content = json_object_get(v, "content"), *part;
    struct buf all = {0};
    size_t i;
    bool fine = type && strcmp(type, "content") == 0 && (json_is_string(content) || json_is_array(content));
    if (json_is_string(content)) buf_add(&all, json_string_value(content), json_string_length(content));
    if (json_is_array(content)) json_array_foreach((json_t *)content, i, part) {
            const json_t *text = json_object_get(part, "text");
            fine = fine && json_is_string(text);
            if (fine) buf_add(&all, json_string_value(text), json_string_length(text));
        }
    enum infer_status st = all.failed ? err_set(INFER_E_MEMORY, "out of memory: a prediction") : INFER_OK;
    if (!fine)
        st = job_invalid(j, at, "'%s' must be {\"type\": \"content\", \"content\": text or parts of text}",
                         at);
    else if (!st && !(j->ask.prediction = mem_strdup(all.n ? all.p : "")))
        st = err_set(INFER_E_MEMORY, "out of memory: a prediction");
    buf_free(&all);
    return st;
}

/* Older clients say that no function is to be called. */
static enum infer_status read_function_call(struct job *j, const char *at, const json_t *v) {
    const char *word = json_string_value(v);
    return word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)
               ? INFER_OK
               : job_refuse(j, 400, "unsupported_parameter", at, "'%s' is not supported here: tool_choice is",
                            at);
}

static enum infer_status read_think_format(struct job *j, const char *at, const json_t *v) {
    const char *word;
    size_t n;
    TRY(field_text(j, at, v, 32, &word, &n));
    j->ask.thinking_as_content = strcmp(word, "none") == 0;
    j->ask.thinking_hidden = strcmp(word, "hidden") == 0;
    return INFER_OK;
}

#define OWN(field) .offset = offsetof(struct chat_state, field), .own = true
#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"messages", FIELD_HAND, .hand = read_messages},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"max_tokens max_completion_tokens n_predict", FIELD_HAND, .hand = read_most},
    {"n", FIELD_INT, 1, JOB_CHOICES, ASK(n)},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"stream_options", FIELD_HAND, .hand = openai_stream_options},
    {"logprobs", FIELD_BOOL, OWN(logprobs)},
    {"top_logprobs", FIELD_HAND, .hand = read_top_logprobs},
    {"response_format", FIELD_HAND, .hand = openai_format},
    {"tools", FIELD_HAND, .hand = openai_tools},
    {"tool_choice", FIELD_HAND, .hand = openai_tool_choice},
    {"parallel_tool_calls", FIELD_BOOL, ASK(parallel_calls)},
    {"reasoning_effort reasoning", FIELD_HAND, .hand = openai_effort},
    {"thinking", FIELD_HAND, .hand = openai_thinking},
    {"thinking_budget_tokens thinking_token_budget thinking_budget reasoning_budget reasoning_budget_tokens",
     FIELD_INT, -1, 1e9, ASK(n_think)},
    {"thinking_budget_seconds", FIELD_NUMBER, 0, 1e6, ASK(think_seconds)},
    {"reasoning_format", FIELD_HAND, .hand = read_think_format},
    {"include_reasoning", FIELD_NOT, ASK(thinking_hidden)},
    {"chat_template_kwargs", FIELD_HAND, .hand = openai_variables},
    {"continue_final_message", FIELD_BOOL, ASK(go_on)},
    {"add_generation_prompt", FIELD_HAND, .hand = read_turn},
    {"id_slot", FIELD_INT, -1, 65535, ASK(id_slot)},
    {"return_progress", FIELD_BOOL, ASK(progress)},
    {"include_energy", FIELD_BOOL, ASK(energy)},
    {"prediction", FIELD_HAND, .hand = read_prediction},
    {"timings_per_token", FIELD_WARN, .why = "timings come with the end of the answer"},
    {"functions", FIELD_NEUTRAL, .why = "is not supported here: tools is"},
    {"function_call", FIELD_HAND, .hand = read_function_call},
    {"chat_template", FIELD_NEUTRAL, .why = "is not taken from requests: the server's holds"},
    {"audio", FIELD_NEUTRAL, .why = "is not supported here: this model answers in text alone"},
    {"echo", FIELD_NEUTRAL, .why = "is not supported here: continue_final_message is"},
    {"add_special_tokens", FIELD_NEUTRAL, .why = "is not supported here: the template has them"},
    {"modalities", FIELD_HAND, .hand = read_modalities},
    {"store metadata user safety_identifier prompt_cache_key prompt_cache_options prompt_cache_retention cache_prompt",
     .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

static enum infer_status chat_read(struct job *j, const json_t *body) {
    struct ask *a = &j->ask;
    struct chat_state *c = j->state;
    TRY(fields_read(j, "", body, FIELDS(rows, fields_sampling, fields_grammar, fields_undone)));
    if (!a->messages) return job_invalid(j, "messages", "'messages' is missing");
    TRY(openai_tool_mode(j, body));
    if (c->has_top && !c->logprobs)
        return job_invalid(j, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (c->logprobs) a->params.n_logprob = c->top_logprobs;
    if (a->usage_chunk && !a->stream) job_warn(j, "stream_options", "the answer is no stream");
    if (a->go_on && c->has_go_on)
        return job_invalid(
            j, "continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' are both true, and one can hold");
    const json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    if (a->go_on && strcmp(json_string_value(json_object_get(last, "role")), "assistant") != 0)
        return job_invalid(j, "continue_final_message", "the last message is not the assistant's");
    return INFER_OK;
}

/* ---- answers ---- */

/* The end of a choice; told: tokens come with it. finish FINISH_NONE: it goes on. */
static void end_choice(const struct job *j, bool told, const struct event_token *t, int n,
                       enum job_finish finish, struct buf *out) {
    json_put(out, "logprobs:");
    if (told && j->ask.params.n_logprob >= 0) {
        json_put(out, "{content:");
        openai_logprobs(j, t, n, out);
        json_put(out, "refusal:null}");
    } else {
        json_put(out, "null");
    }
    openai_finish(finish, out);
    if (told && j->ask.return_ids) openai_ids("token_ids", t, n, out);
}

/* A chunk up to {"index":0,"delta":{.. */
static void begin_delta(const struct job *j, const struct event *e, struct buf *out) {
    buf_text(out, "data: ");
    openai_head(j, "chat.completion.chunk", out);
    json_put(out, "choices:[{index:%d delta:{", e->choice);
}

static void first_delta(struct job *j, const struct event *e, struct buf *out) {
    struct chat_state *c = j->state;
    if (c->role_told[e->choice]) return;
    c->role_told[e->choice] = true;
    begin_delta(j, e, out);
    json_put(out, "role:'assistant' content:''} logprobs:null finish_reason:null}");
    openai_chunk_end(j, NULL, out);
}

static void end_delta(struct job *j, const struct event *e, struct buf *out) {
    const bool ends = e->kind == EVENT_END;
    json_put(out, "}");
    end_choice(j, e->n_token > 0, e->token, e->n_token, ends ? e->finish : FINISH_NONE, out);
    if (ends) openai_stop_reason(e->stop_text, e->stop_id, out);
    json_put(out, "}");
    openai_chunk_end(j, e, out);
}

static void progress(struct job *j, const struct event *e, struct buf *out) {
    buf_text(out, "data: ");
    openai_head(j, "chat.completion.chunk", out);
    json_put(out, "choices:[] prompt_progress:{total:%d cache:%d processed:%d time_ms:%.1f}}\n\n", e->total,
             e->cached, e->done, e->ms);
}

static void chat_event(struct job *j, const struct event *e, struct buf *out) {
    const int n = (int)e->n;
    if (e->kind == EVENT_PROGRESS) progress(j, e, out);
    if (e->kind == EVENT_PING) buf_text(out, ": ping\n\n");
    if (e->kind == EVENT_DONE) openai_done(j, "chat.completion.chunk", out);
    if (e->kind == EVENT_PROGRESS || e->kind == EVENT_PING || e->kind == EVENT_DONE ||
        e->kind == EVENT_CALL_END)
        return;
    first_delta(j, e, out);
    begin_delta(j, e, out);
    if (e->kind == EVENT_TEXT) json_put(out, "content:%.*s", n, e->text);
    if (e->kind == EVENT_REASONING)
        json_put(out, "reasoning_content:%.*s reasoning:%.*s", n, e->text, n, e->text);
    if (e->kind == EVENT_CALL)
        json_put(out, "tool_calls:[{index:%d id:%s type:'function' function:{name:%.*s arguments:''}}]",
                 e->call, e->call_id, n, e->text);
    if (e->kind == EVENT_ARGS)
        json_put(out, "tool_calls:[{index:%d function:{arguments:%.*s}}]", e->call, n, e->text);
    end_delta(j, e, out);
}

static void choice(struct job *j, int i, struct buf *out) {
    const struct job_answer *a = job_answer(j, i);
    json_put(out, "{index:%d message:{role:'assistant' content:", i);
    if (a->n_call && !a->text.n)
        json_put(out, "null");
    else
        json_put(out, "%.*s", BUF_TEXT(a->text));
    json_put(out, "refusal:null");
    if (a->reasoning.n)
        json_put(out, "reasoning_content:%.*s reasoning:%.*s", BUF_TEXT(a->reasoning),
                 BUF_TEXT(a->reasoning));
    if (a->n_call) json_put(out, "tool_calls:[");
    for (int k = 0; k < a->n_call; k++) {
        const struct answer_call *c = &a->call[k];
        json_put(out, "{id:%.*s type:'function' function:{name:%.*s arguments:%.*s}}", BUF_TEXT(c->id),
                 BUF_TEXT(c->name), BUF_TEXT(c->args));
    }
    json_put(out, a->n_call ? "]}" : "}");
    end_choice(j, true, a->token, a->n_token, a->finish, out);
    openai_stop_reason(a->stop_text, a->stop_id, out);
    json_put(out, "}");
}

static void chat_whole(struct job *j, struct buf *out) {
    openai_head(j, "chat.completion", out);
    json_put(out, "service_tier:'default' choices:[");
    for (int i = 0; i < j->n_choice; i++) choice(j, i, out);
    openai_end(j, out);
}

/* ---- requests that nobody answers ---- */

/* The prompt that a chat completion with this body would have. */
static enum infer_status template_reply(struct job *j, struct buf *out) {
    json_put(out, "{prompt:%.*s tokens:%d", (int)j->prompt[0].n_text, j->prompt[0].text, j->prompt[0].n);
    openai_warnings(j, out);
    json_put(out, "}\n");
    return INFER_OK;
}

const struct front_end openai_chat = {.prefix = "chatcmpl-",
                                      .call_prefix = "call_",
                                      .state = sizeof(struct chat_state),
                                      .read = chat_read,
                                      .event = chat_event,
                                      .whole = chat_whole,
                                      .error = openai_error};
const struct front_end rest_template = {.prefix = "",
                                        .state = sizeof(struct chat_state),
                                        .read = chat_read,
                                        .reply = template_reply,
                                        .error = openai_error};
const struct front_end openai_count = {.prefix = "",
                                       .state = sizeof(struct chat_state),
                                       .read = chat_read,
                                       .reply = openai_count_reply,
                                       .error = openai_error};
