/* Inside of the JSON Schema converter: the parts that write GBNF. */
#pragma once
#include <jansson.h>
#include "text/grammar/grammar_int.h"
#include "text/grammar/grammar_text.h"

struct schema;
enum schema_verdict { SCHEMA_NO, SCHEMA_YES, SCHEMA_UNKNOWN };
/* Keywords of numbers (schema_number.c) and of strings (schema_string.c). */
enum infer_status schema_integer(struct schema *S, const json_t *j, struct stext *t);
enum infer_status schema_number(struct schema *S, const json_t *j, struct stext *t);
/* SCHEMA_FRACTION: without bounds. */
enum infer_status schema_fraction(const json_t *j, struct stext *t);
enum infer_status schema_string(struct schema *S, const json_t *j, struct stext *t);
/* Whether a pattern of ECMA-262 matches somewhere in a text. errors: INFER_E_INPUT (the pattern cannot be read),
 * INFER_E_UNSUPPORTED (it takes too long, or the text has characters that it may take otherwise here) */
enum infer_status schema_matches(const char *pattern, const char *text, bool *matches);
/* The bounds of a number; infinite where there is none. */
struct schema_bounds {
    double lo, hi;
    bool lo_open, hi_open;
};
/* Integers lo..hi in decimal without leading zeros, 0 <= lo <= hi. */
void schema_naturals(struct stext *t, uint64_t lo, uint64_t hi);
/* multipleOf, of integers or numbers between bounds (schema_multiple.c). errors: INFER_E_INPUT (no number above 0), INFER_E_UNSUPPORTED (too many digits or multiples) */
enum infer_status schema_multiple(struct schema *S, const json_t *multiple, bool integers,
                                  const struct schema_bounds *b, struct stext *t);
/* The multipleOf that two are together, to be given back. errors: INFER_E_UNSUPPORTED (too many digits) */
enum infer_status schema_join_multiples(const json_t *x, const json_t *y, json_t **out);
/* x is a whole number of steps, both as the decimals that they are written as. */
enum schema_verdict schema_is_multiple(double x, double step);
/* True for a format that a grammar is there for; all others are annotations. */
bool schema_knows_format(const char *format);
/* A keyword that counts: absent gives missing. errors: INFER_E_INPUT */
enum infer_status schema_count(const json_t *j, const char *key, int64_t missing, int64_t *out);
/* The inside of a JSON string that matches a regular expression (schema_regex.c); pattern[n] UTF-8.
 * errors: INFER_E_INPUT (syntax), INFER_E_UNSUPPORTED (names the construct) */
enum infer_status schema_pattern(struct stext *t, const char *pattern, size_t n);
struct schema {
    json_t *root;
    struct stext t;     /* finished rules */
    json_t *refs;       /* a $ref's text -> number of its rule */
    json_t *targets;    /* a $ref's text -> its schema, null: there is none */
    bool contains_sees; /* 2020-12: elements that "contains" finds are none of unevaluatedItems' */
    bool proving;       /* a schema is looked at for a proof: it must not become a narrower one */
    bool ref_alone;     /* a draft before 2019-09: what stands beside $ref does not count */
    int n_rule, depth;
    int n_merge;     /* keywords joined by allOf, $ref and anyOf so far */
    int n_close;     /* schemas that are being closed: in each other */
    int n_proof;     /* steps of schema_valid and schema_apart so far */
    bool free_names; /* objects of the grammar may have a name twice */
    bool in_name;    /* what is visited is a name: each of its characters has one spelling */
    bool nothing;    /* the error is that nothing is valid: one branch of several may be left out */
    char place[256]; /* "/properties/a/items": where the converter is, or stopped */
    size_t n_place;
};

/* Goes down to a keyword, and to a name or number under it (NULL: none); returns where it was, for schema_leave. After an
 * error nobody leaves, so the place tells where it was. */
size_t schema_enter(struct schema *S, const char *key, const char *name);
void schema_leave(struct schema *S, size_t was);

/* A rule begins in a text of its own, since rules that it needs are written meanwhile; its number. */
int schema_rule_begin(struct schema *S, struct stext *t);
/* Adds the finished rule to the grammar and frees t; passes st on. */
enum infer_status schema_rule_end(struct schema *S, struct stext *t, enum infer_status st);
/* Visits a schema and writes the name of its rule into t. */
enum infer_status schema_visit(struct schema *S, const json_t *j, struct stext *t);
/* The same for the schema under a keyword. */
enum infer_status schema_visit_at(struct schema *S, const char *key, const char *name, const json_t *j,
                                  struct stext *t);
/* The same for the i-th schema of a list. */
enum infer_status schema_visit_nth(struct schema *S, const char *key, size_t i, const json_t *j,
                                   struct stext *t);
/* Visits a schema that may allow nothing: then *there is false, the status INFER_OK, and nothing is left of it. */
enum infer_status schema_try(struct schema *S, const json_t *j, const char *key, struct stext *t,
                             bool *there);
/* Any value. */
static inline void schema_any(struct schema *S, struct stext *t) {
    S->free_names = true;
    stext_put(t, "value ");
}
/* The text of a value. */
enum infer_status schema_put_constant(struct stext *t, const json_t *v);
/* INFER_E_INPUT: no value can be valid. */
enum infer_status schema_nothing(struct schema *S, const char *why, ...)
    __attribute__((format(printf, 2, 3)));
/* INFER_E_UNSUPPORTED that names a keyword. */
enum infer_status schema_unsupported(const char *what);
/* The type of a schema without one, from its keywords; "any": no keyword says. */
const char *schema_guess_type(const struct schema *S, const json_t *j);
enum infer_status schema_object(struct schema *S, const json_t *j, struct stext *t);
/* A JSON text without escapes that is none of the keys of an object. */
enum infer_status schema_other_key(struct stext *t, const json_t *names);
enum infer_status schema_array(struct schema *S, const json_t *j, struct stext *t);

/* ---- names and references (schema_ids.c, schema_uri.c) ---- */

enum { SCHEMA_NESTED = 1000 }; /* schemas in each other, in a file */
/* Makes the references of S->root absolute, and S->targets. errors: INFER_E_INPUT (nested too deep), INFER_E_MEMORY */
enum infer_status schema_read_ids(struct schema *S);
/* The schema of a $ref. errors: INFER_E_INPUT (leads nowhere), INFER_E_UNSUPPORTED (another file) */
enum infer_status schema_resolve(const struct schema *S, const char *ref, const json_t **out);
/* A URI reference seen from base, with "." and ".." gone, free with mem_free; NULL: out of memory. */
char *schema_uri(const char *base, const char *ref);

/* ---- references and parts (schema_merge.c) ---- */

/* A keyword that says nothing about what is valid. */
bool schema_is_annotation(const char *key);
/* j has a keyword that says what is valid, `but` aside. */
bool schema_constrains(const json_t *j, const char *but);
/* The rule of a $ref, made when it is first met: so a schema may refer to itself. */
enum infer_status schema_ref(struct schema *S, const char *ref, struct stext *t);
/* One schema for base (without the key `but`, NULL: all of it) and part (NULL: none) together, $ref and allOf resolved; to
 * be given back with json_decref. */
enum infer_status schema_join(struct schema *S, const json_t *base, const char *but, const json_t *part,
                              json_t **out);
/* Visits base with $ref, allOf and conditions resolved. */
enum infer_status schema_merged(struct schema *S, const json_t *base, struct stext *t);

/* ---- anyOf and oneOf (schema_branches.c) ---- */

/* Visits anyOf of j; shown: what places and messages call it. */
enum infer_status schema_any_of(struct schema *S, const json_t *j, const char *shown, struct stext *t);
enum infer_status schema_one_of(struct schema *S, const json_t *j, struct stext *t);
/* The branches of oneOf, each without what another one takes, to be given back: of these one holds, or several do. alone: they are visited as they are
 * beside the other keywords of j, so that what no grammar of theirs makes need not be taken away. */
enum infer_status schema_exclusive(struct schema *S, const json_t *j, bool alone, json_t **out);

/* ---- unevaluatedProperties, unevaluatedItems (schema_unevaluated.c); all to be given back ---- */

bool schema_has_unevaluated(const json_t *j);
/* j with prefixItems and items where it has a list of items and additionalItems, and without what says nothing. */
enum infer_status schema_tuple_form(const json_t *j, json_t **out);
/* j without branches, references and parts: the keywords as additionalProperties and items. */
enum infer_status schema_close_flat(const struct schema *S, const json_t *j, json_t **out);
/* Any j. errors: INFER_E_UNSUPPORTED (while proving: it has branches), those of joining */
enum infer_status schema_closed(struct schema *S, const json_t *j, json_t **out);

/* ---- conditions and not (schema_if.c, schema_not.c, schema_negate.c) ---- */

/* j has if, then, else or a dependency of members. */
bool schema_has_condition(const json_t *j);
/* j with its conditions as anyOf; to be given back. errors: INFER_E_INPUT (malformed), INFER_E_MEMORY */
enum infer_status schema_conditions(const json_t *j, json_t **out);
/* Schemas of which one holds where minus (effective) does not, to be given back; base: what they will be joined with. errors: INFER_E_UNSUPPORTED ('not') */
enum infer_status schema_negate(struct schema *S, const json_t *base, const json_t *minus, json_t **out);
/* Visits a schema with "not": what is valid under both is left out, or the keyword is refused. */
enum infer_status schema_not(struct schema *S, const json_t *j, struct stext *t);
/* j is false, or {not: {}}. */
bool schema_is_never(const json_t *j);
/* j is {type: string, not: {enum: [texts]}} and no more, which has a rule of its own. */
bool schema_is_other_text(const json_t *j);
enum infer_status schema_other_text(const json_t *j, struct stext *t);

/* ---- proofs (schema_logic.c, schema_valid.c) ---- */

/* A type of this converter's own: numbers that are no integers. */
#define SCHEMA_FRACTION "number without integers"
/* A type, and those that the keyword "type" allows, as bits; an integer is a number too. "any": all. */
int schema_type_bits(const char *name);
int schema_types(const json_t *j);
int schema_type_of(const json_t *v);
/* The schema behind $ref and allOf and without unevaluated keywords, false where nothing is valid; to be given back with
 * json_decref; NULL: it cannot be said. */
json_t *schema_effective(struct schema *S, const json_t *j);

/* Equal as JSON Schema has it: 1 is 1.0. */
bool schema_same_value(const json_t *a, const json_t *b);
/* Whether v is valid under a schema; depth: 0 from outside. */
enum schema_verdict schema_valid(struct schema *S, const json_t *schema, const json_t *v, int depth);
/* Properties that may all not be there, or NULL: other members are made then. */
bool schema_names_none(const json_t *properties);
/* True when it is proved that no value is valid under both. */
bool schema_apart(struct schema *S, const json_t *a, const json_t *b, int depth);
/* True when it is proved that no text made for a is valid under b; a is visited as it is, joined with nothing. */
bool schema_made_apart(struct schema *S, const json_t *a, const json_t *b);
