/* A structural tag -> GBNF: what an answer is made of, as JSON.
 * source: xgrammar.mlc.ai/docs/tutorials/structural_tag.html ("format") and, for {structures, triggers}, vLLM's and SGLang's structural_tag */
#include <string.h>
#include "files/json.h"
#include "text/tags/until.h"

struct tags {
    struct stext rules; /* finished ones */
    struct arena arena;
    int n_rule, depth;
    char place[128];
    size_t n_place;
};

static enum infer_status bad(const struct tags *S, const char *what) {
    return err_set(INFER_E_INPUT, "structural tag%s%s: %s", S->n_place ? " at " : "", S->place, what);
}

static size_t enter(struct tags *S, const char *key, size_t i) {
    const size_t was = S->n_place, room = sizeof S->place - was;
    const int n = i == SIZE_MAX ? snprintf(S->place + was, room, "/%s", key)
                                : snprintf(S->place + was, room, "/%s/%zu", key, i);
    S->n_place += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    return was;
}
static void leave(struct tags *S, size_t was) { S->place[S->n_place = was] = 0; }

static enum infer_status text_of(const struct tags *S, const json_t *j, const char *key, const char **out) {
    const json_t *v = json_object_get(j, key);
    char what[80];
    snprintf(what, sizeof what, "'%s' is no text", key);
    *out = json_string_value(v);
    if (!*out) return bad(S, what);
    return strlen(*out) == json_string_length(v) ? INFER_OK : bad(S, "a text has a zero byte");
}

static void put_text(struct stext *t, const char *s) { stext_literal(t, s, strlen(s)); }

/* Rules of another grammar under names of their own; its root goes into t. */
static enum infer_status embed(struct tags *S, struct stext *t, enum infer_grammar_kind kind,
                               const char *text) {
    char *gbnf, prefix[32];
    size_t n;
    const enum infer_status st = grammar_to_gbnf(&gbnf, &n, kind, text, strlen(text));
    if (st) return err_prefix(st, "structural tag at %s", S->place);
    snprintf(prefix, sizeof prefix, "g%d-", ++S->n_rule);
    stext_put(t, "%sroot ", prefix);
    stext_renamed(&S->rules, gbnf, n, prefix);
    mem_free(gbnf);
    return INFER_OK;
}

static enum infer_status put_schema(struct tags *S, const json_t *schema, struct stext *t) {
    if (json_is_string(schema)) return embed(S, t, INFER_GRAMMAR_SCHEMA, json_string_value(schema));
    if (!json_is_object(schema) && !json_is_boolean(schema)) return bad(S, "'json_schema' is no schema");
    char *json;
    TRY(json_line(&json, schema, "a structural tag"));
    const enum infer_status st = embed(S, t, INFER_GRAMMAR_SCHEMA, json);
    mem_free(json);
    return st;
}

static enum infer_status put_regex(struct tags *S, const json_t *j, struct stext *t) {
    static const struct regex_way way = {.what = "regex"};
    const char *pattern;
    TRY(text_of(S, j, "pattern", &pattern));
    const enum infer_status st = regex_to_gbnf(t, pattern, strlen(pattern), &way);
    return st ? err_prefix(st, "structural tag at %s", S->place) : INFER_OK;
}

/* Texts of a list, or one text, into u, each followed by then. */
static enum infer_status add_texts(struct tags *S, struct until *u, const json_t *list, const char *then) {
    const size_t n = json_is_array(list) ? json_array_size(list) : list != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_is_array(list) ? json_array_get(list, i) : list;
        const char *s = json_string_value(v);
        if (!s || !*s || strlen(s) != json_string_length(v))
            return bad(S, "a text that ends free text is empty, or none");
        if (u->n_text == UNTIL_TEXTS) return bad(S, "more than 256 texts that end free text");
        u->text[u->n_text] = s;
        u->then[u->n_text++] = then;
    }
    return INFER_OK;
}

static enum infer_status new_until(struct tags *S, struct until **u, char **name) {
    *u = arena_alloc(&S->arena, sizeof **u);
    *name = arena_alloc(&S->arena, 32);
    if (!*u || !*name) return err_set(INFER_E_MEMORY, "out of memory: a structural tag");
    snprintf(*name, 32, "u%d", ++S->n_rule);
    return INFER_OK;
}

/* Text of any kind; ends (NULL: none): up to one of them, which is read with it. */
static enum infer_status put_any(struct tags *S, const json_t *j, const json_t *ends, struct stext *t) {
    struct until *u;
    char *name;
    TRY(new_until(S, &u, &name));
    TRY(add_texts(S, u, ends, "\"\""));
    TRY(add_texts(S, u, json_object_get(j, "excludes"), NULL));
    stext_put(t, "%s-0 ", name);
    return until_rules(&S->rules, name, u, !ends);
}

static enum infer_status put(struct tags *S, const json_t *j, const json_t *ends, bool *closed,
                             struct stext *t);

static enum infer_status put_list(struct tags *S, const json_t *j, bool sequence, const json_t *ends,
                                  bool *closed, struct stext *t) {
    const json_t *list = json_object_get(j, "elements"), *v;
    const size_t n = json_array_size(list);
    size_t i;
    if (!json_is_array(list) || n == 0) return bad(S, "'elements' is no list, or empty");
    stext_put(t, "( ");
    json_array_foreach((json_t *)list, i, v) {
        bool shut = false;
        const size_t was = enter(S, "elements", i);
        if (i && !sequence) stext_put(t, "| ");
        TRY(put(S, v, sequence && i + 1 == n ? ends : NULL, &shut, t));
        *closed |= shut;
        leave(S, was);
    }
    stext_put(t, ") ");
    return INFER_OK;
}

static enum infer_status put_repeat(struct tags *S, const json_t *j, const char *type, struct stext *t) {
    bool closed;
    const json_t *min = json_object_get(j, "min"), *max = json_object_get(j, "max");
    const size_t was = enter(S, "content", SIZE_MAX);
    stext_put(t, "( ");
    TRY(put(S, json_object_get(j, "content"), NULL, &closed, t));
    stext_put(t, ") ");
    leave(S, was);
    if (strcmp(type, "repeat") != 0) {
        stext_put(t, strcmp(type, "optional") == 0 ? "? " : strcmp(type, "plus") == 0 ? "+ " : "* ");
        return INFER_OK;
    }
    const long long lo = json_integer_value(min), hi = json_is_integer(max) ? json_integer_value(max) : -1;
    if (lo < 0 || lo > GRAMMAR_MAX_REPEAT || hi > GRAMMAR_MAX_REPEAT || (hi >= 0 && hi < lo))
        return bad(S, "'min' and 'max' are no counts up to 20000");
    stext_put(t, hi < 0 ? "{%lld,} " : "{%lld,%lld} ", lo, hi);
    return INFER_OK;
}

/* A tag without the first `skip` bytes of its beginning. */
static enum infer_status put_tag(struct tags *S, const json_t *j, size_t skip, struct stext *t) {
    const char *begin;
    const json_t *ends = json_object_get(j, "end"), *e;
    bool closed = false;
    size_t i;
    TRY(text_of(S, j, "begin", &begin));
    const bool none = !ends || (json_is_string(ends) && json_string_length(ends) == 0);
    put_text(t, begin + skip);
    const size_t was = enter(S, "content", SIZE_MAX);
    TRY(put(S, json_object_get(j, "content"), none ? NULL : ends, &closed, t));
    leave(S, was);
    if (closed || none) return INFER_OK;
    if (json_is_string(ends)) return put_text(t, json_string_value(ends)), INFER_OK;
    if (json_array_size(ends) == 0) return bad(S, "'end' is no text");
    stext_put(t, "( ");
    json_array_foreach((json_t *)ends, i, e) {
        if (!json_is_string(e)) return bad(S, "'end' is no list of texts");
        if (i) stext_put(t, "| ");
        put_text(t, json_string_value(e));
    }
    stext_put(t, ") ");
    return INFER_OK;
}

/* Those of the tags that begin with a text, without it. */
static enum infer_status put_tags(struct tags *S, const json_t *j, const char *trigger, struct stext *t) {
    const json_t *list = json_object_get(j, "tags"), *tag;
    size_t i, n = 0;
    const size_t skip = strlen(trigger);
    stext_put(t, "( ");
    json_array_foreach((json_t *)list, i, tag) {
        const char *begin = json_string_value(json_object_get(tag, "begin"));
        if (!begin || strncmp(begin, trigger, skip) != 0) continue;
        const size_t was = enter(S, "tags", i);
        if (n++) stext_put(t, "| ");
        TRY(put_tag(S, tag, skip, t));
        leave(S, was);
    }
    stext_put(t, ") ");
    return n ? INFER_OK : bad(S, "no tag begins with one of the triggers");
}

/* Free text; where a trigger comes, one of its tags goes on. at_least_one: a tag comes first. */
static enum infer_status put_triggered(struct tags *S, const json_t *j, struct stext *t) {
    const json_t *triggers = json_object_get(j, "triggers"), *tags = json_object_get(j, "tags"), *v;
    const bool first = json_is_true(json_object_get(j, "at_least_one")),
               once = json_is_true(json_object_get(j, "stop_after_first"));
    struct until *u;
    char *name;
    size_t i;
    if (!json_array_size(triggers) || !json_array_size(tags))
        return bad(S, "'triggers' or 'tags' is no list, or empty");
    TRY(new_until(S, &u, &name));
    json_array_foreach((json_t *)tags, i, v) {
        const char *begin = json_string_value(json_object_get(v, "begin"));
        bool any = false;
        for (size_t k = 0; begin && k < json_array_size(triggers); k++) {
            const char *trigger = json_string_value(json_array_get(triggers, k));
            any |= trigger && strncmp(begin, trigger, strlen(trigger)) == 0;
        }
        if (!any) return bad(S, "a tag's 'begin' begins with none of the triggers");
    }
    json_array_foreach((json_t *)triggers, i, v) {
        struct stext rule = {0};
        char *then = arena_alloc(&S->arena, 32);
        if (!then) return err_set(INFER_E_MEMORY, "out of memory: a structural tag");
        snprintf(then, 32, "t%d", ++S->n_rule);
        TRY(add_texts(S, u, v, then));
        stext_put(&rule, "%s ::= ", then);
        const enum infer_status st = put_tags(S, j, json_string_value(v), &rule);
        stext_put(&rule, once ? "\n" : "%s-0\n", name);
        stext_add(&S->rules, rule.p ? rule.p : "", rule.n);
        S->rules.failed |= rule.failed;
        stext_free(&rule);
        TRY(st);
    }
    TRY(add_texts(S, u, json_object_get(j, "excludes"), NULL));
    TRY(until_rules(&S->rules, name, u, true));
    if (first) TRY(put_tags(S, j, "", t));
    if (!first || !once) stext_put(t, "%s-0 ", name);
    return INFER_OK;
}

static enum infer_status put_separated(struct tags *S, const json_t *j, struct stext *t) {
    const char *separator;
    const bool some = json_is_true(json_object_get(j, "at_least_one")),
               once = json_is_true(json_object_get(j, "stop_after_first"));
    struct stext rule = {0};
    const int number = ++S->n_rule;
    TRY(text_of(S, j, "separator", &separator));
    if (!json_array_size(json_object_get(j, "tags"))) return bad(S, "'tags' is no list, or empty");
    stext_put(&rule, "t%d ::= ", number);
    const enum infer_status st = put_tags(S, j, "", &rule);
    stext_put(&rule, "\n");
    stext_add(&S->rules, rule.p ? rule.p : "", rule.n);
    S->rules.failed |= rule.failed;
    stext_free(&rule);
    stext_put(t, "( t%d ", number);
    if (!once) {
        stext_put(t, "( ");
        put_text(t, separator);
        stext_put(t, "t%d )* ", number);
    }
    stext_put(t, some ? ") " : ")? ");
    return st;
}

/* Writes what a format stands for. ends: what comes behind it; *closed: it was read with it. */
static enum infer_status put_format(struct tags *S, const json_t *j, const char *type, const json_t *ends,
                                    bool *closed, struct stext *t) {
    const char *text;
    if (strcmp(type, "const_string") == 0) {
        TRY(text_of(S, j, "value", &text));
        return put_text(t, text), INFER_OK;
    }
    if (strcmp(type, "json_schema") == 0) return put_schema(S, json_object_get(j, "json_schema"), t);
    if (strcmp(type, "grammar") == 0) {
        TRY(text_of(S, j, "grammar", &text));
        return embed(S, t, INFER_GRAMMAR_TEXT, text);
    }
    if (strcmp(type, "regex") == 0) return put_regex(S, j, t);
    if (strcmp(type, "any_text") == 0) {
        *closed = ends != NULL;
        return put_any(S, j, ends, t);
    }
    if (strcmp(type, "sequence") == 0 || strcmp(type, "or") == 0)
        return put_list(S, j, *type == 's', ends, closed, t);
    if (strcmp(type, "tag") == 0) return put_tag(S, j, 0, t);
    if (strcmp(type, "triggered_tags") == 0) return put_triggered(S, j, t);
    if (strcmp(type, "tags_with_separator") == 0) return put_separated(S, j, t);
    if (strcmp(type, "optional") == 0 || strcmp(type, "plus") == 0 || strcmp(type, "star") == 0 ||
        strcmp(type, "repeat") == 0)
        return put_repeat(S, j, type, t);
    return err_set(INFER_E_UNSUPPORTED, "structural tag%s%s: the type '%.60s' is not supported",
                   S->n_place ? " at " : "", S->place, type);
}

static enum infer_status put(struct tags *S, const json_t *j, const json_t *ends, bool *closed,
                             struct stext *t) {
    const char *type = json_string_value(json_object_get(j, "type"));
    *closed = false;
    if (!type) return bad(S, "a format without 'type'");
    if (++S->depth > GRAMMAR_MAX_DEPTH / 4) return bad(S, "nested too deep");
    TRY(put_format(S, j, type, ends, closed, t));
    S->depth--;
    return INFER_OK;
}

/* {structures: [{begin, schema, end}], triggers} as a format. */
static json_t *from_old(const json_t *j) {
    json_t *tags = json_array(), *s;
    size_t i;
    json_array_foreach(json_object_get(j, "structures"), i, s) json_array_append_new(
        tags, json_pack("{s:O*, s:{s:s, s:O*}, s:O*}", "begin", json_object_get(s, "begin"), "content",
                        "type", "json_schema", "json_schema", json_object_get(s, "schema"), "end",
                        json_object_get(s, "end")));
    return json_pack("{s:s, s:O*, s:o}", "type", "triggered_tags", "triggers", json_object_get(j, "triggers"),
                     "tags", tags);
}

static enum infer_status write(struct tags *S, const json_t *j) {
    struct stext root = {0};
    bool closed;
    const char *type = json_string_value(json_object_get(j, "type"));
    const bool whole = type && strcmp(type, "structural_tag") == 0,
               old = json_object_get(j, "structures") != NULL;
    const uint64_t failed = mem_failed();
    json_t *made = old ? from_old(j) : NULL;
    const json_t *format = old ? made : whole ? json_object_get(j, "format") : j;
    enum infer_status st = !old || (made && mem_failed() == failed)
                               ? INFER_OK
                               : err_set(INFER_E_MEMORY, "out of memory: a structural tag");
    stext_put(&root, "root ::= ");
    if (!st && whole && !old) enter(S, "format", SIZE_MAX);
    if (!st) st = put(S, format, NULL, &closed, &root);
    stext_put(&root, "\n");
    stext_add(&S->rules, root.p ? root.p : "", root.n);
    S->rules.failed |= root.failed;
    stext_free(&root);
    json_decref(made);
    return st;
}

enum infer_status tags_to_gbnf(char **out, size_t *n_out, const char *json, size_t n) {
    struct tags S = {.n_rule = 0};
    json_t *j;
    *out = NULL;
    TRY(json_read(&j, "structural tag", json, n, 0));
    enum infer_status st = write(&S, j);
    json_decref(j);
    arena_free(&S.arena);
    if (!st) return stext_give(&S.rules, out, n_out);
    stext_free(&S.rules);
    return st;
}
