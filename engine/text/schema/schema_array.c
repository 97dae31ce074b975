/* Arrays of a JSON Schema: tuples, lists, elements that differ, and some that have to be there. */
#include "text/schema/schema_int.h"

#include <string.h>

enum { UNIQUE_MAX = 6, CONTAINS_STATES = 2000 }; /* values in any order; places times hits that are counted */

/* What the keywords say. prefix: the first elements, n of them; rest: those behind, NULL: any; max -1: no end. */
struct elements {
    const json_t *prefix, *rest;
    int64_t n, min, max;
};

static void put_count(struct stext *t, int64_t min, int64_t max) {
    if (max < 0)
        stext_put(t, "{%lld,} ", (long long)min);
    else
        stext_put(t, "{%lld,%lld} ", (long long)min, (long long)max);
}

static enum infer_status put_any(struct schema *S, const json_t *items, struct stext *t) {
    if (items) return schema_visit_at(S, "items", NULL, items, t);
    schema_any(S, t);
    return INFER_OK;
}

/* The i-th element. */
static enum infer_status put_element(struct schema *S, const struct elements *e, int64_t i, struct stext *t) {
    if (i >= e->n) return put_any(S, e->rest, t);
    return schema_visit_nth(S, "prefixItems", (size_t)i, json_array_get(e->prefix, (size_t)i), t);
}

static const json_t *element_schema(const struct elements *e, int64_t i) {
    const json_t *own = i < e->n ? json_array_get(e->prefix, (size_t)i) : e->rest;
    return own ? own : json_true();
}

/* Exactly the elements of the list, as far as maxItems lets; more of them where minItems or "items" asks. */
static enum infer_status visit_tuple(struct schema *S, const struct elements *e, struct stext *t) {
    const int64_t n = e->max >= 0 && e->n > e->max ? e->max : e->n, min = e->min, max = e->max;
    stext_put(t, "\"[\" space ");
    for (int64_t i = 0; i < n; i++) {
        if (i) stext_put(t, "\",\" space ");
        TRY(put_element(S, e, i, t));
    }
    const bool more = e->rest && !json_is_true(e->rest) && (max < 0 || max > n);
    if (more || min > n) {
        struct stext item = {0};
        enum infer_status st = put_any(S, e->rest, &item);
        stext_put(t, n ? "( \",\" space " : "( ");
        stext_add(t, item.p, item.n);
        stext_put(t, ")");
        put_count(t, min > n ? min - n : 0, !more ? min - n : max < 0 ? -1 : max - n);
        t->failed |= item.failed;
        stext_free(&item);
        TRY(st);
    }
    stext_put(t, "\"]\" space ");
    return INFER_OK;
}

static enum infer_status visit_list(struct schema *S, const struct elements *e, struct stext *t) {
    stext_put(t, "\"[\" space ");
    if (e->max == 0) {
        stext_put(t, "\"]\" space ");
        return INFER_OK;
    }
    struct stext item = {0};
    enum infer_status st = put_any(S, e->rest, &item);
    if (e->min == 0) stext_put(t, "( ");
    stext_add(t, item.p, item.n);
    stext_put(t, "( \",\" space ");
    stext_add(t, item.p, item.n);
    stext_put(t, ")");
    put_count(t, e->min > 1 ? e->min - 1 : 0, e->max < 0 ? -1 : e->max - 1);
    stext_put(t, "%s\"]\" space ", e->min == 0 ? ")? " : "");
    t->failed |= item.failed;
    stext_free(&item);
    return st;
}

/* ---- elements that differ ------------------------------------------------------------------------------------ */

/* Adds the values of an element that are not there yet: those of const or enum, or both booleans. */
static enum infer_status add_values(struct schema *S, const json_t *items, json_t *some) {
    json_t *whole = json_is_object(items) ? schema_effective(S, items) : NULL, *v;
    const char *type = json_string_value(json_object_get(whole, "type"));
    const json_t *only = json_object_get(whole, "const"), *list = json_object_get(whole, "enum");
    const bool boolean = !only && !list && type && strcmp(type, "boolean") == 0;
    json_t *all = only      ? json_pack("[O]", only)
                  : list    ? json_incref((json_t *)list)
                  : boolean ? json_pack("[b, b]", 0, 1)
                            : NULL;
    enum infer_status st = whole && all ? INFER_OK : schema_unsupported("uniqueItems");
    for (size_t i = 0, k; !st && i < json_array_size(all); i++) {
        v = json_array_get(all, i);
        enum schema_verdict fits = schema_valid(S, whole, v, 0);
        for (k = 0; k < json_array_size(some); k++)
            if (schema_same_value(v, json_array_get(some, k))) fits = SCHEMA_NO;
        if (fits == SCHEMA_UNKNOWN || json_is_object(v) || json_is_array(v))
            st = schema_unsupported("uniqueItems");
        if (fits == SCHEMA_YES) json_array_append(some, v);
    }
    if (!st && json_array_size(some) > UNIQUE_MAX)
        st = schema_unsupported("uniqueItems over more than 6 values");
    json_decref(whole);
    json_decref(all);
    return st;
}

/* The values of all elements. Behind a tuple none is made where nothing is said of it. */
static enum infer_status distinct_values(struct schema *S, struct elements *e, json_t **out) {
    if (e->n && (!e->rest || json_is_true(e->rest)) && (e->max < 0 || e->max > e->n)) e->max = e->n;
    if (e->min > e->max && e->max >= 0) return schema_unsupported("uniqueItems");
    json_t *some = json_array();
    enum infer_status st = some ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    const int64_t n = e->max >= 0 && e->max <= e->n ? e->max : e->n + 1;
    for (int64_t i = 0; i < n && !st; i++) st = add_values(S, element_schema(e, i), some);
    *out = some;
    if (st) json_decref(some);
    return st;
}

/* Rules rule[taken]: what may follow when the values of a set of bits are taken. Where none may, and the elements are too few,
 * the rule has no text: such a set is not entered. */
static enum infer_status visit_unique(struct schema *S, struct elements *e, struct stext *t) {
    json_t *values = NULL;
    TRY(distinct_values(S, e, &values));
    const int n = (int)json_array_size(values);
    int rule[1 << UNIQUE_MAX];
    enum infer_status st = INFER_OK;
    for (int taken = (1 << n) - 1; !st && taken >= 0; taken--) {
        struct stext r;
        const int many = __builtin_popcount((unsigned)taken), begun = schema_rule_begin(S, &r);
        bool some = many >= e->min;
        if (some) stext_put(&r, "\"\" ");
        for (int i = 0; i < n && !st && (e->max < 0 || many < e->max); i++) {
            const json_t *v = json_array_get(values, (size_t)i);
            if (taken >> i & 1 || !rule[taken | 1 << i]) continue;
            if (schema_valid(S, element_schema(e, many), v, 0) != SCHEMA_YES) continue;
            stext_put(&r, "%s%s", some ? "| " : "", many ? "\",\" space " : "");
            some = true;
            st = schema_put_constant(&r, v);
            stext_put(&r, "space r%d ", rule[taken | 1 << i]);
        }
        rule[taken] = some ? begun : 0;
        if (!some) stext_put(&r, "\"\" "); /* no rule refers to it */
        st = schema_rule_end(S, &r, st);
    }
    if (!st && !rule[0])
        st = schema_nothing(S, "minItems %lld, and there are %d values", (long long)e->min, n);
    if (!st) stext_put(t, "\"[\" space r%d \"]\" space ", rule[0]);
    json_decref(values);
    return st;
}

/* ---- contains ------------------------------------------------------------------------------------------------ */

/* A place's element as a rule, 0: there is none. any: of items, or one that is no hit where hits have a limit. */
struct kind {
    int any, hit;
};
struct hits {
    const json_t *contains;
    int64_t least, most, places, top; /* most -1: any number; places and hits up to top are told apart */
    struct kind *kind;                /* [n + 1] */
    int *rule;                        /* [places + 1][top + 1], 0: no way leads to an end */
};

/* The rule of a schema; 0 where nothing is valid under it. */
static enum infer_status rule_of(struct schema *S, const json_t *part, const char *key, int *out) {
    struct stext t = {0};
    bool there;
    *out = S->n_rule + 1;
    enum infer_status st = schema_try(S, part, key, &t, &there);
    if (!there) *out = 0;
    stext_free(&t);
    return there ? st : INFER_OK;
}

static enum infer_status read_kind(struct schema *S, const struct hits *h, const json_t *item,
                                   struct kind *kind) {
    json_t *hit = json_pack("{s:[O, O]}", "allOf", item, h->contains),
           *miss = json_pack("{s:[O, {s:O}]}", "allOf", item, "not", h->contains);
    enum infer_status st = hit && miss ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    if (!st && h->top) st = rule_of(S, hit, "contains", &kind->hit);
    if (!st) st = rule_of(S, h->most < 0 ? item : miss, h->most < 0 ? "items" : "contains", &kind->any);
    json_decref(hit);
    json_decref(miss);
    return st;
}

/* One state's rule: p elements are there, and k hits. */
static void put_state(struct schema *S, const struct elements *e, const struct hits *h, int64_t p,
                      int64_t k) {
    struct stext r;
    const struct kind *kind = h->kind + (p < e->n ? p : e->n);
    const int64_t width = h->top + 1, next = p < h->places ? p + 1 : p, more = k < h->top ? k + 1 : k;
    int *own = h->rule + p * width + k;
    const bool go = e->max < 0 || p < e->max, ends = p >= e->min && k >= h->least,
               loop = next == p; /* without a bound the last place goes on to itself */
    const int hit = go && more > k ? h->rule[next * width + more] : 0;
    const int any = !go ? 0 : loop ? (ends || (hit && kind->hit)) : h->rule[next * width + k];
    if (!ends && !(any && kind->any) && !(hit && kind->hit)) return;
    *own = schema_rule_begin(S, &r);
    const char *between = "", *comma = p ? "\",\" space " : "";
    if (ends) stext_put(&r, "\"\" "), between = "| ";
    if (any && kind->any)
        stext_put(&r, "%s%sr%d r%d ", between, comma, kind->any, loop ? *own : any), between = "| ";
    if (hit && kind->hit) stext_put(&r, "%s%sr%d r%d ", between, comma, kind->hit, hit);
    schema_rule_end(S, &r, INFER_OK);
}

/* "contains": a rule for each number of elements and of hits so far. */
static enum infer_status visit_contains(struct schema *S, const json_t *j, struct elements *e,
                                        struct stext *t) {
    struct hits h = {.contains = json_object_get(j, "contains")};
    TRY(schema_count(j, "minContains", 1, &h.least));
    TRY(schema_count(j, "maxContains", -1, &h.most));
    h.top = h.most < 0 ? h.least : h.most;
    h.places = e->max >= 0 ? e->max : e->min > e->n ? e->min : e->n;
    if (h.places == 0) h.places = 1; /* a place with a comma before what follows */
    if ((h.places + 1) * (h.top + 1) > CONTAINS_STATES)
        return schema_unsupported("contains with more than 2000 places and hits to be counted");
    if (h.most >= 0 && h.least > h.most) return schema_nothing(S, "minContains is above maxContains");
    if (e->max >= 0 && h.least > e->max)
        return schema_nothing(S, "contains needs %lld elements, and %lld are allowed", (long long)h.least,
                              (long long)e->max);
    const size_t n_rule = (size_t)((h.places + 1) * (h.top + 1));
    TRY(mem_new(&h.rule, n_rule * sizeof *h.rule, "a schema"));
    enum infer_status st = mem_new(&h.kind, (size_t)(e->n + 1) * sizeof *h.kind, "a schema");
    for (int64_t i = 0; i <= e->n && !st; i++) st = read_kind(S, &h, element_schema(e, i), h.kind + i);
    for (int64_t p = h.places; p >= 0 && !st; p--)
        for (int64_t k = h.top; k >= 0; k--) put_state(S, e, &h, p, k);
    if (!st && !h.rule[0]) st = schema_nothing(S, "no list has the elements of 'contains'");
    if (!st) stext_put(t, "\"[\" space r%d \"]\" space ", h.rule[0]);
    mem_free(h.rule);
    mem_free(h.kind);
    return st;
}

/* ---- the keywords -------------------------------------------------------------------------------------------- */

static enum infer_status read_elements(struct schema *S, const json_t *j, struct elements *e) {
    const json_t *items = json_object_get(j, "items"), *behind = json_object_get(j, "unevaluatedItems");
    const bool old = json_is_array(items);
    TRY(schema_count(j, "minItems", 0, &e->min));
    TRY(schema_count(j, "maxItems", -1, &e->max));
    e->prefix = old ? items : json_object_get(j, "prefixItems");
    e->rest = old ? json_object_get(j, "additionalItems") : items;
    if (!e->rest) e->rest = behind;
    e->n = (int64_t)json_array_size(e->prefix);
    if (e->max >= 0 && e->max < e->min)
        return schema_nothing(S, "maxItems %lld is less than minItems %lld", (long long)e->max,
                              (long long)e->min);
    int64_t end = e->n;
    for (int64_t i = e->n; i-- > 0;)
        if (schema_is_never(json_array_get(e->prefix, (size_t)i))) end = i;
    if (end == e->n && !(e->rest && schema_is_never(e->rest))) return INFER_OK;
    if (e->max < 0 || e->max > end) e->max = end; /* an element that cannot be: the list ends before it */
    if (e->min <= end) return INFER_OK;
    return schema_nothing(S, "minItems %lld, and only %lld elements are allowed", (long long)e->min,
                          (long long)end);
}

enum infer_status schema_array(struct schema *S, const json_t *j, struct stext *t) {
    struct elements e = {0};
    TRY(read_elements(S, j, &e));
    const json_t *contains = json_object_get(j, "contains"), *least = json_object_get(j, "minContains");
    const bool none = json_is_number(least) && json_number_value(least) == 0 &&
                      !json_object_get(j, "maxContains"),
               unique = json_is_true(json_object_get(j, "uniqueItems")) && e.max != 0 && e.max != 1;
    if (contains && !none)
        return unique ? schema_unsupported("uniqueItems beside contains") : visit_contains(S, j, &e, t);
    if (unique) return visit_unique(S, &e, t);
    return e.n ? visit_tuple(S, &e, t) : visit_list(S, &e, t);
}
