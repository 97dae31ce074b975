/* JSON Schema -> GBNF. Every part of the schema becomes a rule; what a grammar cannot promise is refused by name, so that
 * each text of the grammar parses and validates. Properties come in the order of the schema, the required ones first. */
#include "files/json.h"
#include "base/mem.h"
#include "text/schema/schema_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rules that every grammar may name; the compiler drops none, but they are few. */
static const char primitives[] =
    "space ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
    "char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ( [\"\\\\bfnrt] | \"u\" ( [0-9a-ce-fA-CE-F] "
    "[0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} ) )\n"
    "string ::= \"\\\"\" char* \"\\\"\" space\n"
    "integral ::= \"0\" | [1-9] [0-9]{0,15}\n"
    "integer ::= ( \"-\" [1-9] [0-9]{0,15} | integral ) space\n"
    "number ::= \"-\"? integral ( \".\" [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,2} )? space\n"
    "boolean ::= ( \"true\" | \"false\" ) space\n"
    "null ::= \"null\" space\n"
    "value ::= object | array | string | number | boolean | null\n"
    "key ::= \"\\\"\" plain* \"\\\"\" space\n"
    "object ::= \"{\" space ( key \":\" space value ( \",\" space key \":\" space value )* )? \"}\" space\n"
    "array ::= \"[\" space ( value ( \",\" space value )* )? \"]\" space\n"
    "d4 ::= [12] [0-9]{3}\n"
    "date ::= d4 \"-\" ( \"0\" [1-9] | \"1\" [0-2] ) \"-\" ( \"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8] )\n"
    "time ::= ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] \":\" [0-5] [0-9] ( \".\" [0-9]{1,6} )? ( \"Z\" "
    "| [-+] ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] )\n"
    "hex4 ::= [0-9a-f]{4}\n"
    "label ::= [a-z] ( [a-z0-9\\-]{0,20} [a-z0-9] )?\n"
    "octet ::= \"25\" [0-5] | \"2\" [0-4] [0-9] | \"1\" [0-9]{2} | [1-9]? [0-9]\n"
    "group ::= [0-9a-f]{1,4}\n"
    "d13 ::= [1-9] [0-9]{0,2}\n";

/* ---- places ---- */

size_t schema_enter(struct schema *S, const char *key, const char *name) {
    size_t was = S->n_place, room = sizeof S->place - was;
    int n = snprintf(S->place + was, room, "/%.60s%s%.60s", key, name ? "/" : "", name ? name : "");
    S->n_place += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    return was;
}

void schema_leave(struct schema *S, size_t was) {
    S->n_place = was;
    S->place[was] = 0;
}

enum infer_status schema_visit_at(struct schema *S, const char *key, const char *name, const json_t *j,
                                  struct stext *t) {
    size_t was = schema_enter(S, key, name);
    TRY(schema_visit(S, j, t));
    schema_leave(S, was);
    return INFER_OK;
}

enum infer_status schema_visit_nth(struct schema *S, const char *key, size_t i, const json_t *j,
                                   struct stext *t) {
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    return schema_visit_at(S, key, number, j, t);
}

/* ---- rules ---- */

int schema_rule_begin(struct schema *S, struct stext *t) {
    *t = (struct stext){.name = S->in_name};
    stext_put(t, "r%d ::= ", ++S->n_rule);
    return S->n_rule;
}

enum infer_status schema_rule_end(struct schema *S, struct stext *t, enum infer_status st) {
    stext_put(t, "\n");
    stext_add(&S->t, t->p, t->failed ? 0 : t->n);
    S->t.failed |= t->failed;
    mem_free(t->p);
    if (!st && S->n_rule > GRAMMAR_MAX_RULES / 2)
        return err_set(INFER_E_INPUT, "more than %d parts", GRAMMAR_MAX_RULES / 2);
    return st;
}

enum infer_status schema_unsupported(const char *what) {
    return err_set(INFER_E_UNSUPPORTED, "'%s' is not supported", what);
}

enum infer_status schema_nothing(struct schema *S, const char *why, ...) {
    char text[256];
    va_list ap;
    va_start(ap, why);
    vsnprintf(text, sizeof text, why, ap);
    va_end(ap);
    S->nothing = true;
    return err_set(INFER_E_INPUT, "%s", text);
}

enum infer_status schema_count(const json_t *j, const char *key, int64_t missing, int64_t *out) {
    const json_t *v = json_object_get(j, key);
    *out = missing;
    if (!v) return INFER_OK;
    double x = json_is_integer(v) ? (double)json_integer_value(v) : json_is_real(v) ? json_real_value(v) : -1;
    if (x < 0 || x != floor(x)) return err_set(INFER_E_INPUT, "%s is not a count", key);
    if (x > GRAMMAR_MAX_REPEAT) return err_set(INFER_E_INPUT, "%s above %d", key, GRAMMAR_MAX_REPEAT);
    *out = (int64_t)x;
    return INFER_OK;
}

/* ---- constants ---- */

/* The text of v with so many digits that it is read as v again: 0.1 and not 0.10000000000000001. Given back as jansson wants it; NULL: out of memory. */
static char *shortest_text(const json_t *v, json_free_t give_back) {
    for (size_t digits = 15; digits < 17; digits++) {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        const bool same = again && json_equal(again, v);
        json_decref(again);
        if (same) return text;
        if (text) give_back(text);
    }
    return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

enum infer_status schema_put_constant(struct stext *t, const json_t *v) {
    json_malloc_t taken;
    json_free_t give_back; /* whatever jansson was told to use */
    json_get_alloc_funcs(&taken, &give_back);
    char *text = shortest_text(v, give_back);
    if (!text) return err_set(INFER_E_MEMORY, "out of memory: a constant of a schema");
    stext_literal(t, text, strlen(text));
    give_back(text);
    return INFER_OK;
}

/* The constants of const or enum that the other keywords let through. */
static enum infer_status visit_constants(struct schema *S, const json_t *j, struct stext *t) {
    const json_t *only = json_object_get(j, "const"), *list = json_object_get(j, "enum");
    if (!only && json_array_size(list) == 0) return err_set(INFER_E_INPUT, "enum is no list of values");
    int n = 0;
    stext_put(t, "( ");
    for (size_t i = 0; i < (only ? 1 : json_array_size(list)); i++) {
        const json_t *v = only ? only : json_array_get(list, i);
        enum schema_verdict fits = schema_valid(S, j, v, 0);
        if (fits == SCHEMA_NO) continue;
        if (fits == SCHEMA_UNKNOWN)
            return err_set(
                INFER_E_UNSUPPORTED,
                "'enum' or 'const' beside a keyword that cannot be tried on its values is not supported");
        if (n++) stext_put(t, "| ");
        TRY(schema_put_constant(t, v));
    }
    stext_put(t, ") space ");
    return n ? INFER_OK : schema_nothing(S, "no value of enum or const is valid");
}

/* ---- one schema ---- */

static enum infer_status visit_types(struct schema *S, const json_t *j, const json_t *types,
                                     struct stext *t) {
    if (json_array_size(types) == 0) return err_set(INFER_E_INPUT, "an empty list of types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        json_t *one = json_copy((json_t *)j);
        if (!one || json_object_set(one, "type", json_array_get(types, i))) {
            json_decref(one);
            return err_set(INFER_E_MEMORY, "out of memory: a schema");
        }
        if (i) stext_put(t, "| ");
        enum infer_status st = schema_visit(S, one, t);
        json_decref(one);
        TRY(st);
    }
    return INFER_OK;
}

static bool has_any(const json_t *j, const char *const *keys) {
    for (; *keys; keys++)
        if (json_object_get(j, *keys)) return true;
    return false;
}

const char *schema_guess_type(const struct schema *S, const json_t *j) {
    static const char *const object[] = {"properties",        "additionalProperties",  "required",
                                         "patternProperties", "propertyNames",         "minProperties",
                                         "maxProperties",     "unevaluatedProperties", NULL};
    static const char *const array[] = {"items",       "prefixItems", "minItems",         "maxItems",
                                        "uniqueItems", "contains",    "unevaluatedItems", NULL};
    static const char *const string[] = {"pattern", "minLength", "maxLength", NULL};
    const char *format = json_string_value(json_object_get(j, "format"));
    static const char *const number[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf", NULL};
    if (has_any(j, object)) return "object";
    if (has_any(j, array)) return "array";
    if (has_any(j, string) || (format && schema_knows_format(format))) return "string";
    if (has_any(j, number)) return "number";
    return j == S->root && json_object_size(j) == 0 ? "object"
                                                    : "any"; /* an answer to "any JSON" is an object */
}

static enum infer_status visit_type(struct schema *S, const json_t *j, const char *type, struct stext *t) {
    if (schema_has_unevaluated(j)) {
        json_t *closed;
        TRY(schema_close_flat(S, j, &closed));
        enum infer_status st = visit_type(S, closed, type, t);
        json_decref(closed);
        return st;
    }
    bool plain_object = strcmp(type, "object") == 0 && !schema_constrains(j, "type");
    S->free_names |= plain_object;
    if (plain_object)
        stext_put(t, "object ");
    else if (strcmp(type, "object") == 0)
        return schema_object(S, j, t);
    else if (strcmp(type, "array") == 0)
        return schema_array(S, j, t);
    else if (strcmp(type, "string") == 0)
        return schema_is_other_text(j) ? schema_other_text(j, t) : schema_string(S, j, t);
    else if (strcmp(type, "integer") == 0)
        return schema_integer(S, j, t);
    else if (strcmp(type, "number") == 0)
        return schema_number(S, j, t);
    else if (strcmp(type, "boolean") == 0 || strcmp(type, "null") == 0)
        stext_put(t, "%s ", type);
    else if (strcmp(type, SCHEMA_FRACTION) == 0)
        return schema_fraction(j, t);
    else if (strcmp(type, "any") == 0)
        schema_any(S, t);
    else
        return err_set(INFER_E_INPUT, "unknown type '%.100s'", type);
    return INFER_OK;
}

static enum infer_status visit_body(struct schema *S, const json_t *j, struct stext *t) {
    static const char *const refused[] = {"$dynamicRef", "$recursiveRef", "extends", "disallow"};
    if (json_is_true(j)) {
        schema_any(S, t);
        return INFER_OK;
    }
    if (json_is_false(j)) return schema_nothing(S, "'false': nothing is valid");
    if (!json_is_object(j)) return err_set(INFER_E_INPUT, "a schema is an object or a boolean");
    for (int i = 0; i < 4; i++)
        if (json_object_get(j, refused[i])) return schema_unsupported(refused[i]);
    const json_t *ref = json_object_get(j, "$ref"), *type = json_object_get(j, "type");
    if (ref && !json_is_string(ref)) return err_set(INFER_E_INPUT, "$ref is no text");
    if (ref && !schema_constrains(j, "$ref")) return schema_ref(S, json_string_value(ref), t);
    if (ref || json_object_get(j, "allOf") || schema_has_condition(j)) return schema_merged(S, j, t);
    if (json_object_get(j, "anyOf")) return schema_any_of(S, j, "anyOf", t);
    if (json_object_get(j, "oneOf")) return schema_one_of(S, j, t);
    if (json_object_get(j, "not") && !schema_is_other_text(j)) return schema_not(S, j, t);
    if (json_object_get(j, "const") || json_object_get(j, "enum")) return visit_constants(S, j, t);
    if (json_is_array(type)) return visit_types(S, j, type, t);
    if (type && !json_is_string(type)) return err_set(INFER_E_INPUT, "type is no name");
    return visit_type(S, j, type ? json_string_value(type) : schema_guess_type(S, j), t);
}

enum infer_status schema_visit(struct schema *S, const json_t *j, struct stext *t) {
    struct stext r;
    if (S->depth >= GRAMMAR_MAX_DEPTH)
        return err_set(INFER_E_INPUT, "nested deeper than %d", GRAMMAR_MAX_DEPTH);
    if (S->n_rule >= GRAMMAR_MAX_RULES)
        return err_set(INFER_E_INPUT, "more than %d parts", GRAMMAR_MAX_RULES / 2);
    S->depth++;
    int rule = schema_rule_begin(S, &r);
    enum infer_status st = schema_rule_end(S, &r, visit_body(S, j, &r));
    S->depth--;
    stext_put(t, "r%d ", rule);
    return st;
}

/* ---- the whole ---- */

enum infer_status schema_to_gbnf(char **out, size_t *n_out, bool *free_names, const char *json, size_t n) {
    struct schema S = {0};
    *out = NULL;
    json_t *root;
    TRY(json_read(&root, "schema", json, n, JSON_DECODE_ANY));
    uint64_t failed = mem_failed();
    S.root = root;
    S.refs = json_object();
    S.targets = json_object();
    enum infer_status st =
        S.refs && S.targets ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    stext_put(&S.t, "%s", "root ::= r1\nplain ::= [^\"\\\\\\x7F\\x00-\\x1F]\n");
    stext_add(&S.t, primitives, sizeof primitives - 1);
    struct stext ignored = {0};
    if (!st) st = schema_read_ids(&S);
    if (!st) st = schema_visit(&S, root, &ignored);
    mem_free(ignored.p);
    if (st) st = err_prefix(st, "schema%s%s", S.n_place ? " at " : "", S.place);
    if (!st && S.t.failed)
        st = err_set(INFER_E_MEMORY, "schema: its grammar takes more than %d bytes, or memory is out",
                     GRAMMAR_MAX_TEXT);
    json_decref(root);
    json_decref(S.refs);
    json_decref(S.targets);
    if (mem_failed() != failed) /* jansson may have left something out, whatever came of it */
        st = err_set(INFER_E_MEMORY, "schema: out of memory");
    if (st) {
        mem_free(S.t.p);
        return st;
    }
    *out = S.t.p;
    *n_out = S.t.n;
    if (free_names) *free_names = S.free_names;
    return INFER_OK;
}

enum infer_status infer_grammar_from_schema(struct infer_grammar **out, const char *json, size_t n) {
    char *text;
    size_t n_text;
    *out = NULL;
    bool free_names;
    TRY(schema_to_gbnf(&text, &n_text, &free_names, json, n));
    enum infer_status st = infer_grammar_from_gbnf(out, text, n_text);
    if (!st) (*out)->names_once = free_names;
    mem_free(text);
    return st;
}
