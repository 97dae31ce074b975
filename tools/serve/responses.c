/* POST /v1/responses and /v1/responses/input_tokens: the newer API of OpenAI. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "tools/serve/responses_int.h"
#include "tools/serve/routes.h"
#include "tools/serve/server.h"

/* ---- the response object ---- */

/* "name":what the client said, or otherwise. */
static void echo(const struct responses_state *s, const char *name, const char *otherwise, struct buf *out) {
    json_t *v = json_object_get(s->echo, name);
    char *text = NULL;
    if (v && !json_is_null(v) &&
        json_write(&text, json_incref(v), mem_failed(), JSON_COMPACT | JSON_ENCODE_ANY, "a field"))
        out->failed = true;
    buf_printf(out, ",\"%s\":", name);
    buf_text(out, text ? text : otherwise);
    mem_free(text);
}

/* status: "in_progress", "completed", "incomplete", "failed"; r: why it failed, or NULL */
static void response(const struct job *j, const char *status, const struct refusal *r, struct buf *out) {
    const struct responses_state *s = j->state;
    const struct job_counts *n = &j->counts;
    const struct ask *a = &j->ask;
    const bool done = strcmp(status, "in_progress") != 0;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%ld,\"completed_at\":", j->id,
               j->created);
    if (strcmp(status, "completed") == 0)
        buf_printf(out, "%ld", j->created + (long)((n->queue_ms + n->prompt_ms + n->answer_ms) / 1e3));
    else
        buf_text(out, "null");
    buf_printf(out, ",\"status\":\"%s\",\"error\":", status);
    if (r) {
        buf_text(out, "{\"code\":");
        buf_json_text(out, r->code ? r->code : "server_error");
        buf_text(out, ",\"message\":");
        buf_json_text(out, r->message);
        buf_text(out, "}");
    } else {
        buf_text(out, "null");
    }
    buf_printf(out, ",\"incomplete_details\":%s",
               strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    echo(s, "instructions", "null", out);
    echo(s, "metadata", "{}", out);
    buf_text(out, ",\"model\":");
    buf_json_text(out, j->server->name);
    buf_text(out, ",\"output\":[");
    out->failed |= s->items.failed;
    buf_add(out, s->items.p ? s->items.p : "", s->items.n);
    buf_printf(out, "],\"parallel_tool_calls\":%s,\"temperature\":", a->parallel_calls ? "true" : "false");
    buf_json_float(out, a->sample.temp);
    buf_text(out, ",\"top_p\":");
    buf_json_float(out, a->sample.top_p);
    echo(s, "tool_choice", "\"auto\"", out);
    echo(s, "tools", "[]", out);
    echo(s, "max_output_tokens", "null", out);
    echo(s, "reasoning", "{\"effort\":null,\"summary\":null}", out);
    echo(s, "text", "{\"format\":{\"type\":\"text\"}}", out);
    echo(s, "truncation", "\"disabled\"", out);
    buf_text(out, ",\"previous_response_id\":null,\"store\":false,\"background\":"
                  "false,\"service_tier\":\"default\",\"usage\":");
    if (done && !r)
        buf_printf(out,
                   "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_"
                   "tokens\":0},\"output_tokens\":%d,"
                   "\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d}",
                   n->prompt, n->cached, n->answer, n->reasoning, n->prompt + n->answer);
    else
        buf_text(out, "null");
    if (done) {
        buf_text(out, ",");
        openai_infer(j, out);
    }
    buf_text(out, "}");
}

/* ---- events ---- */

/* event: response.TYPE, and its data up to where the caller goes on; end() ends it. */
static void begin(struct responses_state *s, const char *type, struct buf *out) {
    buf_printf(out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d", type, type,
               s->sequence++);
}
static void end(struct buf *out) { buf_text(out, "}\n\n"); }

static void tell_response(struct job *j, const char *type, const char *status, const struct refusal *r,
                          struct buf *out) {
    begin(j->state, type, out);
    buf_text(out, ",\"response\":");
    response(j, status, r, out);
    end(out);
}

/* The beginning of an event of the open item; inner: the index inside the item, NULL: none. */
static void begin_item(struct responses_state *s, const char *type, const char *inner, struct buf *out) {
    begin(s, type, out);
    buf_printf(out, ",\"item_id\":\"%s\",\"output_index\":%d", s->id, s->n_item);
    if (inner) buf_printf(out, ",\"%s\":0", inner);
}

static bool is_custom(const struct responses_state *s) {
    return s->name.p && json_object_get(s->custom, s->name.p);
}

/* "input" of a custom tool's arguments. */
static void custom_input(const struct responses_state *s, struct buf *out) {
    json_t *args = s->text.n ? json_loadb(s->text.p, s->text.n, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *input = json_object_get(args, "input");
    if (json_is_string(input))
        buf_json(out, json_string_value(input), json_string_length(input));
    else
        buf_json(out, s->text.p ? s->text.p : "", s->text.n);
    json_decref(args);
}

/* A part of an item: its text, or (empty) as it begins. */
static void part(struct job *j, bool empty, struct buf *out) {
    struct responses_state *s = j->state;
    const bool message = s->item == ITEM_MESSAGE;
    buf_printf(out, "{\"type\":\"%s\",\"text\":",
               message      ? "output_text"
               : s->summary ? "summary_text"
                            : "reasoning_text");
    buf_json(out, empty || !s->text.p ? "" : s->text.p, empty ? 0 : s->text.n);
    if (message) {
        const struct job_answer *a = job_answer(j, 0);
        buf_text(out, ",\"annotations\":[],\"logprobs\":");
        if (!empty && s->logprobs)
            openai_logprobs(j, a->token, a->n_token, out);
        else
            buf_text(out, "[]");
    }
    buf_text(out, "}");
}

static void call_item(struct responses_state *s, bool empty, const char *status, struct buf *out) {
    const json_t *space = s->name.p ? json_object_get(s->spaces, s->name.p) : NULL;
    const char *name = space ? json_string_value(json_object_get(space, "name")) : s->name.p;
    const bool custom = is_custom(s);
    buf_printf(out,
               "{\"type\":\"%s\",\"id\":\"%s\",\"call_id\":", custom ? "custom_tool_call" : "function_call",
               s->id);
    buf_json_text(out, s->call_id.p);
    buf_text(out, ",\"name\":");
    buf_json_text(out, name);
    if (space) {
        buf_text(out, ",\"namespace\":");
        buf_json_text(out, json_string_value(json_object_get(space, "namespace")));
    }
    buf_printf(out, ",\"%s\":", custom ? "input" : "arguments");
    if (empty)
        buf_text(out, "\"\"");
    else if (custom)
        custom_input(s, out);
    else
        buf_json(out, s->text.p ? s->text.p : "", s->text.n);
    buf_printf(out, ",\"status\":\"%s\"}", status);
}

static void item(struct job *j, bool empty, const char *status, struct buf *out) {
    struct responses_state *s = j->state;
    if (s->item == ITEM_CALL) {
        call_item(s, empty, status, out);
        return;
    }
    const bool message = s->item == ITEM_MESSAGE, shown = message || !s->summary;
    buf_printf(out, "{\"type\":\"%s\",\"id\":\"%s\",\"status\":\"%s\"", message ? "message" : "reasoning",
               s->id, status);
    buf_text(out, message ? ",\"role\":\"assistant\"" : shown ? ",\"summary\":[]" : "");
    buf_text(out, shown ? ",\"content\":[" : ",\"summary\":[");
    if (!empty) part(j, false, out);
    buf_text(out, "]}");
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
        buf_printf(&s->call_id, "%s%s", e->own_id ? "" : "call_", e->call_id);
    }
    begin(s, "output_item.added", out);
    buf_printf(out, ",\"output_index\":%d,\"item\":", s->n_item);
    item(j, true, "in_progress", out);
    end(out);
    if (kind == ITEM_CALL) return;
    const bool summary = kind == ITEM_REASONING && s->summary;
    begin_item(s, summary ? "reasoning_summary_part.added" : "content_part.added",
               summary ? "summary_index" : "content_index", out);
    buf_text(out, ",\"part\":");
    part(j, true, out);
    end(out);
}

/* Text of the open item's end: .. .done events. */
static void text_done(struct job *j, struct buf *out) {
    struct responses_state *s = j->state;
    const bool summary = s->item == ITEM_REASONING && s->summary;
    const char *index = summary ? "summary_index" : "content_index";
    begin_item(s,
               s->item == ITEM_MESSAGE ? "output_text.done"
               : summary               ? "reasoning_summary_text.done"
                                       : "reasoning_text.done",
               index, out);
    buf_text(out, ",\"text\":");
    buf_json(out, s->text.p ? s->text.p : "", s->text.n);
    if (s->item == ITEM_MESSAGE) {
        const struct job_answer *a = job_answer(j, 0);
        buf_text(out, ",\"logprobs\":");
        if (s->logprobs)
            openai_logprobs(j, a->token, a->n_token, out);
        else
            buf_text(out, "[]");
    }
    end(out);
    begin_item(s, summary ? "reasoning_summary_part.done" : "content_part.done", index, out);
    buf_text(out, ",\"part\":");
    part(j, false, out);
    end(out);
}

static void call_done(struct responses_state *s, struct buf *out) {
    if (is_custom(s)) {
        begin_item(s, "custom_tool_call_input.delta", NULL, out);
        buf_text(out, ",\"delta\":");
        custom_input(s, out);
        end(out);
        begin_item(s, "custom_tool_call_input.done", NULL, out);
        buf_text(out, ",\"input\":");
        custom_input(s, out);
        end(out);
        return;
    }
    begin_item(s, "function_call_arguments.done", NULL, out);
    buf_text(out, ",\"name\":");
    buf_json_text(out, s->name.p);
    buf_text(out, ",\"arguments\":");
    buf_json(out, s->text.p ? s->text.p : "", s->text.n);
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
    begin(s, "output_item.done", out);
    buf_printf(out, ",\"output_index\":%d,\"item\":", s->n_item);
    item(j, false, status, out);
    end(out);
    if (s->n_item) buf_text(&s->items, ",");
    item(j, false, status, &s->items);
    s->n_item++;
    s->item = ITEM_NONE;
}

static void add(struct job *j, const struct event *e, struct buf *out) {
    struct responses_state *s = j->state;
    const bool call = s->item == ITEM_CALL, message = s->item == ITEM_MESSAGE,
               summary = s->item == ITEM_REASONING && s->summary;
    buf_add(&s->text, e->text, e->n);
    if (call && is_custom(s)) return; /* told as a whole: it is a text inside JSON */
    begin_item(s,
               call      ? "function_call_arguments.delta"
               : message ? "output_text.delta"
               : summary ? "reasoning_summary_text.delta"
                         : "reasoning_text.delta",
               call      ? NULL
               : summary ? "summary_index"
                         : "content_index",
               out);
    buf_text(out, ",\"delta\":");
    buf_json(out, e->text, e->n);
    if (message) {
        buf_text(out, ",\"logprobs\":");
        if (s->logprobs)
            openai_logprobs(j, e->token, e->n_token, out);
        else
            buf_text(out, "[]");
    }
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
    begin(s, "failed", out);
    buf_text(out, ",\"response\":");
    response(j, "failed", r, out);
    end(out);
}

static void responses_done(struct job *j) {
    struct responses_state *s = j->state;
    if (!s) return;
    json_t *trees[] = {s->echo, s->custom, s->spaces, s->names};
    struct buf *texts[] = {&s->items, &s->text, &s->name, &s->call_id};
    for (int i = 0; i < 4; i++) {
        json_decref(trees[i]);
        buf_free(texts[i]);
    }
    mem_free(s);
}

static enum infer_status count_reply(struct job *j, struct buf *out) {
    int n = 0;
    for (int i = 0; i < j->n_prompt; i++) n += j->prompt[i].n;
    buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%d}\n", n);
    return INFER_OK;
}

const struct front_end responses_api = {.prefix = "resp_",
                                        .ordered = true,
                                        .read = responses_read,
                                        .begin = responses_begin,
                                        .event = responses_event,
                                        .whole = responses_whole,
                                        .error = responses_error,
                                        .done = responses_done};
const struct front_end responses_count = {.prefix = "resp_",
                                          .read = responses_read,
                                          .reply = count_reply,
                                          .error = responses_error,
                                          .done = responses_done};
