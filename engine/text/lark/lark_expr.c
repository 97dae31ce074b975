/* What stands behind the colon of a rule or a terminal. */
#include <string.h>
#include <utf8proc.h>
#include "files/json.h"
#include "text/lark/lark_int.h"

/* Behind a terminal of a rule what is ignored may come. */
static void put_ignored(struct lark *K) {
    if (K->ignores && !K->terminal) stext_put(&K->rules, "ws- ");
}

static enum infer_status one_char(struct lark *K, const char *text, size_t n, int32_t *cp) {
    utf8proc_int32_t c = 0;
    if (!n ||
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c) != (utf8proc_ssize_t)n)
        return lark_bad(K, "the ends of a range are single characters");
    *cp = c;
    return INFER_OK;
}

/* "text", "text"i, "a".."z" */
static enum infer_status parse_string(struct lark *K) {
    const char *text, *last;
    size_t n, n_last;
    bool fold;
    TRY(lark_string(K, &text, &n, &fold));
    const struct lark before = *K;
    lark_skip(K, false);
    if (K->end - K->p < 2 || K->p[0] != '.' || K->p[1] != '.') {
        K->p = before.p;
        return lark_put_string(K, text, n, fold);
    }
    int32_t lo = 0, hi = 0;
    K->p += 2;
    lark_skip(K, false);
    if (!lark_is(K, '"')) return lark_bad(K, "expected the last character of a range");
    TRY(lark_string(K, &last, &n_last, &fold));
    TRY(one_char(K, text, n, &lo));
    TRY(one_char(K, last, n_last, &hi));
    if (hi < lo) return lark_bad(K, "a range runs backwards");
    stext_put(&K->rules, "[");
    stext_char(&K->rules, lo);
    stext_put(&K->rules, "-");
    stext_char(&K->rules, hi);
    stext_put(&K->rules, "] ");
    return INFER_OK;
}

enum infer_status lark_object(struct lark *K, const char *what, json_t **out) {
    json_error_t e;
    const uint64_t failed = mem_failed();
    lark_skip(K, true);
    json_t *j = *out = json_loadb(K->p, (size_t)(K->end - K->p), JSON_DISABLE_EOF_CHECK, &e);
    if (!j && mem_failed() != failed) return err_set(INFER_E_MEMORY, "out of memory: JSON of a grammar");
    if (!j) return err_set(INFER_E_INPUT, "lark line %d: %s: %s", K->line + e.line - 1, what, e.text);
    for (int i = 0; i < e.position; i++) K->line += *K->p++ == '\n';
    return INFER_OK;
}

/* %json {...}: the rules of a schema under names of their own. */
static enum infer_status parse_json(struct lark *K) {
    char *gbnf, prefix[32], *json;
    size_t n;
    json_t *j;
    const int line = K->line;
    TRY(lark_object(K, "%json", &j));
    enum infer_status st = json_line(&json, j, "a schema");
    json_decref(j);
    TRY(st);
    st = schema_to_gbnf(&gbnf, &n, NULL, json, strlen(json));
    mem_free(json);
    if (st) return err_prefix(st, "lark line %d", line);
    snprintf(prefix, sizeof prefix, "j%d-", ++K->n_json);
    stext_put(&K->rules, "%sroot ", prefix);
    stext_renamed(&K->schemas, gbnf, n, prefix);
    mem_free(gbnf);
    return INFER_OK;
}

static enum infer_status parse_name(struct lark *K, size_t n) {
    const char *s = K->p;
    const bool terminal = lark_is_terminal(s, n);
    if (K->terminal && !terminal)
        return err_set(INFER_E_INPUT, "lark line %d: a terminal names the rule '%.*s'", K->line,
                       (int)(n > 80 ? 80 : n), s);
    TRY(lark_note(K, s, n, false));
    stext_put(&K->rules, "l-");
    stext_add(&K->rules, s, n);
    stext_put(&K->rules, " ");
    K->p += n;
    if (lark_is(K, '{') && K->end - K->p > 1 && K->p[1] != ',' && (K->p[1] < '0' || K->p[1] > '9'))
        return lark_no(K, "a template");
    if (terminal) put_ignored(K);
    return INFER_OK;
}

static enum infer_status parse_group(struct lark *K, char close) {
    if (K->depth >= GRAMMAR_MAX_DEPTH / 2) return lark_bad(K, "nested too deep");
    K->p++;
    K->depth++;
    TRY(lark_alternatives(K, true));
    K->depth--;
    if (!lark_is(K, close)) return lark_bad(K, close == ')' ? "expected ')'" : "expected ']'");
    K->p++;
    return INFER_OK;
}

/* What begins with another sign. */
static enum infer_status parse_other(struct lark *K) {
    static const struct {
        const char *begin, *name;
    } no[] = {{"%lark", "%lark"},
              {"<", "a control token (<..>)"},
              {"@", "another grammar (@name)"},
              {"'", "a string in single quotes"}};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        const size_t n = strlen(no[i].begin);
        if ((size_t)(K->end - K->p) >= n && memcmp(K->p, no[i].begin, n) == 0) return lark_no(K, no[i].name);
    }
    return lark_bad(K, "expected a name, a string, a regular expression or a group");
}

static enum infer_status parse_atom(struct lark *K) {
    const size_t n = lark_word(K);
    if (n) return parse_name(K, n);
    if (lark_is(K, '(')) return parse_group(K, ')');
    if (lark_is(K, '[')) {
        stext_put(&K->rules, "( ");
        TRY(parse_group(K, ']'));
        stext_put(&K->rules, ")? ");
        return INFER_OK;
    }
    if (lark_is(K, '"'))
        TRY(parse_string(K));
    else if (lark_is(K, '/'))
        TRY(lark_regex(K));
    else if (K->end - K->p > 5 && memcmp(K->p, "%json", 5) == 0) {
        if (K->terminal) return lark_bad(K, "%json stands in a terminal");
        K->p += 5;
        TRY(parse_json(K));
    } else if (K->end - K->p > 6 && memcmp(K->p, "%regex", 6) == 0) {
        K->p += 6;
        TRY(lark_pieces(K));
    } else
        return parse_other(K);
    put_ignored(K);
    return INFER_OK;
}

/* ~n ~n..m {n} {n,} {,m} {n,m} */
static enum infer_status parse_counts(struct lark *K) {
    const bool braces = *K->p++ == '{';
    int min = 0, max;
    lark_skip(K, false);
    if (!braces || !lark_is(K, ',')) TRY(lark_number(K, &min));
    max = min;
    lark_skip(K, false);
    if (braces && lark_is(K, ',')) {
        K->p++;
        max = -1;
        lark_skip(K, false);
        if (!lark_is(K, '}')) TRY(lark_number(K, &max));
        lark_skip(K, false);
    } else if (!braces && K->end - K->p > 1 && K->p[0] == '.' && K->p[1] == '.') {
        K->p += 2;
        lark_skip(K, false);
        TRY(lark_number(K, &max));
    }
    if (braces && !lark_is(K, '}')) return lark_bad(K, "expected '}'");
    K->p += braces;
    if (max >= 0 && max < min) return lark_bad(K, "a repetition's bounds are the wrong way round");
    stext_put(&K->rules, max < 0 ? "{%d,} " : "{%d,%d} ", min, max);
    return INFER_OK;
}

/* ---- what texts have in common ---- */

/* What was written from there on as a rule of its own; its number. */
static int cut(struct lark *K, size_t from) {
    if (K->rules.failed) return 0;
    stext_put(&K->schemas, "m%d- ::= ", ++K->n_meet);
    stext_add(&K->schemas, K->rules.p + from, K->rules.n - from);
    stext_put(&K->schemas, "\n");
    K->rules.n = from;
    return K->n_meet;
}
static enum infer_status outside(const struct lark *K, const char *what) {
    return err_set(INFER_E_UNSUPPORTED, "lark line %d: %s is not supported outside of a terminal", K->line,
                   what);
}

/* ~atom: all other texts */
static enum infer_status parse_not(struct lark *K) {
    const size_t from = K->rules.n;
    if (!K->terminal) return outside(K, "~ (not)");
    K->p++;
    lark_skip(K, false);
    TRY(parse_atom(K));
    const int other = cut(K, from);
    if (!K->any) stext_put(&K->schemas, "any- ::= [\\U00000000-\\U0010FFFF]*\n");
    K->any = true;
    stext_put(&K->schemas, "m%d- ::= & any- !m%d-\n", ++K->n_meet, other);
    stext_put(&K->rules, "m%d- ", K->n_meet);
    return INFER_OK;
}

/* An atom and what repeats it. */
static enum infer_status parse_part(struct lark *K) {
    stext_put(&K->rules, "( ");
    TRY(lark_is(K, '~') ? parse_not(K) : parse_atom(K));
    stext_put(&K->rules, ") ");
    lark_skip(K, false);
    const char c = K->p < K->end ? *K->p : 0;
    if (c == '*' || c == '+' || c == '?') {
        stext_put(&K->rules, "%c ", c);
        K->p++;
    } else if (c == '~' || c == '{') {
        TRY(parse_counts(K));
    }
    return INFER_OK;
}

/* -> name: what the tree would call it. */
static enum infer_status skip_alias(struct lark *K) {
    if (K->end - K->p < 2 || K->p[0] != '-' || K->p[1] != '>') return INFER_OK;
    K->p += 2;
    lark_skip(K, false);
    const size_t n = lark_word(K);
    if (!n) return lark_bad(K, "expected a name behind ->");
    K->p += n;
    lark_skip(K, false);
    return INFER_OK;
}

static bool ends(const struct lark *K, bool nested) {
    if (K->p >= K->end || *K->p == '|' || *K->p == '&' || *K->p == '\n') return true;
    return (nested && (*K->p == ')' || *K->p == ']')) ||
           (K->end - K->p > 1 && K->p[0] == '-' && K->p[1] == '>');
}

/* At a line end: does a coming line go on with "|"? */
static bool goes_on(const struct lark *K) {
    struct lark ahead = *K;
    lark_skip(&ahead, true);
    return lark_is(&ahead, '|');
}

static enum infer_status parse_sequence(struct lark *K, bool nested) {
    bool any = false;
    lark_skip(K, nested);
    while (!ends(K, nested)) {
        TRY(parse_part(K));
        any = true;
        lark_skip(K, nested);
    }
    if (!any) stext_put(&K->rules, "\"\" ");
    return INFER_OK;
}

/* Sequences with & between: the texts of all of them. */
static enum infer_status parse_joined(struct lark *K, bool nested) {
    enum { MOST = 64 };
    const size_t from = K->rules.n;
    int part[MOST], n = 0;
    TRY(parse_sequence(K, nested));
    while (lark_is(K, '&')) {
        if (!K->terminal) return outside(K, "& (and)");
        if (n + 1 >= MOST) return lark_bad(K, "more than 63 times &");
        part[n++] = cut(K, from);
        K->p++;
        TRY(parse_sequence(K, nested));
    }
    if (!n) return INFER_OK;
    part[n++] = cut(K, from);
    stext_put(&K->schemas, "m%d- ::= &", ++K->n_meet);
    for (int i = 0; i < n; i++) stext_put(&K->schemas, " m%d-", part[i]);
    stext_put(&K->schemas, "\n");
    stext_put(&K->rules, "m%d- ", K->n_meet);
    return INFER_OK;
}

enum infer_status lark_alternatives(struct lark *K, bool nested) {
    for (;;) {
        TRY(parse_joined(K, nested));
        TRY(skip_alias(K));
        lark_skip(K, nested);
        if (goes_on(K)) lark_skip(K, true);
        if (!lark_is(K, '|')) return INFER_OK;
        stext_put(&K->rules, "| ");
        K->p++;
    }
}
