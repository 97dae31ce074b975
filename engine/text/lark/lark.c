/* A Lark grammar -> GBNF. Rules and terminals become rules; which terminal a text is cut into is of no matter, each way that fits is taken
 * (Lark's Earley parser with its lexer "dynamic_complete"), so priorities are. What is ignored may stand behind each terminal of a rule.
 * source: lark-parser.readthedocs.io/en/latest/grammar.html; llguidance's page on syntax for {n,m}, %json and %llguidance */
#include <string.h>
#include "files/json.h"
#include "text/lark/lark_int.h"

/* ---- statements ---- */

static bool word_is(struct lark *K, const char *word) {
    const size_t n = strlen(word);
    if ((size_t)(K->end - K->p) < n || memcmp(K->p, word, n) != 0) return false;
    K->p += n;
    return true;
}

/* %ignore: a terminal, or an expression of terminals */
static enum infer_status parse_ignore(struct lark *K) {
    const struct stext rules = K->rules;
    K->ignores = K->terminal = true;
    K->rules = K->ignored; /* what is written goes there */
    if (K->rules.n) stext_put(&K->rules, "| ");
    const enum infer_status st = lark_alternatives(K, false);
    K->ignored = K->rules;
    K->rules = rules;
    return st;
}

static enum infer_status import_one(struct lark *K, bool alias) {
    const size_t n = lark_word(K);
    const char *name = K->p, *as = name;
    size_t n_as = n;
    if (!n) return lark_bad(K, "expected the name of a terminal of common");
    if (!lark_common_has(name, n))
        return err_set(INFER_E_INPUT, "lark line %d: common has no '%.*s'", K->line, (int)(n > 80 ? 80 : n),
                       name);
    K->p += n;
    lark_skip(K, false);
    if (alias && word_is(K, "->")) {
        lark_skip(K, false);
        as = K->p;
        n_as = lark_word(K);
        if (!n_as || !lark_is_terminal(as, n_as))
            return lark_bad(K, "expected the name of a terminal behind ->");
        K->p += n_as;
    }
    K->common = true;
    TRY(lark_note(K, as, n_as, true));
    stext_put(&K->rules, "l-");
    stext_add(&K->rules, as, n_as);
    stext_put(&K->rules, " ::= c-");
    stext_add(&K->rules, name, n);
    stext_put(&K->rules, "\n");
    return INFER_OK;
}

/* %import common.NAME [-> ALIAS], %import common (A, B) */
static enum infer_status parse_import(struct lark *K) {
    lark_skip(K, false);
    if (!word_is(K, "common")) return lark_no(K, "an import from another module than common");
    lark_skip(K, false);
    if (lark_is(K, '.')) {
        K->p++;
        return import_one(K, true);
    }
    if (!lark_is(K, '(')) return lark_bad(K, "expected '.' or '(' behind common");
    do {
        K->p++;
        lark_skip(K, true);
        TRY(import_one(K, false));
        lark_skip(K, true);
    } while (lark_is(K, ','));
    if (!lark_is(K, ')')) return lark_bad(K, "expected ')'");
    K->p++;
    return INFER_OK;
}

/* %llguidance {..}: options of another's engine, two of which say what is accepted. source: LLGuidanceOptions; its page on syntax */
static enum infer_status read_option(struct lark *K, const char *name, const json_t *v) {
    static const char *const known[] = {"no_forcing", "allow_invalid_utf8", "allow_initial_skip",
                                        "ignore_once"};
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(known[i], name) != 0) i++;
    if (i == sizeof known / sizeof *known)
        return err_set(INFER_E_UNSUPPORTED, "lark line %d: %%llguidance: '%.40s' is not supported", K->line,
                       name);
    if (!json_is_boolean(v))
        return err_set(INFER_E_INPUT, "lark line %d: %%llguidance: '%s' is not true or false", K->line, name);
    if (!json_is_true(v)) return INFER_OK;
    K->first |= strcmp(name, "allow_initial_skip") == 0;
    K->once |= strcmp(name, "ignore_once") == 0;
    return strcmp(name, "allow_invalid_utf8") == 0 ? lark_no(K, "'allow_invalid_utf8'") : INFER_OK;
}
static enum infer_status parse_options(struct lark *K) {
    enum infer_status st = INFER_OK;
    const char *name;
    json_t *j, *v;
    TRY(lark_object(K, "%llguidance", &j));
    if (!json_is_object(j)) st = lark_bad(K, "%llguidance is an object of options");
    json_object_foreach(j, name, v) if (!st) st = read_option(K, name, v);
    json_decref(j);
    return st;
}

static enum infer_status parse_statement(struct lark *K) {
    if (word_is(K, "%ignore")) return parse_ignore(K);
    if (word_is(K, "%import")) return parse_import(K);
    if (word_is(K, "%llguidance")) return parse_options(K);
    if (word_is(K, "%declare")) return lark_no(K, "%declare");
    if (word_is(K, "%override")) return lark_no(K, "%override");
    if (word_is(K, "%extend")) return lark_no(K, "%extend");
    return lark_bad(K, "expected %ignore, %import or %llguidance");
}

/* [capture="x"] behind the name: what changes which texts are accepted is refused. */
static enum infer_status parse_attributes(struct lark *K) {
    const char *end = memchr(K->p, ']', (size_t)(K->end - K->p));
    if (!end) return lark_bad(K, "expected ']'");
    for (K->p++; K->p < end; K->p++) {
        lark_skip(K, false);
        if (!word_is(K, "capture"))
            return lark_no(K, "an attribute of a rule (lazy, stop, suffix, max_tokens, temperature)");
        while (K->p < end && *K->p != ',') K->p++;
    }
    K->p = end + 1;
    lark_skip(K, false);
    return INFER_OK;
}

/* name.priority: alternatives */
static enum infer_status parse_rule(struct lark *K) {
    while (lark_is(K, '?') || lark_is(K, '!')) K->p++; /* of the tree alone */
    const size_t n = lark_word(K);
    const char *name = K->p;
    if (!n) return lark_bad(K, "expected the name of a rule or a terminal");
    K->p += n;
    lark_skip(K, false);
    if (lark_is(K, '{')) return lark_no(K, "a template");
    if (lark_is(K, '[')) TRY(parse_attributes(K));
    if (lark_is(K, '.')) {
        K->p++;
        K->p += lark_is(K, '-');
        while (K->p < K->end && *K->p >= '0' && *K->p <= '9') K->p++;
        lark_skip(K, false);
    }
    if (!lark_is(K, ':')) return lark_bad(K, "expected ':'");
    K->p++;
    if (lark_is(K, ':')) return lark_no(K, "a rule with parameters (::)");
    TRY(lark_note(K, name, n, true));
    K->terminal = lark_is_terminal(name, n);
    stext_put(&K->rules, "l-");
    stext_add(&K->rules, name, n);
    stext_put(&K->rules, " ::= ");
    TRY(lark_alternatives(K, false));
    stext_put(&K->rules, "\n");
    return INFER_OK;
}

/* ---- the whole ---- */

static enum infer_status parse(struct lark *K) {
    for (lark_skip(K, true); K->p < K->end; lark_skip(K, true)) {
        TRY(lark_is(K, '%') ? parse_statement(K) : parse_rule(K));
        lark_skip(K, false);
        if (K->p < K->end && *K->p != '\n') return lark_bad(K, "expected the end of a line");
    }
    TRY(lark_note(K, "start", 5, false));
    return lark_check_names(K);
}

static void free_lark(struct lark *K) {
    stext_free(&K->rules);
    stext_free(&K->schemas);
    stext_free(&K->ignored);
    arena_free(&K->arena);
}

static enum infer_status give(struct lark *K, char **out, size_t *n_out) {
    struct stext t = {0};
    stext_put(&t, "root ::= %sl-start\n", K->ignores && K->first ? "ws- " : "");
    if (K->ignores) {
        stext_put(&t, "ws- ::= ( ");
        stext_add(&t, K->ignored.p, K->ignored.n);
        stext_put(&t, K->once ? ")?\n" : ")*\n");
    }
    stext_add(&t, K->rules.p, K->rules.n);
    stext_add(&t, K->schemas.p, K->schemas.n);
    if (K->common) stext_add(&t, lark_common, strlen(lark_common));
    t.failed |= K->rules.failed || K->ignored.failed || K->schemas.failed;
    return stext_give(&t, out, n_out);
}

enum infer_status lark_to_gbnf(char **out, size_t *n_out, const char *text, size_t n) {
    *out = NULL;
    if (n > GRAMMAR_MAX_TEXT)
        return err_set(INFER_E_INPUT, "lark: %zu bytes, at most %d are read", n, GRAMMAR_MAX_TEXT);
    for (bool ignores = false;;
         ignores = true) { /* what is ignored may be said behind the rules: then once more */
        struct lark K = {.p = text, .end = text + n, .line = 1, .ignores = ignores};
        enum infer_status st = parse(&K);
        const bool again = !st && K.ignores && !ignores && !K.rules.failed;
        if (!st && !again) st = give(&K, out, n_out);
        free_lark(&K);
        if (!again) return st;
    }
}
