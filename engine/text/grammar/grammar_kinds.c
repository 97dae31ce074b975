/* Grammars of all kinds, by way of GBNF. */
#include <string.h>
#include "base/mem.h"
#include "text/grammar/grammar_text.h"

static bool names(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Behind blanks and comments of both: a statement with %, or a name with one colon. */
static bool is_lark(const char *p, const char *end) {
    for (;;) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')) p++;
        if (p == end || (*p != '#' && (*p != '/' || end - p < 2 || p[1] != '/'))) break;
        while (p < end && *p != '\n') p++;
    }
    if (p < end && *p == '%') return true;
    while (p < end && (*p == '?' || *p == '!')) p++;
    while (p < end && names(*p)) p++;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    if (p < end && (*p == '.' || *p == '[' || *p == '{'))
        return true; /* its priority, attributes or parameters */
    return p < end && *p == ':' &&
           (end - p < 2 || (p[1] != '=' && (p[1] != ':' || end - p < 3 || p[2] != '=')));
}

static enum infer_status whole_regex(char **out, size_t *n_out, const char *pattern, size_t n) {
    static const struct regex_way way = {.what = "regex"};
    struct stext t = {0};
    stext_put(&t, "root ::= ");
    const enum infer_status st = regex_to_gbnf(&t, pattern, n, &way);
    if (st) {
        stext_free(&t);
        return st;
    }
    stext_put(&t, "\n");
    return stext_give(&t, out, n_out);
}

enum infer_status grammar_to_gbnf(char **out, size_t *n_out, enum infer_grammar_kind kind, const char *text,
                                  size_t n) {
    *out = NULL;
    if (kind == INFER_GRAMMAR_TEXT && is_lark(text, text + n)) kind = INFER_GRAMMAR_LARK;
    switch (kind) {
    case INFER_GRAMMAR_LARK:
        return lark_to_gbnf(out, n_out, text, n);
    case INFER_GRAMMAR_SCHEMA:
        return schema_to_gbnf(out, n_out, NULL, text, n);
    case INFER_GRAMMAR_REGEX:
        return whole_regex(out, n_out, text, n);
    case INFER_GRAMMAR_TAGS:
        return tags_to_gbnf(out, n_out, text, n);
    case INFER_GRAMMAR_TEXT:
        break;
    }
    struct stext t = {0};
    stext_add(&t, text, n);
    return stext_give(&t, out, n_out);
}

enum infer_status infer_grammar_open(struct infer_grammar **out, enum infer_grammar_kind kind,
                                     const char *text, size_t n) {
    char *gbnf;
    size_t n_gbnf;
    if (kind == INFER_GRAMMAR_SCHEMA) return infer_grammar_from_schema(out, text, n);
    *out = NULL;
    TRY(grammar_to_gbnf(&gbnf, &n_gbnf, kind, text, n));
    const enum infer_status st = infer_grammar_from_gbnf(out, gbnf, n_gbnf);
    mem_free(gbnf);
    return st;
}
