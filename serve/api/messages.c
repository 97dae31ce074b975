/* POST /v1/messages and /v1/messages/count_tokens: the API of Anthropic. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "serve/api/openai.h"
#include "serve/api/pictures.h"
#include "serve/api/routes.h"
#include "serve/core/server.h"
#include "files/json.h"

enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL };
struct messages_state {
    json_t *names; /* of the functions of calls, by the calls' ids */
    bool counts;   /* count_tokens */
    enum block block;
    int index;               /* of the block */
    struct buf blocks, text; /* of a whole answer: its blocks as JSON; text or arguments of the open one */
};

/* ---- content ---- */

/* Adds text of a block behind another's. */
static void add_text(struct buf *b, const json_t *text) {
    if (b->n && json_string_length(text)) buf_text(b, "\n");
    buf_add(b, json_string_value(text) ? json_string_value(text) : "", json_string_length(text));
}

/* The text of search results and documents; false: they have none. */
static bool source_text(struct buf *b, const json_t *block) {
    const json_t *source = json_object_get(block, "source"), *part;
    const json_t *data = json_object_get(source, "data");
    const char *kind = json_string_value(json_object_get(source, "type"));
    size_t i;
    add_text(b, json_object_get(block, "title"));
    if (kind && strcmp(kind, "text") == 0 && json_is_string(data)) {
        add_text(b, data);
        return true;
    }
    const json_t *content = json_object_get(kind ? source : block, "content");
    if (json_is_string(content)) add_text(b, content);
    json_array_foreach((json_t *)content, i, part) add_text(b, json_object_get(part, "text"));
    return json_is_string(content) || json_is_array(content);
}

/* A text, or blocks of text and pictures. */
static enum infer_status plain_text(struct job *j, const char *at, const json_t *v, struct content *c) {
    size_t i;
    json_t *block;
    struct buf *b = &c->text;
    char place[160];
    buf_text(b, "");
    if (!v || json_is_null(v)) return INFER_OK;
    if (!json_is_string(v) && !json_is_array(v))
        return job_invalid(j, at, "'%s' must be a string or an array of blocks", at);
    if (json_is_string(v)) add_text(b, v);
    json_array_foreach((json_t *)v, i, block) {
        const char *type = json_text_of(block, "type");
        const json_t *text = json_object_get(block, "text");
        const char *s = json_string_value(text);
        if (strcmp(type, "tool_reference") == 0)
            add_text(b, json_object_get(block, "tool_name"));
        else if (strcmp(type, "search_result") == 0 || strcmp(type, "document") == 0)
            source_text(b, block);
        else if (content_is_picture(type)) {
            snprintf(place, sizeof place, "%s[%zu]", at, i);
            TRY(content_picture(j, place, block, c));
        } else if (strcmp(type, "text") != 0)
            return content_refuse(j, at, type);
        else if (!s)
            return job_invalid(j, at, "'%s[%zu].text' must be a string", at, i);
        else if (strncmp(s, "x-anthropic-billing-header:", 27) !=
                 0) /* another each time: no prefix would be kept */
            add_text(b, text);
    }
    return b->failed ? err_set(INFER_E_MEMORY, "out of memory: a message") : INFER_OK;
}

static bool says(const struct content *c) { return c->text.n || c->parts; }

/* {role, content: c}; c is emptied. */
static enum infer_status append_content(struct job *j, const char *role, struct content *c) {
    json_t *content = content_take(c);
    return field_message(j, content ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL);
}

static enum infer_status tool_result(struct job *j, const char *at, const json_t *block) {
    struct messages_state *s = j->state;
    struct content c = {0};
    const json_t *id = json_object_get(block, "tool_use_id");
    const json_t *name = json_object_get(s->names, json_string_value(id) ? json_string_value(id) : "");
    char place[128];
    snprintf(place, sizeof place, "%s.content", at);
    enum infer_status st = plain_text(j, place, json_object_get(block, "content"), &c);
    if (!st && json_is_true(json_object_get(block, "is_error")) && !says(&c)) buf_text(&c.text, "error");
    if (!st) st = append_content(j, "tool", &c);
    json_t *m = json_array_get(j->ask.messages, json_array_size(j->ask.messages) - 1);
    if (!st && id) json_object_set(m, "tool_call_id", (json_t *)id);
    if (!st && name) json_object_set(m, "name", (json_t *)name);
    content_free(&c);
    return st;
}

/* Blocks of a user's message: results become messages of their own, in front of what the user says behind them. */
static enum infer_status user_blocks(struct job *j, const char *at, const json_t *content,
                                     struct content *c) {
    size_t i;
    json_t *block;
    char place[96];
    bool any = false;
    json_array_foreach((json_t *)content, i, block) {
        const char *type = json_text_of(block, "type");
        snprintf(place, sizeof place, "%s.content[%zu]", at, i);
        if (strcmp(type, "tool_result") == 0) {
            if (says(c)) TRY(append_content(j, "user", c));
            TRY(tool_result(j, place, block));
            any = true;
        } else if (strcmp(type, "text") == 0 && json_is_string(json_object_get(block, "text"))) {
            add_text(&c->text, json_object_get(block, "text"));
        } else if (strcmp(type, "mid_conv_system") == 0) {
            if (says(c)) TRY(append_content(j, "user", c));
            TRY(plain_text(j, place, json_object_get(block, "content"), c));
            TRY(append_content(j, "system", c));
        } else if (content_is_picture(type)) {
            TRY(content_picture(j, place, block, c));
        } else if ((strcmp(type, "search_result") != 0 && strcmp(type, "document") != 0) ||
                   !source_text(&c->text, block)) {
            return content_refuse(j, place, type);
        }
    }
    return says(c) || !any ? append_content(j, "user", c) : INFER_OK;
}

static enum infer_status tool_use(struct job *j, const char *at, const json_t *block, json_t *calls) {
    struct messages_state *s = j->state;
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = json_object_get(block, "input");
    if (!json_is_string(name) || !json_is_string(id))
        return job_invalid(j, at, "'%s' needs an id and a name", at);
    json_object_set(s->names, json_string_value(id), name);
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name",
                             name, "arguments", json_is_object(input) ? json_incref(input) : json_object());
    return json_array_append_new(calls, call) ? err_set(INFER_E_MEMORY, "out of memory: a message")
                                              : INFER_OK;
}

static enum infer_status assistant_blocks(struct job *j, const char *at, const json_t *content, struct buf *b,
                                          json_t *m) {
    size_t i;
    json_t *block, *calls = json_array();
    struct buf thought = {0};
    char place[96];
    enum infer_status st = INFER_OK;
    json_array_foreach((json_t *)content, i, block) {
        const char *type = json_text_of(block, "type");
        snprintf(place, sizeof place, "%s.content[%zu]", at, i);
        if (strcmp(type, "text") == 0)
            add_text(b, json_object_get(block, "text"));
        else if (strcmp(type, "thinking") == 0)
            add_text(&thought, json_object_get(block, "thinking"));
        else if (strcmp(type, "tool_use") == 0)
            st = tool_use(j, place, block, calls);
        else if (strcmp(type, "redacted_thinking") != 0)
            st = content_refuse(j, place, type);
        if (st) break;
    }
    json_object_set_new(m, "content", json_stringn(b->p ? b->p : "", b->n));
    if (thought.n) json_object_set_new(m, "reasoning_content", json_stringn(thought.p, thought.n));
    if (json_array_size(calls)) json_object_set(m, "tool_calls", calls);
    json_decref(calls);
    buf_free(&thought);
    return st;
}

static enum infer_status read_message(struct job *j, const char *at, const json_t *v) {
    const char *role = json_string_value(json_object_get(v, "role"));
    const json_t *content = json_object_get(v, "content");
    struct content c = {0};
    enum infer_status st;
    if (!role) return job_invalid(j, at, "'%s' must be an object with a role", at);
    if (!json_is_string(content) && !json_is_array(content))
        return job_invalid(j, at, "'%s.content' must be a string or an array of blocks", at);
    if (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0) {
        job_warn(j, at, "the role %.40s is taken for user", role);
        role = "user";
    }
    if (json_is_array(content) && strcmp(role, "assistant") == 0) {
        json_t *m = json_pack("{s:s}", "role", role);
        st = assistant_blocks(j, at, content, &c.text, m);
        if (!st) st = field_message(j, json_incref(m));
        json_decref(m);
    } else if (json_is_array(content) && strcmp(role, "user") == 0) {
        st = user_blocks(j, at, content, &c);
    } else {
        st = plain_text(j, at, content, &c);
        if (!st) st = append_content(j, role, &c);
    }
    content_free(&c);
    return st;
}

/* ---- fields ---- */

static enum infer_status read_messages(struct job *j, const char *at, const json_t *v) {
    return openai_messages(j, at, v, read_message);
}

static enum infer_status read_system(struct job *j, const char *at, const json_t *v) {
    struct content c = {0};
    if (!j->ask.messages) j->ask.messages = json_array();
    enum infer_status st = plain_text(j, at, v, &c);
    if (!st && says(&c) &&
        json_array_insert_new(j->ask.messages, 0,
                              json_pack("{s:s, s:o}", "role", "system", "content", content_take(&c))))
        st = err_set(INFER_E_MEMORY, "out of memory: a message");
    content_free(&c);
    return st;
}

static enum infer_status read_tools(struct job *j, const char *at, const json_t *v) {
    size_t i;
    json_t *tool;
    enum infer_status st = INFER_OK;
    if (!json_is_array(v) || json_array_size(v) > JOB_TOOLS)
        return job_invalid(j, at, "'%s' must be an array of at most %d tools", at, JOB_TOOLS);
    json_t *functions = json_array();
    json_array_foreach((json_t *)v, i, tool) {
        const char *type = json_text_of(tool, "type");
        json_t *schema = json_object_get(tool, "input_schema"), *f;
        if (*type && strcmp(type, "custom") != 0) {
            job_warn(j, at, "the server's own tool %.60s is not here and was left out", type);
            continue;
        }
        f = json_pack("{s:s, s:{s:O?, s:O?, s:O?, s:O?}}", "type", "function", "function", "name",
                      json_object_get(tool, "name"), "description", json_object_get(tool, "description"),
                      "parameters", schema, "strict", json_object_get(tool, "strict"));
        const char *const optional[] = {"name", "description", "parameters", "strict"};
        for (int k = 0; k < 4; k++)
            if (json_is_null(json_object_get(json_object_get(f, "function"), optional[k])))
                json_object_del(json_object_get(f, "function"), optional[k]);
        json_array_append_new(functions, f);
    }
    if (json_array_size(functions)) st = openai_tools(j, at, functions);
    json_decref(functions);
    return st;
}

static enum infer_status read_choice(struct job *j, const char *at, const json_t *v) {
    const char *type = json_text_of(v, "type"), *name = json_string_value(json_object_get(v, "name"));
    if (json_is_true(json_object_get(v, "disable_parallel_tool_use"))) j->ask.parallel_calls = false;
    if (strcmp(type, "tool") != 0) {
        json_t *mode = json_string(type);
        enum infer_status st = openai_tool_choice(j, at, mode);
        json_decref(mode);
        return st;
    }
    if (!name) return job_invalid(j, at, "'%s.name' is missing", at);
    j->ask.tool_choice = TOOLS_NAMED;
    snprintf(j->ask.tool_name, sizeof j->ask.tool_name, "%s", name);
    return INFER_OK;
}

static enum infer_status read_output(struct job *j, const char *at, const json_t *v) {
    const json_t *effort = json_object_get(v, "effort"), *format = json_object_get(v, "format");
    char place[64];
    if (!json_is_object(v)) return job_invalid(j, at, "'%s' must be an object", at);
    snprintf(place, sizeof place, "%s.effort", at);
    if (effort && !json_is_null(effort) && strcmp(j->ask.effort, "none") != 0)
        TRY(openai_effort(j, place, effort));
    snprintf(place, sizeof place, "%s.format", at);
    return format && !json_is_null(format) ? openai_format(j, place, format) : INFER_OK;
}

#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"messages", FIELD_HAND, .hand = read_messages},
    {"system", FIELD_HAND, .hand = read_system},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"max_tokens", FIELD_MOST, .least = 1},
    {"stop_sequences", FIELD_HAND, .hand = field_stop},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"tools", FIELD_HAND, .hand = read_tools},
    {"tool_choice", FIELD_HAND, .hand = read_choice},
    {"thinking", FIELD_HAND, .hand = openai_thinking},
    {"output_config", FIELD_HAND, .hand = read_output},
    {"include_energy", FIELD_BOOL, ASK(energy)},
    {"cache_control metadata service_tier container inference_geo speed diagnostics user_profile_id workspace_id context_management",
     .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

static enum infer_status messages_read(struct job *j, const json_t *body) {
    struct ask *a = &j->ask;
    struct messages_state *s = j->state;
    s->names = json_object();
    s->counts = j->front->reply != NULL;
    a->params.n_predict = -1;
    TRY(fields_read(j, "", body, FIELDS(rows, fields_sampling, fields_undone)));
    if (!json_array_size(json_object_get(body, "messages")))
        return job_invalid(j, "messages", "messages: Field required");
    if (!json_object_get(body, "max_tokens") && !s->counts)
        return job_invalid(j, "max_tokens", "max_tokens: Field required");
    TRY(openai_tool_mode(j, body));
    const json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    a->go_on = role && strcmp(role, "assistant") == 0 && !json_object_get(last, "tool_calls");
    return INFER_OK;
}

/* ---- answers ---- */

/* NULL: no text of the client's did. */
static const char *stopped_by(const struct job *j, const char *text) {
    for (int i = 0; text && i < j->ask.n_stop; i++)
        if (strcmp(j->ask.stop[i], text) == 0) return text;
    return NULL;
}

static void reason(const struct job *j, enum job_finish finish, const char *text, struct buf *out) {
    const char *by = stopped_by(j, text);
    json_put(out, "stop_reason:%s stop_sequence:%s",
             finish == FINISH_LENGTH  ? "max_tokens"
             : finish == FINISH_CALLS ? "tool_use"
             : by                     ? "stop_sequence"
                                      : "end_turn",
             by);
}

/* usage, up to where the caller ends it */
static void usage(int input, int cached, int output, struct buf *out) {
    json_put(
        out,
        "usage:{input_tokens:%d cache_creation_input_tokens:0 cache_read_input_tokens:%d output_tokens:%d",
        input, cached, output);
}

static void head(const struct job *j, struct buf *out) {
    json_put(out, "{id:%s type:'message' role:'assistant' model:%s content:[", j->id, j->server->name);
}

/* What stands behind the reason of an answer's end. */
static void tail(const struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    usage(n->prompt - n->cached, n->cached, n->answer, out);
    openai_energy(j, out);
    json_put(out, "}");
    openai_infer(j, out);
    json_put(out, "}\n");
}

static void messages_whole(struct job *j, struct buf *out) {
    const struct messages_state *s = j->state;
    const struct job_answer *a = job_answer(j, 0);
    head(j, out);
    out->failed |= s->blocks.failed || s->text.failed;
    buf_add(out, s->blocks.p ? s->blocks.p : "", s->blocks.n);
    json_put(out, "]");
    reason(j, a->finish, a->stop_text, out);
    tail(j, out);
}

/* ---- streams ---- */

/* An event up to where its further members begin. */
static void begin(const char *type, struct buf *out) {
    buf_printf(out, "event: %s\ndata: ", type);
    json_put(out, "{type:%s", type);
}

static void ping(struct buf *out) {
    begin("ping", out);
    json_put(out, "}\n\n");
}

static void messages_begin(struct job *j, struct buf *out) {
    begin("message_start", out);
    json_put(out, "message:");
    head(j, out);
    json_put(out, "] stop_reason:null stop_sequence:null");
    usage(job_prompt_tokens(j), 0, 0, out);
    json_put(out, "}}}\n\n");
    ping(out);
}

static void delta(const struct messages_state *s, const char *type, const char *field, const char *text,
                  size_t n, struct buf *out) {
    begin("content_block_delta", out);
    json_put(out, "index:%d delta:{type:%s %s:%.*s}}\n\n", s->index, type, field, (int)n, text);
}

/* The call's input of a whole answer; arguments that broke off are no JSON: their text is told. */
static void input(struct messages_state *s) {
    json_t *args = s->text.n ? json_loadb(s->text.p, s->text.n, JSON_ALLOW_NUL, NULL) : NULL;
    if (json_is_object(args))
        buf_add(&s->blocks, s->text.p, s->text.n);
    else
        json_put(&s->blocks, "{partial_json:%.*s}", BUF_TEXT(s->text));
    json_put(&s->blocks, "}");
    json_decref(args);
}

static void close_block(struct messages_state *s, struct buf *out) {
    if (s->block == BLOCK_NONE) return;
    if (s->block == BLOCK_THINKING) delta(s, "signature_delta", "signature", "infer", 5, out);
    begin("content_block_stop", out);
    json_put(out, "index:%d}\n\n", s->index++);
    if (s->block == BLOCK_CALL) input(s);
    if (s->block == BLOCK_TEXT) json_put(&s->blocks, "{type:'text' text:%.*s}", BUF_TEXT(s->text));
    if (s->block == BLOCK_THINKING)
        json_put(&s->blocks, "{type:'thinking' thinking:%.*s signature:'infer'}", BUF_TEXT(s->text));
    s->text.n = 0;
    s->block = BLOCK_NONE;
}

/* A block of this kind is open, and no other. */
static void open_block(struct messages_state *s, enum block kind, const struct event *e, struct buf *out) {
    if (s->block == kind && kind != BLOCK_CALL) return;
    close_block(s, out);
    s->block = kind;
    begin("content_block_start", out);
    json_put(out, "index:%d content_block:", s->index);
    if (kind == BLOCK_CALL) {
        json_put(out, "{type:'tool_use' id:%s name:%.*s input:{}}", e->call_id, (int)e->n, e->text);
        json_put(&s->blocks, "{type:'tool_use' id:%s name:%.*s input:", e->call_id, (int)e->n, e->text);
    } else {
        json_put(out,
                 kind == BLOCK_TEXT ? "{type:'text' text:''}" : "{type:'thinking' thinking:'' signature:''}");
    }
    json_put(out, "}\n\n");
}

static void messages_event(struct job *j, const struct event *e, struct buf *out) {
    struct messages_state *s = j->state;
    const struct job_answer *a = job_answer(j, 0);
    const bool text = e->kind == EVENT_TEXT;
    switch (e->kind) {
    case EVENT_REASONING:
    case EVENT_TEXT:
        if (e->n == 0) return;
        open_block(s, text ? BLOCK_TEXT : BLOCK_THINKING, e, out);
        delta(s, text ? "text_delta" : "thinking_delta", text ? "text" : "thinking", e->text, e->n, out);
        if (!j->ask.stream) buf_add(&s->text, e->text, e->n);
        return;
    case EVENT_CALL:
        open_block(s, BLOCK_CALL, e, out);
        return;
    case EVENT_ARGS:
        if (!j->ask.stream) buf_add(&s->text, e->text, e->n);
        delta(s, "input_json_delta", "partial_json", e->text, e->n, out);
        return;
    case EVENT_CALL_END:
    case EVENT_END:
        close_block(s, out);
        return;
    case EVENT_PING:
        ping(out);
        return;
    case EVENT_DONE:
        begin("message_delta", out);
        json_put(out, "delta:{");
        reason(j, a->finish, a->stop_text, out);
        json_put(out, "}");
        tail(j, out);
        buf_text(out, "\n");
        begin("message_stop", out);
        json_put(out, "}\n\n");
        return;
    default:
        return;
    }
}

/* ---- errors ---- */

static void messages_error(const struct job *j, const struct refusal *r, const char *request_id,
                           bool in_stream, struct buf *out) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},  {404, "not_found_error"},
                 {408, "timeout_error"},        {413, "request_too_large"}, {429, "rate_limit_error"},
                 {503, "overloaded_error"},     {504, "timeout_error"}};
    const char *type = r->status < 500 ? "invalid_request_error" : "api_error";
    (void)j;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == r->status) type = types[i].type;
    char text[96]; /* clients look for these words */
    snprintf(text, sizeof text, "prompt is too long: %d tokens > %d maximum", r->n_prompt, r->n_limit);
    if (in_stream) buf_text(out, "event: error\ndata: ");
    json_put(out, "{type:'error' error:{type:%s message:%s} request_id:%s}\n", type,
             r->n_prompt ? text : r->message, request_id);
    if (in_stream) buf_text(out, "\n");
}

static void messages_done(struct job *j) {
    struct messages_state *s = j->state;
    json_decref(s->names);
    buf_free(&s->blocks);
    buf_free(&s->text);
}

static enum infer_status count_reply(struct job *j, struct buf *out) {
    json_put(out, "{input_tokens:%d}\n", job_prompt_tokens(j));
    return INFER_OK;
}

const struct front_end messages_api = {.prefix = "msg_",
                                       .call_prefix = "toolu_",
                                       .ordered = true,
                                       .state = sizeof(struct messages_state),
                                       .read = messages_read,
                                       .begin = messages_begin,
                                       .event = messages_event,
                                       .whole = messages_whole,
                                       .error = messages_error,
                                       .done = messages_done};
const struct front_end messages_count = {.prefix = "msg_",
                                         .state = sizeof(struct messages_state),
                                         .read = messages_read,
                                         .reply = count_reply,
                                         .error = messages_error,
                                         .done = messages_done};
