/* Arrays of a JSON Schema: tuples, lists, elements that differ, and one that has to be there. */
#include "text/schema/schema_int.h"

#include <string.h>

enum {
    UNIQUE_MAX = 6,
    HIT_PLACES = 16
}; /* values in any order; places where the element of "contains" may stand */

static void put_count(struct stext *t, int64_t min, int64_t max) {
    if (max < 0)
        stext_put(t, "{%lld,} ", (long long)min);
    else
        stext_put(t, "{%lld,%lld} ", (long long)min, (long long)max);
}

/* minItems and maxItems; -1: no end */
static enum infer_status count_items(const json_t *j, int64_t *min, int64_t *max) {
    TRY(schema_count(j, "minItems", 0, min));
    TRY(schema_count(j, "maxItems", -1, max));
    if (*max < 0 || *max >= *min) return INFER_OK;
    return err_set(INFER_E_INPUT, "maxItems %lld is less than minItems %lld", (long long)*max,
                   (long long)*min);
}

/* An element of items, NULL: any value. */
static enum infer_status put_element(struct schema *S, const json_t *items, struct stext *t) {
    if (items) return schema_visit_at(S, "items", NULL, items, t);
    schema_any(S, t);
    return INFER_OK;
}

/* Exactly the elements of the list, as far as maxItems lets; more of them where minItems or "items" asks. */
static enum infer_status visit_tuple(struct schema *S, const json_t *j, const json_t *prefix,
                                     const json_t *rest, struct stext *t) {
    int64_t min, max, n = (int64_t)json_array_size(prefix);
    TRY(count_items(j, &min, &max));
    if (max >= 0 && n > max) n = max;
    stext_put(t, "\"[\" space ");
    for (int64_t i = 0; i < n; i++) {
        if (i) stext_put(t, "\",\" space ");
        TRY(schema_visit_nth(S, "prefixItems", (size_t)i, json_array_get(prefix, (size_t)i), t));
    }
    bool more = rest && !json_is_false(rest) && (max < 0 || max > n);
    if (min > n && json_is_false(rest))
        return err_set(INFER_E_INPUT, "minItems %lld, and only %lld elements are allowed", (long long)min,
                       (long long)n);
    if (more || min > n) {
        struct stext item = {0};
        enum infer_status st = put_element(S, rest, &item);
        stext_put(t, n ? "( \",\" space " : "( ");
        stext_add(t, item.p, item.n);
        stext_put(t, ")");
        put_count(t, min > n ? min - n : 0, !more ? min - n : max < 0 ? -1 : max - n);
        t->failed |= item.failed;
        mem_free(item.p);
        TRY(st);
    }
    stext_put(t, "\"]\" space ");
    return INFER_OK;
}

/* Elements that have to differ are made where there are few values: each subset of those that are left has a rule. */
static enum infer_status distinct_values(struct schema *S, const json_t *items, json_t **out) {
    json_t *whole = json_is_object(items) ? schema_effective(S, items) : NULL, *v;
    const char *type = json_string_value(json_object_get(whole, "type"));
    const json_t *only = json_object_get(whole, "const"), *list = json_object_get(whole, "enum");
    bool boolean = !only && !list && type && strcmp(type, "boolean") == 0;
    json_t *all = only      ? json_pack("[O]", only)
                  : list    ? json_incref((json_t *)list)
                  : boolean ? json_pack("[b, b]", 0, 1)
                            : NULL,
           *some = json_array();
    enum infer_status st = whole && all && some ? INFER_OK : schema_unsupported("uniqueItems");
    size_t i, k;
    for (i = 0; !st && i < json_array_size(all); i++) {
        v = json_array_get(all, i);
        enum schema_verdict fits = schema_valid(S, whole, v, 0);
        for (k = 0; k < json_array_size(some); k++)
            if (schema_same_value(v, json_array_get(some, k))) fits = SCHEMA_NO;
        if (fits == SCHEMA_UNKNOWN || json_is_object(v) || json_is_array(v))
            st = schema_unsupported("uniqueItems");
        if (fits == SCHEMA_YES) json_array_append(some, v);
    }
    if (json_array_size(some) > UNIQUE_MAX) st = schema_unsupported("uniqueItems over more than 6 values");
    json_decref(whole);
    json_decref(all);
    *out = some;
    if (st) json_decref(some);
    return st;
}

/* Rules first + (1 << n) - 1 ...: what may follow when the values of a set of bits are taken. */
static enum infer_status visit_unique(struct schema *S, const json_t *j, const json_t *items,
                                      struct stext *t) {
    int64_t min, max;
    json_t *values;
    TRY(count_items(j, &min, &max));
    TRY(distinct_values(S, items, &values));
    int n = (int)json_array_size(values), rule[1 << UNIQUE_MAX];
    enum infer_status st =
        min > n ? schema_nothing(S, "minItems %lld, and there are %d values", (long long)min, n) : INFER_OK;
    for (int taken = (1 << n) - 1; !st && taken >= 0; taken--) {
        struct stext r;
        int many = __builtin_popcount((unsigned)taken);
        bool more = many < n && (max < 0 || many < max);
        rule[taken] = schema_rule_begin(S, &r);
        for (int i = 0; i < n && more && !st; i++) {
            if (taken >> i & 1) continue;
            stext_put(&r, "%s", many ? "\",\" space " : "");
            st = schema_put_constant(&r, json_array_get(values, (size_t)i));
            stext_put(&r, "space r%d | ", rule[taken | 1 << i]);
        }
        stext_put(&r, "%s", !more || many >= min ? "\"\"" : "");
        if (more && many < min) r.n -= 2; /* the last bar */
        st = schema_rule_end(S, &r, st);
    }
    if (!st) stext_put(t, "\"[\" space r%d \"]\" space ", rule[0]);
    json_decref(values);
    return st;
}

/* The hits of "contains", least of them: with elements between them, side by side where the length has a bound. */
static void put_hits(struct stext *t, const struct stext *hit, const struct stext *item, int64_t least,
                     bool bound) {
    stext_add(t, hit->p, hit->n);
    if (least == 1) return;
    stext_put(t, "( ");
    if (!bound) {
        stext_put(t, "( \",\" space ");
        stext_add(t, item->p, item->n);
        stext_put(t, ")* ");
    }
    stext_put(t, "\",\" space ");
    stext_add(t, hit->p, hit->n);
    stext_put(t, ")");
    put_count(t, least - 1, least - 1);
}

/* "contains": elements, those that are hits, elements. Where the length has a bound the places are counted out. */
static enum infer_status visit_contains(struct schema *S, const json_t *j, const json_t *items,
                                        struct stext *t) {
    int64_t min, max, least, most;
    TRY(count_items(j, &min, &max));
    TRY(schema_count(j, "minContains", 1, &least));
    TRY(schema_count(j, "maxContains", -1, &most));
    if (most >= 0) return schema_unsupported("maxContains");
    if (json_is_true(json_object_get(j, "uniqueItems")))
        return schema_unsupported("uniqueItems beside contains");
    if (max >= 0 && max < least)
        return schema_nothing(S, "contains needs %lld elements, and %lld are allowed", (long long)least,
                              (long long)max);
    json_t *both =
        json_pack("{s:[O, O]}", "allOf", items ? items : json_true(), json_object_get(j, "contains"));
    if (!both) return err_set(INFER_E_MEMORY, "out of memory: a schema");
    struct stext hit = {0}, item = {0};
    enum infer_status st = schema_visit_at(S, "contains", NULL, both, &hit);
    if (!st && items) st = schema_visit_at(S, "items", NULL, items, &item);
    if (!items) schema_any(S, &item);
    if (hit.failed || item.failed) t->failed = true;
    int64_t places = max < 0 || max > HIT_PLACES ? 1 : max - least + 1;
    stext_put(t, "\"[\" space ( ");
    for (int64_t p = 0; p < places && !t->failed; p++) {
        stext_put(t, "%s( ", p ? "| " : "");
        stext_add(t, item.p, item.n);
        stext_put(t, "\",\" space )");
        put_count(t, p, max < 0 ? -1 : p);
        put_hits(t, &hit, &item, least, max >= 0);
        stext_put(t, "( \",\" space ");
        stext_add(t, item.p, item.n);
        stext_put(t, ")");
        put_count(t, min > p + least ? min - p - least : 0, max < 0 ? -1 : max - p - least);
    }
    stext_put(t, ") \"]\" space ");
    json_decref(both);
    mem_free(hit.p);
    mem_free(item.p);
    return st;
}

static enum infer_status visit_list(struct schema *S, const json_t *j, const json_t *items, struct stext *t) {
    int64_t min, max;
    TRY(count_items(j, &min, &max));
    if (json_is_true(json_object_get(j, "uniqueItems")) && max != 0 && max != 1)
        return visit_unique(S, j, items, t);
    stext_put(t, "\"[\" space ");
    if (max == 0 || json_is_false(items)) {
        stext_put(t, "\"]\" space ");
        return min > 0
                   ? err_set(INFER_E_INPUT, "an array without elements, and minItems %lld", (long long)min)
                   : INFER_OK;
    }
    struct stext item = {0};
    enum infer_status st = put_element(S, items, &item);
    if (min == 0) stext_put(t, "( ");
    stext_add(t, item.p, item.n);
    stext_put(t, "( \",\" space ");
    stext_add(t, item.p, item.n);
    stext_put(t, ")");
    put_count(t, min > 1 ? min - 1 : 0, max < 0 ? -1 : max - 1);
    stext_put(t, "%s\"]\" space ", min == 0 ? ")? " : "");
    t->failed |= item.failed;
    mem_free(item.p);
    return st;
}

enum infer_status schema_array(struct schema *S, const json_t *j, struct stext *t) {
    const json_t *items = json_object_get(j, "items"), *prefix = json_object_get(j, "prefixItems"), *v;
    const json_t *least = json_object_get(j, "minContains");
    const bool none = json_is_number(least) && json_number_value(least) == 0 &&
                      !json_object_get(j, "maxContains"),
               contains = json_object_get(j, "contains") && !none;
    v = json_object_get(j, "unevaluatedItems");
    if (v && !items && !json_is_array(prefix)) items = v; /* nothing else speaks of elements */
    bool old = json_is_array(items);
    if (contains)
        return old || prefix ? schema_unsupported("contains beside prefixItems")
                             : visit_contains(S, j, items, t);
    if (!old && !json_is_array(prefix)) return visit_list(S, j, items ? items : prefix, t);
    if (json_is_true(json_object_get(j, "uniqueItems"))) return schema_unsupported("uniqueItems");
    const json_t *rest = old ? json_object_get(j, "additionalItems") : items;
    if (json_is_true(rest)) rest = NULL; /* more elements are allowed, and none is made */
    return visit_tuple(S, j, old ? items : prefix, rest ? rest : v, t);
}
