/* GBNF that is being written: by JSON Schemas, regular expressions, Lark grammars and structural tags. */
#pragma once
#include "text/grammar/grammar.h"

/* Text that grows. A failed allocation is kept and told at the end, so writers need not check. */
struct stext {
    char *p;
    size_t n, cap;
    bool failed;
    bool name; /* a schema's: each character of what is written has one spelling */
};
void stext_add(struct stext *t, const char *s, size_t n);
void stext_put(struct stext *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A code point inside a class ([...]) or a literal ("..."), escaped. */
void stext_char(struct stext *t, int32_t cp);
/* Bytes s[n], UTF-8, as a literal with its quotes and a blank behind. */
void stext_literal(struct stext *t, const char *s, size_t n);
/* The rules of gbnf[n] with `prefix` in front of every name: of several grammars one. */
void stext_renamed(struct stext *t, const char *gbnf, size_t n, const char *prefix);
/* What was written as a text of its own, which the caller frees (mem_free). errors: INFER_E_MEMORY; over GRAMMAR_MAX_TEXT INFER_E_INPUT */
enum infer_status stext_give(struct stext *t, char **out, size_t *n);
void stext_free(struct stext *t);

/* What a regular expression stands for where it is written. */
struct regex_way {
    const char *what; /* "regex": what messages call it */
    /* NULL: it matches a whole text; else GBNF that may stand before and behind it where no ^ or $ says otherwise */
    const char *around;
    bool json;         /* inside of a JSON string: what JSON must escape is written escaped */
    bool ecma;         /* "." leaves out all line ends of ECMA-262, not \n alone */
    const char *flags; /* of the whole: "is"; NULL: none */
};
/* Writes pattern[n], UTF-8, as one sequence of GBNF. errors: INFER_E_INPUT (syntax; a set of no character), INFER_E_UNSUPPORTED (names the
 * construct); both with the character, counted from 1 */
enum infer_status regex_to_gbnf(struct stext *t, const char *pattern, size_t n, const struct regex_way *way);

/* Whole grammars as GBNF, rule root; free with mem_free. errors: as infer_grammar_open */
enum infer_status lark_to_gbnf(char **out, size_t *n_out, const char *text, size_t n);
enum infer_status tags_to_gbnf(char **out, size_t *n_out, const char *json, size_t n);
/* Of any kind. */
enum infer_status grammar_to_gbnf(char **out, size_t *n_out, enum infer_grammar_kind kind, const char *text,
                                  size_t n);
