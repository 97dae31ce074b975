/* Objects of a JSON Schema: members in the order of the schema, the required ones first. */
#include "text/schema/schema_int.h"

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
enum infer_status schema_other_key(struct stext *t, const json_t *properties) {
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

/* ---- members ------------------------------------------------------------------------------------------------- */

struct members {
    const json_t *properties, *required, *patterns, *names, *more; /* keywords; more: of all other members */
    int *require, *optional;                                       /* numbers of their rules */
    int n_require, n_optional, other;                              /* other: 0 none */
    int64_t min, max;                                              /* how many; max -1: no end */
};

static void read_keywords(struct members *m, const json_t *j) {
    m->properties = json_object_get(j, "properties");
    m->required = json_object_get(j, "required");
    m->patterns = json_object_get(j, "patternProperties");
    m->names = json_object_get(j, "propertyNames");
    m->more = json_object_get(j, "additionalProperties");
}

/* What is said about a member: its own schema and those of the patterns that its name matches; else that of all others. The
 * caller gives *out back; NULL: any value. */
static enum infer_status member_schema(const struct members *m, const char *name, const json_t *own,
                                       json_t **out) {
    const char *pattern;
    json_t *v, *all = json_array();
    enum infer_status st = all ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: a schema");
    if (own) json_array_append(all, (json_t *)own);
    json_object_foreach((json_t *)m->patterns, pattern, v) {
        bool matches = false;
        if (!st) st = schema_matches(pattern, name, &matches);
        if (matches) json_array_append(all, v);
    }
    if (json_array_size(all) == 0 && m->more) json_array_append(all, (json_t *)m->more);
    *out = NULL;
    if (!st && json_array_size(all) == 1) *out = json_incref(json_array_get(all, 0));
    if (!st && json_array_size(all) > 1) *out = json_pack("{s:O}", "allOf", all);
    json_decref(all);
    return st;
}

/* The name is one that propertyNames allows. */
static enum infer_status name_allowed(struct schema *S, const struct members *m, const char *name,
                                      bool *allowed) {
    json_t *text = m->names ? json_string(name) : NULL;
    enum schema_verdict v = m->names ? schema_valid(S, m->names, text, 0) : SCHEMA_YES;
    json_decref(text);
    *allowed = v == SCHEMA_YES;
    return v == SCHEMA_UNKNOWN ? schema_unsupported("propertyNames that cannot be tried on the properties")
                               : INFER_OK;
}

/* The rule of a pair: the key that is in key already, and its value. */
static enum infer_status pair_rule(struct schema *S, const struct stext *key, const char *keyword,
                                   const char *name, const json_t *schema, int *out) {
    struct stext t;
    enum infer_status st = INFER_OK;
    *out = schema_rule_begin(S, &t);
    stext_add(&t, key->p, key->n);
    t.failed |= key->failed;
    stext_put(&t, "space \":\" space ");
    if (!schema || json_is_true(schema))
        schema_any(S, &t);
    else
        st = schema_visit_at(S, keyword, name, schema, &t);
    return schema_rule_end(S, &t, st);
}

/* One named member: a rule among the required or optional ones, none where it may not be there. */
static enum infer_status add_named(struct schema *S, struct members *m, const char *name, const json_t *own) {
    json_t *schema;
    bool allowed, needed = is_required(m->required, name);
    int rule = 0;
    TRY(name_allowed(S, m, name, &allowed));
    TRY(member_schema(m, name, own, &schema));
    allowed &= !schema || !schema_is_never(schema);
    enum infer_status st = INFER_OK;
    if (allowed) {
        struct stext key = {0};
        put_key(&key, name);
        st =
            pair_rule(S, &key, own ? "properties" : "additionalProperties", own ? name : NULL, schema, &rule);
        mem_free(key.p);
    } else if (needed) {
        st = schema_nothing(S, "'%.100s' is required and not allowed", name);
    }
    if (rule && needed)
        m->require[m->n_require++] = rule;
    else if (rule)
        m->optional[m->n_optional++] = rule;
    json_decref(schema);
    return st;
}

/* The rule of a name, of which each character has one spelling; rules of texts that are values are not its own. */
static enum infer_status visit_names(struct schema *S, const json_t *names, struct stext *key) {
    json_t *refs = S->refs;
    if (!(S->refs = json_object())) {
        S->refs = refs;
        return err_set(INFER_E_MEMORY, "out of memory: a schema");
    }
    S->in_name = true;
    enum infer_status st = schema_visit_at(S, "propertyNames", NULL, names, key);
    S->in_name = false;
    json_decref(S->refs);
    S->refs = refs;
    return st;
}

/* All other members: names of the one pattern, names that propertyNames allows, or any that is no property's. None are made
 * where a name could be one that other keywords speak of. */
static enum infer_status add_other(struct schema *S, struct members *m) {
    const json_t *schema = m->more;
    struct stext key = {.name = true};
    enum infer_status st = INFER_OK;
    bool named = json_object_size(m->properties) || json_array_size(m->required);
    const bool few = m->n_require + m->n_optional < m->min; /* then others are made where they are allowed */
    bool free_object = !m->more && ((schema_names_none(m->properties) && !m->required) || few);
    size_t was = S->n_place;
    if (json_object_size(m->patterns)) {
        const char *pattern = json_object_iter_key(json_object_iter((json_t *)m->patterns)), *name;
        json_t *v;
        bool matches = json_object_size(m->patterns) > 1 || m->names;
        json_object_foreach((json_t *)m->properties, name, v) if (!matches)
            TRY(schema_matches(pattern, name, &matches));
        for (size_t i = 0; i < json_array_size(m->required) && !matches; i++)
            TRY(schema_matches(pattern, json_string_value(json_array_get(m->required, i)), &matches));
        schema = json_object_get(m->patterns, pattern);
        if (matches || json_is_false(schema)) return INFER_OK;
        schema_enter(S, "patternProperties", pattern);
        stext_put(&key, "\"\\\"\" ");
        st = schema_pattern(&key, pattern, strlen(pattern));
        stext_put(&key, "\"\\\"\" ");
    } else if (json_is_false(schema) || (!schema && !free_object)) {
        return INFER_OK;
    } else if (m->names) {
        const json_t *all = m->names;
        if (named || json_is_false(all) || !(schema_types(all) & schema_type_bits("string"))) return INFER_OK;
        json_t *names = json_pack("{s:[O, {s:s}]}", "allOf", (json_t *)all, "type", "string");
        st = names ? visit_names(S, names, &key) : err_set(INFER_E_MEMORY, "out of memory: a schema");
        json_decref(names);
    } else {
        st = schema_other_key(&key, m->properties);
    }
    if (!st) st = pair_rule(S, &key, "additionalProperties", NULL, schema, &m->other);
    mem_free(key.p);
    if (!st) schema_leave(S, was);
    return st;
}

static enum infer_status collect_members(struct schema *S, struct members *m) {
    const char *key;
    json_t *v;
    size_t i;
    if (m->properties && !json_is_object(m->properties))
        return err_set(INFER_E_INPUT, "properties is no object");
    if (m->patterns && !json_is_object(m->patterns))
        return err_set(INFER_E_INPUT, "patternProperties is no object");
    json_array_foreach((json_t *)m->required, i, v) if (!json_is_string(v)) return err_set(
        INFER_E_INPUT, "required holds something else than names");
    json_object_foreach((json_t *)m->properties, key, v) TRY(add_named(S, m, key, v));
    json_array_foreach((json_t *)m->required, i, v) {
        const char *name = json_string_value(v);
        bool twice = json_object_get(m->properties, name) != NULL;
        for (size_t k = 0; k < i && !twice; k++)
            twice = strcmp(name, json_string_value(json_array_get(m->required, k))) == 0;
        if (!twice) TRY(add_named(S, m, name, NULL));
    }
    return add_other(S, m);
}

/* ---- how many ------------------------------------------------------------------------------------------------ */

enum { COUNT_STATES = 2000 };

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

/* All other members behind c optional ones: so many of them that there are least to most (-1: any number) in all. false: too few may come. */
static bool put_others(struct stext *t, const struct members *m, int64_t c, int64_t least, int64_t most) {
    const bool first = c == 0 && m->n_require == 0;
    const int64_t from = least > c ? least - c : 0, to = most < 0 ? -1 : most - c;
    if (from > 0 && !m->other) return false;
    if (!m->other || to == 0) return stext_put(t, "\"\" "), true;
    if (first) stext_put(t, "( r%d ", m->other);
    stext_put(t, "( \",\" space r%d ){%lld,", m->other, (long long)(first && from ? from - 1 : from));
    if (to >= 0) stext_put(t, "%lld", (long long)(to - first));
    stext_put(t, "} ");
    if (first) stext_put(t, from ? ") " : ")? ");
    return true;
}

/* The members behind the required ones, at least `least` and at most `most` (-1: no end) of them: a rule for each optional member and number of those that are there. */
static enum infer_status put_counted(struct schema *S, struct stext *t, const struct members *m,
                                     int64_t least, int64_t most) {
    const int64_t top = most < 0 ? least : most, width = top + 1;
    int *rule;
    if (top > COUNT_STATES || (m->n_optional + 1) * width > COUNT_STATES)
        return schema_unsupported(
            "minProperties or maxProperties with more than 2000 members and numbers to be counted");
    TRY(mem_new(&rule, (size_t)((m->n_optional + 1) * width) * sizeof *rule, "members of a schema"));
    for (int i = m->n_optional; i >= 0; i--)
        for (int64_t c = top; c >= 0; c--) {
            struct stext r;
            const int number = schema_rule_begin(S, &r), *next = rule + (i + 1) * width,
                      with = i == m->n_optional || (c == top && most >= 0) ? 0 : next[c < top ? c + 1 : c],
                      without = i == m->n_optional ? 0 : next[c];
            bool some = with || without;
            if (with)
                stext_put(&r, "%sr%d r%d ", c || m->n_require ? "\",\" space " : "", m->optional[i], with);
            if (without) stext_put(&r, "%sr%d ", with ? "| " : "", without);
            if (i == m->n_optional) some = put_others(&r, m, c, least, most);
            rule[i * width + c] = some ? number : 0;
            if (!some) stext_put(&r, "\"\" "); /* no rule refers to it */
            schema_rule_end(S, &r, INFER_OK);
        }
    const int first = rule[0];
    mem_free(rule);
    if (!first)
        return schema_nothing(S, "minProperties %lld, and there are %d", (long long)m->min,
                              m->n_require + m->n_optional);
    stext_put(t, "r%d ", first);
    return INFER_OK;
}

/* What follows the required members. */
static enum infer_status put_rest(struct schema *S, struct stext *t, const struct members *m) {
    const int64_t least = m->min > m->n_require ? m->min - m->n_require : 0,
                  most = m->max < 0 ? -1 : m->max - m->n_require;
    if (m->max >= 0 && (most < 0 || most < least))
        return schema_nothing(S, "maxProperties %lld is too few", (long long)m->max);
    if (most == 0) return INFER_OK;
    S->free_names |= m->other != 0; /* of the others a name may come again */
    if (least > 1 || (most >= 0 && (most < m->n_optional || m->other)))
        return put_counted(S, t, m, least, most);
    if (!m->n_optional && !m->other)
        return least ? schema_nothing(S, "minProperties %lld, and there are %d", (long long)m->min,
                                      m->n_require)
                     : INFER_OK;
    stext_put(t, m->n_require ? "( \",\" space ( " : "( ");
    put_optional(S, t, m);
    stext_put(t, m->n_require ? ") )%s " : ")%s ", least ? "" : "?");
    return INFER_OK;
}

enum infer_status schema_object(struct schema *S, const json_t *j, struct stext *t) {
    struct members m = {0};
    read_keywords(&m, j);
    TRY(schema_count(j, "minProperties", 0, &m.min));
    TRY(schema_count(j, "maxProperties", -1, &m.max));
    size_t n = json_object_size(m.properties) + json_array_size(m.required) + 1;
    TRY(mem_new(&m.require, 3 * n * sizeof *m.require, "members of a schema"));
    m.optional = m.require + n;
    enum infer_status st = collect_members(S, &m);
    stext_put(t, "\"{\" space ");
    for (int i = 0; i < m.n_require; i++) stext_put(t, "%sr%d ", i ? "\",\" space " : "", m.require[i]);
    if (!st) st = put_rest(S, t, &m);
    stext_put(t, "\"}\" space ");
    mem_free(m.require);
    return st;
}
