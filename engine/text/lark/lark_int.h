/* Inside of the Lark reader. */
#pragma once
#include <jansson.h>
#include "base/mem.h"
#include "text/grammar/grammar_text.h"

/* A name that is defined or used. */
struct lark_name {
    const char *s;
    size_t n;
    int line;
    bool defined;
};
struct lark {
    const char *p, *end;
    int line, depth;
    bool ignores;  /* some %ignore is there: what is ignored may stand behind each terminal of a rule */
    bool first;    /* and in front of the first one */
    bool once;     /* and once, not again and again */
    bool terminal; /* what is read is a terminal's */
    bool common;   /* some terminal of common was imported */
    int n_json, n_pieces, n_meet;
    bool any; /* the rule "any-", all texts, is there */
    struct stext rules, ignored,
        schemas; /* GBNF of the rules, alternatives of what is ignored, rules of %json */
    struct arena arena;
    struct lark_name *name; /* name[n_name] */
    size_t n_name, cap_name;
};
enum infer_status lark_bad(const struct lark *K, const char *what);
/* INFER_E_UNSUPPORTED: "what is not supported" */
enum infer_status lark_no(const struct lark *K, const char *what);

/* ---- lark_scan.c ---- */

/* Skips blanks and comments, and line ends where they may be. */
void lark_skip(struct lark *K, bool lines);
static inline bool lark_is(const struct lark *K, char c) { return K->p < K->end && *K->p == c; }
/* Length of the name at K->p; 0: none is there. */
size_t lark_word(const struct lark *K);
bool lark_is_terminal(const char *name, size_t n);
/* A string at its quote: bytes text[*n], in the arena; *fold: an i stands behind. */
enum infer_status lark_string(struct lark *K, const char **text, size_t *n, bool *fold);
/* A regular expression at its slash, written to K->rules. */
enum infer_status lark_regex(struct lark *K);
/* Writes a string as a literal, of either case when fold. */
enum infer_status lark_put_string(struct lark *K, const char *text, size_t n, bool fold);
/* A whole number, up to GRAMMAR_MAX_REPEAT. */
enum infer_status lark_number(struct lark *K, int *out);
/* Notes a name. errors: INFER_E_MEMORY */
enum infer_status lark_note(struct lark *K, const char *s, size_t n, bool defined);
/* Each name is defined once. */
enum infer_status lark_check_names(struct lark *K);

/* The JSON value behind `what` ("%json"), which K->p has passed. errors: INFER_E_INPUT, INFER_E_MEMORY */
enum infer_status lark_object(struct lark *K, const char *what, json_t **out);

/* ---- lark_pieces.c ---- */

enum { LARK_PIECES = 4000 };
/* What stands behind %regex, written to K->rules, with rules of its own among those of schemas. */
enum infer_status lark_pieces(struct lark *K);

/* ---- lark_common.c ---- */

bool lark_common_has(const char *name, size_t n);
/* GBNF of all terminals of common, called c-NAME. */
extern const char lark_common[];

/* ---- lark_expr.c: alternatives, written to K->rules ---- */
enum infer_status lark_alternatives(struct lark *K, bool nested);
