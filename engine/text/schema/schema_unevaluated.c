/* unevaluatedProperties and unevaluatedItems of a JSON Schema. They speak of members and elements that nothing in their own schema has seen: not what stands
 * beside it. So a part that has them is closed before it is joined with others: where it is flat they are additionalProperties and
 * items; where it has branches, each of them is. Of two branches that hold at once each is closed by itself, so that a closed schema may allow less; proofs do not use
 * it. source: JSON Schema 2020-12 core, 11 */
#include "text/schema/schema_int.h"

#include <string.h>

enum { BRANCHES_DEEP = 8, CLOSED_DEEP = 32 };

static json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }
static enum infer_status no_memory(void) { return err_set(INFER_E_MEMORY, "out of memory: a schema"); }

bool schema_has_unevaluated(const json_t *j) {
    return get(j, "unevaluatedProperties") || get(j, "unevaluatedItems");
}

/* ---- lists --------------------------------------------------------------------------------------------------- */

enum infer_status schema_tuple_form(const json_t *j, json_t **out) {
    const json_t *items = get(j, "items");
    const bool old = json_is_array(items), loose = !get(j, "contains");
    json_t *made = json_copy((json_t *)j);
    *out = made;
    if (!made) return no_memory();
    bool failed = false;
    if (old && get(j, "prefixItems")) {
        json_decref(made);
        return *out = NULL, err_set(INFER_E_INPUT, "items is a list beside prefixItems");
    }
    if (old) {
        json_t *rest = get(j, "additionalItems");
        failed = json_object_set(made, "prefixItems", (json_t *)items) != 0;
        json_object_del(made, "items");
        if (rest) failed |= json_object_set(made, "items", rest) != 0;
    }
    json_object_del(made, "additionalItems"); /* says nothing beside one schema for all */
    if (loose) json_object_del(made, "minContains");
    if (loose) json_object_del(made, "maxContains");
    if (!failed) return INFER_OK;
    json_decref(made);
    *out = NULL;
    return no_memory();
}

/* ---- one schema without branches ----------------------------------------------------------------------------- */

enum infer_status schema_close_flat(const struct schema *S, const json_t *j, json_t **out) {
    json_t *made, *members = get(j, "unevaluatedProperties"), *items = get(j, "unevaluatedItems"),
                  *contains = get(j, "contains");
    TRY(schema_tuple_form(j, &made));
    bool failed = false;
    if (members && !get(made, "additionalProperties"))
        failed = json_object_set(made, "additionalProperties", members) != 0;
    if (items && !get(made, "items")) {
        const bool seen = contains && S->contains_sees;
        json_t *rest = seen ? json_pack("{s:[O, O]}", "anyOf", contains, items) : json_incref(items);
        failed |= !rest || json_object_set_new(made, "items", rest) != 0;
    }
    json_object_del(made, "unevaluatedProperties");
    json_object_del(made, "unevaluatedItems");
    *out = made;
    if (!failed) return INFER_OK;
    json_decref(made);
    *out = NULL;
    return no_memory();
}

/* ---- branches ------------------------------------------------------------------------------------------------ */

/* j, with nothing left to resolve, and the keywords of `open`, closed in each of its branches. */
static enum infer_status close_branches(struct schema *S, const json_t *j, const json_t *open, int depth,
                                        json_t **out) {
    const char *key = get(j, "anyOf") ? "anyOf" : get(j, "oneOf") ? "oneOf" : NULL;
    json_t *copy, *ways, *part, *whole, *closed;
    size_t i;
    enum infer_status st = INFER_OK;
    if (!key) {
        copy = json_copy((json_t *)j);
        const bool failed = !copy || json_object_update(copy, (json_t *)open);
        st = failed ? no_memory() : schema_close_flat(S, copy, out);
        json_decref(copy);
        return st;
    }
    if (S->proving || depth > BRANCHES_DEEP)
        return schema_unsupported("unevaluatedProperties or unevaluatedItems beside branches");
    json_t *branches = json_incref(get(j, key));
    if (key[0] == 'o') json_decref(branches), branches = NULL;
    if (!branches) TRY(schema_exclusive(S, j, false, &branches));
    if (!(ways = json_array())) st = no_memory();
    json_array_foreach(branches, i, part) {
        whole = closed = NULL;
        if (!st) st = schema_join(S, j, key, part, &whole);
        if (!st) st = close_branches(S, whole, open, depth + 1, &closed);
        json_decref(whole);
        if (st && S->nothing) st = INFER_OK, S->nothing = false; /* the branch is none */
        if (closed && json_array_append_new(ways, closed)) st = no_memory();
    }
    if (!st && json_array_size(ways) == 0) st = schema_nothing(S, "no branch of '%s' is valid", key);
    if (!st && !(*out = json_pack("{s:O}", "anyOf", ways))) st = no_memory();
    json_decref(ways);
    json_decref(branches);
    return st;
}

enum infer_status schema_closed(struct schema *S, const json_t *j, json_t **out) {
    static const char *const keys[] = {"unevaluatedProperties", "unevaluatedItems"};
    json_t *rest = json_copy((json_t *)j), *open = json_object(), *whole = NULL, *v;
    bool failed = !rest || !open;
    *out = NULL;
    for (int k = 0; k < 2; k++) {
        if ((v = get(j, keys[k]))) failed |= json_object_set(open, keys[k], v) != 0;
        json_object_del(rest, keys[k]);
    }
    enum infer_status st = failed ? no_memory() : INFER_OK;
    if (++S->n_close > CLOSED_DEEP)
        st = err_set(INFER_E_INPUT, "unevaluatedProperties or unevaluatedItems behind themselves");
    if (!st) st = schema_join(S, rest, NULL, NULL, &whole);
    if (!st) st = close_branches(S, whole, open, 0, out);
    S->n_close--;
    json_decref(rest);
    json_decref(open);
    json_decref(whole);
    return st;
}
