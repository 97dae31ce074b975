/* "not" of a JSON Schema is taken away from the schema that it stands in where that leaves a schema; else it is refused. */
#include "text/schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

enum { RANGES_MAX = 8 };

static json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }
static enum infer_status no_memory(void) { return err_set(INFER_E_MEMORY, "out of memory: a schema"); }

/* Beside annotations j has none but these keywords. */
static bool has_only(const json_t *j, const char *const *keys) {
    json_t *rest = json_copy((json_t *)j);
    bool format = get(j, "format") != NULL; /* no annotation here: a checker may go by it */
    for (; *keys; keys++) json_object_del(rest, *keys);
    bool only = rest && !format && !schema_constrains(rest, "");
    json_decref(rest);
    return only;
}
#define ONLY(j, ...) has_only(j, (const char *const[]){__VA_ARGS__, NULL})

bool schema_is_never(const json_t *j) {
    const json_t *minus = get(j, "not");
    return json_is_false(j) || json_is_true(minus) || (json_is_object(minus) && ONLY(minus, ""));
}

bool schema_is_other_text(const json_t *j) {
    const json_t *type = get(j, "type"), *minus = get(j, "not"), *list = get(minus, "enum");
    bool texts = json_is_string(type) && strcmp(json_string_value(type), "string") == 0 &&
                 ONLY(j, "type", "not") && ONLY(minus, "enum") && json_is_array(list);
    for (size_t i = 0; texts && i < json_array_size(list); i++)
        texts = json_is_string(json_array_get(list, i));
    return texts;
}

enum infer_status schema_other_text(const json_t *j, struct stext *t) {
    json_t *names = json_object(), *list = get(get(j, "not"), "enum"), *v;
    size_t i;
    enum infer_status st = names ? INFER_OK : no_memory();
    json_array_foreach(list, i, v) {
        if (json_string_length(v) >= GRAMMAR_MAX_DEPTH / 2)
            st = schema_unsupported("not of a text of 64 bytes or more");
        else if (!st && json_object_set(names, json_string_value(v), json_true()))
            st = no_memory();
    }
    if (!st) st = schema_other_key(t, names);
    stext_put(t, "space ");
    json_decref(names);
    return st;
}

/* Leaves "not" for the time when base has become branches. */
static enum infer_status put_off(json_t *base, json_t *minus) {
    json_t *old = get(base, "not");
    json_t *both = old ? json_pack("{s:[O, O]}", "anyOf", old, minus) : json_incref(minus);
    return !both || json_object_set_new(base, "not", both) ? no_memory() : INFER_OK;
}

/* The constants of base that are not valid under "not". */
static enum infer_status filter_values(struct schema *S, json_t *base, const json_t *minus) {
    json_t *only = get(base, "const"), *list = get(base, "enum"), *left = json_array();
    enum infer_status st = left ? INFER_OK : no_memory();
    for (size_t i = 0; !st && i < (only ? 1 : json_array_size(list)); i++) {
        json_t *v = only ? only : json_array_get(list, i);
        enum schema_verdict under = schema_valid(S, minus, v, 0);
        if (under == SCHEMA_UNKNOWN) st = schema_unsupported("not");
        if (under == SCHEMA_NO && json_array_append(left, v)) st = no_memory();
    }
    if (!st && json_array_size(left) == 0) st = schema_nothing(S, "'not' leaves no value of enum or const");
    if (!st && json_object_set(base, "enum", left)) st = no_memory();
    json_object_del(base, "const");
    json_decref(left);
    return st;
}

static int by_number(const void *a, const void *b) {
    double x = json_number_value(*(json_t *const *)a), y = json_number_value(*(json_t *const *)b);
    return (x > y) - (x < y);
}

/* base, in one of these ways. */
static enum infer_status narrow(struct schema *S, json_t *base, json_t *ways) {
    json_t *rest = json_copy(base);
    json_object_clear(base);
    bool failed = !rest || json_object_set_new(base, "allOf", json_pack("[O, {s:O}]", rest, "anyOf", ways));
    json_decref(rest);
    return failed                       ? no_memory()
           : json_array_size(ways) == 0 ? schema_nothing(S, "'not' leaves nothing")
                                        : INFER_OK;
}

/* Numbers below, between and above the values. */
static enum infer_status split_ranges(struct schema *S, json_t *base, json_t *values) {
    json_t *at[RANGES_MAX], *ranges = json_array(), *v;
    size_t i, n = 0;
    json_array_foreach(values, i, v) {
        if (n == RANGES_MAX) return json_decref(ranges), schema_unsupported("not of more than 8 numbers");
        if (json_is_number(v)) at[n++] = v;
    }
    qsort(at, n, sizeof *at, by_number);
    bool failed = !ranges;
    for (i = 0; i <= n; i++) {
        json_t *range = json_object();
        failed |= !range || (i && json_object_set(range, "exclusiveMinimum", at[i - 1])) ||
                  (i < n && json_object_set(range, "exclusiveMaximum", at[i])) ||
                  json_array_append(ranges, range);
        json_decref(range);
    }
    enum infer_status st = failed ? no_memory() : narrow(S, base, ranges);
    json_decref(ranges);
    return st;
}

/* base without a type, and without a keyword of one, allows each. */
static enum infer_status name_types(json_t *base) {
    json_t *all = json_pack("[s, s, s, s, s, s]", "object", "array", "string", "number", "boolean", "null");
    return !all || json_object_set_new(base, "type", all) ? no_memory() : INFER_OK;
}

static bool is_any(const struct schema *S, const json_t *base) {
    return !get(base, "type") && strcmp(schema_guess_type(S, base), "any") == 0;
}

/* Values taken from a schema of one type; of several types, each becomes a branch first. */
static enum infer_status subtract_values(struct schema *S, json_t *base, json_t *minus) {
    if (is_any(S, base) && !get(base, "anyOf")) TRY(name_types(base));
    json_t *type = get(base, "type"), *list = get(minus, "enum"), *v;
    const char *name = json_is_string(type) ? json_string_value(type) : schema_guess_type(S, base);
    size_t i;
    bool again = schema_is_other_text(base); /* texts were taken from it before */
    if (get(base, "anyOf")) return put_off(base, minus);
    if (json_is_array(type)) {
        json_t *branches = json_array();
        bool failed = !branches;
        json_array_foreach(type, i, v) failed |=
            json_array_append_new(branches, json_pack("{s:O}", "type", v)) != 0;
        if (!failed) failed = json_object_set(base, "anyOf", branches) || json_object_del(base, "type");
        json_decref(branches);
        return failed ? no_memory() : put_off(base, minus);
    }
    json_t *values = list ? json_incref(list) : json_pack("[O]", get(minus, "const"));
    enum infer_status st = values ? INFER_OK : no_memory();
    if (!st && strcmp(name, "string") == 0 && (again || ONLY(base, "type"))) {
        json_t *texts = again ? json_copy(get(get(base, "not"), "enum")) : json_array();
        json_array_foreach(values, i, v) if (json_is_string(v)) json_array_append(texts, v);
        json_t *other = json_pack("{s:o}", "enum", texts);
        st = !other || json_object_set_new(base, "not", other) ? no_memory() : INFER_OK;
    } else if (!st && (strcmp(name, "boolean") == 0 || strcmp(name, "null") == 0)) {
        json_t *all = name[0] == 'b' ? json_pack("[b, b]", 0, 1) : json_pack("[n]");
        st = json_object_set_new(base, "enum", all) ? no_memory() : filter_values(S, base, minus);
    } else if (!st && (strcmp(name, "integer") == 0 || strcmp(name, "number") == 0)) {
        st = split_ranges(S, base, values);
    } else if (!st) {
        st = schema_unsupported("not");
    }
    json_decref(values);
    return st;
}

static enum infer_status subtract(struct schema *S, json_t *base, json_t *minus, bool alone, int depth);

/* One of anyOf after the other. */
static enum infer_status subtract_each(struct schema *S, json_t *base, const json_t *list, int depth) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *part = schema_effective(S, json_array_get(list, i)), *whole = schema_effective(S, base);
        enum infer_status st = part && whole ? INFER_OK : schema_unsupported("not");
        if (!st && json_is_false(whole)) st = schema_nothing(S, "'not' leaves nothing");
        if (!st && whole != base && (json_object_clear(base) || json_object_update(base, whole)))
            st = no_memory();
        if (!st) st = subtract(S, base, part, false, depth + 1);
        json_decref(part);
        json_decref(whole);
        TRY(st);
    }
    return INFER_OK;
}

/* base becomes a schema whose texts are not valid under "not" (joined already), or keeps a "not" for later. alone: it is then visited as it is. */
static enum infer_status subtract(struct schema *S, json_t *base, json_t *minus, bool alone, int depth) {
    if (json_is_false(minus)) return INFER_OK;
    if (json_is_true(minus) || ONLY(minus, "")) return schema_nothing(S, "'not': nothing is valid");
    if (alone ? schema_made_apart(S, base, minus) : schema_apart(S, base, minus, 0)) return INFER_OK;
    if (json_is_array(get(minus, "anyOf")) && ONLY(minus, "anyOf") && depth < 8)
        return subtract_each(S, base, get(minus, "anyOf"), depth);
    if (get(base, "const") || get(base, "enum")) return filter_values(S, base, minus);
    if (ONLY(minus, "const", "enum", "type") && (get(minus, "const") || get(minus, "enum")))
        return subtract_values(S, base, minus);
    json_t *ways;
    TRY(schema_negate(S, base, minus, &ways));
    enum infer_status st = narrow(S, base, ways);
    json_decref(ways);
    return st;
}

enum infer_status schema_not(struct schema *S, const json_t *j, struct stext *t) {
    json_t *base = json_copy((json_t *)j), *minus = schema_effective(S, get(j, "not"));
    enum infer_status st = base && minus ? INFER_OK : schema_unsupported("not");
    if (base) json_object_del(base, "not");
    if (!st) st = subtract(S, base, minus, true, 0);
    if (!st) st = schema_visit(S, base, t);
    json_decref(base);
    json_decref(minus);
    return st;
}
