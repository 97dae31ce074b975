/* Conditions of a JSON Schema become anyOf: the condition holds and what it asks for does, or it does not hold. */
#include "text/schema/schema_int.h"

static json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }

static const char *const conditions[] = {
    "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", NULL};

bool schema_has_condition(const json_t *j) {
    for (const char *const *k = conditions; *k; k++)
        if (get(j, *k)) return true;
    return false;
}

/* The member is not there, or those of a list are; or it is there and a schema holds, which sees members then. */
static json_t *dependency(const char *name, json_t *v) {
    json_t *then = json_is_array(v)
                       ? json_pack("{s:O}", "required", v)
                       : json_pack("{s:[{s:s, s:[s]}, O]}", "allOf", "type", "object", "required", name, v);
    return json_pack("{s:[{s:{s:b}}, o]}", "anyOf", "properties", name, 0, then);
}

enum infer_status schema_conditions(const json_t *j, json_t **out) {
    json_t *rest = json_copy((json_t *)j), *parts = json_array(), *yes = json_true(), *v;
    json_t *when = get(j, "if"), *then = get(j, "then"), *other = get(j, "else");
    bool failed = !rest || !parts || json_array_append(parts, rest);
    for (const char *const *k = conditions; *k; k++) json_object_del(rest, *k);
    if (when && (then || other))
        failed |= json_array_append_new(parts, json_pack("{s:[{s:[O, O]}, {s:[{s:O}, O]}]}", "anyOf", "allOf",
                                                         when, then ? then : yes, "allOf", "not", when,
                                                         other ? other : yes)) != 0;
    for (int i = 3; i < 6; i++) {
        const char *name;
        json_object_foreach(get(j, conditions[i]), name, v) failed |=
            json_array_append_new(parts, dependency(name, v)) != 0;
    }
    *out = failed ? NULL : json_pack("{s:O}", "allOf", parts);
    for (int i = 0; i < 2; i++) { /* these see what the conditions have seen, so they stay outside */
        static const char *const outer[] = {"unevaluatedProperties", "unevaluatedItems"};
        if (*out && get(j, outer[i])) failed |= json_object_set(*out, outer[i], get(j, outer[i])) != 0;
        json_object_del(rest, outer[i]);
    }
    json_decref(rest);
    json_decref(parts);
    if (!failed && *out) return INFER_OK;
    json_decref(*out);
    return err_set(INFER_E_MEMORY, "out of memory: a schema");
}
