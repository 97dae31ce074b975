/* Whether a value that a schema names (const, enum, a member's name) is valid under another. Three answers: where a keyword cannot be tried the
 * answer is "not known", and the caller refuses. */
#include "text/schema/schema_int.h"

#include <math.h>
#include <string.h>

enum { VALID_DEPTH = 24, VALID_STEPS = 100000 };

static const json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }

/* ---- three answers ------------------------------------------------------------------------------------------- */

static enum schema_verdict both(enum schema_verdict a, enum schema_verdict b) {
    return a == SCHEMA_NO || b == SCHEMA_NO ? SCHEMA_NO : a == SCHEMA_YES ? b : a;
}

static enum schema_verdict opposite(enum schema_verdict v) {
    return v == SCHEMA_YES ? SCHEMA_NO : v == SCHEMA_NO ? SCHEMA_YES : SCHEMA_UNKNOWN;
}

static enum schema_verdict verdict(bool yes) { return yes ? SCHEMA_YES : SCHEMA_NO; }

/* least <= many <= most, of which some may not be known. */
static enum schema_verdict between(double sure, double perhaps, double least, double most) {
    if (sure + perhaps < least || sure > most) return SCHEMA_NO;
    return sure >= least && sure + perhaps <= most ? SCHEMA_YES : SCHEMA_UNKNOWN;
}

/* ---- values -------------------------------------------------------------------------------------------------- */

bool schema_same_value(const json_t *a, const json_t *b) {
    const char *key;
    json_t *v;
    size_t i;
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_is_array(a) && json_is_array(b)) {
        bool same = json_array_size(a) == json_array_size(b);
        json_array_foreach((json_t *)a, i, v) same = same && schema_same_value(v, json_array_get(b, i));
        return same;
    }
    if (!json_is_object(a) || !json_is_object(b)) return json_equal(a, b);
    bool same = json_object_size(a) == json_object_size(b);
    json_object_foreach((json_t *)a, key, v) same = same && get(b, key) && schema_same_value(v, get(b, key));
    return same;
}

/* x against two keywords; a limit that is no number is not known */
static enum schema_verdict within(double x, const json_t *j, const char *least, const char *most) {
    const json_t *lo = get(j, least), *hi = get(j, most);
    if ((lo && !json_is_number(lo)) || (hi && !json_is_number(hi))) return SCHEMA_UNKNOWN;
    return verdict((!lo || x >= json_number_value(lo)) && (!hi || x <= json_number_value(hi)));
}

static enum schema_verdict number_valid(const json_t *j, const json_t *v) {
    double x = json_number_value(v);
    enum schema_verdict r =
        both(within(x, j, "minimum", "maximum"), within(x, j, "exclusiveMinimum", "exclusiveMaximum"));
    const json_t *above = get(j, "exclusiveMinimum"), *below = get(j, "exclusiveMaximum"),
                 *step = get(j, "multipleOf");
    if ((above && x == json_number_value(above)) || (below && x == json_number_value(below))) r = SCHEMA_NO;
    return step ? both(r, schema_is_multiple(x, json_number_value(step))) : r;
}

/* Characters, not bytes. */
static double length_of(const json_t *text) {
    const char *s = json_string_value(text);
    double n = 0;
    for (size_t i = 0; i < json_string_length(text); i++) n += (s[i] & 0xc0) != 0x80;
    return n;
}

static enum schema_verdict string_valid(const json_t *j, const json_t *v) {
    enum schema_verdict r = within(length_of(v), j, "minLength", "maxLength");
    const json_t *pattern = get(j, "pattern"), *format = get(j, "format");
    if (format && schema_knows_format(json_string_value(format))) r = both(r, SCHEMA_UNKNOWN);
    if (!pattern) return r;
    bool matches;
    const bool tried = json_is_string(pattern) &&
                       !schema_matches(json_string_value(pattern), json_string_value(v), &matches);
    return both(r, tried ? verdict(matches) : SCHEMA_UNKNOWN);
}

/* ---- lists --------------------------------------------------------------------------------------------------- */

static enum schema_verdict contains_valid(struct schema *S, const json_t *j, const json_t *v, int depth) {
    const json_t *contains = get(j, "contains"), *least = get(j, "minContains"),
                 *most = get(j, "maxContains");
    double sure = 0, perhaps = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const enum schema_verdict one = schema_valid(S, contains, json_array_get(v, i), depth + 1);
        sure += one == SCHEMA_YES;
        perhaps += one == SCHEMA_UNKNOWN;
    }
    if ((least && !json_is_number(least)) || (most && !json_is_number(most))) return SCHEMA_UNKNOWN;
    return between(sure, perhaps, least ? json_number_value(least) : 1,
                   most ? json_number_value(most) : INFINITY);
}

static enum schema_verdict array_valid(struct schema *S, const json_t *j, const json_t *v, int depth) {
    enum schema_verdict r = within((double)json_array_size(v), j, "minItems", "maxItems");
    const json_t *items = get(j, "items"), *prefix = get(j, "prefixItems");
    if (json_is_array(items)) prefix = items, items = get(j, "additionalItems");
    for (size_t i = 0; i < json_array_size(v) && r != SCHEMA_NO; i++) {
        const json_t *own = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (own) r = both(r, schema_valid(S, own, json_array_get(v, i), depth + 1));
    }
    for (size_t i = 0; json_is_true(get(j, "uniqueItems")) && i < json_array_size(v); i++)
        for (size_t k = 0; k < i; k++)
            if (schema_same_value(json_array_get(v, i), json_array_get(v, k))) r = SCHEMA_NO;
    if (get(j, "contains")) r = both(r, contains_valid(S, j, v, depth));
    return get(j, "unevaluatedItems") ? both(r, SCHEMA_UNKNOWN) : r;
}

/* ---- objects ------------------------------------------------------------------------------------------------- */

static enum schema_verdict member_valid(struct schema *S, const json_t *j, const char *name, const json_t *v,
                                        int depth) {
    const json_t *own = get(get(j, "properties"), name), *names = get(j, "propertyNames"),
                 *more = get(j, "additionalProperties");
    enum schema_verdict r = own ? schema_valid(S, own, v, depth + 1) : SCHEMA_YES;
    const char *pattern;
    json_t *under;
    bool seen = own != NULL, matches;
    json_object_foreach((json_t *)get(j, "patternProperties"), pattern, under) {
        if (schema_matches(pattern, name, &matches)) return SCHEMA_UNKNOWN;
        if (matches) r = both(r, schema_valid(S, under, v, depth + 1)), seen = true;
    }
    if (more && !seen) r = both(r, schema_valid(S, more, v, depth + 1));
    if (!names) return r;
    json_t *text = json_string(name);
    r = both(r, text ? schema_valid(S, names, text, depth + 1) : SCHEMA_UNKNOWN);
    json_decref(text);
    return r;
}

/* All names of a list are members. */
static bool has_all(const json_t *v, const json_t *names) {
    bool all = true;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        all = all && (!name || get(v, name));
    }
    return all;
}

static enum schema_verdict object_valid(struct schema *S, const json_t *j, const json_t *v, int depth) {
    static const char *const depends[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    enum schema_verdict r = both(within((double)json_object_size(v), j, "minProperties", "maxProperties"),
                                 verdict(has_all(v, get(j, "required"))));
    const char *name;
    json_t *member, *asks;
    json_object_foreach((json_t *)v, name, member) if (r != SCHEMA_NO) r =
        both(r, member_valid(S, j, name, member, depth));
    for (int i = 0; i < 3; i++) json_object_foreach((json_t *)get(j, depends[i]), name, asks) {
            if (!get(v, name)) continue;
            r = both(r,
                     json_is_array(asks) ? verdict(has_all(v, asks)) : schema_valid(S, asks, v, depth + 1));
        }
    return get(j, "unevaluatedProperties") ? both(r, SCHEMA_UNKNOWN) : r;
}

/* ---- keywords of every type ---------------------------------------------------------------------------------- */

/* So many of a list hold: any of anyOf, one of oneOf. */
static enum schema_verdict list_valid(struct schema *S, const json_t *list, const json_t *v, double most,
                                      int depth) {
    double sure = 0, perhaps = 0;
    if (!list) return SCHEMA_YES;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const enum schema_verdict one = schema_valid(S, json_array_get(list, i), v, depth + 1);
        sure += one == SCHEMA_YES;
        perhaps += one == SCHEMA_UNKNOWN;
    }
    return between(sure, perhaps, 1, most);
}

static enum schema_verdict condition_valid(struct schema *S, const json_t *j, const json_t *v, int depth) {
    const json_t *when = get(j, "if"), *then = get(j, "then"), *other = get(j, "else");
    if (!when || (!then && !other)) return SCHEMA_YES;
    const enum schema_verdict under = schema_valid(S, when, v, depth + 1);
    if (under == SCHEMA_UNKNOWN) return SCHEMA_UNKNOWN;
    const json_t *asks = under == SCHEMA_YES ? then : other;
    return asks ? schema_valid(S, asks, v, depth + 1) : SCHEMA_YES;
}

static enum schema_verdict common_valid(struct schema *S, const json_t *j, const json_t *v, int depth) {
    static const char *const hard[] = {"$dynamicRef", "$recursiveRef", "extends", "disallow"};
    const json_t *only = get(j, "const"), *list = get(j, "enum");
    bool found = !list;
    for (size_t i = 0; i < json_array_size(list); i++) found |= schema_same_value(json_array_get(list, i), v);
    if (!found || (only && !schema_same_value(only, v)) || !(schema_types(j) & schema_type_of(v)))
        return SCHEMA_NO;
    enum schema_verdict r = list_valid(S, get(j, "anyOf"), v, INFINITY, depth);
    if (r != SCHEMA_NO) r = both(r, list_valid(S, get(j, "oneOf"), v, 1, depth));
    if (r != SCHEMA_NO && get(j, "not")) r = both(r, opposite(schema_valid(S, get(j, "not"), v, depth + 1)));
    if (r != SCHEMA_NO) r = both(r, condition_valid(S, j, v, depth));
    for (int i = 0; i < 4; i++)
        if (get(j, hard[i])) r = both(r, SCHEMA_UNKNOWN);
    return r;
}

enum schema_verdict schema_valid(struct schema *S, const json_t *schema, const json_t *v, int depth) {
    if (json_is_boolean(schema)) return verdict(json_is_true(schema));
    if (depth > VALID_DEPTH || !json_is_object(schema) || ++S->n_proof > VALID_STEPS) return SCHEMA_UNKNOWN;
    json_t *j = schema_effective(S, schema);
    enum schema_verdict r = json_is_boolean(j)  ? verdict(json_is_true(j))
                            : json_is_object(j) ? common_valid(S, j, v, depth)
                                                : SCHEMA_UNKNOWN;
    if (r != SCHEMA_NO && json_is_object(j)) {
        if (json_is_number(v)) r = both(r, number_valid(j, v));
        if (json_is_string(v)) r = both(r, string_valid(j, v));
        if (json_is_array(v)) r = both(r, array_valid(S, j, v, depth));
        if (json_is_object(v)) r = both(r, object_valid(S, j, v, depth));
    }
    json_decref(j);
    return r;
}
