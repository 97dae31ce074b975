#include "serve/api/openai.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "serve/api/pictures.h"
#include "serve/core/server.h"
#include "files/json.h"

/* ---- answers ---- */

void openai_error(const struct job *j, const struct refusal *r, const char *request_id, bool in_stream,
                  struct buf *out) {
    (void)j, (void)request_id;
    if (in_stream) buf_text(out, "data: ");
    json_put(out, "{error:{message:%s type:%s param:%s code:%s}}\n", r->message, r->type,
             *r->param ? r->param : NULL, r->code);
    if (in_stream) buf_text(out, "\n");
}

void openai_energy(const struct job *j, struct buf *out) {
    if (j->ask.energy) json_put(out, "energy_joules:%.4f", j->counts.joules);
}

void openai_usage(const struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    json_put(out,
             "usage:{prompt_tokens:%d completion_tokens:%d total_tokens:%d "
             "prompt_tokens_details:{cached_tokens:%d} "
             "completion_tokens_details:{reasoning_tokens:%d accepted_prediction_tokens:%d "
             "rejected_prediction_tokens:%d}",
             n->prompt, n->answer, n->prompt + n->answer, n->cached, n->reasoning, n->right,
             n->guessed - n->right);
    openai_energy(j, out);
    json_put(out, "}");
}

enum infer_status openai_count_reply(struct job *j, struct buf *out) {
    json_put(out, "{object:'response.input_tokens' input_tokens:%d}\n", job_prompt_tokens(j));
    return INFER_OK;
}

static double per(double a, double b) { return b > 0 ? a / b : 0; }

void openai_timings(const struct job *j, struct buf *out) {
    const struct job_counts *n = &j->counts;
    const int computed = n->prompt - n->cached;
    json_put(out,
             "timings:{cache_n:%d prompt_n:%d prompt_ms:%.3f prompt_per_token_ms:%.3f prompt_per_second:%.2f "
             "predicted_n:%d predicted_ms:%.3f predicted_per_token_ms:%.3f predicted_per_second:%.2f",
             n->cached, computed, n->prompt_ms, per(n->prompt_ms, computed),
             per(1e3 * computed, n->prompt_ms), n->answer, n->answer_ms, per(n->answer_ms, n->n_decoded),
             per(1e3 * n->n_decoded, n->answer_ms));
    if (n->guessed) json_put(out, "draft_n:%d draft_n_accepted:%d", n->guessed, n->right);
    json_put(out, "}");
}

void openai_warnings(const struct job *j, struct buf *out) {
    json_put(out, "warnings:[");
    for (const char *p = j->warnings.n ? j->warnings.p : NULL; p;) {
        const char *end = strstr(p, "; ");
        json_put(out, "%.*s", end ? (int)(end - p) : (int)strlen(p), p);
        p = end ? end + 2 : NULL;
    }
    json_put(out, "]");
}

void openai_infer(const struct job *j, struct buf *out) {
    json_put(out, "infer:{seed:%llu queue_ms:%.3f", (unsigned long long)j->seed, j->counts.queue_ms);
    openai_warnings(j, out);
    json_put(out, "}");
}

void openai_head(const struct job *j, const char *object, struct buf *out) {
    json_put(out, "{id:%s object:%s created:%ld model:%s system_fingerprint:%s", j->id, object, j->created,
             j->server->name, j->server->fingerprint);
}

void openai_end(const struct job *j, struct buf *out) {
    json_put(out, "]");
    openai_usage(j, out);
    openai_timings(j, out);
    openai_infer(j, out);
    json_put(out, "}\n");
}

void openai_chunk_end(const struct job *j, const struct event *e, struct buf *out) {
    json_put(out, "]");
    if (e && e->kind == EVENT_END && e->looped)
        json_put(out, "infer:{warnings:[%s]}", "loop_stop: " JOB_LOOPED);
    if (j->ask.usage_chunk) json_put(out, "usage:null");
    json_put(out, "}\n\n");
}

void openai_done(const struct job *j, const char *object, struct buf *out) {
    if (j->ask.usage_chunk) {
        buf_text(out, "data: ");
        openai_head(j, object, out);
        json_put(out, "choices:[]");
        openai_usage(j, out);
        openai_timings(j, out);
        json_put(out, "}\n\n");
    }
    buf_text(out, "data: [DONE]\n\n");
}

void openai_token(struct buf *out, const char *piece, size_t n) {
    struct buf bytes = {0};
    if (text_valid_utf8(piece, n) != n) {
        buf_text(&bytes, "bytes:");
        for (size_t i = 0; i < n; i++) buf_printf(&bytes, "\\x%02x", (unsigned char)piece[i]);
        out->failed |= bytes.failed;
    }
    json_put(out, "%.*s", bytes.n ? (int)bytes.n : (int)n, bytes.n ? bytes.p : piece);
    buf_free(&bytes);
}

void openai_ids(const char *name, const struct event_token *t, int n, struct buf *out) {
    json_put(out, "%s:[", name);
    for (int i = 0; i < n; i++) json_put(out, "%d", t[i].id);
    json_put(out, "]");
}

static void add_token(struct buf *out, const char *piece, size_t n, float logprob) {
    json_put(out, "{token:");
    openai_token(out, piece, n);
    json_put(out, "logprob:%g bytes:[", isfinite(logprob) ? (double)logprob : -9999);
    for (size_t i = 0; i < n; i++) json_put(out, "%d", (unsigned char)piece[i]);
    json_put(out, "]");
}

void openai_logprobs(const struct job *j, const struct event_token *t, int n, struct buf *out) {
    json_put(out, "[");
    for (int i = 0; i < n; i++) {
        add_token(out, t[i].piece, t[i].n, t[i].logprob);
        json_put(out, "top_logprobs:[");
        for (int k = 0; k < t[i].n_top && t[i].top[k].id >= 0; k++) {
            size_t len;
            const char *piece = infer_piece(j->server->model, t[i].top[k].id, true, false, &len);
            add_token(out, piece, len, t[i].top[k].logprob);
            json_put(out, "}");
        }
        json_put(out, "]}");
    }
    json_put(out, "]");
}

void openai_finish(enum job_finish f, struct buf *out) {
    static const char *const words[] = {NULL, "stop", "length", "tool_calls"};
    json_put(out, "finish_reason:%s", words[f]);
}

void openai_stop_reason(const char *stop_text, int32_t stop_id, struct buf *out) {
    if (stop_id >= 0)
        json_put(out, "stop_reason:%d", stop_id);
    else
        json_put(out, "stop_reason:%s", stop_text);
}

/* ---- tools ---- */

static bool good_name(const char *name, size_t n) {
    if (n < 1 || n > 128) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-") == n;
}

static enum infer_status add_function(struct job *j, const char *at, const char *name, json_t *function) {
    if (!name || !good_name(name, strlen(name))) {
        json_decref(function);
        return job_invalid(j, at,
                           "'%s': a function needs a name of 1 to 128 letters, digits and any of _.:/-", at);
    }
    if (!j->ask.tools) j->ask.tools = json_array();
    if (json_array_append_new(j->ask.tools,
                              json_pack("{s:s, s:o}", "type", "function", "function", function)))
        return err_set(INFER_E_MEMORY, "out of memory: tools");
    return INFER_OK;
}

static enum infer_status add_tool(struct job *j, const char *at, const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *f = json_object_get(tool, type && strcmp(type, "custom") == 0 ? "custom" : "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const json_t *parameters = json_object_get(f, "parameters");
    if (type && strcmp(type, "custom") == 0) {
        if (json_object_get(f, "format")) job_warn(j, at, "the format of a custom tool is not held to");
        json_t *function =
            json_pack("{s:s, s:s?, s:{s:s, s:{s:{s:s}}, s:[s]}}", "name", name ? name : "", "description",
                      json_string_value(json_object_get(f, "description")), "parameters", "type", "object",
                      "properties", "input", "type", "string", "required", "input");
        return add_function(j, at, name, function);
    }
    if (!type || strcmp(type, "function") != 0 || !json_is_object(f))
        return job_invalid(j, at, "'%s' must be {\"type\": \"function\", \"function\": {..}}", at);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return job_invalid(j, at, "'%s': parameters must be an object, a JSON Schema", at);
    if (json_is_true(json_object_get(f, "strict"))) j->ask.strict_tools = true;
    return add_function(j, at, name, json_deep_copy(f));
}

enum infer_status openai_tools(struct job *j, const char *at, const json_t *v) {
    return field_each(j, at, v, 0, JOB_TOOLS, "tools", add_tool);
}

static enum infer_status choose_mode(struct job *j, const char *at, const char *mode) {
    static const struct {
        const char *name;
        enum ask_tools is;
    } modes[] = {
        {"none", TOOLS_NONE}, {"auto", TOOLS_AUTO}, {"required", TOOLS_REQUIRED}, {"any", TOOLS_REQUIRED}};
    for (size_t i = 0; mode && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, mode) == 0) {
            j->ask.tool_choice = modes[i].is;
            return INFER_OK;
        }
    return job_invalid(j, at, "'%s' is none of none, auto, required and {type: function, function: {name}}",
                       at);
}

enum infer_status openai_tool_choice(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (json_is_string(v)) return choose_mode(j, at, json_string_value(v));
    if (type && strcmp(type, "allowed_tools") == 0) {
        const json_t *allowed = json_object_get(v, "allowed_tools");
        job_warn(j, at, "all tools are allowed, not those listed alone");
        return choose_mode(j, at, json_string_value(json_object_get(allowed ? allowed : v, "mode")));
    }
    const json_t *f = json_object_get(v, type && strcmp(type, "custom") == 0 ? "custom" : "function");
    const char *name = json_string_value(json_object_get(f ? f : v, "name"));
    if ((!type && !f) || !name || !good_name(name, strlen(name))) return choose_mode(j, at, NULL);
    a->tool_choice = TOOLS_NAMED;
    snprintf(a->tool_name, sizeof a->tool_name, "%s", name);
    return INFER_OK;
}

enum infer_status openai_tool_mode(struct job *j, const json_t *body) {
    struct ask *a = &j->ask;
    const json_t *choice = json_object_get(body, "tool_choice");
    if (a->tools && (!choice || json_is_null(choice))) a->tool_choice = TOOLS_AUTO;
    if (!a->tools && (a->tool_choice == TOOLS_REQUIRED || a->tool_choice == TOOLS_NAMED))
        return job_invalid(j, "tool_choice", "'tool_choice' wants a call, and there are no 'tools' to call");
    return INFER_OK;
}

/* ---- other fields ---- */

enum infer_status openai_format(struct job *j, const char *at, const json_t *v) {
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *inner = json_object_get(v, "json_schema");
    const json_t *schema = json_object_get(inner ? inner : v, "schema");
    if (!schema) schema = json_object_get(v, "value"); /* TGI, and huggingface_hub's client */
    char place[160];
    snprintf(place, sizeof place, "%s.type", at);
    if (!type) return job_invalid(j, place, "'%s' must be text, json_object or json_schema", place);
    if (strcmp(type, "text") == 0) return INFER_OK;
    if (strcmp(type, "structural_tag") == 0) return field_form(j, at, INFER_GRAMMAR_TAGS, v);
    if (strcmp(type, "regex") == 0 || strcmp(type, "grammar") == 0) {
        const bool regex = *type == 'r';
        const json_t *text = json_object_get(v, type);
        if (!text && regex) text = json_object_get(v, "pattern");
        if (!text) text = json_object_get(v, "value");
        snprintf(place, sizeof place, "%s.%s", at, type);
        if (!text) return job_invalid(j, place, "'%s' is missing", place);
        return field_form(j, place, regex ? INFER_GRAMMAR_REGEX : INFER_GRAMMAR_TEXT, text);
    }
    if (strcmp(type, "json_object") == 0 && !schema) return field_any_object(j, at);
    if (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0)
        return job_invalid(j, place,
                           "'%s' is none of text, json_object, json_schema, regex, grammar, structural_tag",
                           place);
    snprintf(place, sizeof place, "%s.%sschema", at, inner ? "json_schema." : "");
    if (!schema) return job_invalid(j, place, "'%s' is missing", place);
    return field_form(j, place, INFER_GRAMMAR_SCHEMA, schema);
}

enum infer_status openai_effort(struct job *j, const char *at, const json_t *v) {
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    struct ask *a = &j->ask;
    if (json_is_object(v)) {
        const json_t *effort = json_object_get(v, "effort"), *most = json_object_get(v, "max_tokens");
        const json_t *exclude = json_object_get(v, "exclude");
        if (most && !json_is_null(most)) TRY(field_int(j, at, most, 0, 1e9, &a->n_think));
        if (exclude && !json_is_null(exclude)) TRY(field_bool(j, at, exclude, &a->thinking_hidden));
        return effort && !json_is_null(effort) ? openai_effort(j, at, effort) : INFER_OK;
    }
    const char *word = json_string_value(v);
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0) {
            snprintf(a->effort, sizeof a->effort, "%s", word);
            return INFER_OK;
        }
    return job_invalid(j, at, "'%s' is none of none, minimal, low, medium, high, xhigh, max", at);
}

enum infer_status openai_thinking(struct job *j, const char *at, const json_t *v) {
    const char *type = json_text_of(v, "type");
    const json_t *budget = json_object_get(v, "budget_tokens");
    if (strcmp(type, "disabled") == 0) {
        snprintf(j->ask.effort, sizeof j->ask.effort, "none");
    } else if (strcmp(type, "enabled") == 0) {
        if (!*j->ask.effort) snprintf(j->ask.effort, sizeof j->ask.effort, "medium");
        if (budget && !json_is_null(budget)) TRY(field_int(j, at, budget, 1, 1e9, &j->ask.n_think));
    } else if (strcmp(type, "adaptive") != 0) {
        return job_invalid(j, at, "'%s.type' is none of enabled, adaptive, disabled", at);
    }
    return INFER_OK;
}

enum infer_status openai_stream_options(struct job *j, const char *at, const json_t *v) {
    static const struct field rows[] = {
        {"include_usage", FIELD_BOOL, .offset = offsetof(struct ask, usage_chunk)},
        {"include_obfuscation", .type = FIELD_SILENT},
        {.name = NULL},
    };
    return fields_read(j, at, v, FIELDS(rows));
}

enum infer_status openai_variables(struct job *j, const char *at, const json_t *v) {
    static const char *const reserved[] = {
        "messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "now", "documents"};
    const char *name;
    json_t *x;
    if (!json_is_object(v) || json_object_size(v) > 32)
        return job_invalid(j, at, "'%s' must be an object of at most 32 scalars", at);
    json_object_foreach((json_t *)v, name, x) {
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
            if (strcmp(reserved[i], name) == 0) return job_invalid(j, at, "'%s' cannot set %s", at, name);
        if (json_is_object(x) || json_is_array(x))
            return job_invalid(j, at, "'%s.%.40s' is no scalar", at, name);
        if (!j->ask.variables) j->ask.variables = json_object();
        json_object_set(j->ask.variables, name, x);
    }
    return INFER_OK;
}

/* ---- messages ---- */

static enum infer_status check_content(struct job *j, const char *at, const json_t *content) {
    size_t i;
    json_t *part;
    char place[160];
    snprintf(place, sizeof place, "%s.content", at);
    if (!content || json_is_null(content) || json_is_string(content)) return INFER_OK;
    if (!json_is_array(content))
        return job_invalid(j, place, "'%s' must be a string or an array of parts", place);
    json_array_foreach((json_t *)content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (json_is_string(part)) continue;
        snprintf(place, sizeof place, "%s.content[%zu]", at, i);
        const bool refusal =
            type && strcmp(type, "refusal") == 0; /* of an earlier turn: it is what was said */
        if (type && j->server->vision && content_is_picture(type)) continue;
        if (!refusal && (!type || strcmp(type, "text") != 0))
            return content_refuse(j, place, type ? type : "");
        const char *key = refusal ? "refusal" : "text";
        if (!json_is_string(json_object_get(part, key)))
            return job_invalid(j, place, "'%s.%s' must be a string", place, key);
    }
    return INFER_OK;
}

/* Parts of a message with pictures; *out NULL: it has none. */
static enum infer_status read_pictures(struct job *j, const char *at, const json_t *content, json_t **out) {
    struct content c = {0};
    size_t i;
    json_t *part;
    char place[160];
    bool any = false;
    enum infer_status st = INFER_OK;
    *out = NULL;
    json_array_foreach((json_t *)content, i, part) any |= content_is_picture(json_text_of(part, "type"));
    if (!any) return INFER_OK;
    json_array_foreach((json_t *)content, i, part) {
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        if (!text) text = json_object_get(part, "refusal");
        snprintf(place, sizeof place, "%s.content[%zu]", at, i);
        if (!st && content_is_picture(json_text_of(part, "type")))
            st = content_picture(j, place, part, &c);
        else if (json_is_string(text))
            buf_add(&c.text, json_string_value(text), json_string_length(text));
    }
    if (!st && !(*out = content_take(&c))) st = err_set(INFER_E_MEMORY, "out of memory: a message");
    content_free(&c);
    return st;
}

static enum infer_status check_calls(struct job *j, const char *at, const json_t *calls) {
    size_t i;
    json_t *call;
    if (!calls || json_is_null(calls)) return INFER_OK;
    if (!json_is_array(calls)) return job_invalid(j, at, "'%s.tool_calls' must be an array", at);
    json_array_foreach((json_t *)calls, i, call) {
        const json_t *f = json_object_get(call, "function");
        if (!json_is_string(json_object_get(f, "name")))
            return job_invalid(j, at, "'%s.tool_calls[%zu].function.name' must be a string", at, i);
    }
    return INFER_OK;
}

enum infer_status openai_message(struct job *j, const char *at, const json_t *v) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    static const char *const kept[] = {"role",       "content",           "name",     "tool_call_id",
                                       "tool_calls", "reasoning_content", "reasoning"};
    char place[160];
    const char *role = json_string_value(json_object_get(v, "role"));
    bool known = false;
    snprintf(place, sizeof place, "%s.role", at);
    if (!json_is_object(v))
        return job_invalid(j, at, "'%s' must be an object, and is %s", at, field_type_name(v));
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++) known |= strcmp(roles[i], role) == 0;
    if (!known)
        return job_invalid(j, place, "'%s' must be system, developer, user, assistant or tool", place);
    TRY(check_content(j, at, json_object_get(v, "content")));
    TRY(check_calls(j, at, json_object_get(v, "tool_calls")));
    json_t *parts;
    TRY(read_pictures(j, at, json_object_get(v, "content"), &parts));
    if (json_is_true(json_object_get(v, "prefix"))) j->ask.go_on = true;
    json_t *m = json_object();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *x = json_object_get(v, kept[i]);
        if (parts && strcmp(kept[i], "content") == 0)
            json_object_set_new(m, kept[i], parts);
        else if (x && !json_is_null(x))
            json_object_set_new(m, kept[i], json_deep_copy(x));
    }
    if (strcmp(role, "function") == 0) json_object_set_new(m, "role", json_string("tool"));
    json_t *refusal = json_object_get(v, "refusal");
    if (json_is_string(refusal) && !json_object_get(m, "content")) json_object_set(m, "content", refusal);
    return field_message(j, m);
}

enum infer_status openai_messages(struct job *j, const char *at, const json_t *v,
                                  enum infer_status (*read)(struct job *j, const char *at, const json_t *v)) {
    if (!j->ask.messages) j->ask.messages = json_array();
    return field_each(j, at, v, 1, JOB_MESSAGES, "messages", read);
}
