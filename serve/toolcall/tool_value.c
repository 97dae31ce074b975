/* Arguments in tags: {"key": and the value's text, quoted where the tool's schema says that it is one. */
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/toolcall/tool_int.h"

enum value_type {
    VALUE_TEXT, /* text, told as it comes */
    VALUE_JSON, /* JSON, or text if it is none */
    VALUE_BOTH, /* text is allowed: JSON of another type, or text */
};

/* Which types a schema allows: text alone, text too, or others (also: it does not say). */
static enum value_type type_of(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *any, *one;
    size_t i, texts = 0, others = 0;
    const char *lists[] = {"anyOf", "oneOf", "enum"};
    if (json_is_string(type)) return strcmp(json_string_value(type), "string") == 0 ? VALUE_TEXT : VALUE_JSON;
    json_array_foreach(type, i, one) {
        bool text = json_is_string(one) && strcmp(json_string_value(one), "string") == 0;
        texts += text, others += !text;
    }
    for (int k = 0; k < 3 && texts + others == 0; k++) {
        any = json_object_get(schema, lists[k]);
        json_array_foreach(any, i, one) {
            enum value_type t = k < 2 ? type_of(one) : json_is_string(one) ? VALUE_TEXT : VALUE_JSON;
            texts += t != VALUE_JSON, others += t != VALUE_TEXT;
        }
    }
    return texts == 0 ? VALUE_JSON : others == 0 ? VALUE_TEXT : VALUE_BOTH;
}

/* v has one of the types of a schema. */
static bool allowed(const json_t *schema, const json_t *v) {
    static const char *const names[] = {"object", "array",   "string",  "integer",
                                        "number", "boolean", "boolean", "null"};
    const json_t *type = json_object_get(schema, "type"), *one;
    const char *lists[] = {"anyOf", "oneOf", "enum"}, *is = names[json_typeof(v)];
    size_t i;
    if (json_is_string(type)) return strcmp(json_string_value(type), is) == 0;
    json_array_foreach(type, i, one) if (json_is_string(one) &&
                                         (strcmp(json_string_value(one), is) == 0 ||
                                          (json_is_integer(v) &&
                                           strcmp(json_string_value(one), "number") == 0))) return true;
    for (int k = 0; k < 3; k++)
        json_array_foreach(json_object_get(schema, lists[k]), i,
                           one) if (k < 2 ? allowed(one, v) : json_equal(one, v)) return true;
    return false;
}

/* The schema of an argument of the call's tool, or NULL. */
static const json_t *schema_of(const struct tool_parser *p, const char *key) {
    size_t i;
    const json_t *tool;
    json_array_foreach(p->o.tools, i, tool) {
        const json_t *f = json_object_get(tool, "function"), *schema;
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || !p->name.p || strcmp(name, p->name.p) != 0) continue;
        schema = json_object_get(json_object_get(json_object_get(f, "parameters"), "properties"), key);
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        const char *lists[] = {"#/$defs/", "#/definitions/"};
        for (int k = 0; ref && k < 2; k++)
            if (strncmp(ref, lists[k], strlen(lists[k])) == 0)
                return json_object_get(
                    json_object_get(json_object_get(f, "parameters"), k ? "definitions" : "$defs"),
                    ref + strlen(lists[k]));
        return schema;
    }
    return NULL;
}

static void args_text(struct tool_parser *p, const char *text) { tool_args(p, text, strlen(text)); }

static void args_escaped(struct tool_parser *p, const char *text, size_t n) {
    p->out.n = 0;
    buf_json_part(&p->out, text, n);
    if (p->out.n) tool_args(p, p->out.p, p->out.n);
}

void tool_key(struct tool_parser *p, const char *key, size_t n) {
    const char *quote = memchr(key, '"', n), *end = key + n;
    const char *attr = quote ? quote : end;
    for (n = (size_t)(attr - key); n && tool_space(key[n - 1]);) n--;
    while (n && tool_space(*key)) key++, n--;
    args_text(p, p->some ? ", \"" : "{\"");
    args_escaped(p, key, n);
    args_text(p, "\": ");
    p->some = true;
    struct buf name = {0};
    buf_add(&name, key, n);
    p->schema = name.p ? schema_of(p, name.p) : NULL;
    p->value = type_of(p->schema);
    if (memmem(attr, (size_t)(end - attr), "string=\"true\"", 13)) p->value = VALUE_TEXT;
    if (memmem(attr, (size_t)(end - attr), "string=\"false\"", 14)) p->value = VALUE_JSON;
    buf_free(&name);
    p->begun = p->pad = false;
    p->args.n = 0;
    if (p->value == VALUE_TEXT) args_text(p, "\"");
}

/* Bytes of the value without those of control tokens, which are not shown. */
static void value_text(struct tool_parser *p, const char *text, size_t n);
static void value_shown(struct tool_parser *p, const char *text, size_t n) {
    const char *control;
    while (n && (control = memchr(text, TOKEN_BYTE, n))) {
        value_text(p, text, (size_t)(control - text));
        n -= (size_t)(control - text) + 2;
        text = control + 2;
    }
    value_text(p, text, n);
}

/* More of the value: without the newline next to its tags, where the row has one there. */
static void value_text(struct tool_parser *p, const char *text, size_t n) {
    bool pads = p->f->mark[ROLE_PAD].n > 0;
    if (n == 0) return;
    if (p->value != VALUE_TEXT) {
        buf_add(&p->args, text, n);
        return;
    }
    if (pads && !p->begun && *text == '\n') text++, n--;
    p->begun = true;
    if (n == 0) return;
    if (p->pad) args_escaped(p, "\n", 1);
    p->pad = pads && text[n - 1] == '\n';
    args_escaped(p, text, n - p->pad);
}

/* The value is complete: what is no text goes out now. */
static void value_rest(struct tool_parser *p) {
    if (p->value == VALUE_TEXT) {
        args_text(p, "\"");
        return;
    }
    const char *text = p->args.p ? p->args.p : "";
    size_t n = p->args.n, from = 0, to = n;
    while (from < to && tool_space(text[from])) from++;
    while (to > from && tool_space(text[to - 1])) to--;
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (int i = 0; i < 3; i++)
        if (to - from == strlen(words[i][0]) && memcmp(text + from, words[i][0], to - from) == 0) {
            args_text(p, words[i][1]);
            return;
        }
    json_t *j = json_loadb(text + from, to - from, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    char *python = NULL;
    if (!j && from < to && (text[from] == '{' || text[from] == '[') &&
        (j = literal_value(text + from, to - from)) &&
        json_write(&python, json_incref(j), mem_failed(), 0, "a value"))
        p->args.failed = true;
    if (j && (p->value == VALUE_JSON || (!json_is_string(j) && allowed(p->schema, j)))) {
        if (python)
            args_text(p, python);
        else
            tool_args(p, text + from, to - from);
    } else {
        if (p->f->mark[ROLE_PAD].n) {
            if (n && *text == '\n') text++, n--;
            if (n && text[n - 1] == '\n') n--;
        }
        args_text(p, "\"");
        args_escaped(p, text, n);
        args_text(p, "\"");
    }
    json_decref(j);
    mem_free(python);
}

/* Whether the VALUE_END in front of `at` is the value's: a key or an end follows. */
static enum match ends_here(const struct tool_parser *p, size_t at) {
    static const enum tool_role behind[] = {ROLE_KEY, ROLE_ARGS_END, ROLE_CLOSE};
    size_t i = at, n;
    while (i < p->in.n && i - at < 64 && tool_space(p->in.p[i])) i++;
    if (i - at == 64) return MATCH_YES;
    if (i == p->in.n) return p->finished ? MATCH_YES : MATCH_PART;
    for (int k = 0; k < 3; k++) {
        enum match m = tool_match(p, behind[k], i, &n);
        if (m != MATCH_NO) return m;
    }
    return MATCH_NO;
}

bool tool_value(struct tool_parser *p) {
    size_t i = p->at, n = 0;
    enum match m = MATCH_NO;
    while (i < p->in.n && (m = tool_match(p, ROLE_VALUE_END, i, &n)) == MATCH_NO) i++;
    value_shown(p, p->in.p + p->at, i - p->at);
    tool_eat(p, i - p->at);
    if (m != MATCH_YES) return false;
    enum match end = ends_here(p, p->at + n);
    if (end == MATCH_PART) return false;
    if (end == MATCH_NO) {
        value_shown(p, p->in.p + p->at, n);
        tool_eat(p, n);
        return true;
    }
    value_rest(p);
    tool_eat(p, n);
    p->state = STATE_KEYS;
    return true;
}
