/* Names and references of a JSON Schema, read once before it is visited: each $ref becomes an absolute text that S->targets leads to its schema, so that parts may be
 * joined wherever they come from. $id, $anchor and $dynamicAnchor name schemas of the file; a $dynamicRef or $recursiveRef is a $ref where it has one target
 * whatever way leads there: only one resource declares the name, or the outermost does. source: JSON Schema 2020-12 core, 8.2 and 9; drafts 4 to 2019-09 */
#include "base/mem.h"
#include "text/grammar/grammar.h"
#include "text/schema/schema_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nodes[i] has the base URI bases[i]; seen: "%p" of a node -> i. ids: URI -> node, anchors: "URI#name" -> node, dynamic: name -> URIs of the resources that
 * declare it (a $recursiveAnchor has the name ""). */
struct ids {
    struct schema *S;
    json_t *nodes, *bases, *seen, *ids, *anchors, *dynamic;
    const char *id_key;
    int depth;
};

static json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }
static const char *text_of(const json_t *j, const char *key) { return json_string_value(get(j, key)); }
static enum infer_status no_memory(void) { return err_set(INFER_E_MEMORY, "out of memory: a schema"); }

static void key_of(char *key, const json_t *node) { snprintf(key, 32, "%p", (const void *)node); }

/* The base URI of a node, NULL: not met yet. */
static const char *base_of(const struct ids *R, const json_t *node) {
    char key[32];
    key_of(key, node);
    const json_t *at = get(R->seen, key);
    return at ? json_string_value(json_array_get(R->bases, (size_t)json_integer_value(at))) : NULL;
}

/* ---- names --------------------------------------------------------------------------------------------------- */

/* "base#name"; mem_free, NULL: out of memory */
static char *with_name(const char *base, const char *name) {
    const size_t n = strlen(base) + strlen(name) + 2;
    char *text = mem_piece(n);
    if (text) snprintf(text, n, "%s#%s", base, name);
    return text;
}

static enum infer_status put_anchor(struct ids *R, const char *base, const char *name, json_t *node) {
    char *text = with_name(base, name);
    const bool failed = !text || json_object_set(R->anchors, text, node);
    mem_free(text);
    return failed ? no_memory() : INFER_OK;
}

static enum infer_status put_dynamic(struct ids *R, const char *base, const char *name) {
    json_t *list = get(R->dynamic, name);
    if (!list && json_object_set_new(R->dynamic, name, list = json_array())) return no_memory();
    return json_array_append_new(list, json_string(base)) ? no_memory() : INFER_OK;
}

/* $id: a URI without its fragment in *base (mem_free) where it names a resource; before 2019-09 a fragment names the schema alone. */
static enum infer_status read_id(struct ids *R, json_t *node, const char *old, char **base) {
    const char *id = text_of(node, R->id_key);
    *base = NULL;
    if (!id || (R->S->ref_alone && get(node, "$ref"))) return INFER_OK;
    if (!(*base = schema_uri(old, id))) return no_memory();
    char *fragment = strchr(*base, '#');
    if (fragment) *fragment++ = 0;
    if (fragment && *fragment) TRY(put_anchor(R, *base, fragment, node));
    return *id != '#' && json_object_set(R->ids, *base, node) ? no_memory() : INFER_OK;
}

static enum infer_status read_names(struct ids *R, json_t *node, const char *base) {
    const char *anchor = text_of(node, "$anchor"), *dynamic = text_of(node, "$dynamicAnchor");
    if (anchor) TRY(put_anchor(R, base, anchor, node));
    if (dynamic) TRY(put_anchor(R, base, dynamic, node));
    if (dynamic) TRY(put_dynamic(R, base, dynamic));
    if (json_is_true(get(node, "$recursiveAnchor")) && get(R->ids, base) == node)
        TRY(put_dynamic(R, base, ""));
    return INFER_OK;
}

/* ---- every schema of the file -------------------------------------------------------------------------------- */

static enum infer_status walk(struct ids *R, json_t *node, const char *base);

static enum infer_status walk_list(struct ids *R, json_t *list, const char *base) {
    json_t *v;
    size_t i;
    json_array_foreach(list, i, v) TRY(walk(R, v, base));
    return INFER_OK;
}

static enum infer_status walk_below(struct ids *R, json_t *node, const char *base) {
    static const char *const one[] = {"additionalProperties",
                                      "unevaluatedProperties",
                                      "additionalItems",
                                      "unevaluatedItems",
                                      "items",
                                      "contains",
                                      "propertyNames",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      NULL},
                             *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items", NULL},
                             *const maps[] = {"properties",       "patternProperties", "$defs", "definitions",
                                              "dependentSchemas", "dependencies",      NULL};
    for (const char *const *k = one; *k; k++) TRY(walk(R, get(node, *k), base));
    for (const char *const *k = lists; *k; k++) TRY(walk_list(R, get(node, *k), base));
    for (const char *const *k = maps; *k; k++) {
        const char *name;
        json_t *v;
        json_object_foreach(get(node, *k), name, v) TRY(walk(R, v, base));
    }
    return INFER_OK;
}

/* Meets a schema and those in it, the names that they have; what is no object has none. */
static enum infer_status walk(struct ids *R, json_t *node, const char *base) {
    char key[32], *own;
    if (!json_is_object(node) || base_of(R, node)) return INFER_OK;
    if (++R->depth > SCHEMA_NESTED) return err_set(INFER_E_INPUT, "nested deeper than %d", SCHEMA_NESTED);
    key_of(key, node);
    TRY(read_id(R, node, base, &own));
    const char *mine = own ? own : base;
    const bool failed =
        json_object_set_new(R->seen, key, json_integer((json_int_t)json_array_size(R->nodes))) ||
        json_array_append(R->nodes, node) || json_array_append_new(R->bases, json_string(mine));
    enum infer_status st = failed ? no_memory() : read_names(R, node, mine);
    if (!st) st = walk_below(R, node, mine);
    mem_free(own);
    R->depth--;
    return st;
}

/* ---- references ---------------------------------------------------------------------------------------------- */

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* A fragment with %41 decoded, in place. */
static void decode(char *p) {
    char *out = p;
    for (; *p; p++) {
        const bool coded = *p == '%' && hex(p[1]) >= 0 && hex(p[2]) >= 0;
        *out++ = coded ? (char)(hex(p[1]) * 16 + hex(p[2])) : *p;
        if (coded) p += 2;
    }
    *out = 0;
}

/* One name of a JSON pointer, from p on, with ~0 and ~1 decoded in place. Returns where the next begins, NULL: it is the last. */
static char *pointer_name(char *p) {
    char *out = p;
    for (; *p && *p != '/'; p++) {
        const bool coded = *p == '~' && (p[1] == '0' || p[1] == '1');
        *out++ = !coded ? *p : *++p == '0' ? '~' : '/';
    }
    char *next = *p ? p + 1 : NULL;
    *out = 0;
    return next;
}

/* Follows a JSON pointer; a schema that stands where no keyword looks is met here. */
static enum infer_status follow(struct ids *R, json_t *node, char *pointer, json_t **out) {
    const char *base = base_of(R, node);
    for (char *next, *name = pointer; name && node; name = next) {
        next = pointer_name(name);
        char *end;
        const unsigned long at = strtoul(name, &end, 10);
        node = !json_is_array(node) ? get(node, name) : *name && !*end ? json_array_get(node, at) : NULL;
        if (node && base_of(R, node)) base = base_of(R, node);
    }
    *out = node;
    return node ? walk(R, node, base) : INFER_OK;
}

/* The schema that an absolute text names; NULL: none. *known: it is a resource of this file. */
static enum infer_status look_up(struct ids *R, const char *uri, json_t **out, bool *known) {
    char *text = mem_strdup(uri);
    if (!text) return no_memory();
    char *fragment = strchr(text, '#');
    if (fragment) *fragment++ = 0;
    enum infer_status st = INFER_OK;
    *out = get(R->ids, text);
    *known = *out != NULL;
    if (*out && fragment && *fragment) {
        decode(fragment);
        if (*fragment == '/') {
            st = follow(R, *out, fragment + 1, out);
        } else {
            char *anchor = with_name(text, fragment);
            *out = anchor ? get(R->anchors, anchor) : NULL;
            if (!anchor) st = no_memory();
            mem_free(anchor);
        }
    }
    mem_free(text);
    return st;
}

/* Sets $ref to an absolute text; beside a $ref that is there: one more part of allOf. */
static enum infer_status set_ref(json_t *node, const char *key, const char *uri) {
    json_t *v = json_string(uri), *all = get(node, "allOf");
    const bool beside = strcmp(key, "$ref") != 0 && get(node, "$ref");
    json_object_del(node, key);
    if (!beside) return !v || json_object_set_new(node, "$ref", v) ? no_memory() : INFER_OK;
    if (!all && json_object_set_new(node, "allOf", all = json_array())) all = NULL;
    v = json_pack("{s:o}", "$ref", v);
    return !all || !v || json_array_append_new(all, v) ? no_memory() : INFER_OK;
}

/* The resource that a dynamic name leads to wherever it is met; NULL: that depends on the way. */
static const char *outermost(const struct ids *R, const char *name) {
    const json_t *list = get(R->dynamic, name);
    const char *root = base_of(R, R->S->root);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), root) == 0) return root;
    return json_array_size(list) == 1 ? json_string_value(json_array_get(list, 0)) : NULL;
}

/* A dynamic reference with the first target at hand: *uri becomes what it leads to, *open: it cannot be said. */
static enum infer_status settle(struct ids *R, const char *key, const json_t *target, char **uri,
                                bool *open) {
    const bool recursive = strcmp(key, "$recursiveRef") == 0;
    const char *hash = strchr(*uri, '#'),
               *name = recursive ? ""
                       : hash    ? hash + 1
                                 : "",
               *declared = recursive ? (json_is_true(get(target, "$recursiveAnchor")) ? "" : NULL)
                                     : text_of(target, "$dynamicAnchor");
    *open = false;
    if (!declared || strcmp(declared, name) != 0) return INFER_OK; /* as $ref */
    const char *base = outermost(R, name);
    *open = !base;
    if (!base) return INFER_OK;
    char *settled = with_name(base, name);
    mem_free(*uri);
    *uri = settled;
    return settled ? INFER_OK : no_memory();
}

/* Makes a reference of node absolute and remembers its target; null: the file has none there. */
static enum infer_status read_ref(struct ids *R, json_t *node, const char *base, const char *key) {
    const char *ref = text_of(node, key);
    json_t *target;
    bool known, open = false;
    if (!ref) return INFER_OK;
    char *uri = schema_uri(base, ref);
    enum infer_status st = uri ? look_up(R, uri, &target, &known) : no_memory();
    if (!st && strcmp(key, "$ref") != 0 && target) {
        st = settle(R, key, target, &uri, &open);
        if (!st && !open) st = look_up(R, uri, &target, &known);
    }
    if (!st && !open && known && json_object_set(R->S->targets, uri, target ? target : json_null()))
        st = no_memory();
    if (!st && !open) st = set_ref(node, key, uri);
    mem_free(uri);
    return st;
}

/* Before 2019-09 nothing beside $ref counts. */
static enum infer_status drop_beside(json_t *node) {
    json_t *rest = json_copy(node), *v;
    const char *key;
    if (!rest) return no_memory();
    json_object_foreach(rest, key, v) if (strcmp(key, "$ref") != 0 && !schema_is_annotation(key))
        json_object_del(node, key);
    json_object_del(node, "format");
    json_decref(rest);
    return INFER_OK;
}

static enum infer_status read_all(struct ids *R) {
    static const char *const keys[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    json_t *root = R->S->root;
    if (json_object_set(R->ids, "", root)) return no_memory();
    TRY(walk(R, root, ""));
    for (size_t i = 0; i < json_array_size(R->nodes); i++) /* it grows while pointers are followed */
        for (int k = 0; k < 3; k++)
            TRY(read_ref(R, json_array_get(R->nodes, i), json_string_value(json_array_get(R->bases, i)),
                         keys[k]));
    for (size_t i = 0; i < json_array_size(R->nodes) && R->S->ref_alone; i++)
        if (text_of(json_array_get(R->nodes, i), "$ref")) TRY(drop_beside(json_array_get(R->nodes, i)));
    return INFER_OK;
}

enum infer_status schema_read_ids(struct schema *S) {
    const char *draft = text_of(S->root, "$schema");
    const bool fourth = draft && strstr(draft, "/draft-04/");
    struct ids R = {.S = S, .id_key = fourth ? "id" : "$id"};
    json_t **const made[] = {&R.nodes, &R.bases, &R.seen, &R.ids, &R.anchors, &R.dynamic};
    S->ref_alone = fourth || (draft && (strstr(draft, "/draft-06/") || strstr(draft, "/draft-07/")));
    S->contains_sees = !S->ref_alone && !(draft && strstr(draft, "/2019-09/"));
    enum infer_status st = INFER_OK;
    for (int i = 0; i < 6; i++)
        if (!(*made[i] = i < 2 ? json_array() : json_object())) st = no_memory();
    if (!st && json_is_object(S->root)) st = read_all(&R);
    for (int i = 0; i < 6; i++) json_decref(*made[i]);
    return st;
}

enum infer_status schema_resolve(const struct schema *S, const char *ref, const json_t **out) {
    const json_t *target = json_object_get(S->targets, ref);
    if (json_is_null(target) || (!target && *ref == '#'))
        return err_set(INFER_E_INPUT, "$ref '%.200s' leads nowhere", ref);
    if (!target) return err_set(INFER_E_UNSUPPORTED, "$ref '%.200s' leads out of the file", ref);
    *out = target;
    return INFER_OK;
}
