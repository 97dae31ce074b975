/* Inside of the regular expressions: sets of code points, and what a pattern is read into. */
#pragma once
#include "base/mem.h"
#include "text/grammar/grammar_int.h"
#include "text/grammar/grammar_text.h"

/* Ranges r[n], in any order until regex_set_tidy. */
struct rset {
    struct grange *r;
    size_t n, cap;
};
struct regex;
/* errors of all: INFER_E_MEMORY, INFER_E_INPUT (too many characters were looked at) */
enum infer_status regex_set_add(struct regex *R, struct rset *s, int32_t lo, int32_t hi);
enum infer_status regex_set_join(struct regex *R, struct rset *s, const struct rset *other);
/* Ascending, apart, without halves of surrogate pairs. */
void regex_set_tidy(struct rset *s);
/* All other code points; s is tidied. */
enum infer_status regex_set_negate(struct regex *R, struct rset *s);
/* And every character's other case, by Unicode's simple mappings. */
enum infer_status regex_set_fold(struct regex *R, struct rset *s);
/* d, w, s: digits, word characters, blanks; of Unicode or of ASCII. */
enum infer_status regex_set_letter(struct regex *R, struct rset *s, char letter, bool unicode);
/* A general category ("L", "Lu", "Letter"), "Any", "ASCII" or a POSIX class ("alpha"). *known: it is one. */
enum infer_status regex_set_named(struct regex *R, struct rset *s, const char *name, size_t n, bool *known);

enum rnode_kind {
    RX_SET, /* one of set */
    RX_SEQ,
    RX_ALT,
    RX_REPEAT, /* first, min to max times; max -1: no end */
    RX_BEGIN,  /* ^ \A */
    RX_END,    /* $ \z \Z */
};
struct rnode {
    enum rnode_kind kind;
    struct rset set;
    int min, max, at; /* at: its character in the pattern, from 1 */
    bool anchors;     /* has RX_BEGIN or RX_END below */
    struct rnode *first, *last, *next;
};
struct regex {
    struct arena arena;
    const struct regex_way *way;
    const char *begin, *p, *end;
    int depth, looked;
    bool fold, dotall, verbose, unicode, lines; /* flags i s x u m */
};
enum infer_status regex_bad(const struct regex *R, const char *what);
enum infer_status regex_no(const struct regex *R, const char *what);
/* regex_parse.c: errors as regex_to_gbnf */
enum infer_status regex_parse(struct regex *R, struct rnode **out);
/* regex_class.c: behind a [, up to its ]; behind a backslash: a character or a set */
enum infer_status regex_class(struct regex *R, struct rset *set);
enum infer_status regex_escape(struct regex *R, struct rset *set);
enum infer_status regex_char(struct regex *R, int32_t *cp);
