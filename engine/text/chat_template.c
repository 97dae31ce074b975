#include "text/chat_template.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include "text/jinja/jinja.h"

enum { JSON_DEPTH = 256 };

static enum infer_status to_value(struct jinja *J, const json_t *j, bool mark, int depth, struct jv *out);

static enum infer_status object_to_value(struct jinja *J, const json_t *j, bool mark, int depth,
                                         struct jv *out) {
    const char *key;
    json_t *item;
    TRY(jv_dict(J, out));
    json_object_foreach((json_t *)j, key, item) {
        struct jv k, v;
        TRY(jv_string_copy(J, &k, key, strlen(key), mark));
        TRY(to_value(J, item, mark, depth + 1, &v));
        TRY(jv_dict_set(J, out->d, k, v));
    }
    return INFER_OK;
}

static enum infer_status to_value(struct jinja *J, const json_t *j, bool mark, int depth, struct jv *out) {
    if (depth > JSON_DEPTH)
        return err_set(INFER_E_INPUT, "template input: nested deeper than %d", JSON_DEPTH);
    switch (json_typeof(j)) {
    case JSON_NULL:
        *out = jv_none();
        return INFER_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = jv_bool(json_is_true(j));
        return INFER_OK;
    case JSON_INTEGER:
        *out = jv_int(json_integer_value(j));
        return INFER_OK;
    case JSON_REAL:
        *out = jv_float(json_real_value(j));
        return INFER_OK;
    case JSON_STRING:
        return jv_string_copy(J, out, json_string_value(j), json_string_length(j), mark);
    case JSON_OBJECT:
        return object_to_value(J, j, mark, depth, out);
    case JSON_ARRAY:
        break;
    }
    TRY(jv_list(J, out, JV_LIST, json_array_size(j)));
    for (size_t i = 0; i < json_array_size(j); i++) {
        struct jv v;
        TRY(to_value(J, json_array_get(j, i), mark, depth + 1, &v));
        TRY(jv_push(J, out->l, v));
    }
    return INFER_OK;
}

/* A role that is a plain word cannot hold a special token, and templates build tokens of it (<|user|>). */
static bool plain_word(const json_t *j) {
    const char *s = json_string_value(j);
    if (!s || strlen(s) != json_string_length(j)) return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == strlen(s);
}

/* Everything that a user, tool or document message says is marked; what the application and the model say is
 * not. */
static enum infer_status message_to_value(struct jinja *J, const json_t *j, struct jv *out) {
    if (!json_is_object(j)) return to_value(J, j, true, 0, out);
    const json_t *role = json_object_get(j, "role");
    const char *name = role ? json_string_value(role) : NULL, *key;
    bool mark = !name || (strcmp(name, "system") && strcmp(name, "assistant") && strcmp(name, "developer"));
    json_t *item;
    TRY(jv_dict(J, out));
    json_object_foreach((json_t *)j, key, item) {
        struct jv k, v;
        TRY(jv_string_copy(J, &k, key, strlen(key), false));
        TRY(to_value(J, item, mark && !(item == role && plain_word(role)), 1, &v));
        TRY(jv_dict_set(J, out->d, k, v));
    }
    return INFER_OK;
}

static enum infer_status variable_to_value(struct jinja *J, const char *key, const json_t *j,
                                           struct jv *out) {
    if (strcmp(key, "messages") != 0 || !json_is_array(j))
        return to_value(J, j, strcmp(key, "documents") == 0, 0, out);
    TRY(jv_list(J, out, JV_LIST, json_array_size(j)));
    for (size_t i = 0; i < json_array_size(j); i++) {
        struct jv v;
        TRY(message_to_value(J, json_array_get(j, i), &v));
        TRY(jv_push(J, out->l, v));
    }
    return INFER_OK;
}

/* "2026-02-07T08:05:09"; absent: this machine's clock. */
static enum infer_status read_now(const json_t *j, struct tm *out) {
    if (!j || json_is_null(j)) {
        time_t t = time(NULL);
        localtime_r(&t, out);
        return INFER_OK;
    }
    const char *s = json_string_value(j);
    char sep;
    int n = 0;
    *out = (struct tm){.tm_isdst = -1};
    if (!s ||
        sscanf(s, "%4d-%2d-%2d%c%2d:%2d:%2d%n", &out->tm_year, &out->tm_mon, &out->tm_mday, &sep,
               &out->tm_hour, &out->tm_min, &out->tm_sec, &n) != 7 ||
        s[n])
        return err_set(INFER_E_INPUT, "template input: now is not a time like 2026-02-07T08:05:09");
    out->tm_year -= 1900;
    out->tm_mon -= 1;
    struct tm whole = *out;
    if (mktime(&whole) != (time_t)-1) *out = whole; /* fills in the day of the week and of the year */
    return INFER_OK;
}

static enum infer_status variables(struct jinja *J, const json_t *root, struct jv *vars) {
    const char *key;
    json_t *item;
    TRY(read_now(json_object_get(root, "now"), &J->now));
    TRY(jv_dict(J, vars));
    json_object_foreach((json_t *)root, key, item) {
        struct jv k, v;
        if (strcmp(key, "now") == 0) continue;
        TRY(jv_string_copy(J, &k, key, strlen(key), false));
        TRY(variable_to_value(J, key, item, &v));
        TRY(jv_dict_set(J, vars->d, k, v));
    }
    return INFER_OK;
}

static enum infer_status render(struct chat_text *out, struct jinja *J, const char *text, size_t len,
                                const json_t *root) {
    struct jv vars;
    struct jstr s;
    TRY(variables(J, root, &vars));
    TRY(jinja_render(J, text, len, vars.d, &s));
    size_t n;
    if (!size_add(s.n, 1, &n)) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes of text", s.n);
    TRY(mem_new(&out->text, n, "a rendered prompt"));
    TRY(mem_new(&out->marks, n, "the marks of a rendered prompt"));
    memcpy(out->text, s.p, s.n);
    if (s.m) memcpy(out->marks, s.m, s.n);
    out->n = s.n;
    return INFER_OK;
}

enum infer_status chat_render(struct chat_text *out, const char *template_text, size_t template_len,
                              const json_t *vars) {
    *out = (struct chat_text){0};
    if (!json_is_object(vars)) return err_set(INFER_E_INPUT, "template input: a JSON object is needed");
    struct jinja J = {0};
    enum infer_status st = render(out, &J, template_text, template_len, vars);
    jinja_end(&J);
    if (st != INFER_OK) chat_text_free(out);
    return st;
}

void chat_text_free(struct chat_text *t) {
    mem_free(t->text);
    mem_free(t->marks);
    *t = (struct chat_text){0};
}
