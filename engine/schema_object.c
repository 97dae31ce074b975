/* Objects of a JSON Schema: members in the order of the schema, the required ones first. */
#include "schema_int.h"

#include <stdlib.h>
#include <string.h>

static bool is_required(const json_t *required, const char *name) {
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *s = json_string_value(json_array_get(required, i));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

static void put_key(struct stext *t, const char *name) {
    stext_put(t, "\"\\\"");
    for (const char *c = name; *c; c++) { /* escaped for JSON, then for the literal */
        unsigned char u = (unsigned char)*c;
        if (u == '"' || u == '\\')
            stext_put(t, "\\\\\\%c", u);
        else if (u == '\n' || u == '\r' || u == '\t')
            stext_put(t, "\\\\%c", u == '\n' ? 'n' : u == '\r' ? 'r' : 't');
        else if (u < 0x20 || u == 0x7f)
            stext_put(t, "\\\\u%04x", u);
        else
            stext_add(t, c, 1);
    }
    stext_put(t, "\\\"\" ");
}

static size_t char_at(const char *s, int32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    size_t n = u[0] < 0x80 ? 1 : u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    *cp = n == 1 ? u[0] : u[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++) *cp = *cp << 6 | (u[i] & 0x3f);
    return n;
}

/* The rest of a name that is none of names[lo..hi) (sorted, equal up to byte `at`): a character towards one of them and so
 * on, or any other and then what comes, or the end where none ends. */
static void other_names(struct stext *t, const char *const *names, size_t lo, size_t hi, size_t at) {
    bool ends = names[lo][at] == 0; /* the shortest is the first */
    size_t first = lo + ends;
    stext_put(t, "( ");
    for (size_t i = first; i < hi;) {
        int32_t cp, other;
        size_t n = char_at(names[i] + at, &cp), k = i;
        while (k < hi && (char_at(names[k] + at, &other), other == cp)) k++;
        stext_put(t, "\"");
        stext_char(t, cp);
        stext_put(t, "\" ");
        other_names(t, names, i, k, at + n);
        stext_put(t, "| ");
        i = k;
    }
    stext_put(t, "[^\"\\\\\\x7F\\x00-\\x1F");
    for (size_t i = first; i < hi; i++) {
        int32_t cp;
        char_at(names[i] + at, &cp);
        stext_char(t, cp);
    }
    stext_put(t, "] plain* )%s ", ends ? "" : "?");
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A key that is none of the properties'. Without escapes, so that no other spelling of theirs is one. */
static enum infer_status put_other_key(struct stext *t, const json_t *properties) {
    size_t n = 0, cap = json_object_size(properties);
    const char **names, *key;
    json_t *v;
    TRY(mem_new(&names, (cap + 1) * sizeof *names, "names of a schema"));
    json_object_foreach((json_t *)properties, key, v) {
        bool plain =
            strlen(key) < GRAMMAR_MAX_DEPTH / 2; /* longer ones are nested too deep: no name of theirs */
        for (const char *c = key; *c; c++)
            plain &= (unsigned char)*c >= 0x20 && *c != '"' && *c != '\\' && *c != 0x7f;
        if (plain)
            names[n++] = key;
        else if (strlen(key) >= GRAMMAR_MAX_DEPTH / 2) {
            mem_free(names);
            return schema_unsupported("additionalProperties beside a property name of 64 bytes or more");
        }
    }
    if (n) qsort(names, n, sizeof *names, by_text);
    stext_put(t, "\"\\\"\" ");
    if (n)
        other_names(t, names, 0, n, 0);
    else
        stext_put(t, "plain* ");
    stext_put(t, "\"\\\"\" ");
    mem_free(names);
    return INFER_OK;
}

/* The rule of one property, or of any other (key NULL); its number in *out. */
static enum infer_status pair_rule(struct schema *S, const json_t *properties, const char *key,
                                   const json_t *schema, int *out) {
    struct stext t;
    enum infer_status st = INFER_OK;
    *out = schema_rule_begin(S, &t);
    if (key)
        put_key(&t, key);
    else
        st = put_other_key(&t, properties);
    stext_put(&t, "space \":\" space ");
    if (!st && (!schema || json_is_true(schema)))
        stext_put(&t, "value ");
    else if (!st)
        st = schema_visit(S, schema, &t);
    return schema_rule_end(S, &t, st);
}

struct members {
    int *required, *optional;          /* numbers of their rules */
    int n_required, n_optional, other; /* other: 0 none */
};

static enum infer_status collect_members(struct schema *S, const json_t *j, struct members *m) {
    const json_t *properties = json_object_get(j, "properties"), *required = json_object_get(j, "required");
    const json_t *more = json_object_get(j, "additionalProperties");
    const char *key;
    json_t *v;
    size_t i;
    int rule;
    if (properties && !json_is_object(properties))
        return err_set(INFER_E_INPUT, "schema: properties is no object");
    json_object_foreach((json_t *)properties, key, v) {
        TRY(pair_rule(S, properties, key, v, &rule));
        if (is_required(required, key))
            m->required[m->n_required++] = rule;
        else
            m->optional[m->n_optional++] = rule;
    }
    json_array_foreach((json_t *)required, i, v) {
        const char *name = json_string_value(v);
        if (!name) return err_set(INFER_E_INPUT, "schema: required holds something else than names");
        if (json_object_get(properties, name)) continue;
        if (json_is_false(more))
            return err_set(INFER_E_INPUT, "schema: '%s' is required and not allowed", name);
        TRY(pair_rule(S, properties, name, more, &rule));
        m->required[m->n_required++] = rule;
    }
    bool free_object = !properties && !more && !required;
    if ((more && !json_is_false(more)) || free_object) TRY(pair_rule(S, properties, NULL, more, &m->other));
    return INFER_OK;
}

/* Optional members from number i on, each with what may follow it: "a rest | b rest | other ...". */
static void put_optional(struct schema *S, struct stext *t, const struct members *m) {
    int *rest = m->optional + m->n_optional; /* the second half of the array: rules for what follows each */
    for (int i = m->n_optional - 1; i >= 0; i--) {
        struct stext r;
        rest[i] = schema_rule_begin(S, &r);
        if (i + 1 < m->n_optional)
            stext_put(&r, "( \",\" space r%d )? r%d", m->optional[i + 1], rest[i + 1]);
        else if (m->other)
            stext_put(&r, "( \",\" space r%d )*", m->other);
        else
            stext_put(&r, "\"\"");
        schema_rule_end(S, &r, INFER_OK);
    }
    for (int i = 0; i < m->n_optional; i++)
        stext_put(t, "%sr%d r%d ", i ? "| " : "", m->optional[i], rest[i]);
    if (m->other) stext_put(t, "%sr%d ( \",\" space r%d )* ", m->n_optional ? "| " : "", m->other, m->other);
}

enum infer_status schema_object(struct schema *S, const json_t *j, struct stext *t) {
    static const char *const refused[] = {"patternProperties",    "propertyNames",     "minProperties",
                                          "maxProperties",        "dependentRequired", "dependentSchemas",
                                          "unevaluatedProperties"};
    for (int i = 0; i < 7; i++)
        if (json_object_get(j, refused[i])) return schema_unsupported(refused[i]);
    size_t n = json_object_size(json_object_get(j, "properties")) +
               json_array_size(json_object_get(j, "required")) + 1;
    struct members m = {0};
    TRY(mem_new(&m.required, 3 * n * sizeof *m.required, "members of a schema"));
    m.optional = m.required + n;
    enum infer_status st = collect_members(S, j, &m);
    stext_put(t, "\"{\" space ");
    for (int i = 0; i < m.n_required; i++) stext_put(t, "%sr%d ", i ? "\",\" space " : "", m.required[i]);
    if (!st && (m.n_optional || m.other)) {
        stext_put(t, m.n_required ? "( \",\" space ( " : "( ");
        put_optional(S, t, &m);
        stext_put(t, m.n_required ? ") )? " : ")? ");
    }
    stext_put(t, "\"}\" space ");
    mem_free(m.required);
    return st;
}
