/* References of a JSON Schema, and schemas that are several at once: allOf, and what stands beside $ref, anyOf and oneOf. */
#include "text/schema/schema_int.h"

#include <math.h>
#include <string.h>

static const char *const annotations[] = {
    "$schema",     "$id",     "$comment",    "$defs",          "definitions",      "title",
    "description", "default", "examples",    "deprecated",     "readOnly",         "writeOnly",
    "format",      "$anchor", "$vocabulary", "$dynamicAnchor", "$recursiveAnchor", "id"};

bool schema_is_annotation(const char *key) {
    for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++)
        if (strcmp(key, annotations[i]) == 0) return true;
    return false;
}

static enum infer_status out_of_memory(void) { return err_set(INFER_E_MEMORY, "out of memory: a schema"); }

/* ---- references ---------------------------------------------------------------------------------------------- */

enum infer_status schema_ref(struct schema *S, const char *ref, struct stext *t) {
    const json_t *known = json_object_get(S->refs, ref), *target;
    if (known) {
        stext_put(t, "r%d ", (int)json_integer_value(known));
        return INFER_OK;
    }
    struct stext r;
    TRY(schema_resolve(S, ref, &target));
    int rule = schema_rule_begin(S, &r);
    enum infer_status st = json_object_set_new(S->refs, ref, json_integer(rule)) ? out_of_memory() : INFER_OK;
    if (!st) st = schema_visit(S, target, &r);
    stext_put(t, "r%d ", rule);
    return schema_rule_end(S, &r, st);
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

/* {"allOf": [a, b]}: looked into when it is visited. NULL: out of memory. */
static json_t *all_of(const json_t *a, const json_t *b) {
    return json_pack("{s:[O, O]}", "allOf", (json_t *)a, (json_t *)b);
}

static enum infer_status set_new(json_t *into, const char *key, json_t *v) {
    return !v || json_object_set_new(into, key, v) ? out_of_memory() : INFER_OK;
}

static enum infer_status nothing_left(struct schema *S, const char *key) {
    return schema_nothing(S, "parts whose '%.60s' no value fits together", key);
}

/* Elements of one list that the other has too; types: a number takes integers. */
static enum infer_status intersect(struct schema *S, json_t *into, const char *key, const json_t *a,
                                   const json_t *b, bool types) {
    const int number = schema_type_bits("number");
    json_t *left = json_array(), *x, *y;
    size_t i, k;
    if (!left) return out_of_memory();
    json_array_foreach((json_t *)a, i, x) {
        json_array_foreach((json_t *)b, k, y) {
            const int p = types && json_is_string(x) ? schema_type_bits(json_string_value(x)) : 0,
                      q = types && json_is_string(y) ? schema_type_bits(json_string_value(y)) : 0;
            const bool numbers = p && q && !((p | q) & ~number), wider = numbers && (p & q) == q;
            if (types ? json_equal(x, y) || wider || (numbers && (p & q) == p) : schema_same_value(x, y))
                json_array_append(left, wider ? y : x);
        }
    }
    if (json_array_size(left) == 0) {
        json_decref(left);
        return nothing_left(S, key);
    }
    return set_new(into, key, left);
}

/* A list as it is, anything else as a list of one. */
static json_t *as_list(const json_t *v) {
    return json_is_array(v) ? json_incref((json_t *)v) : json_pack("[O]", (json_t *)v);
}

static enum infer_status join_types(struct schema *S, json_t *into, const json_t *a, const json_t *b) {
    json_t *x = as_list(a), *y = as_list(b);
    enum infer_status st = x && y ? intersect(S, into, "type", x, y, true) : out_of_memory();
    json_decref(x);
    json_decref(y);
    return st;
}

/* One of each list holds: one of all pairs holds. Exact for oneOf too: the pairs that hold are as many as the product. */
static enum infer_status cross(json_t *into, const char *key, const json_t *a, const json_t *b) {
    if (json_array_size(a) * json_array_size(b) > 256)
        return err_set(INFER_E_UNSUPPORTED, "parts whose '%s' make more than 256 pairs", key);
    json_t *pairs = json_array(), *x, *y;
    size_t i, k;
    bool failed = !pairs;
    json_array_foreach((json_t *)a, i, x) json_array_foreach((json_t *)b, k, y) failed |=
        json_array_append_new(pairs, all_of(x, y)) != 0;
    if (failed) {
        json_decref(pairs);
        return out_of_memory();
    }
    return set_new(into, key, pairs);
}

static bool is_one_of(const char *key, const char *const *list) {
    for (; *list; list++)
        if (strcmp(key, *list) == 0) return true;
    return false;
}

/* A keyword that both have and that differs. */
static enum infer_status join_keyword(struct schema *S, json_t *into, const char *key, json_t *old,
                                      json_t *v) {
    static const char *const least[] = {"minimum",  "exclusiveMinimum", "minLength",
                                        "minItems", "minProperties",    NULL};
    static const char *const most[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                       "maxItems", "maxProperties",    NULL};
    static const char *const whole[] = {"items", "additionalProperties", "propertyNames", NULL};
    static const char *const lists[] = {"anyOf", "oneOf", NULL};
    bool numbers = json_is_number(old) && json_is_number(v), up = is_one_of(key, least);
    if (numbers && (up || is_one_of(key, most))) {
        bool replace = up ? json_number_value(v) > json_number_value(old)
                          : json_number_value(v) < json_number_value(old);
        return replace && json_object_set(into, key, v) ? out_of_memory() : INFER_OK;
    }
    if (strcmp(key, "required") == 0 && json_is_array(old) && json_is_array(v)) {
        json_t *joined = json_copy(old);
        if (joined && json_array_extend(joined, v)) json_decref(joined), joined = NULL;
        return set_new(into, key, joined);
    }
    if (strcmp(key, "multipleOf") == 0) {
        json_t *both;
        TRY(schema_join_multiples(old, v, &both));
        return set_new(into, key, both);
    }
    if (strcmp(key, "type") == 0) return join_types(S, into, old, v);
    if (strcmp(key, "enum") == 0) return intersect(S, into, key, old, v, false);
    if (strcmp(key, "const") == 0) return schema_same_value(old, v) ? INFER_OK : nothing_left(S, key);
    if (strcmp(key, "not") == 0) return set_new(into, key, json_pack("{s:[O, O]}", "anyOf", old, v));
    if (is_one_of(key, lists) && json_is_array(old) && json_is_array(v)) return cross(into, key, old, v);
    if (is_one_of(key, whole) && !json_is_array(old) && !json_is_array(v)) {
        if (json_is_false(old) || json_is_true(v)) return INFER_OK;
        return set_new(into, key, json_is_false(v) || json_is_true(old) ? json_incref(v) : all_of(old, v));
    }
    return err_set(INFER_E_UNSUPPORTED, "parts that disagree on '%.100s'", key);
}

/* A name is one of properties, or matches a pattern. */
static enum infer_status speaks_of(const json_t *part, const char *name, bool *does) {
    const char *pattern;
    json_t *v;
    *does = json_object_get(json_object_get(part, "properties"), name) != NULL;
    json_object_foreach(json_object_get(part, "patternProperties"), pattern, v) if (!*does)
        TRY(schema_matches(pattern, name, does));
    return INFER_OK;
}

/* Members of one part that the other does not speak of have to satisfy its additionalProperties: named ones, in properties, and those of patterns, in patterns
 * (joined already, NULL: there are none). A name of a pattern that the other does speak of is held to it, too, which proofs must not. */
static enum infer_status close_over(const struct schema *S, json_t *properties, json_t *patterns,
                                    const json_t *part, const json_t *other) {
    const json_t *more = json_object_get(other, "additionalProperties"),
                 *told = json_object_get(other, "patternProperties");
    const char *name;
    json_t *v;
    bool does;
    if (!more || json_is_true(more)) return INFER_OK;
    json_object_foreach(json_object_get(part, "properties"), name, v) {
        TRY(speaks_of(other, name, &does));
        if (does) continue;
        v = json_object_get(properties, name);
        TRY(set_new(properties, name, json_is_false(more) ? json_false() : all_of(v, more)));
    }
    json_object_foreach(json_object_get(part, "patternProperties"), name, v) {
        if (json_object_get(told, name)) continue;
        if (S->proving && (json_object_size(told) || json_object_size(json_object_get(other, "properties"))))
            return err_set(INFER_E_UNSUPPORTED, "'patternProperties' beside parts with members of their own");
        v = json_object_get(patterns, name);
        TRY(set_new(patterns, name, json_is_false(more) ? json_false() : all_of(v, more)));
    }
    return INFER_OK;
}

/* A keyword's schemas by name of both, each with what both say about it; to be given back, NULL: neither has it. */
static enum infer_status join_maps(const json_t *a, const json_t *b, const char *key, json_t **out) {
    const json_t *mine = json_object_get(a, key), *yours = json_object_get(b, key);
    const char *name;
    json_t *v;
    *out = NULL;
    if (!mine && !yours) return INFER_OK;
    if ((mine && !json_is_object(mine)) || (yours && !json_is_object(yours)))
        return err_set(INFER_E_INPUT, "%s is no object", key);
    json_t *joined = *out = mine ? json_copy((json_t *)mine) : json_object();
    enum infer_status st = joined ? INFER_OK : out_of_memory();
    json_object_foreach((json_t *)yours, name, v) {
        json_t *had = json_object_get(mine, name);
        if (st || (had && json_equal(had, v))) continue;
        const bool never = json_is_false(had) || json_is_false(v);
        st = set_new(joined, name, !had ? json_incref(v) : never ? json_false() : all_of(had, v));
    }
    return st;
}

/* properties and patternProperties of both. */
static enum infer_status join_members(const struct schema *S, json_t *into, const json_t *from) {
    json_t *properties = NULL, *patterns = NULL;
    enum infer_status st = join_maps(into, from, "properties", &properties);
    if (!st) st = join_maps(into, from, "patternProperties", &patterns);
    if (!st) st = close_over(S, properties, patterns, into, from);
    if (!st) st = close_over(S, properties, patterns, from, into);
    const bool failed = !st && ((properties && json_object_set(into, "properties", properties)) ||
                                (patterns && json_object_set(into, "patternProperties", patterns)));
    json_decref(properties);
    json_decref(patterns);
    return failed ? out_of_memory() : st;
}

/* What both say of the i-th element; to be given back, NULL: nothing. */
static json_t *both_elements(const json_t *a, const json_t *b, size_t i) {
    const json_t *pair[2] = {a, b}, *own[2];
    for (int k = 0; k < 2; k++) {
        own[k] = json_array_get(json_object_get(pair[k], "prefixItems"), i);
        if (!own[k]) own[k] = json_object_get(pair[k], "items");
    }
    if (!own[0] || !own[1] || json_is_true(own[0])) return json_incref((json_t *)(own[1] ? own[1] : own[0]));
    if (json_is_true(own[1]) || json_is_false(own[0])) return json_incref((json_t *)own[0]);
    return json_is_false(own[1]) ? json_false() : all_of(own[0], own[1]);
}

/* prefixItems and items of both, where one has a tuple: element by element. *done: that was so. */
static enum infer_status join_tuples(json_t *into, const json_t *from, bool *done) {
    const size_t n = json_array_size(json_object_get(into, "prefixItems")),
                 m = json_array_size(json_object_get(from, "prefixItems")), most = n > m ? n : m;
    *done = most > 0;
    if (!*done) return INFER_OK;
    json_t *prefix = json_array(), *rest = both_elements(into, from, most);
    bool failed = !prefix;
    for (size_t i = 0; i < most; i++) {
        json_t *one = both_elements(into, from, i);
        failed |= json_array_append_new(prefix, one ? one : json_true()) != 0;
    }
    if (rest) failed |= json_object_set(into, "items", rest) != 0;
    json_decref(rest);
    failed |= !prefix || json_object_set(into, "prefixItems", prefix);
    json_decref(prefix);
    return failed ? out_of_memory() : INFER_OK;
}

/* contains with its numbers, which both have. */
static enum infer_status join_contains(json_t *into, const json_t *from) {
    static const char *const keys[] = {"minContains", "maxContains"};
    if (!json_equal(json_object_get(into, "contains"), json_object_get(from, "contains")))
        return err_set(INFER_E_UNSUPPORTED, "parts that disagree on 'contains'");
    for (int k = 0; k < 2; k++) {
        json_t *a = json_object_get(into, keys[k]), *b = json_object_get(from, keys[k]);
        const double x = a   ? json_number_value(a)
                         : k ? HUGE_VAL
                             : 1,
                     y = b   ? json_number_value(b)
                         : k ? HUGE_VAL
                             : 1;
        if (x == y || (k ? x < y : x > y)) continue;
        if (!b) json_object_del(into, keys[k]); /* the one that counts where nothing is said */
        if (b && json_object_set(into, keys[k], b)) return out_of_memory();
    }
    return INFER_OK;
}

/* Keywords that are joined together, not one by one. *skip: those that are done, a list that ends with NULL. */
static enum infer_status join_groups(const struct schema *S, json_t *into, const json_t *from,
                                     const char *skip[8]) {
    bool tuples = false;
    int n = 0;
    skip[0] = NULL;
    if (json_object_size(into) == 0) return INFER_OK;
    TRY(join_members(S, into, from));
    skip[n++] = "properties", skip[n++] = "patternProperties";
    TRY(join_tuples(into, from, &tuples));
    if (tuples) skip[n++] = "prefixItems", skip[n++] = "items";
    if (json_object_get(into, "contains") && json_object_get(from, "contains")) {
        TRY(join_contains(into, from));
        skip[n++] = "contains", skip[n++] = "minContains", skip[n++] = "maxContains";
    }
    skip[n] = NULL;
    return INFER_OK;
}

static enum infer_status merge(struct schema *S, json_t *into, const json_t *from, int depth);

/* What is merged in the place of from; NULL: from itself. *deeper: it is a part. */
static enum infer_status rewritten(struct schema *S, const json_t *from, int depth, json_t **out) {
    static const char *const loose[] = {"additionalItems", "minContains", "maxContains"};
    *out = NULL;
    if (depth && schema_has_unevaluated(from)) return schema_closed(S, from, out);
    if (schema_has_condition(from)) return schema_conditions(from, out);
    bool old = json_is_array(json_object_get(from, "items"));
    for (int i = 0; i < 3; i++) old |= json_object_get(from, loose[i]) && !json_object_get(from, "contains");
    return old || json_object_get(from, "additionalItems") ? schema_tuple_form(from, out) : INFER_OK;
}

/* Adds the constraints of one schema to another. */
static enum infer_status merge(struct schema *S, json_t *into, const json_t *from, int depth) {
    const char *key;
    json_t *v, *part;
    size_t i;
    if (json_is_true(from)) return INFER_OK;
    if (json_is_false(from)) return schema_nothing(S, "a part is false: nothing is valid");
    if (!json_is_object(from)) return err_set(INFER_E_INPUT, "a part is neither object nor boolean");
    if (depth > GRAMMAR_MAX_DEPTH)
        return err_set(INFER_E_INPUT, "references or parts nested deeper than %d", GRAMMAR_MAX_DEPTH);
    TRY(rewritten(S, from, depth, &part));
    if (part) {
        enum infer_status st = merge(S, into, part, depth);
        json_decref(part);
        return st;
    }
    const char *skip[8];
    TRY(join_groups(S, into, from, skip));
    json_object_foreach((json_t *)from, key, v) {
        if (++S->n_merge > GRAMMAR_MAX_REPEAT)
            return err_set(INFER_E_INPUT, "allOf and $ref join more than %d keywords", GRAMMAR_MAX_REPEAT);
        json_t *old = json_object_get(into, key);
        bool later = strcmp(key, "$ref") == 0 || strcmp(key, "allOf") == 0;
        if (later || (schema_is_annotation(key) && strcmp(key, "format") != 0)) continue;
        if (is_one_of(key, skip)) continue; /* joined above */
        if (!old && json_object_set(into, key, v)) return out_of_memory();
        if (old && !json_equal(old, v)) TRY(join_keyword(S, into, key, old, v));
    }
    if ((v = json_object_get(from, "$ref"))) {
        const json_t *target;
        if (!json_is_string(v)) return err_set(INFER_E_INPUT, "$ref is no text");
        TRY(schema_resolve(S, json_string_value(v), &target));
        TRY(merge(S, into, target, depth + 1));
    }
    json_array_foreach(json_object_get(from, "allOf"), i, part) TRY(merge(S, into, part, depth + 1));
    return INFER_OK;
}

enum infer_status schema_join(struct schema *S, const json_t *base, const char *but, const json_t *part,
                              json_t **out) {
    json_t *rest = json_copy((json_t *)base), *whole = json_object();
    enum infer_status st = rest && whole ? INFER_OK : out_of_memory();
    if (!st && but) json_object_del(rest, but);
    if (!st) st = merge(S, whole, rest, 0);
    if (!st && part) st = merge(S, whole, part, 1);
    json_decref(rest);
    if (!st) *out = whole;
    if (st) json_decref(whole);
    return st;
}

enum infer_status schema_merged(struct schema *S, const json_t *base, struct stext *t) {
    json_t *whole;
    TRY(schema_join(S, base, NULL, NULL, &whole));
    enum infer_status st = schema_visit(S, whole, t);
    json_decref(whole);
    return st;
}

bool schema_constrains(const json_t *j, const char *but) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)j, key, v) {
        if (!schema_is_annotation(key) && strcmp(key, but) != 0) return true;
    }
    return false;
}
