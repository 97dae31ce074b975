/* POST /v1/responses and /v1/responses/input_tokens: the newer API of OpenAI. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/api/responses_int.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"

/* ---- the response object ---- */

/* name: what the client said, or otherwise. */
static void echo(const struct responses_state *s, const char *name, const char *otherwise, struct buf *out) {
    json_t *v = json_object_get(s->echo, name);
    char *text = NULL;
    if (v && !json_is_null(v) &&
        json_write(&text, json_incref(v), mem_failed(), JSON_COMPACT | JSON_ENCODE_ANY, "a field"))
        out->failed = true;
    json_put(out, "%s:", name);
    buf_text(out, text ? text : otherwise);
    mem_free(text);
}

/* What the response repeats of the request. */
static void repeated(const struct responses_state *s, struct buf *out) {
    static const char *const fields[][2] = {{"instructions", "null"},
                                            {"metadata", "{}"},
                                            {"tool_choice", "\"auto\""},
                                            {"tools", "[]"},
                                            {"max_output_tokens", "null"},
                                            {"reasoning", "{\"effort\":null,\"summary\":null}"},
                                            {"text", "{\"format\":{\"type\":\"text\"}}"},
                                            {"truncation", "\"disabled\""}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) echo(s, fields[i][0], fields[i][1], out);
}

static void usage(const struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    json_put(out,
             "usage:{input_tokens:%d input_tokens_details:{cached_tokens:%d cache_write_tokens:0} "
             "output_tokens:%d output_tokens_details:{reasoning_tokens:%d} total_tokens:%d",
             n->prompt, n->cached, n->answer, n->reasoning, n->prompt + n->answer);
    openai_energy(j, out);
    json_put(out, "}");
}

/* status: "in_progress", "completed", "incomplete", "failed"; r: why it failed, or NULL */
static void response(const struct job *j, const char *status, const struct refusal *r, struct buf *out) {
    const struct responses_state *s = j->state;
    const struct job_counts *n = &j->counts;
    const struct ask *a = &j->ask;
    const bool done = strcmp(status, "in_progress") != 0;
    const long took = (long)((n->queue_ms + n->prompt_ms + n->answer_ms) / 1e3);
    json_put(out, "{id:%s object:'response' created_at:%ld status:%s completed_at:", j->id, j->created,
             status);
    if (strcmp(status, "completed") == 0)
        json_put(out, "%ld", j->created + took);
    else
        json_put(out, "null");
    if (r)
        json_put(out, "error:{code:%s message:%s}", r->code ? r->code : "server_error", r->message);
    else
        json_put(out, "error:null");
    json_put(out, strcmp(status, "incomplete") == 0 ? "incomplete_details:{reason:'max_output_tokens'}"
                                                    : "incomplete_details:null");
    json_put(out, "model:%s output:[", j->server->name);
    out->failed |= s->items.failed;
    buf_add(out, s->items.p ? s->items.p : "", s->items.n);
    json_put(out,
             "] parallel_tool_calls:%hhd temperature:%g top_p:%g previous_response_id:null store:false "
             "background:false service_tier:'default'",
             a->parallel_calls, (double)a->params.sample.temp, (double)a->params.sample.top_p);
    repeated(s, out);
    if (done && !r)
        usage(j, out);
    else
        json_put(out, "usage:null");
    if (done) openai_infer(j, out);
    json_put(out, "}");
}

/* ---- events ---- */

/* event: response.TYPE, and its data up to where the caller goes on; end() ends it. */
static void begin(struct responses_state *s, const char *type, struct buf *out) {
    char name[64];
    snprintf(name, sizeof name, "response.%s", type);
    buf_printf(out, "event: %s\ndata: ", name);
    json_put(out, "{type:%s sequence_number:%d", name, s->sequence++);
}
static void end(struct buf *out) { json_put(out, "}\n\n"); }

static void tell_response(const struct job *j, const char *type, const char *status, const struct refusal *r,
                          struct buf *out) {
    begin(j->state, type, out);
    json_put(out, "response:");
    response(j, status, r, out);
    end(out);
}

/* The beginning of an event of the open item; inner: the index inside the item, NULL: none. */
static void begin_item(struct responses_state *s, const char *type, const char *inner, struct buf *out) {
    begin(s, type, out);
    json_put(out, "item_id:%s output_index:%d", s->id, s->n_item);
    if (inner) json_put(out, "%s:0", inner);
}

static bool is_custom(const struct responses_state *s) {
    return s->name.p && json_object_get(s->custom, s->name.p);
}

/* "input" of a custom tool's arguments. */
static void custom_input(const struct responses_state *s, struct buf *out) {
    json_t *args = s->text.n ? json_loadb(s->text.p, s->text.n, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *input = json_object_get(args, "input");
    if (json_is_string(input))
        json_put(out, "%.*s", (int)json_string_length(input), json_string_value(input));
    else
        json_put(out, "%.*s", BUF_TEXT(s->text));
    json_decref(args);
}

/* logprobs:[..] of a message's text. */
static void logprobs(const struct job *j, const struct event_token *t, int n, struct buf *out) {
    const struct responses_state *s = j->state;
    json_put(out, "logprobs:");
    openai_logprobs(j, t, s->logprobs ? n : 0, out);
}

/* A part of an item: its text, or (empty) as it begins. */
static void part(struct job *j, bool empty, struct buf *out) {
    struct responses_state *s = j->state;
    const struct job_answer *a = job_answer(j, 0);
    const bool message = s->item == ITEM_MESSAGE;
    json_put(out, "{type:%s text:%.*s",
             message      ? "output_text"
             : s->summary ? "summary_text"
                          : "reasoning_text",
             empty ? 0 : (int)s->text.n, s->text.p);
    if (message) json_put(out, "annotations:[]");
    if (message) logprobs(j, a->token, empty ? 0 : a->n_token, out);
    json_put(out, "}");
}

static void call_item(struct responses_state *s, bool empty, const char *status, struct buf *out) {
    const json_t *space = s->name.p ? json_object_get(s->spaces, s->name.p) : NULL;
    const char *name = space ? json_string_value(json_object_get(space, "name")) : s->name.p;
    const bool custom = is_custom(s);
    json_put(out, "{type:%s id:%s call_id:%s name:%s", custom ? "custom_tool_call" : "function_call", s->id,
             s->call_id.p, name);
    if (space) json_put(out, "namespace:%s", json_string_value(json_object_get(space, "namespace")));
    json_put(out, "%s:", custom ? "input" : "arguments");
    if (custom && !empty)
        custom_input(s, out);
    else
        json_put(out, "%.*s", empty ? 0 : (int)s->text.n, s->text.p);
    json_put(out, "status:%s}", status);
}

static void item(struct job *j, bool empty, const char *status, struct buf *out) {
    struct responses_state *s = j->state;
    if (s->item == ITEM_CALL) {
        call_item(s, empty, status, out);
        return;
    }
    const bool message = s->item == ITEM_MESSAGE, shown = message || !s->summary;
    json_put(out, "{type:%s id:%s status:%s", message ? "message" : "reasoning", s->id, status);
    json_put(out, message ? "role:'assistant'" : shown ? "summary:[]" : "");
    json_put(out, shown ? "content:[" : "summary:[");
    if (!empty) part(j, false, out);
    json_put(out, "]}");
}

/* An event that adds the item to the response, or says that it is done. */
static void tell_item(struct job *j, const char *type, bool empty, const char *status, struct buf *out) {
    struct responses_state *s = j->state;
    begin(s, type, out);
    json_put(out, "output_index:%d item:", s->n_item);
    item(j, empty, status, out);
    end(out);
}

/* And the same of an item's part. */
static void tell_part(struct job *j, const char *what, bool empty, struct buf *out) {
    struct responses_state *s = j->state;
    const bool summary = s->item == ITEM_REASONING && s->summary;
    char type[48];
    snprintf(type, sizeof type, "%s_part.%s", summary ? "reasoning_summary" : "content", what);
    begin_item(s, type, summary ? "summary_index" : "content_index", out);
    json_put(out, "part:");
    part(j, empty, out);
    end(out);
}

/* The beginning of an event of the open item's text: what is "delta" or "done". */
static void begin_text(struct responses_state *s, const char *what, struct buf *out) {
    const bool summary = s->item == ITEM_REASONING && s->summary;
    char type[48];
    snprintf(type, sizeof type, "%s.%s",
             s->item == ITEM_CALL      ? "function_call_arguments"
             : s->item == ITEM_MESSAGE ? "output_text"
             : summary                 ? "reasoning_summary_text"
                                       : "reasoning_text",
             what);
    begin_item(s, type, s->item == ITEM_CALL ? NULL : summary ? "summary_index" : "content_index", out);
}

/* An item begins. e: of a call */
static void open_item(struct job *j, enum item kind, const struct event *e, struct buf *out) {
    static const char *const prefix[] = {"", "rs_", "msg_", "fc_"};
    struct responses_state *s = j->state;
    char id[JOB_ID + 1];
    job_random_id(id);
    snprintf(s->id, sizeof s->id, "%s%s", prefix[kind], id);
    s->item = kind;
    s->text.n = s->name.n = s->call_id.n = 0;
    if (kind == ITEM_CALL) {
        buf_add(&s->name, e->text, e->n);
        buf_text(&s->call_id, e->call_id);
    }
    tell_item(j, "output_item.added", true, "in_progress", out);
    if (kind != ITEM_CALL) tell_part(j, "added", true, out);
}

static void text_done(struct job *j, struct buf *out) {
    struct responses_state *s = j->state;
    const struct job_answer *a = job_answer(j, 0);
    begin_text(s, "done", out);
    json_put(out, "text:%.*s", BUF_TEXT(s->text));
    if (s->item == ITEM_MESSAGE) logprobs(j, a->token, a->n_token, out);
    end(out);
    tell_part(j, "done", false, out);
}

static void call_done(struct responses_state *s, struct buf *out) {
    if (is_custom(s)) {
        begin_item(s, "custom_tool_call_input.delta", NULL, out);
        json_put(out, "delta:");
        custom_input(s, out);
        end(out);
        begin_item(s, "custom_tool_call_input.done", NULL, out);
        json_put(out, "input:");
        custom_input(s, out);
    } else {
        begin_text(s, "done", out);
        json_put(out, "name:%s arguments:%.*s", s->name.p, BUF_TEXT(s->text));
    }
    end(out);
}

/* The open item is done; cut: the answer ended in it. */
static void close_item(struct job *j, bool cut, struct buf *out) {
    struct responses_state *s = j->state;
    if (s->item == ITEM_NONE) return;
    if (s->item == ITEM_CALL) { /* a call that came before the answer broke off is whole */
        json_t *args = s->text.n ? json_loadb(s->text.p, s->text.n, JSON_ALLOW_NUL, NULL) : NULL;
        cut = cut && !json_is_object(args);
        json_decref(args);
        call_done(s, out);
    } else {
        text_done(j, out);
    }
    const char *status = cut ? "incomplete" : "completed";
    tell_item(j, "output_item.done", false, status, out);
    item(j, false, status, &s->items);
    s->n_item++;
    s->item = ITEM_NONE;
}

static void add(struct job *j, const struct event *e, struct buf *out) {
    struct responses_state *s = j->state;
    buf_add(&s->text, e->text, e->n);
    if (s->item == ITEM_CALL && is_custom(s)) return; /* told as a whole: it is a text inside JSON */
    begin_text(s, "delta", out);
    json_put(out, "delta:%.*s", (int)e->n, e->text);
    if (s->item == ITEM_MESSAGE) logprobs(j, e->token, e->n_token, out);
    end(out);
}

static void responses_event(struct job *j, const struct event *e, struct buf *out) {
    struct responses_state *s = j->state;
    const enum item kind = e->kind == EVENT_REASONING ? ITEM_REASONING : ITEM_MESSAGE;
    const bool length = job_answer(j, 0)->finish == FINISH_LENGTH;
    switch (e->kind) {
    case EVENT_REASONING:
    case EVENT_TEXT:
        if (e->n == 0) return;
        if (s->item != kind) {
            close_item(j, false, out);
            open_item(j, kind, e, out);
        }
        add(j, e, out);
        return;
    case EVENT_CALL:
        close_item(j, false, out);
        open_item(j, ITEM_CALL, e, out);
        return;
    case EVENT_ARGS:
        add(j, e, out);
        return;
    case EVENT_END:
        close_item(j, length, out);
        return;
    case EVENT_PING:
        tell_response(j, "in_progress", "in_progress", NULL, out);
        return;
    case EVENT_DONE:
        tell_response(j, length ? "incomplete" : "completed", length ? "incomplete" : "completed", NULL, out);
        return;
    default:
        return;
    }
}

static void responses_begin(struct job *j, struct buf *out) {
    tell_response(j, "created", "in_progress", NULL, out);
    tell_response(j, "in_progress", "in_progress", NULL, out);
}

static void responses_whole(struct job *j, struct buf *out) {
    response(j, job_answer(j, 0)->finish == FINISH_LENGTH ? "incomplete" : "completed", NULL, out);
    buf_text(out, "\n");
}

static void responses_error(const struct job *j, const struct refusal *r, const char *request_id,
                            bool in_stream, struct buf *out) {
    struct responses_state *s = j ? j->state : NULL;
    if (!in_stream || !s) {
        openai_error(j, r, request_id, in_stream, out);
        return;
    }
    tell_response(j, "failed", "failed", r, out);
}

static void responses_done(struct job *j) {
    struct responses_state *s = j->state;
    json_t *trees[] = {s->echo, s->custom, s->spaces, s->names};
    struct buf *texts[] = {&s->items, &s->text, &s->name, &s->call_id};
    for (int i = 0; i < 4; i++) {
        json_decref(trees[i]);
        buf_free(texts[i]);
    }
}

const struct front_end responses_api = {.prefix = "resp_",
                                        .call_prefix = "call_",
                                        .ordered = true,
                                        .state = sizeof(struct responses_state),
                                        .read = responses_read,
                                        .begin = responses_begin,
                                        .event = responses_event,
                                        .whole = responses_whole,
                                        .error = responses_error,
                                        .done = responses_done};
const struct front_end responses_count = {.prefix = "resp_",
                                          .state = sizeof(struct responses_state),
                                          .read = responses_read,
                                          .reply = openai_count_reply,
                                          .error = responses_error,
                                          .done = responses_done};
