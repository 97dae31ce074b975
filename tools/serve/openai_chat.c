/* POST /v1/chat/completions */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "tools/serve/openai.h"
#include "tools/serve/routes.h"
#include "tools/serve/server.h"

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
    const int before = j->ask.n_predict;
    TRY(field_most(j, at, v, 1));
    const int n = j->ask.n_predict;
    if (before >= 0 && (n < 0 || before < n)) j->ask.n_predict = before;
    return INFER_OK;
}

static enum infer_status read_logprobs(struct job *j, const char *at, const json_t *v) {
    struct chat_state *c = j->state;
    return field_bool(j, at, v, &c->logprobs);
}
static enum infer_status read_top_logprobs(struct job *j, const char *at, const json_t *v) {
    struct chat_state *c = j->state;
    c->has_top = true;
    return field_int(j, at, v, 0, LOGPROBS_MAX, &c->top_logprobs);
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

/* As vLLM has it: false: what the model thinks is not told. */
static enum infer_status read_included(struct job *j, const char *at, const json_t *v) {
    bool told = true;
    TRY(field_bool(j, at, v, &told));
    j->ask.thinking_hidden = !told;
    return INFER_OK;
}

#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"messages", FIELD_HAND, .hand = read_messages},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"max_tokens", FIELD_HAND, .hand = read_most},
    {"max_completion_tokens", FIELD_HAND, .hand = read_most},
    {"n_predict", FIELD_HAND, .hand = read_most},
    {"n", FIELD_INT, 1, JOB_CHOICES, ASK(n)},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"stream_options", FIELD_HAND, .hand = openai_stream_options},
    {"logprobs", FIELD_HAND, .hand = read_logprobs},
    {"top_logprobs", FIELD_HAND, .hand = read_top_logprobs},
    {"response_format", FIELD_HAND, .hand = openai_format},
    {"tools", FIELD_HAND, .hand = openai_tools},
    {"tool_choice", FIELD_HAND, .hand = openai_tool_choice},
    {"parallel_tool_calls", FIELD_BOOL, ASK(parallel_calls)},
    {"reasoning_effort", FIELD_HAND, .hand = openai_effort},
    {"reasoning", FIELD_HAND, .hand = openai_effort},
    {"thinking_budget_tokens", FIELD_INT, 0, 1e9, ASK(n_think)},
    {"thinking_token_budget", FIELD_INT, 0, 1e9, ASK(n_think)},
    {"reasoning_format", FIELD_HAND, .hand = read_think_format},
    {"include_reasoning", FIELD_HAND, .hand = read_included},
    {"chat_template_kwargs", FIELD_HAND, .hand = openai_variables},
    {"continue_final_message", FIELD_BOOL, ASK(go_on)},
    {"add_generation_prompt", FIELD_HAND, .hand = read_turn},
    {"return_progress", FIELD_BOOL, ASK(progress)},
    {"prediction", FIELD_WARN, .why = "is not used to guess tokens: the answer is the same without"},
    {"timings_per_token", FIELD_WARN, .why = "timings come with the end of the answer"},
    {"functions", FIELD_NEUTRAL, .why = "is not supported here: tools is"},
    {"function_call", FIELD_HAND, .hand = read_function_call},
    {"chat_template", FIELD_NEUTRAL, .why = "is not taken from requests: the server's holds"},
    {"audio", FIELD_NEUTRAL, .why = "is not supported here: this model answers in text alone"},
    {"echo", FIELD_NEUTRAL, .why = "is not supported here: continue_final_message is"},
    {"add_special_tokens", FIELD_NEUTRAL, .why = "is not supported here: the template has them"},
    {"modalities", FIELD_HAND, .hand = read_modalities},
    {"store", .type = FIELD_SILENT},
    {"metadata", .type = FIELD_SILENT},
    {"user", .type = FIELD_SILENT},
    {"safety_identifier", .type = FIELD_SILENT},
    {"prompt_cache_key", .type = FIELD_SILENT},
    {"prompt_cache_options", .type = FIELD_SILENT},
    {"prompt_cache_retention", .type = FIELD_SILENT},
    {"cache_prompt", .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

static enum infer_status chat_read(struct job *j, const json_t *body) {
    struct ask *a = &j->ask;
    struct chat_state *c;
    TRY(mem_new(&c, sizeof *c, "a request"));
    j->state = c;
    TRY(fields_read(
        j, "", body,
        (const struct field *const[]){rows, fields_sampling, fields_grammar, fields_undone, NULL}));
    if (!a->messages) return job_refuse(j, 400, "invalid_value", "messages", "'messages' is missing");
    TRY(openai_tool_mode(j, body));
    if (c->has_top && !c->logprobs)
        return job_refuse(j, 400, "invalid_value", "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (c->logprobs) a->n_logprob = c->top_logprobs;
    if (a->usage_chunk && !a->stream) job_warn(j, "stream_options", "the answer is no stream");
    if (a->go_on && c->has_go_on)
        return job_refuse(
            j, 400, "invalid_value", "continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' are both true, and one can hold");
    const json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    if (a->go_on && strcmp(json_string_value(json_object_get(last, "role")), "assistant") != 0)
        return job_refuse(j, 400, "invalid_value", "continue_final_message",
                          "the last message is not the assistant's");
    return INFER_OK;
}

/* ---- streams ---- */

static void head(const struct job *j, struct buf *out) {
    buf_printf(out,
               "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%ld,\"model\":", j->id,
               j->created);
    buf_json_text(out, j->server->name);
    buf_printf(out, ",\"system_fingerprint\":\"%s\",\"choices\":[", j->server->fingerprint);
}

/* e: the event that the chunk is of, NULL: none */
static void tail(const struct job *j, const struct event *e, struct buf *out) {
    buf_text(out, "]");
    if (e) openai_loop(e, out);
    buf_text(out, j->ask.usage_chunk ? ",\"usage\":null}\n\n" : "}\n\n");
}

/* {"index":0,"delta":{..: the caller writes it */
static void delta(struct job *j, const struct event *e, struct buf *out) {
    struct chat_state *c = j->state;
    head(j, out);
    buf_printf(out, "{\"index\":%d,\"delta\":{", e->choice);
    if (!c->role_told[e->choice]) {
        c->role_told[e->choice] = true;
        buf_text(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
        tail(j, NULL, out);
        head(j, out);
        buf_printf(out, "{\"index\":%d,\"delta\":{", e->choice);
    }
}

static void end_delta(struct job *j, const struct event *e, struct buf *out) {
    buf_text(out, "},\"logprobs\":");
    if (e->n_token && j->ask.n_logprob >= 0) {
        buf_text(out, "{\"content\":");
        openai_logprobs(j, e->token, e->n_token, out);
        buf_text(out, ",\"refusal\":null}");
    } else {
        buf_text(out, "null");
    }
    buf_text(out, ",\"finish_reason\":");
    buf_json_text(out, e->kind == EVENT_END ? openai_finish(e->finish) : NULL);
    if (e->kind == EVENT_END) {
        buf_text(out, ",\"stop_reason\":");
        openai_stop_reason(e->stop_text, e->stop_id, out);
    }
    if (e->n_token && j->ask.return_ids) {
        buf_text(out, ",\"token_ids\":[");
        for (int i = 0; i < e->n_token; i++) buf_printf(out, "%s%d", i ? "," : "", e->token[i].id);
        buf_text(out, "]");
    }
    buf_text(out, "}");
    tail(j, e, out);
}

static void text_of(const struct event *e, const char *name, struct buf *out) {
    buf_printf(out, "\"%s\":", name);
    buf_json(out, e->text, e->n);
}

static void call_of(const struct event *e, struct buf *out) {
    buf_printf(out, "\"tool_calls\":[{\"index\":%d", e->call);
    if (e->kind == EVENT_CALL) {
        buf_text(out, ",\"id\":");
        char id[160];
        snprintf(id, sizeof id, "%s%s", e->own_id ? "" : "call_", e->call_id);
        buf_json_text(out, id);
        buf_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
        buf_json(out, e->text, e->n);
        buf_text(out, ",\"arguments\":\"\"}}]");
    } else {
        buf_text(out, ",\"function\":{\"arguments\":");
        buf_json(out, e->text, e->n);
        buf_text(out, "}}]");
    }
}

static void progress(struct job *j, const struct event *e, struct buf *out) {
    head(j, out);
    buf_printf(out,
               "],\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%.1f}}\n\n",
               e->total, e->cached, e->done, e->ms);
}

static void done(struct job *j, struct buf *out) {
    if (j->ask.usage_chunk) {
        head(j, out);
        buf_text(out, "],");
        openai_usage(j, out);
        buf_text(out, ",");
        openai_timings(j, out);
        buf_text(out, "}\n\n");
    }
    buf_text(out, "data: [DONE]\n\n");
}

static void chat_event(struct job *j, const struct event *e, struct buf *out) {
    switch (e->kind) {
    case EVENT_PROGRESS:
        progress(j, e, out);
        return;
    case EVENT_PING:
        buf_text(out, ": ping\n\n");
        return;
    case EVENT_DONE:
        done(j, out);
        return;
    case EVENT_CALL_END:
        return;
    default:
        break;
    }
    delta(j, e, out);
    if (e->kind == EVENT_TEXT) text_of(e, "content", out);
    if (e->kind == EVENT_REASONING) {
        text_of(e, "reasoning_content", out);
        buf_text(out, ",");
        text_of(e, "reasoning", out);
    }
    if (e->kind == EVENT_CALL || e->kind == EVENT_ARGS) call_of(e, out);
    end_delta(j, e, out);
}

/* ---- whole ---- */

static void message_calls(const struct job_answer *a, struct buf *out) {
    buf_text(out, ",\"tool_calls\":[");
    for (int i = 0; i < a->n_call; i++) {
        const struct answer_call *c = &a->call[i];
        buf_printf(out, "%s{\"id\":\"%s", i ? "," : "", c->own_id ? "" : "call_");
        buf_json_part(out, c->id.p, c->id.n);
        buf_text(out, "\",\"type\":\"function\",\"function\":{\"name\":");
        buf_json(out, c->name.p, c->name.n);
        buf_text(out, ",\"arguments\":");
        buf_json(out, c->args.p ? c->args.p : "", c->args.n);
        buf_text(out, "}}");
    }
    buf_text(out, "]");
}

static void choice(struct job *j, int i, struct buf *out) {
    const struct job_answer *a = job_answer(j, i);
    buf_printf(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i);
    if (a->n_call && !a->text.n)
        buf_text(out, "null");
    else
        buf_json(out, a->text.p ? a->text.p : "", a->text.n);
    buf_text(out, ",\"refusal\":null");
    if (a->reasoning.n) {
        buf_text(out, ",\"reasoning_content\":");
        buf_json(out, a->reasoning.p, a->reasoning.n);
        buf_text(out, ",\"reasoning\":");
        buf_json(out, a->reasoning.p, a->reasoning.n);
    }
    if (a->n_call) message_calls(a, out);
    buf_text(out, "},\"logprobs\":");
    if (j->ask.n_logprob >= 0) {
        buf_text(out, "{\"content\":");
        openai_logprobs(j, a->token, a->n_token, out);
        buf_text(out, ",\"refusal\":null}");
    } else {
        buf_text(out, "null");
    }
    buf_printf(out, ",\"finish_reason\":\"%s\",\"stop_reason\":", openai_finish(a->finish));
    openai_stop_reason(a->stop_text, a->stop_id, out);
    if (j->ask.return_ids) {
        buf_text(out, ",\"token_ids\":[");
        for (int k = 0; k < a->n_token; k++) buf_printf(out, "%s%d", k ? "," : "", a->token[k].id);
        buf_text(out, "]");
    }
    buf_text(out, "}");
}

static void chat_whole(struct job *j, struct buf *out) {
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%ld,\"model\":", j->id,
               j->created);
    buf_json_text(out, j->server->name);
    buf_printf(out, ",\"system_fingerprint\":\"%s\",\"service_tier\":\"default\",\"choices\":[",
               j->server->fingerprint);
    for (int i = 0; i < j->n_choice; i++) {
        if (i) buf_text(out, ",");
        choice(j, i, out);
    }
    openai_end(j, out);
}

static void chat_done(struct job *j) { mem_free(j->state); }

const struct front_end openai_chat = {.prefix = "chatcmpl-",
                                      .read = chat_read,
                                      .event = chat_event,
                                      .whole = chat_whole,
                                      .error = openai_error,
                                      .done = chat_done};
