/* References of a JSON Schema, and schemas that are several at once. */
#include "schema_int.h"

#include <stdlib.h>
#include <string.h>

static const char *const annotations[] = {"$schema",  "$id",         "$comment", "$defs",    "definitions",
                                          "title",    "description", "default",  "examples", "deprecated",
                                          "readOnly", "writeOnly",   "format",   "$anchor"};

static bool is_annotation(const char *key) {
    for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++)
        if (strcmp(key, annotations[i]) == 0) return true;
    return false;
}

/* "#", "#/a/b~1c" */
static enum infer_status resolve(const struct schema *S, const char *ref, const json_t **out) {
    const json_t *at = S->root;
    if (ref[0] != '#')
        return err_set(INFER_E_UNSUPPORTED, "schema: $ref '%.200s' leads out of the file", ref);
    for (const char *p = ref + 1; *p == '/' && at;) {
        char name[256];
        size_t n = 0;
        for (p++; *p && *p != '/'; p++) {
            char c = *p;
            if (c == '~' && (p[1] == '0' || p[1] == '1')) c = *++p == '0' ? '~' : '/';
            if (n + 1 < sizeof name) name[n++] = c;
        }
        name[n] = 0;
        at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10)) : json_object_get(at, name);
    }
    if (!at) return err_set(INFER_E_INPUT, "schema: $ref '%.200s' leads nowhere", ref);
    *out = at;
    return INFER_OK;
}

enum infer_status schema_ref(struct schema *S, const char *ref, struct stext *t) {
    const json_t *known = json_object_get(S->refs, ref), *target;
    if (known) {
        stext_put(t, "r%d ", (int)json_integer_value(known));
        return INFER_OK;
    }
    struct stext r;
    TRY(resolve(S, ref, &target));
    int rule = schema_rule_begin(S, &r);
    enum infer_status st = json_object_set_new(S->refs, ref, json_integer(rule))
                               ? err_set(INFER_E_MEMORY, "out of memory: a schema")
                               : INFER_OK;
    if (!st) st = schema_visit(S, target, &r);
    stext_put(t, "r%d ", rule);
    return schema_rule_end(S, &r, st);
}

/* Adds the constraints of one schema to another: properties and required are joined, all else must agree. */
static enum infer_status merge(struct schema *S, json_t *into, const json_t *from, int depth) {
    const char *key;
    json_t *v;
    if (json_is_true(from)) return INFER_OK;
    if (!json_is_object(from)) return err_set(INFER_E_INPUT, "schema: a part is neither object nor boolean");
    if (depth > GRAMMAR_MAX_DEPTH)
        return err_set(INFER_E_INPUT, "schema: references or parts nested deeper than %d", GRAMMAR_MAX_DEPTH);
    json_object_foreach((json_t *)from, key, v) {
        if (++S->n_merge > GRAMMAR_MAX_REPEAT)
            return err_set(INFER_E_INPUT, "schema: allOf and $ref join more than %d keywords",
                           GRAMMAR_MAX_REPEAT);
        json_t *old = json_object_get(into, key);
        enum infer_status st = INFER_OK;
        int failed = 0;
        if (is_annotation(key) && strcmp(key, "format") != 0) continue;
        if (strcmp(key, "$ref") == 0) {
            const json_t *target;
            if (!json_is_string(v)) return err_set(INFER_E_INPUT, "schema: $ref is no text");
            TRY(resolve(S, json_string_value(v), &target));
            st = merge(S, into, target, depth + 1);
        } else if (strcmp(key, "allOf") == 0) {
            size_t i;
            json_t *part;
            json_array_foreach(v, i, part) TRY(merge(S, into, part, depth + 1));
        } else if (!old || json_equal(old, v)) {
            json_t *copy = json_deep_copy(v);
            failed = !copy || json_object_set_new(into, key, copy);
        } else if (strcmp(key, "required") == 0) {
            failed = json_array_extend(old, v);
        } else if (strcmp(key, "properties") == 0 && json_is_object(v)) {
            const char *name;
            json_t *p, *had;
            json_object_foreach(v, name, p) {
                had = json_object_get(old, name);
                if (had && !json_equal(had, p))
                    return err_set(INFER_E_UNSUPPORTED,
                                   "schema: parts that say different things about '%.100s'", name);
                json_t *copy = had ? NULL : json_deep_copy(p);
                failed |= !had && (!copy || json_object_set_new(old, name, copy));
            }
        } else {
            return err_set(INFER_E_UNSUPPORTED, "schema: parts that disagree on '%.100s'", key);
        }
        if (failed) return err_set(INFER_E_MEMORY, "out of memory: a schema");
        TRY(st);
    }
    return INFER_OK;
}

/* A schema of our own for base (without the key `but`) and part (NULL: none) together. */
enum infer_status schema_merged(struct schema *S, const json_t *base, const char *but, const json_t *part,
                                struct stext *t) {
    json_t *rest = json_copy((json_t *)base), *whole = json_object();
    enum infer_status st = rest && whole ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    if (!st && but) json_object_del(rest, but);
    if (!st) st = merge(S, whole, rest, 0);
    if (!st && part) st = merge(S, whole, part, 0);
    if (!st) st = schema_visit(S, whole, t);
    json_decref(rest);
    json_decref(whole);
    return st;
}

bool schema_constrains(const json_t *j, const char *but) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)j, key, v) {
        if (!is_annotation(key) && strcmp(key, but) != 0) return true;
    }
    return false;
}
