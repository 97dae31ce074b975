/* What is not valid under a schema, as schemas of which one holds: a keyword speaks of one type, so its opposite is that type with the keyword turned round.
 * Exact but for members that a grammar would not make: of objects whose other members nobody names, only the named ones are looked at. */
#include "text/schema/schema_int.h"

#include <math.h>
#include <string.h>

enum { PAIRS_MAX = 16 };

/* The ways so far. base: what they are joined with; minus: what is turned round, in the form of tuples. */
struct ways {
    struct schema *S;
    const json_t *base, *minus;
    json_t *list;
};
typedef enum infer_status turn(struct ways *w, json_t *v);

static json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }
static enum infer_status no_memory(void) { return err_set(INFER_E_MEMORY, "out of memory: a schema"); }
static enum infer_status refused(void) { return schema_unsupported("not"); }

/* One more way, which is given up; NULL: out of memory. */
static enum infer_status add(struct ways *w, json_t *way) {
    return !way || json_array_append_new(w->list, way) ? no_memory() : INFER_OK;
}

/* A type with one keyword. */
static enum infer_status add_typed(struct ways *w, const char *type, const char *key, json_t *v) {
    return add(w, json_pack("{s:s, s:O}", "type", type, key, v));
}

/* ---- keywords of every type ---------------------------------------------------------------------------------- */

static enum infer_status turn_type(struct ways *w, json_t *v) {
    static const char *const all[] = {"object", "array",  "string",  "boolean",
                                      "null",   "number", "integer", SCHEMA_FRACTION};
    const int left = schema_type_bits("any") & ~schema_types(w->minus), number = schema_type_bits("number");
    json_t *types = json_array();
    bool failed = !types;
    (void)v;
    for (int i = 0; i < 8; i++) {
        const int bits = schema_type_bits(all[i]);
        if ((bits & left) != bits || (i > 5 && (left & number) == number))
            continue; /* gone, or said by "number" */
        failed |= json_array_append_new(types, json_string(all[i])) != 0;
    }
    enum infer_status st = failed ? no_memory() : INFER_OK;
    if (!st && json_array_size(types)) st = add(w, json_pack("{s:O}", "type", types));
    json_decref(types);
    return st;
}

static enum infer_status turn_const(struct ways *w, json_t *v) {
    return add(w, json_pack("{s:{s:[O]}}", "not", "enum", v));
}

static enum infer_status turn_enum(struct ways *w, json_t *v) {
    return add(w, json_pack("{s:{s:O}}", "not", "enum", v));
}

static enum infer_status turn_not(struct ways *w, json_t *v) { return add(w, json_incref(v)); }

static enum infer_status turn_any(struct ways *w, json_t *v) {
    return add(w, json_pack("{s:{s:O}}", "not", "anyOf", v));
}

/* None holds, or two do. */
static enum infer_status turn_one(struct ways *w, json_t *v) {
    const size_t n = json_array_size(v);
    if (n * n > 2 * PAIRS_MAX) return refused();
    TRY(turn_any(w, v));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            TRY(add(w, json_pack("{s:[O, O]}", "allOf", json_array_get(v, k), json_array_get(v, i))));
    return INFER_OK;
}

static enum infer_status turn_if(struct ways *w, json_t *v) {
    json_t *then = get(w->minus, "then"), *other = get(w->minus, "else");
    if (then) TRY(add(w, json_pack("{s:[O, {s:O}]}", "allOf", v, "not", then)));
    return other ? add(w, json_pack("{s:[{s:O}, {s:O}]}", "allOf", "not", v, "not", other)) : INFER_OK;
}

/* ---- numbers and lengths ------------------------------------------------------------------------------------- */

/* A bound is open where its own keyword says so, or draft 4's boolean beside it. */
static enum infer_status turn_minimum(struct ways *w, json_t *v) {
    const bool open = json_is_true(get(w->minus, "exclusiveMinimum"));
    return json_is_number(v) ? add_typed(w, "number", open ? "maximum" : "exclusiveMaximum", v) : refused();
}

static enum infer_status turn_maximum(struct ways *w, json_t *v) {
    const bool open = json_is_true(get(w->minus, "exclusiveMaximum"));
    return json_is_number(v) ? add_typed(w, "number", open ? "minimum" : "exclusiveMinimum", v) : refused();
}

static enum infer_status turn_above(struct ways *w, json_t *v) {
    return json_is_number(v) ? add_typed(w, "number", "maximum", v) : INFER_OK;
}

static enum infer_status turn_below(struct ways *w, json_t *v) {
    return json_is_number(v) ? add_typed(w, "number", "minimum", v) : INFER_OK;
}

static enum infer_status turn_multiple(struct ways *w, json_t *v) {
    return json_number_value(v) == 1 ? add(w, json_pack("{s:s}", "type", SCHEMA_FRACTION)) : refused();
}

/* Fewer than v (by -1) or more (by 1) of something. */
static enum infer_status turn_count(struct ways *w, json_t *v, const char *type, const char *key, int by) {
    const double x = json_number_value(v) + by;
    if (!json_is_number(v) || x != floor(x) || fabs(x) > GRAMMAR_MAX_REPEAT) return refused();
    return x < 0 ? INFER_OK : add(w, json_pack("{s:s, s:I}", "type", type, key, (json_int_t)x));
}

#define TURN_COUNT(name, type, key, by)                                                                      \
    static enum infer_status name(struct ways *w, json_t *v) { return turn_count(w, v, type, key, by); }
TURN_COUNT(turn_min_length, "string", "maxLength", -1)
TURN_COUNT(turn_max_length, "string", "minLength", 1)
TURN_COUNT(turn_min_items, "array", "maxItems", -1)
TURN_COUNT(turn_max_items, "array", "minItems", 1)
TURN_COUNT(turn_min_properties, "object", "maxProperties", -1)
TURN_COUNT(turn_max_properties, "object", "minProperties", 1)

/* ---- lists --------------------------------------------------------------------------------------------------- */

static enum infer_status turn_prefix(struct ways *w, json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *own = json_array_get(v, i);
        if (json_is_true(own)) continue;
        json_t *prefix = json_array();
        bool failed = !prefix;
        for (size_t k = 0; k < i; k++) failed |= json_array_append(prefix, json_true()) != 0;
        failed |= json_array_append_new(prefix, json_pack("{s:O}", "not", own)) != 0;
        json_t *way = failed ? NULL
                             : json_pack("{s:s, s:I, s:O}", "type", "array", "minItems", (json_int_t)i + 1,
                                         "prefixItems", prefix);
        json_decref(prefix);
        TRY(add(w, way));
    }
    return INFER_OK;
}

static enum infer_status turn_items(struct ways *w, json_t *v) {
    const size_t n = json_array_size(get(w->minus, "prefixItems"));
    if (json_is_true(v)) return INFER_OK;
    if (schema_is_never(v))
        return add(w, json_pack("{s:s, s:I}", "type", "array", "minItems", (json_int_t)n + 1));
    return n ? refused() : add(w, json_pack("{s:s, s:{s:O}}", "type", "array", "contains", "not", v));
}

static enum infer_status turn_contains(struct ways *w, json_t *v) {
    const json_t *least = get(w->minus, "minContains"), *most = get(w->minus, "maxContains");
    const double from = least ? json_number_value(least) : 1, to = most ? json_number_value(most) : -1;
    if ((least && !json_is_number(least)) || (most && !json_is_number(most)) || from != floor(from) ||
        to != floor(to) || fabs(from) + fabs(to) > GRAMMAR_MAX_REPEAT)
        return refused();
    if (from == 1) TRY(add(w, json_pack("{s:s, s:{s:O}}", "type", "array", "items", "not", v)));
    if (from > 1)
        TRY(add(w, json_pack("{s:s, s:O, s:i, s:I}", "type", "array", "contains", v, "minContains", 0,
                             "maxContains", (json_int_t)from - 1)));
    return most ? add(w, json_pack("{s:s, s:O, s:I}", "type", "array", "contains", v, "minContains",
                                   (json_int_t)to + 1))
                : INFER_OK;
}

static enum infer_status turn_unique(struct ways *w, json_t *v) {
    (void)w;
    return json_is_true(v) ? refused() : INFER_OK;
}

/* ---- objects ------------------------------------------------------------------------------------------------- */

/* A member is there and not valid under v. */
static enum infer_status add_member(struct ways *w, const char *name, json_t *v) {
    return add(w, json_pack("{s:s, s:[s], s:{s:{s:O}}}", "type", "object", "required", name, "properties",
                            name, "not", v));
}

static enum infer_status turn_required(struct ways *w, json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (name) TRY(add(w, json_pack("{s:s, s:{s:b}}", "type", "object", "properties", name, 0)));
    }
    return INFER_OK;
}

static enum infer_status turn_properties(struct ways *w, json_t *v) {
    const char *name;
    json_t *under;
    json_object_foreach(v, name, under) if (!json_is_true(under)) TRY(add_member(w, name, under));
    return INFER_OK;
}

/* The members that the grammar of base makes are those of its properties. */
static bool is_closed(const json_t *base) {
    const json_t *more = get(base, "additionalProperties");
    return get(base, "properties") && (!more || schema_is_never(more)) && !get(base, "patternProperties") &&
           !get(base, "anyOf") && !get(base, "oneOf") && !get(base, "$ref") && !get(base, "allOf");
}

static enum infer_status turn_patterns(struct ways *w, json_t *v) {
    const char *pattern, *name;
    json_t *under, *own;
    if (!is_closed(w->base)) return refused();
    json_object_foreach(v, pattern, under) json_object_foreach(get(w->base, "properties"), name, own) {
        bool matches;
        TRY(schema_matches(pattern, name, &matches));
        if (matches) TRY(add_member(w, name, under));
    }
    return INFER_OK;
}

static enum infer_status turn_others(struct ways *w, json_t *v) {
    const char *name;
    json_t *own;
    if (json_is_true(v)) return INFER_OK;
    if (!is_closed(w->base) || get(w->minus, "patternProperties")) return refused();
    json_object_foreach(get(w->base, "properties"), name, own) if (!get(get(w->minus, "properties"), name))
        TRY(add_member(w, name, v));
    return INFER_OK;
}

static enum infer_status turn_names(struct ways *w, json_t *v) {
    const char *name;
    json_t *own;
    if (json_is_true(v)) return INFER_OK;
    if (!is_closed(w->base)) return refused();
    json_object_foreach(get(w->base, "properties"), name, own) {
        json_t *text = json_string(name);
        const enum schema_verdict fits = text ? schema_valid(w->S, v, text, 0) : SCHEMA_UNKNOWN;
        json_decref(text);
        if (fits == SCHEMA_UNKNOWN) return refused();
        if (fits == SCHEMA_NO) TRY(add(w, json_pack("{s:s, s:[s]}", "type", "object", "required", name)));
    }
    return INFER_OK;
}

static enum infer_status turn_dependencies(struct ways *w, json_t *v) {
    const char *name;
    json_t *asks, *missing;
    size_t i;
    json_object_foreach(v, name, asks) {
        if (!json_is_array(asks))
            TRY(add(w, json_pack("{s:s, s:[s], s:O}", "type", "object", "required", name, "not", asks)));
        json_array_foreach(asks, i, missing) if (json_is_string(missing))
            TRY(add(w, json_pack("{s:s, s:[s], s:{s:b}}", "type", "object", "required", name, "properties",
                                 json_string_value(missing), 0)));
    }
    return INFER_OK;
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

static enum infer_status turn_never(struct ways *w, json_t *v) {
    (void)w, (void)v;
    return refused();
}
/* Said together with another keyword, or nothing without it. */
static enum infer_status turn_beside(struct ways *w, json_t *v) {
    (void)w, (void)v;
    return INFER_OK;
}

static const struct {
    const char *key;
    turn *turn;
} turns[] = {{"type", turn_type},
             {"const", turn_const},
             {"enum", turn_enum},
             {"not", turn_not},
             {"anyOf", turn_any},
             {"oneOf", turn_one},
             {"if", turn_if},
             {"then", turn_beside},
             {"else", turn_beside},
             {"minimum", turn_minimum},
             {"maximum", turn_maximum},
             {"exclusiveMinimum", turn_above},
             {"exclusiveMaximum", turn_below},
             {"multipleOf", turn_multiple},
             {"minLength", turn_min_length},
             {"maxLength", turn_max_length},
             {"pattern", turn_never},
             {"format", turn_never},
             {"minItems", turn_min_items},
             {"maxItems", turn_max_items},
             {"prefixItems", turn_prefix},
             {"items", turn_items},
             {"contains", turn_contains},
             {"minContains", turn_beside},
             {"maxContains", turn_beside},
             {"uniqueItems", turn_unique},
             {"minProperties", turn_min_properties},
             {"maxProperties", turn_max_properties},
             {"required", turn_required},
             {"properties", turn_properties},
             {"patternProperties", turn_patterns},
             {"additionalProperties", turn_others},
             {"propertyNames", turn_names},
             {"dependentRequired", turn_dependencies},
             {"dependentSchemas", turn_dependencies},
             {"dependencies", turn_dependencies}};

enum infer_status schema_negate(struct schema *S, const json_t *base, const json_t *minus, json_t **out) {
    json_t *tuples;
    const char *key;
    json_t *v;
    TRY(schema_tuple_form(minus, &tuples));
    struct ways w = {S, base, tuples, json_array()};
    enum infer_status st = w.list ? INFER_OK : no_memory();
    json_object_foreach(tuples, key, v) {
        turn *t = schema_is_annotation(key) && strcmp(key, "format") != 0 ? turn_beside : turn_never;
        for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
            if (strcmp(turns[i].key, key) == 0) t = turns[i].turn;
        if (!st) st = t(&w, v);
    }
    json_decref(tuples);
    *out = w.list;
    if (st) json_decref(w.list), *out = NULL;
    return st;
}
