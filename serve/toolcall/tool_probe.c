#include "serve/toolcall/tool_probe.h"
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/toolcall/tool_int.h"
#include "text/chat_template.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"description\":\"Looks a word "
    "up.\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"word\":{\"type\":\"string\",\"description\":\"which\"},"
    "\"count\":{\"type\":\"integer\",\"description\":\"how often\"}},\"required\":[\"word\"]}}}]";
static const char args_json[] = "{\"word\":\"qu xz\",\"count\":12}";
static const char ask_json[] = "{\"role\":\"user\",\"content\":\"What does it say?\"}";
static const char call_json[] =
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\",\"type\":"
    "\"function\",\"function\":{\"name\":\"look_up\",\"arguments\":%s}}]}";
static const char result_json[] =
    "{\"role\":\"tool\",\"tool_call_id\":\"call00001\",\"name\":\"look_up\",\"content\":\"nothing\"}";
static const char answer_json[] =
    "{\"role\":\"assistant\",\"content\":\"zzy\",\"reasoning_content\":\"qqv\",\"reasoning\":"
    "\"qqv\",\"thinking\":\"qqv\"}";

/* Renders messages, a JSON list, with members of an object besides. false: the template cannot. */
static bool render(struct chat_text *out, const struct tool_template *t, const char *messages,
                   const char *tools, const char *more, bool generate) {
    struct buf b = {0};
    json_t *vars;
    buf_printf(&b, "{\"messages\":%s,\"add_generation_prompt\":%s,\"now\":\"2026-01-02T00:00:00\"", messages,
               generate ? "true" : "false");
    if (tools) buf_printf(&b, ",\"tools\":%s", tools);
    if (more) buf_printf(&b, ",%s", more);
    buf_text(&b, "}");
    *out = (struct chat_text){0};
    vars = b.failed ? NULL : json_loadb(b.p, b.n, 0, NULL);
    buf_free(&b);
    if (!vars) return false;
    json_object_set_new(vars, "bos_token", json_string(t->bos ? t->bos : ""));
    json_object_set_new(vars, "eos_token", json_string(t->eos ? t->eos : ""));
    bool ok = chat_render(out, t->text, t->n, vars) == INFER_OK;
    json_decref(vars);
    return ok;
}

/* The one call of a text, for try_row. */
struct seen {
    struct buf args;
    bool named, other;
};
static enum infer_status see(void *user, const struct tool_event *e) {
    struct seen *s = user;
    if (e->kind == TOOL_CALL) {
        s->other |= s->named || strcmp(e->text, "look_up") != 0;
        s->named = true;
    }
    if (e->kind == TOOL_ARGS) buf_add(&s->args, e->text, e->n);
    return INFER_OK;
}

/* True when a row reads the call out of text[n]. */
static bool try_row(const struct tool_row *row, const char *text, size_t n, const json_t *tools,
                    const json_t *args) {
    struct tool_format f;
    struct seen s = {0};
    struct tool_parser *p;
    tool_format_set(&f, row, NULL, NULL);
    const struct tool_options o = {.format = &f,
                                   .tools = tools,
                                   .start =
                                       row->shape == SHAPE_HARMONY ? TOOL_START_HEADER : TOOL_START_ANSWER,
                                   .on_event = see,
                                   .user = &s};
    if (tool_open(&p, &o)) return false;
    bool ok = tool_push(p, -1, text, n) == INFER_OK && tool_finish(p) == INFER_OK && s.named && !s.other;
    tool_close(p);
    json_t *got = ok && s.args.p ? json_loadb(s.args.p, s.args.n, 0, NULL) : NULL;
    ok = got && json_equal(got, args);
    json_decref(got);
    buf_free(&s.args);
    return ok;
}

/* The row that reads what the template makes of a call: what differs between the prompt and the prompt with the call in it, from the
 * mark on that both may begin with. */
static const struct tool_row *row_of(const struct chat_text *before, const struct chat_text *with) {
    size_t same = 0;
    const struct tool_row *found = NULL;
    json_t *tools = json_loads(tools_json, 0, NULL), *args = json_loads(args_json, 0, NULL);
    while (same < before->n && same < with->n && before->text[same] == with->text[same]) same++;
    for (int back = 0; back < 2 && !found; back++) {
        size_t from = same;
        if (back)
            for (size_t k = 0; k < 40 && from > 0; k++)
                if (strchr("<[", with->text[--from])) break;
        for (int i = 0; i < n_tool_row && !found; i++)
            if (try_row(&tool_rows[i], with->text + from, with->n - from, tools, args)) found = &tool_rows[i];
    }
    json_decref(tools);
    json_decref(args);
    return found;
}

/* The row of which all longer marks stand in the template, and most. */
static const struct tool_row *row_by_marks(const struct tool_template *t) {
    const struct tool_row *best = NULL;
    int most = 0;
    for (int i = 0; i < n_tool_row; i++) {
        int n = 0;
        for (int k = 0; k < ROLE_THINK && n >= 0; k++) {
            const char *m = tool_rows[i].mark[k];
            if (m && strlen(m) > 5) n = memmem(t->text, t->n, m, strlen(m)) ? n + 1 : -1;
        }
        if (n > most) most = n, best = &tool_rows[i];
    }
    if (!best && memmem(t->text, t->n, "<|tool_list_start|>", 19)) /* LFM2 renders no calls */
        for (int i = 0; i < n_tool_row; i++)
            if (strcmp(tool_rows[i].name, "lfm2") == 0) best = &tool_rows[i];
    return best;
}

static const struct tool_row *find_row(const struct tool_template *t, struct tool_probe *p) {
    struct buf ask = {0}, call = {0};
    struct chat_text plain, before, with;
    const struct tool_row *row = NULL;
    buf_printf(&ask, "[%s]", ask_json);
    bool ok = !ask.failed && render(&before, t, ask.p, tools_json, NULL, true);
    if (ok && render(&plain, t, ask.p, NULL, NULL, true)) {
        p->offers = plain.n != before.n || memcmp(plain.text, before.text, plain.n) != 0;
        chat_text_free(&plain);
    }
    for (int text = 0; ok && text < 2 && !row; text++) { /* arguments as an object, as a text */
        struct buf args = {0};
        call.n = 0;
        if (text)
            buf_json(&args, args_json, strlen(args_json));
        else
            buf_text(&args, args_json);
        buf_printf(&call, "[%s,", ask_json);
        buf_printf(&call, call_json, args.p);
        buf_printf(&call, ",%s]", result_json);
        buf_free(&args);
        if (call.failed || !render(&with, t, call.p, tools_json, NULL, true)) continue;
        row = row_of(&before, &with);
        chat_text_free(&with);
    }
    if (ok) chat_text_free(&before);
    buf_free(&ask);
    buf_free(&call);
    p->rendered = row != NULL;
    return row ? row : row_by_marks(t);
}

/* True when a variable changes what is rendered. */
static bool reads(const struct tool_template *t, const char *a, const char *b) {
    struct chat_text one, two;
    struct buf ask = {0};
    buf_printf(&ask, "[%s,%s,%s]", ask_json, answer_json, ask_json);
    bool differs = false;
    if (!ask.failed && render(&one, t, ask.p, NULL, a, true)) {
        if (render(&two, t, ask.p, NULL, b, true)) {
            differs = one.n != two.n || memcmp(one.text, two.text, one.n) != 0;
            chat_text_free(&two);
        }
        chat_text_free(&one);
    }
    buf_free(&ask);
    return differs;
}

enum infer_status tool_probe(struct tool_probe *out, const struct tool_template *t) {
    *out = (struct tool_probe){0};
    const struct tool_row *row = NULL;
    if (t->text) {
        uint64_t failed = mem_failed();
        row = find_row(t, out);
        if (reads(t, "\"enable_thinking\":true", "\"enable_thinking\":false"))
            out->thinking = "enable_thinking";
        else if (reads(t, "\"thinking\":true", "\"thinking\":false"))
            out->thinking = "thinking";
        out->effort = reads(t, "\"reasoning_effort\":\"low\"", "\"reasoning_effort\":\"high\"");
        for (int i = 0; i < TOOL_PAIRS && !out->think[0]; i++)
            if (memmem(t->text, t->n, tool_pairs[i][1], strlen(tool_pairs[i][1])))
                out->think[0] = tool_pairs[i][0], out->think[1] = tool_pairs[i][1];
        if (mem_failed() != failed)
            return err_set(INFER_E_MEMORY, "out of memory: the chat template's tools");
    }
    out->described = !out->offers;
    for (int i = 0; out->described && !out->rendered && i < n_tool_row; i++)
        if (strcmp(tool_rows[i].name, "hermes") == 0) row = &tool_rows[i];
    tool_format_set(&out->format, row, t->control, t->user);
    return INFER_OK;
}

/* Takes mark off the end of prompt[*n], and white space behind it. */
static bool ends_with(const char *prompt, size_t *n, const char *mark) {
    size_t k = *n, len = strlen(mark);
    while (len && tool_space(mark[len - 1])) len--;
    while (k && tool_space(prompt[k - 1])) k--;
    if (k < len || memcmp(prompt + k - len, mark, len) != 0) return false;
    *n = k - len;
    return true;
}

enum tool_start tool_start(const struct tool_probe *p, const char *prompt, size_t n) {
    if (p->format.row && p->format.row->shape == SHAPE_HARMONY)
        return ends_with(prompt, &n, "<|start|>assistant") ? TOOL_START_HEADER : TOOL_START_CONTENT;
    for (int i = 0; i < TOOL_PAIRS; i++) {
        size_t k = n;
        if (ends_with(prompt, &k, tool_pairs[i][0])) return TOOL_START_REASONING;
        if (ends_with(prompt, &k, tool_pairs[i][1])) return TOOL_START_CONTENT;
    }
    return TOOL_START_ANSWER;
}

/* The text of a system message that shows tools; how: the shape of a call too. */
static enum infer_status describe(struct buf *out, const json_t *tools, bool how) {
    size_t i;
    const json_t *tool;
    buf_text(out, "You can call functions. These are their signatures, one a line:\n<tools>\n");
    json_array_foreach(tools, i, tool) {
        char *text = NULL;
        TRY(json_write(&text, json_incref((json_t *)tool), mem_failed(), JSON_COMPACT, "a tool"));
        buf_text(out, text);
        buf_text(out, "\n");
        mem_free(text);
    }
    buf_text(out, "</tools>");
    if (how)
        buf_text(
            out,
            "\nTo call one, answer with a JSON object in tags, and with nothing else:\n<tool_call>\n"
            "{\"name\": \"the function's name\", \"arguments\": {\"its\": \"arguments\"}}\n</tool_call>\n"
            "Several calls follow each other, each in tags of its own. Results come in the next message.");
    return out->failed ? err_set(INFER_E_MEMORY, "out of memory: the tools for the system message")
                       : INFER_OK;
}

static json_t *text_part(const char *text) { return json_pack("{s:s, s:s}", "type", "text", "text", text); }

/* The answer of a tool that has pictures, as a user's message. */
static void shown_as_text(json_t *m, json_t *parts) {
    json_array_insert_new(parts, 0, text_part("<tool_response>\n"));
    json_array_append_new(parts, text_part("\n</tool_response>"));
    json_object_set_new(m, "role", json_string("user"));
}

/* An assistant's calls as text behind its content; a tool's answer as a user's message. */
static enum infer_status as_text(json_t *m) {
    const char *role = json_string_value(json_object_get(m, "role")),
               *content = json_string_value(json_object_get(m, "content"));
    const json_t *calls = json_object_get(m, "tool_calls"), *call;
    const bool result = role && strcmp(role, "tool") == 0;
    struct buf b = {0};
    size_t i;
    if (!calls && !result) return INFER_OK;
    if (result && json_is_array(json_object_get(m, "content"))) {
        shown_as_text(m, json_object_get(m, "content"));
        return INFER_OK;
    }
    buf_text(&b, result ? "<tool_response>\n" : "");
    buf_text(&b, content ? content : "");
    json_array_foreach(calls, i, call) {
        const json_t *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
        char *text = NULL;
        if (b.n) buf_text(&b, "\n");
        buf_text(&b, "<tool_call>\n{\"name\": ");
        buf_json_text(&b, json_string_value(json_object_get(f, "name")));
        buf_text(&b, ", \"arguments\": ");
        if (!json_is_string(args))
            TRY(json_write(&text, json_incref((json_t *)args), mem_failed(), JSON_ENCODE_ANY, "arguments"));
        buf_text(&b, text ? text : json_string_value(args));
        buf_text(&b, "}\n</tool_call>");
        mem_free(text);
    }
    if (result) buf_text(&b, "\n</tool_response>");
    json_object_set_new(m, "content", b.failed ? NULL : json_stringn(b.p, b.n));
    if (result) json_object_set_new(m, "role", json_string("user"));
    json_object_del(m, "tool_calls");
    buf_free(&b);
    return INFER_OK;
}

enum infer_status tool_tell(const struct tool_probe *p, json_t *messages, const json_t *tools) {
    struct buf text = {0};
    json_t *first = json_array_get(messages, 0), *m;
    size_t i;
    enum infer_status st = describe(&text, tools, !p->rendered);
    json_array_foreach(messages, i, m) if (!st && !p->rendered) st = as_text(m);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!st && role && strcmp(role, "system") == 0 && json_is_array(json_object_get(first, "content"))) {
        json_array_append_new(json_object_get(first, "content"), text_part(text.p));
    } else if (!st && role && strcmp(role, "system") == 0) {
        const char *content = json_string_value(json_object_get(first, "content"));
        json_object_set_new(first, "content", json_sprintf("%s\n\n%s", content ? content : "", text.p));
    } else if (!st) {
        json_array_insert_new(messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", text.p));
    }
    buf_free(&text);
    return st;
}
