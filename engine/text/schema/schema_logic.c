/* What can be proved about schemas: whether a value is valid, and whether no text made for one schema is valid under
 * another, which is what oneOf needs. Where nothing can be proved the answer is "not known" and the caller refuses. */
#include "text/schema/schema_int.h"

#include <math.h>
#include <string.h>

enum { PROOF_DEPTH = 8, PROOF_STEPS = 100000 };

/* ---- helpers ------------------------------------------------------------------------------------------------- */

static const json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }

/* Types as bits. An integer is a number too, as 1.0 is an integer. */
enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INTEGER = 4,
    T_FRACTION = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_ALL = 127
};

int schema_type_bits(const char *name) {
    static const struct {
        const char *name;
        int bits;
    } types[] = {{"null", T_NULL},
                 {"boolean", T_BOOL},
                 {"integer", T_INTEGER},
                 {"number", T_INTEGER | T_FRACTION},
                 {"string", T_STRING},
                 {"array", T_ARRAY},
                 {"object", T_OBJECT},
                 {"any", T_ALL},
                 {SCHEMA_FRACTION, T_FRACTION}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].bits;
    return T_ALL;
}

int schema_types(const json_t *j) {
    const json_t *type = get(j, "type");
    int bits = 0;
    if (json_is_string(type)) return schema_type_bits(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *name = json_string_value(json_array_get(type, i));
        bits |= name ? schema_type_bits(name) : T_ALL;
    }
    return type ? bits : T_ALL;
}

int schema_type_of(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_NULL:
        return T_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return T_BOOL;
    case JSON_INTEGER:
        return T_INTEGER;
    case JSON_REAL:
        return json_real_value(v) == floor(json_real_value(v)) ? T_INTEGER : T_FRACTION;
    case JSON_STRING:
        return T_STRING;
    case JSON_ARRAY:
        return T_ARRAY;
    case JSON_OBJECT:
        return T_OBJECT;
    }
    return T_ALL;
}

static bool is_required(const json_t *j, const char *name) {
    const json_t *list = get(j, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

json_t *schema_effective(struct schema *S, const json_t *j) {
    for (int i = 0; i < PROOF_DEPTH && get(j, "$ref") && !schema_constrains(j, "$ref"); i++) {
        const char *ref = json_string_value(get(j, "$ref"));
        if (!ref || schema_resolve(S, ref, &j)) return NULL;
    }
    const bool open = schema_has_unevaluated(j), was = S->proving;
    if (!get(j, "$ref") && !get(j, "allOf") && !open) return json_incref((json_t *)j);
    json_t *whole = NULL;
    S->proving = true;
    enum infer_status st = open ? schema_closed(S, j, &whole) : schema_join(S, j, NULL, NULL, &whole);
    S->proving = was;
    if (!st) return whole;
    const bool nothing = S->nothing && st != INFER_E_MEMORY;
    S->nothing = false;
    return nothing ? json_false() : NULL;
}

/* ---- do two schemas exclude each other? ---------------------------------------------------------------------- */

static double number_at(const json_t *j, const char *key, double missing) {
    const json_t *v = get(j, key);
    return json_is_number(v) ? json_number_value(v) : missing;
}

/* The ranges that two pairs of keywords allow do not meet. */
static bool ranges_part(const json_t *a, const json_t *b, const char *least, const char *most) {
    return number_at(a, most, INFINITY) < number_at(b, least, -INFINITY) ||
           number_at(b, most, INFINITY) < number_at(a, least, -INFINITY);
}

static bool numbers_part(const json_t *a, const json_t *b) {
    if (ranges_part(a, b, "minimum", "maximum")) return true;
    const json_t *pair[2] = {a, b};
    for (int i = 0; i < 2; i++) { /* one lies below a bound that the other excludes */
        const json_t *low = pair[i], *high = pair[!i];
        double most = fmin(number_at(low, "maximum", INFINITY), number_at(low, "exclusiveMaximum", INFINITY));
        double least =
            fmax(number_at(high, "minimum", -INFINITY), number_at(high, "exclusiveMinimum", -INFINITY));
        bool open = number_at(low, "exclusiveMaximum", INFINITY) == most ||
                    number_at(high, "exclusiveMinimum", -INFINITY) == least;
        if (most < least || (most == least && open)) return true;
    }
    return false;
}

/* Whether an object that is valid under a may have a member of this name. */
static bool may_have(const json_t *a, const char *name) {
    const json_t *p = get(get(a, "properties"), name), *more = get(a, "additionalProperties");
    if (p) return !schema_is_never(p);
    return get(a, "patternProperties") || !more || !schema_is_never(more);
}

bool schema_names_none(const json_t *properties) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)properties, name, v) if (!schema_is_never(v)) return false;
    return true;
}

/* Whether the grammar of a makes one, where a is visited as it is. */
static bool may_make(const json_t *a, const char *name) {
    const json_t *properties = get(a, "properties"), *more = get(a, "additionalProperties");
    const bool free_object = schema_names_none(properties) && !more && !get(a, "required"),
               branched = get(a, "anyOf") || get(a, "oneOf") || get(a, "not") || schema_has_condition(a);
    return branched || get(properties, name) || is_required(a, name) || (more && !json_is_false(more)) ||
           free_object || get(a, "patternProperties") || get(a, "propertyNames") || get(a, "minProperties");
}

static bool objects_part(struct schema *S, const json_t *a, const json_t *b, bool made, int depth) {
    const json_t *need_a = get(a, "required"), *need_b = get(b, "required"), *yes = json_true();
    for (size_t i = 0; i < json_array_size(need_b); i++) {
        const char *name = json_string_value(json_array_get(need_b, i));
        if (name && (!may_have(a, name) || (made && !may_make(a, name)))) return true;
    }
    for (size_t i = 0; i < json_array_size(need_a); i++) {
        const char *name = json_string_value(json_array_get(need_a, i));
        if (!name) continue;
        const json_t *in_a = get(get(a, "properties"), name), *in_b = get(get(b, "properties"), name);
        if (!in_b && !get(b, "patternProperties")) in_b = get(b, "additionalProperties");
        if (!in_a && !get(a, "patternProperties")) in_a = get(a, "additionalProperties");
        if (in_b && schema_apart(S, in_a ? in_a : yes, in_b, depth + 1)) return true;
    }
    return false;
}

static bool arrays_part(struct schema *S, const json_t *a, const json_t *b, int depth) {
    if (ranges_part(a, b, "minItems", "maxItems")) return true;
    const json_t *in_a = get(a, "items"), *in_b = get(b, "items");
    bool plain = in_a && in_b && !json_is_array(in_a) && !json_is_array(in_b) && !get(a, "prefixItems") &&
                 !get(b, "prefixItems");
    return plain && number_at(a, "minItems", 0) >= 1 && schema_apart(S, in_a, in_b, depth + 1);
}

/* Every value that one of the two lists (const, enum) is invalid under the other. */
static bool values_part(struct schema *S, const json_t *listed, const json_t *other, int depth) {
    const json_t *only = get(listed, "const"), *list = get(listed, "enum");
    if (only) return schema_valid(S, other, only, depth + 1) == SCHEMA_NO;
    bool all = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        all &= schema_valid(S, other, json_array_get(list, i), depth + 1) == SCHEMA_NO;
    return all;
}

/* Every branch of an anyOf or oneOf of one is apart from the other. */
static bool branches_part(struct schema *S, const json_t *branched, const json_t *other, int depth) {
    static const char *const keys[] = {"anyOf", "oneOf"};
    for (int k = 0; k < 2; k++) {
        const json_t *list = get(branched, keys[k]);
        bool all = json_array_size(list) > 0;
        for (size_t i = 0; i < json_array_size(list) && all; i++)
            all = schema_apart(S, json_array_get(list, i), other, depth + 1);
        if (all) return true;
    }
    return false;
}

static bool apart(struct schema *S, const json_t *a, const json_t *b, bool made, int depth) {
    const int types = schema_types(a) & schema_types(b);
    if (!types || values_part(S, a, b, depth) || values_part(S, b, a, depth)) return true;
    if (branches_part(S, a, b, depth) || branches_part(S, b, a, depth)) return true;
    switch (types) {
    case T_INTEGER:
    case T_FRACTION:
    case T_INTEGER | T_FRACTION:
        return numbers_part(a, b);
    case T_STRING:
        return ranges_part(a, b, "minLength", "maxLength");
    case T_ARRAY:
        return arrays_part(S, a, b, depth);
    case T_OBJECT:
        return objects_part(S, a, b, made, depth);
    default:
        return false;
    }
}

static bool proved_apart(struct schema *S, const json_t *a, const json_t *b, bool made, int depth) {
    if (schema_is_never(a) || schema_is_never(b)) return true;
    if (depth > PROOF_DEPTH || !json_is_object(a) || !json_is_object(b) || ++S->n_proof > PROOF_STEPS)
        return false;
    json_t *x = schema_effective(S, a), *y = schema_effective(S, b);
    const bool proved = json_is_false(x) || json_is_false(y) ||
                        (json_is_object(x) && json_is_object(y) && apart(S, x, y, made, depth));
    json_decref(x);
    json_decref(y);
    return proved;
}

bool schema_apart(struct schema *S, const json_t *a, const json_t *b, int depth) {
    return proved_apart(S, a, b, false, depth);
}

bool schema_made_apart(struct schema *S, const json_t *a, const json_t *b) {
    static const char *const others[] = {"type", "const", "enum", "anyOf", "oneOf", "allOf", "$ref", "not"};
    const char *guess = schema_guess_type(S, a);
    bool flat = json_is_object(a) && !schema_has_condition(a) && strcmp(guess, "any") != 0;
    for (int i = 0; i < 8; i++) flat = flat && !get(a, others[i]);
    if (!flat) return proved_apart(S, a, b, true, 0);
    json_t *typed = json_copy((json_t *)a);
    const bool proved = typed && !json_object_set_new(typed, "type", json_string(guess)) &&
                        proved_apart(S, typed, b, true, 0);
    json_decref(typed);
    return proved;
}
