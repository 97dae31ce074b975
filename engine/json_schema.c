/* JSON Schema -> GBNF. Every part of the schema becomes a rule; what a grammar cannot promise is refused by name, so that
 * each text of the grammar parses and validates. Properties come in the order of the schema, the required ones first. */
#include "schema_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void stext_add(struct stext *t, const char *s, size_t n) {
    if (t->failed) return;
    if (n > GRAMMAR_MAX_TEXT || t->n > GRAMMAR_MAX_TEXT - n) {
        t->failed = true;
        return;
    }
    if (t->n + n > t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 1024;
        while (cap < t->n + n) cap *= 2;
        char *p = mem_realloc(t->p, cap);
        if (!p) {
            t->failed = true;
            return;
        }
        t->p = p;
        t->cap = cap;
    }
    if (n) memcpy(t->p + t->n, s, n);
    t->n += n;
}

void stext_put(struct stext *t, const char *format, ...) {
    char text[256];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text) infer_bug("a piece of grammar of %d bytes", n);
    stext_add(t, text, (size_t)n);
}

void stext_char(struct stext *t, int32_t cp) {
    if (cp < 0x80 && cp > 0x20 && !strchr("\"\\[]^-", cp))
        stext_put(t, "%c", cp);
    else if (cp < 0x100)
        stext_put(t, "\\x%02X", (unsigned)cp);
    else
        stext_put(t, "\\U%08X", (unsigned)cp);
}

/* JSON text as a literal. */
static void put_literal(struct stext *t, const char *s, size_t n) {
    stext_put(t, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            stext_put(t, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            stext_put(t, "\\x%02X", c);
        else
            stext_add(t, s + i, 1);
    }
    stext_put(t, "\" ");
}

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
    "object ::= \"{\" space ( string \":\" space value ( \",\" space string \":\" space value )* )? \"}\" "
    "space\n"
    "array ::= \"[\" space ( value ( \",\" space value )* )? \"]\" space\n"
    "d4 ::= [0-9]{4}\n"
    "date ::= d4 \"-\" ( \"0\" [1-9] | \"1\" [0-2] ) \"-\" ( \"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8] )\n"
    "time ::= ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] \":\" [0-5] [0-9] ( \".\" [0-9]{1,6} )? ( \"Z\" "
    "| [-+] ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] )\n"
    "hex4 ::= [0-9a-f]{4}\n";

/* ---- rules ---- */

int schema_rule_begin(struct schema *S, struct stext *t) {
    *t = (struct stext){0};
    stext_put(t, "r%d ::= ", ++S->n_rule);
    return S->n_rule;
}

enum infer_status schema_rule_end(struct schema *S, struct stext *t, enum infer_status st) {
    stext_put(t, "\n");
    stext_add(&S->t, t->p, t->failed ? 0 : t->n);
    S->t.failed |= t->failed;
    mem_free(t->p);
    if (!st && S->n_rule > GRAMMAR_MAX_RULES / 2)
        return err_set(INFER_E_INPUT, "schema: more than %d parts", GRAMMAR_MAX_RULES / 2);
    return st;
}

enum infer_status schema_unsupported(const char *what) {
    return err_set(INFER_E_UNSUPPORTED, "schema: '%s' is not supported", what);
}

/* An integer keyword of a schema: absent gives missing. */
static enum infer_status count_of(const json_t *j, const char *key, int64_t missing, int64_t *out) {
    const json_t *v = json_object_get(j, key);
    *out = missing;
    if (!v) return INFER_OK;
    double x = json_is_integer(v) ? (double)json_integer_value(v) : json_is_real(v) ? json_real_value(v) : -1;
    if (x < 0 || x != floor(x)) return err_set(INFER_E_INPUT, "schema: %s is not a count", key);
    if (x > GRAMMAR_MAX_REPEAT) return err_set(INFER_E_INPUT, "schema: %s above %d", key, GRAMMAR_MAX_REPEAT);
    *out = (int64_t)x;
    return INFER_OK;
}

static void put_count(struct stext *t, int64_t min, int64_t max) {
    if (max < 0)
        stext_put(t, "{%lld,} ", (long long)min);
    else
        stext_put(t, "{%lld,%lld} ", (long long)min, (long long)max);
}

/* ---- numbers ---- */

/* The bounds of a number, exclusive ones moved in; +-2^63-ish stands for none. */
struct bounds {
    double lo, hi;
    bool lo_open, hi_open;
};

static enum infer_status read_bound(const json_t *j, const char *key, double *out, bool *has) {
    const json_t *v = json_object_get(j, key);
    *has = v != NULL;
    if (v && !json_is_number(v)) return err_set(INFER_E_INPUT, "schema: %s is not a number", key);
    if (v) *out = json_number_value(v);
    return INFER_OK;
}

static enum infer_status read_bounds(const json_t *j, struct bounds *b) {
    double x = 0;
    bool has;
    *b = (struct bounds){-INFINITY, INFINITY, false, false};
    TRY(read_bound(j, "minimum", &x, &has));
    if (has) b->lo = x;
    TRY(read_bound(j, "exclusiveMinimum", &x, &has));
    if (has && x >= b->lo) b->lo = x, b->lo_open = true;
    TRY(read_bound(j, "maximum", &x, &has));
    if (has) b->hi = x;
    TRY(read_bound(j, "exclusiveMaximum", &x, &has));
    if (has && x <= b->hi) b->hi = x, b->hi_open = true;
    return INFER_OK;
}

static enum infer_status visit_integer(const json_t *j, struct stext *t) {
    struct bounds b;
    const double most = 9999999999999999.0; /* SCHEMA_DIGITS nines */
    TRY(read_bounds(j, &b));
    if (json_object_get(j, "multipleOf")) return schema_unsupported("multipleOf");
    double lo = b.lo_open ? floor(b.lo) + 1 : ceil(b.lo), hi = b.hi_open ? ceil(b.hi) - 1 : floor(b.hi);
    if (isinf(lo) && isinf(hi)) {
        stext_put(t, "integer ");
        return INFER_OK;
    }
    if (isinf(lo)) lo = -most;
    if (isinf(hi)) hi = most;
    if (lo > hi) return err_set(INFER_E_INPUT, "schema: no integer lies between the bounds");
    if (lo < -9e17 || hi > 9e17) return schema_unsupported("bounds of an integer beyond 18 digits");
    schema_integers(t, (int64_t)lo, (int64_t)hi);
    stext_put(t, "space ");
    return INFER_OK;
}

/* A number with bounds: integers between them, and decimals whose integral part leaves room to the next one. */
static enum infer_status visit_number(const json_t *j, struct stext *t) {
    struct bounds b;
    TRY(read_bounds(j, &b));
    if (json_object_get(j, "multipleOf")) return schema_unsupported("multipleOf");
    if (isinf(b.lo) && isinf(b.hi)) {
        stext_put(t, "number ");
        return INFER_OK;
    }
    double least = isinf(b.lo) ? -9999999999999999.0 : b.lo_open ? floor(b.lo) + 1 : ceil(b.lo);
    double most = isinf(b.hi) ? 9999999999999999.0 : b.hi_open ? ceil(b.hi) - 1 : floor(b.hi);
    if (least > most) return schema_unsupported("a number between bounds with no integer between them");
    if (least < -9e17 || most > 9e17) return schema_unsupported("bounds of a number beyond 18 digits");
    int64_t lo = (int64_t)least, hi = (int64_t)most;
    stext_put(t, "( ");
    schema_integers(t, lo, hi);
    if (hi > 0 && hi > lo) { /* i + fraction < i + 1 <= hi */
        stext_put(t, "| ");
        schema_integers(t, lo > 0 ? lo : 0, hi - 1);
        stext_put(t, "\".\" [0-9]{1,16} ");
    }
    if (lo < 0 && hi > lo) { /* -(i + fraction) > -(i + 1) >= lo */
        stext_put(t, "| \"-\" ");
        schema_integers(t, hi < 0 ? -hi : 0, -lo - 1);
        stext_put(t, "\".\" [0-9]{1,16} ");
    }
    stext_put(t, ") space ");
    return INFER_OK;
}

/* ---- texts ---- */

static enum infer_status visit_string(const json_t *j, struct stext *t) {
    const json_t *pattern = json_object_get(j, "pattern");
    const char *format = json_string_value(json_object_get(j, "format"));
    int64_t min, max;
    TRY(count_of(j, "minLength", 0, &min));
    TRY(count_of(j, "maxLength", -1, &max));
    if (max >= 0 && max < min)
        return err_set(INFER_E_INPUT, "schema: maxLength %lld is less than minLength %lld", (long long)max,
                       (long long)min);
    stext_put(t, "\"\\\"\" ");
    if (pattern) {
        if (!json_is_string(pattern)) return err_set(INFER_E_INPUT, "schema: pattern is no text");
        if (min > 0 || max >= 0) return schema_unsupported("pattern together with minLength or maxLength");
        TRY(schema_pattern(t, json_string_value(pattern), json_string_length(pattern)));
    } else if (format && strcmp(format, "date") == 0) {
        stext_put(t, "date ");
    } else if (format && strcmp(format, "time") == 0) {
        stext_put(t, "time ");
    } else if (format && strcmp(format, "date-time") == 0) {
        stext_put(t, "date \"T\" time ");
    } else if (format && strcmp(format, "uuid") == 0) {
        stext_put(t, "hex4 hex4 \"-\" hex4 \"-\" hex4 \"-\" hex4 \"-\" hex4 hex4 hex4 ");
    } else {
        stext_put(t, "char");
        put_count(t, min, max);
    }
    stext_put(t, "\"\\\"\" space ");
    return INFER_OK;
}

static enum infer_status put_constant(const json_t *v, struct stext *t) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return err_set(INFER_E_MEMORY, "out of memory: a constant of a schema");
    json_malloc_t taken;
    json_free_t give_back; /* whatever jansson was told to use */
    put_literal(t, text, strlen(text));
    json_get_alloc_funcs(&taken, &give_back);
    give_back(text);
    return INFER_OK;
}

/* ---- arrays ---- */

static enum infer_status visit_tuple(struct schema *S, const json_t *prefix, struct stext *t) {
    stext_put(t, "\"[\" space ");
    for (size_t i = 0; i < json_array_size(prefix); i++) {
        if (i) stext_put(t, "\",\" space ");
        TRY(schema_visit(S, json_array_get(prefix, i), t));
    }
    stext_put(t, "\"]\" space ");
    return INFER_OK;
}

static enum infer_status visit_array(struct schema *S, const json_t *j, struct stext *t) {
    static const char *const refused[] = {"uniqueItems", "contains", "unevaluatedItems"};
    for (int i = 0; i < 3; i++)
        if (json_object_get(j, refused[i]) && !json_is_false(json_object_get(j, refused[i])))
            return schema_unsupported(refused[i]);
    const json_t *items = json_object_get(j, "items"), *prefix = json_object_get(j, "prefixItems");
    int64_t min, max;
    if (json_is_array(items)) prefix = items, items = NULL;
    if (json_is_array(prefix)) return visit_tuple(S, prefix, t);
    if (!items) items = prefix; /* one schema where a list belongs: for all elements */
    TRY(count_of(j, "minItems", 0, &min));
    TRY(count_of(j, "maxItems", -1, &max));
    if (max >= 0 && max < min)
        return err_set(INFER_E_INPUT, "schema: maxItems %lld is less than minItems %lld", (long long)max,
                       (long long)min);
    stext_put(t, "\"[\" space ");
    if (max == 0 || json_is_false(items)) {
        stext_put(t, "\"]\" space ");
        return min > 0 ? err_set(INFER_E_INPUT, "schema: an array without elements, and minItems %lld",
                                 (long long)min)
                       : INFER_OK;
    }
    struct stext item = {0};
    enum infer_status st = INFER_OK;
    if (items)
        st = schema_visit(S, items, &item);
    else
        stext_put(&item, "value ");
    if (!st) {
        if (min == 0) stext_put(t, "( ");
        stext_add(t, item.p, item.n);
        stext_put(t, "( \",\" space ");
        stext_add(t, item.p, item.n);
        stext_put(t, ")");
        put_count(t, min > 1 ? min - 1 : 0, max < 0 ? -1 : max - 1);
        stext_put(t, "%s\"]\" space ", min == 0 ? ")? " : "");
    }
    t->failed |= item.failed;
    mem_free(item.p);
    return st;
}

static enum infer_status visit_any(struct schema *S, const json_t *j, const char *key, struct stext *t) {
    const json_t *list = json_object_get(j, key);
    bool base = schema_constrains(j, key);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(INFER_E_INPUT, "schema: %s is no list of schemas", key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *part = json_array_get(list, i);
        if (i) stext_put(t, "| ");
        TRY(base ? schema_merged(S, j, key, part, t) : schema_visit(S, part, t));
    }
    return INFER_OK;
}

static enum infer_status visit_types(struct schema *S, const json_t *j, const json_t *types,
                                     struct stext *t) {
    if (json_array_size(types) == 0) return err_set(INFER_E_INPUT, "schema: an empty list of types");
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

/* ---- one schema ---- */

static bool has_any(const json_t *j, const char *const *keys) {
    for (; *keys; keys++)
        if (json_object_get(j, *keys)) return true;
    return false;
}

static const char *guess_type(const struct schema *S, const json_t *j) {
    static const char *const object[] = {"properties", "additionalProperties", "required", NULL};
    static const char *const array[] = {"items", "prefixItems", "minItems", "maxItems", NULL};
    static const char *const string[] = {"pattern", "minLength", "maxLength", NULL};
    static const char *const number[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf", NULL};
    if (has_any(j, object)) return "object";
    if (has_any(j, array)) return "array";
    if (has_any(j, string)) return "string";
    if (has_any(j, number)) return "number";
    return json_object_size(j) == 0 && S->depth == 1 ? "object"
                                                     : "any"; /* an answer to "any JSON" is an object */
}

static enum infer_status visit_type(struct schema *S, const json_t *j, const char *type, struct stext *t) {
    bool plain_object = strcmp(type, "object") == 0 && !schema_constrains(j, "type");
    if (plain_object)
        stext_put(t, "object ");
    else if (strcmp(type, "object") == 0)
        return schema_object(S, j, t);
    else if (strcmp(type, "array") == 0)
        return visit_array(S, j, t);
    else if (strcmp(type, "string") == 0)
        return visit_string(j, t);
    else if (strcmp(type, "integer") == 0)
        return visit_integer(j, t);
    else if (strcmp(type, "number") == 0)
        return visit_number(j, t);
    else if (strcmp(type, "boolean") == 0 || strcmp(type, "null") == 0)
        stext_put(t, "%s ", type);
    else if (strcmp(type, "any") == 0)
        stext_put(t, "value ");
    else
        return err_set(INFER_E_INPUT, "schema: unknown type '%.100s'", type);
    return INFER_OK;
}

static enum infer_status visit_body(struct schema *S, const json_t *j, struct stext *t) {
    static const char *const refused[] = {"not", "if", "$dynamicRef", "$recursiveRef"};
    if (json_is_true(j)) {
        stext_put(t, "value ");
        return INFER_OK;
    }
    if (json_is_false(j)) return schema_unsupported("false");
    if (!json_is_object(j)) return err_set(INFER_E_INPUT, "schema: a schema is an object or a boolean");
    for (int i = 0; i < 4; i++)
        if (json_object_get(j, refused[i])) return schema_unsupported(refused[i]);
    const json_t *ref = json_object_get(j, "$ref"), *type = json_object_get(j, "type"), *v;
    if (ref && !json_is_string(ref)) return err_set(INFER_E_INPUT, "schema: $ref is no text");
    if (ref)
        return schema_constrains(j, "$ref") ? schema_merged(S, j, NULL, NULL, t)
                                            : schema_ref(S, json_string_value(ref), t);
    if (json_object_get(j, "allOf")) return schema_merged(S, j, NULL, NULL, t);
    if (json_object_get(j, "anyOf")) return visit_any(S, j, "anyOf", t);
    if (json_object_get(j, "oneOf")) return visit_any(S, j, "oneOf", t);
    if ((v = json_object_get(j, "const"))) {
        TRY(put_constant(v, t));
        stext_put(t, "space ");
        return INFER_OK;
    }
    if ((v = json_object_get(j, "enum"))) {
        if (json_array_size(v) == 0) return err_set(INFER_E_INPUT, "schema: enum is no list of values");
        stext_put(t, "( ");
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) stext_put(t, "| ");
            TRY(put_constant(json_array_get(v, i), t));
        }
        stext_put(t, ") space ");
        return INFER_OK;
    }
    if (json_is_array(type)) return visit_types(S, j, type, t);
    if (type && !json_is_string(type)) return err_set(INFER_E_INPUT, "schema: type is no name");
    return visit_type(S, j, type ? json_string_value(type) : guess_type(S, j), t);
}

enum infer_status schema_visit(struct schema *S, const json_t *j, struct stext *t) {
    struct stext r;
    if (S->depth >= GRAMMAR_MAX_DEPTH)
        return err_set(INFER_E_INPUT, "schema: nested deeper than %d", GRAMMAR_MAX_DEPTH);
    if (S->n_rule >= GRAMMAR_MAX_RULES)
        return err_set(INFER_E_INPUT, "schema: more than %d parts", GRAMMAR_MAX_RULES / 2);
    S->depth++;
    int rule = schema_rule_begin(S, &r);
    enum infer_status st = schema_rule_end(S, &r, visit_body(S, j, &r));
    S->depth--;
    stext_put(t, "r%d ", rule);
    return st;
}

/* ---- the whole ---- */

enum infer_status schema_to_gbnf(char **out, size_t *n_out, const char *json, size_t n) {
    json_error_t error;
    uint64_t failed = mem_failed();
    struct schema S = {0};
    *out = NULL;
    json_t *root = json_loadb(json, n, JSON_DECODE_ANY, &error);
    if (!root && mem_failed() == failed)
        return err_set(INFER_E_INPUT, "schema: line %d: %s", error.line, error.text);
    S.root = root;
    S.refs = root ? json_object() : NULL;
    enum infer_status st = S.refs ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    stext_put(&S.t, "%s", "root ::= r1\nplain ::= [^\"\\\\\\x7F\\x00-\\x1F]\n");
    stext_add(&S.t, primitives, sizeof primitives - 1);
    struct stext ignored = {0};
    if (!st) st = schema_visit(&S, root, &ignored);
    mem_free(ignored.p);
    if (!st && S.t.failed)
        st = err_set(INFER_E_MEMORY, "schema: its grammar takes more than %d bytes, or memory is out",
                     GRAMMAR_MAX_TEXT);
    json_decref(root);
    json_decref(S.refs);
    if (st) {
        mem_free(S.t.p);
        return st;
    }
    *out = S.t.p;
    *n_out = S.t.n;
    return INFER_OK;
}

enum infer_status grammar_from_schema(struct grammar **out, const char *json, size_t n) {
    char *text;
    size_t n_text;
    *out = NULL;
    TRY(schema_to_gbnf(&text, &n_text, json, n));
    enum infer_status st = grammar_from_gbnf(out, text, n_text);
    mem_free(text);
    return st;
}
