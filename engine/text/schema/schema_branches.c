/* anyOf and oneOf of a JSON Schema: branches side by side, without those under which nothing is valid. */
#include "text/schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

/* What is there before a schema is tried. */
struct mark {
    size_t n_text, n_branch, place;
    json_t *refs;
};

static enum infer_status mark_begin(const struct schema *S, const struct stext *t, struct mark *m) {
    *m = (struct mark){S->t.n, t->n, S->n_place, json_copy(S->refs)};
    return m->refs ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
}

/* Where nothing was valid *there is false, and no trace is left: rules, what refers to them, the place. */
static enum infer_status mark_end(struct schema *S, struct stext *t, struct mark *m, enum infer_status st,
                                  bool *there) {
    *there = !(st && S->nothing && st != INFER_E_MEMORY);
    if (!*there) {
        S->t.n = m->n_text;
        t->n = m->n_branch;
        schema_leave(S, m->place);
        S->nothing = false;
        json_object_clear(S->refs);
        if (json_object_update(S->refs, m->refs))
            *there = true, st = err_set(INFER_E_MEMORY, "out of memory: a schema");
    }
    json_decref(m->refs);
    return st;
}

enum infer_status schema_try(struct schema *S, const json_t *j, const char *key, struct stext *t,
                             bool *there) {
    struct mark m;
    *there = true;
    TRY(mark_begin(S, t, &m));
    enum infer_status st = mark_end(S, t, &m, schema_visit_at(S, key, NULL, j, t), there);
    return *there ? st : INFER_OK;
}

/* One branch; the status is why nothing is valid where *there is false. */
static enum infer_status try_branch(struct schema *S, const json_t *base, const char *key, const char *shown,
                                    size_t i, struct stext *t, bool *there) {
    const json_t *part = json_array_get(json_object_get(base, key), i);
    struct mark m;
    json_t *whole = NULL;
    *there = true;
    TRY(mark_begin(S, t, &m));
    enum infer_status st = schema_constrains(base, key) ? schema_join(S, base, key, part, &whole) : INFER_OK;
    if (!st) st = schema_visit_nth(S, shown, i, whole ? whole : part, t);
    json_decref(whole);
    return mark_end(S, t, &m, st, there);
}

enum infer_status schema_any_of(struct schema *S, const json_t *j, const char *shown, struct stext *t) {
    static const char key[] = "anyOf";
    const json_t *list = json_object_get(j, key);
    enum infer_status st = INFER_OK;
    bool some = false, there;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return err_set(INFER_E_INPUT, "%s is no list of schemas", shown);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t before = t->n;
        if (some) stext_put(t, "| ");
        st = try_branch(S, j, key, shown, i, t, &there);
        if (st && there) return st;
        some |= there;
        if (!there) t->n = before;
    }
    S->nothing = !some; /* then the last branch's message stands */
    return some ? INFER_OK : st;
}

/* The i-th branch of oneOf, which is whole with what stands beside it: itself where no text made for it is valid under another, else without
 * each other one that is not proved to be apart from it; to be given back. */
static enum infer_status only_branch(struct schema *S, const json_t *whole, const json_t *list, size_t i,
                                     bool alone, json_t **out) {
    json_t *parts = json_pack("[O]", json_array_get(list, i));
    bool failed = !parts;
    for (size_t k = 0; k < json_array_size(list) && alone; k++)
        alone = k == i || schema_made_apart(S, whole, json_array_get(list, k));
    for (size_t k = 0; k < json_array_size(list) && !alone; k++) {
        const json_t *other = json_array_get(list, k);
        if (k == i || schema_apart(S, whole, other, 0)) continue;
        failed |= json_array_append_new(parts, json_pack("{s:O}", "not", other)) != 0;
    }
    *out = failed ? NULL : alone ? json_incref(json_array_get(list, i)) : json_pack("{s:O}", "allOf", parts);
    json_decref(parts);
    return *out ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
}

enum infer_status schema_exclusive(struct schema *S, const json_t *j, bool alone, json_t **out) {
    const json_t *list = json_object_get(j, "oneOf");
    json_t *ways = json_array();
    enum infer_status st = ways ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    if (!st && json_array_size(list) == 0) st = err_set(INFER_E_INPUT, "oneOf is no list of schemas");
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        json_t *whole = NULL, *way = json_false();
        st = schema_join(S, j, "oneOf", json_array_get(list, i), &whole);
        if (!st) st = only_branch(S, whole, list, i, alone, &way);
        if (st && S->nothing && st != INFER_E_MEMORY)
            st = INFER_OK, S->nothing = false; /* the branch is none */
        if (!st && json_array_append_new(ways, way)) st = err_set(INFER_E_MEMORY, "out of memory: a schema");
        json_decref(whole);
    }
    *out = ways;
    if (st) json_decref(ways), *out = NULL;
    return st;
}

/* A branch stopped at what was taken away from it: the message names both. */
static enum infer_status name_branches(struct schema *S, const json_t *j, const json_t *ways, size_t place) {
    const json_t *list = json_object_get(j, "oneOf");
    char *end;
    const size_t skip = place + strlen("/oneOf/");
    if (S->n_place <= skip || strncmp(S->place + place, "/oneOf/", 7) != 0) return INFER_E_UNSUPPORTED;
    const size_t i = strtoul(S->place + skip, &end, 10);
    const json_t *taken =
        json_object_get(json_array_get(json_object_get(json_array_get(ways, i), "allOf"), 1), "not");
    size_t k = 0;
    while (k < json_array_size(list) && json_array_get(list, k) != taken) k++;
    if (*end || !taken || k == json_array_size(list)) return INFER_E_UNSUPPORTED;
    schema_leave(S, place);
    return err_set(INFER_E_UNSUPPORTED,
                   "'oneOf' whose branches %zu and %zu may both hold is not supported (anyOf is)",
                   i < k ? i : k, i < k ? k : i);
}

/* oneOf as anyOf of what only one branch takes. */
enum infer_status schema_one_of(struct schema *S, const json_t *j, struct stext *t) {
    json_t *ways, *copy;
    TRY(schema_exclusive(S, j, true, &ways));
    enum infer_status st = (copy = json_copy((json_t *)j)) && !json_object_set(copy, "anyOf", ways)
                               ? INFER_OK
                               : err_set(INFER_E_MEMORY, "out of memory: a schema");
    json_object_del(copy, "oneOf");
    const size_t place = S->n_place;
    if (!st) st = schema_any_of(S, copy, "oneOf", t);
    if (st == INFER_E_UNSUPPORTED) st = name_branches(S, j, ways, place);
    json_decref(copy);
    json_decref(ways);
    return st;
}
