/* What POST /v1/responses asks for: items become messages. */
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "serve/api/pictures.h"
#include "serve/api/responses_int.h"
#include "files/json.h"

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* A text, or parts of text, as one; with pictures parts. errors: refusals */
static enum infer_status joined(struct job *j, const char *at, const json_t *v, json_t **out) {
    size_t i;
    json_t *part;
    struct content c = {0};
    char place[128];
    enum infer_status st = INFER_OK;
    if (json_is_string(v)) buf_add(&c.text, json_string_value(v), json_string_length(v));
    if (v && !json_is_string(v) && !json_is_array(v) && !json_is_null(v))
        st = job_invalid(j, at, "'%s' must be a string or an array of parts", at);
    json_array_foreach((json_t *)v, i, part) {
        const char *type = json_text_of(part, "type");
        const json_t *text = json_object_get(part, is(type, "refusal") ? "refusal" : "text");
        snprintf(place, sizeof place, "%s[%zu]", at, i);
        if (content_is_picture(type))
            st = content_picture(j, place, part, &c);
        else if (strstr(type, "file") || strstr(type, "audio") || !json_is_string(text))
            st = content_refuse(j, place, type);
        else
            buf_add(&c.text, json_string_value(text), json_string_length(text));
        if (st) break;
    }
    *out = st ? NULL : content_take(&c);
    content_free(&c);
    return st ? st : *out ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a message");
}

/* The assistant's message that items behind each other are of: reasoning, text, calls. text: one that has none yet. */
static json_t *assistant(struct job *j, bool text) {
    json_t *last = json_array_get(j->ask.messages, json_array_size(j->ask.messages) - 1);
    const bool fits = is(json_text_of(last, "role"), "assistant") &&
                      (!text || (!*json_text_of(last, "content") && !json_object_get(last, "tool_calls")));
    if (fits) return last;
    json_array_append_new(j->ask.messages, json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    return json_array_get(j->ask.messages, json_array_size(j->ask.messages) - 1);
}

static enum infer_status read_text_item(struct job *j, const char *at, const json_t *item) {
    const char *role = json_text_of(item, "role");
    json_t *content;
    char place[96];
    snprintf(place, sizeof place, "%s.content", at);
    if (!is(role, "user") && !is(role, "assistant") && !is(role, "system") && !is(role, "developer"))
        return job_invalid(j, at, "'%s.role' is none of user, assistant, system, developer", at);
    TRY(joined(j, place, json_object_get(item, "content"), &content));
    if (!is(role, "assistant"))
        return field_message(j, json_pack("{s:s, s:o}", "role", role, "content", content));
    json_object_set_new(assistant(j, true), "content", content);
    return INFER_OK;
}

static enum infer_status read_reasoning_item(struct job *j, const json_t *item) {
    struct buf b = {0};
    const json_t *part;
    size_t i;
    const char *const where[] = {"content", "summary"};
    for (int k = 0; k < 2 && b.n == 0; k++)
        json_array_foreach((json_t *)json_object_get(item, where[k]), i, part) {
            if (b.n) buf_text(&b, "\n");
            buf_text(&b, json_text_of(part, "text"));
        }
    if (b.n) json_object_set_new(assistant(j, true), "reasoning_content", json_stringn(b.p, b.n));
    buf_free(&b);
    return INFER_OK;
}

static enum infer_status read_call_item(struct job *j, const char *at, const json_t *item, bool custom) {
    struct responses_state *s = j->state;
    const char *name = json_text_of(item, "name"), *id = json_text_of(item, "call_id"),
               *space = json_text_of(item, "namespace");
    char full[320];
    snprintf(full, sizeof full, "%.120s%s%.180s", space, *space ? "__" : "", name);
    if (!*name || !*id) return job_invalid(j, at, "'%s' needs a name and a call_id", at);
    json_t *m = assistant(j, false), *calls = json_object_get(m, "tool_calls");
    if (!calls) json_object_set_new(m, "tool_calls", calls = json_array());
    json_t *args = custom ? json_pack("{s:s}", "input", json_text_of(item, "input"))
                          : json_string(json_text_of(item, "arguments"));
    json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function",
                                           "function", "name", full, "arguments", args));
    json_object_set_new(s->names, id, json_string(full));
    return INFER_OK;
}

static enum infer_status read_output_item(struct job *j, const char *at, const json_t *item) {
    struct responses_state *s = j->state;
    const char *id = json_text_of(item, "call_id"), *name = json_string_value(json_object_get(s->names, id));
    json_t *content;
    char place[96];
    snprintf(place, sizeof place, "%s.output", at);
    TRY(joined(j, place, json_object_get(item, "output"), &content));
    json_t *m = json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", content);
    if (name) json_object_set_new(m, "name", json_string(name));
    return field_message(j, m);
}

static enum infer_status read_item(struct job *j, const char *at, const json_t *item) {
    const char *type = json_text_of(item, "type");
    if (!json_is_object(item)) return job_invalid(j, at, "'%s' must be an object", at);
    if (is(type, "message") || !*type) return read_text_item(j, at, item);
    if (is(type, "reasoning")) return read_reasoning_item(j, item);
    if (is(type, "function_call") || is(type, "custom_tool_call"))
        return read_call_item(j, at, item, is(type, "custom_tool_call"));
    if (is(type, "function_call_output") || is(type, "custom_tool_call_output"))
        return read_output_item(j, at, item);
    if (is(type, "item_reference"))
        return job_refuse(j, 400, "unsupported_parameter", at,
                          "'%s' refers to an item, and nothing is stored here", at);
    job_warn(j, at, "items of type %.40s are not read here and were left out", type);
    return INFER_OK;
}

static enum infer_status read_input(struct job *j, const char *at, const json_t *v) {
    if (!j->ask.messages) j->ask.messages = json_array();
    if (json_is_string(v)) return field_message(j, json_pack("{s:s, s:O}", "role", "user", "content", v));
    if (!json_is_array(v)) return job_invalid(j, at, "'%s' must be a string or an array of items", at);
    return field_each(j, at, v, 0, JOB_MESSAGES, "items", read_item);
}

static enum infer_status read_instructions(struct job *j, const char *at, const json_t *v) {
    json_t *content;
    if (!j->ask.messages) j->ask.messages = json_array();
    TRY(joined(j, at, v, &content));
    if (json_is_string(content) && json_string_length(content) == 0) {
        json_decref(content);
        return INFER_OK;
    }
    return json_array_insert_new(j->ask.messages, 0,
                                 json_pack("{s:s, s:o}", "role", "system", "content", content))
               ? err_set(INFER_E_MEMORY, "out of memory: a message")
               : INFER_OK;
}

/* ---- tools ---- */

/* {type function, function {..}} of a flat tool, appended to `to`; space NULL: in none. */
static void add_tool(struct responses_state *s, json_t *to, const json_t *tool, const char *space) {
    static const char *const keys[] = {"description", "parameters", "strict", "format"};
    const char *type = json_text_of(tool, "type"), *name = json_text_of(tool, "name");
    char full[320];
    snprintf(full, sizeof full, "%.120s%s%.180s", space ? space : "", space ? "__" : "", name);
    json_t *f = json_pack("{s:s}", "name", full);
    for (int k = 0; k < 4; k++) {
        json_t *v = json_object_get(tool, keys[k]);
        if (v && !json_is_null(v)) json_object_set(f, keys[k], v);
    }
    if (is(type, "custom")) json_object_set_new(s->custom, full, json_true());
    if (space)
        json_object_set_new(s->spaces, full, json_pack("{s:s, s:s}", "namespace", space, "name", name));
    json_array_append_new(
        to, json_pack("{s:s, s:o}", "type", type, is(type, "custom") ? "custom" : "function", f));
}

static enum infer_status read_tools(struct job *j, const char *at, const json_t *v) {
    struct responses_state *s = j->state;
    json_t *tools = json_array(), *tool, *inner;
    size_t i, k;
    if (!json_is_array(v)) {
        json_decref(tools);
        return job_invalid(j, at, "'%s' must be an array", at);
    }
    json_array_foreach((json_t *)v, i, tool) {
        const char *type = json_text_of(tool, "type");
        if (is(type, "function") || is(type, "custom"))
            add_tool(s, tools, tool, NULL);
        else if (is(type, "namespace"))
            json_array_foreach(json_object_get(tool, "tools"), k, inner)
                add_tool(s, tools, inner, json_text_of(tool, "name"));
        else
            job_warn(j, at, "the tool %.60s is not here and was left out", type);
    }
    enum infer_status st = json_array_size(tools) ? openai_tools(j, at, tools) : INFER_OK;
    json_decref(tools);
    return st;
}

/* ---- other fields ---- */

static enum infer_status read_text(struct job *j, const char *at, const json_t *v) {
    const json_t *format = json_object_get(v, "format");
    char place[64];
    if (!json_is_object(v)) return job_invalid(j, at, "'%s' must be an object", at);
    snprintf(place, sizeof place, "%s.format", at);
    return format && !json_is_null(format) ? openai_format(j, place, format) : INFER_OK;
}

static enum infer_status read_effort(struct job *j, const char *at, const json_t *v) {
    struct responses_state *s = j->state;
    const json_t *effort = json_object_get(v, "effort"), *most = json_object_get(v, "max_tokens");
    if (!json_is_object(v)) return job_invalid(j, at, "'%s' must be an object", at);
    s->summary = json_is_string(json_object_get(v, "summary")) ||
                 json_is_string(json_object_get(v, "generate_summary"));
    if (most && !json_is_null(most)) TRY(field_int(j, at, most, 0, 1e9, &j->ask.n_think));
    return effort && !json_is_null(effort) ? openai_effort(j, at, effort) : INFER_OK;
}

static enum infer_status read_include(struct job *j, const char *at, const json_t *v) {
    struct responses_state *s = j->state;
    size_t i;
    json_t *what;
    if (!json_is_array(v)) return job_invalid(j, at, "'%s' must be an array", at);
    json_array_foreach((json_t *)v, i, what) if (json_is_string(what) &&
                                                 is(json_string_value(what), "message.output_text.logprobs"))
        s->logprobs = true;
    return INFER_OK;
}

static enum infer_status read_background(struct job *j, const char *at, const json_t *v) {
    return json_is_true(v) ? job_refuse(j, 400, "unsupported_parameter", at,
                                        "'%s' is not supported: nothing is stored here", at)
                           : INFER_OK;
}

/* auto: a prompt that fits is as without; one that does not is refused as ever, for nothing is cut off. */
static enum infer_status read_truncation(struct job *j, const char *at, const json_t *v) {
    const char *word = json_string_value(v);
    return word && (is(word, "disabled") || is(word, "auto"))
               ? INFER_OK
               : job_invalid(j, at, "'%s' is none of auto, disabled", at);
}

#define OWN(field) .offset = offsetof(struct responses_state, field), .own = true
#define ASK(field) .offset = offsetof(struct ask, field)
static const struct field rows[] = {
    {"input", FIELD_HAND, .hand = read_input},
    {"instructions", FIELD_HAND, .hand = read_instructions},
    {"model", FIELD_TEXT, 0, 256, ASK(model)},
    {"max_output_tokens", FIELD_MOST, .least = 1},
    {"parallel_tool_calls", FIELD_BOOL, ASK(parallel_calls)},
    {"tools", FIELD_HAND, .hand = read_tools},
    {"tool_choice", FIELD_HAND, .hand = openai_tool_choice},
    {"stream", FIELD_BOOL, ASK(stream)},
    {"text", FIELD_HAND, .hand = read_text},
    {"reasoning", FIELD_HAND, .hand = read_effort},
    {"include", FIELD_HAND, .hand = read_include},
    {"top_logprobs", FIELD_INT, 0, INFER_LOGPROBS_MAX, OWN(top_logprobs)},
    {"truncation", FIELD_HAND, .hand = read_truncation},
    {"background", FIELD_HAND, .hand = read_background},
    {"include_energy", FIELD_BOOL, ASK(energy)},
    {"previous_response_id", FIELD_REFUSE, .why = "is not supported: nothing is stored here"},
    {"conversation", FIELD_REFUSE, .why = "is not supported: nothing is stored here"},
    {"prompt", FIELD_REFUSE, .why = "is not supported: nothing is stored here"},
    {"max_tool_calls", .type = FIELD_SILENT}, /* of tools of OpenAI's own */
    {"metadata store prompt_cache_key prompt_cache_retention user safety_identifier client_metadata stream_options",
     .type = FIELD_SILENT},
    {.name = NULL},
};
#undef ASK

enum infer_status responses_read(struct job *j, const json_t *body) {
    static const char *const echoed[] = {"instructions",      "metadata",  "tools",
                                         "tool_choice",       "text",      "reasoning",
                                         "max_output_tokens", "truncation"};
    struct ask *a = &j->ask;
    struct responses_state *s = j->state;
    s->echo = json_object(), s->custom = json_object(), s->spaces = json_object(), s->names = json_object();
    for (size_t i = 0; i < sizeof echoed / sizeof *echoed; i++) {
        json_t *v = json_object_get(body, echoed[i]);
        if (v) json_object_set(s->echo, echoed[i], v);
    }
    a->params.n_predict = -1;
    TRY(fields_read(j, "", body, FIELDS(rows, fields_sampling, fields_undone)));
    if (!a->messages) a->messages = json_array();
    TRY(openai_tool_mode(j, body));
    if (s->logprobs) a->params.n_logprob = s->top_logprobs;
    const json_t *last = json_array_get(a->messages, json_array_size(a->messages) - 1);
    if (!last || is(json_text_of(last, "role"), "system")) /* a client tries whether anyone is there */
        TRY(field_message(j, json_pack("{s:s, s:s}", "role", "user", "content", "")));
    return INFER_OK;
}
