/* Inside of the JSON Schema converter: text that grows, and the parts that write GBNF into it. */
#pragma once
#include <jansson.h>
#include "grammar_int.h"

/* GBNF text being written. A failed allocation is kept and told at the end, so writers need not check. */
struct stext {
    char *p;
    size_t n, cap;
    bool failed;
};
void stext_add(struct stext *t, const char *s, size_t n);
void stext_put(struct stext *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A code point inside a class ([...]) or a literal ("..."), escaped. */
void stext_char(struct stext *t, int32_t cp);

/* Integers lo..hi in decimal without leading zeros (schema_number.c). */
void schema_integers(struct stext *t, int64_t lo, int64_t hi);
/* The inside of a JSON string that matches a regular expression (schema_regex.c); pattern[n] UTF-8.
 * errors: INFER_E_INPUT (syntax), INFER_E_UNSUPPORTED (names the construct) */
enum infer_status schema_pattern(struct stext *t, const char *pattern, size_t n);
enum { SCHEMA_DIGITS = 16 }; /* digits of an integer without a bound */

struct schema {
    const json_t *root;
    struct stext t; /* finished rules */
    json_t *refs;   /* "#/..." -> number of its rule */
    int n_rule, depth;
    int n_merge; /* keywords joined by allOf, $ref and anyOf so far */
};

/* A rule begins in a text of its own, since rules that it needs are written meanwhile; its number. */
int schema_rule_begin(struct schema *S, struct stext *t);
/* Adds the finished rule to the grammar and frees t; passes st on. */
enum infer_status schema_rule_end(struct schema *S, struct stext *t, enum infer_status st);
/* Visits a schema and writes the name of its rule into t. */
enum infer_status schema_visit(struct schema *S, const json_t *j, struct stext *t);
/* INFER_E_UNSUPPORTED that names a keyword. */
enum infer_status schema_unsupported(const char *what);
/* j has a keyword that says what is valid, `but` aside. */
bool schema_constrains(const json_t *j, const char *but);
enum infer_status schema_object(struct schema *S, const json_t *j, struct stext *t);
/* The rule of "#/...", made when it is first met: so a schema may refer to itself. */
enum infer_status schema_ref(struct schema *S, const char *ref, struct stext *t);
/* A schema for base (without the key `but`, NULL: all of it) and part (NULL: none) together. */
enum infer_status schema_merged(struct schema *S, const json_t *base, const char *but, const json_t *part,
                                struct stext *t);
