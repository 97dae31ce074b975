/* Inside of the Jinja interpreter: tokens, syntax nodes, string building, and what its files call of each
 * other. */
#pragma once
#include "text/jinja/jinja.h"

/* ---- errors and memory ------------------------------------------------------------------------------------
 */
/* "template line N: message", INFER_E_INPUT. */
enum infer_status jinja_fail(struct jinja *J, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* n zeroed bytes of the arena; errors: memory, the memory budget. */
enum infer_status jinja_new(struct jinja *J, void *out_pointer, size_t n);
/* Counts n steps against the budget. */
enum infer_status jinja_step(struct jinja *J, uint64_t n);
/* One level deeper; pair with J->eval_depth--. */
enum infer_status jinja_enter(struct jinja *J);

/* ---- text building: p[n] with marks m[n] (NULL while nothing is marked)
 * ------------------------------------ */
struct jbuf {
    struct jinja *J;
    char *p;
    uint8_t *m;
    size_t n, cap;
};
enum infer_status jbuf_add(struct jbuf *b, const char *p, const uint8_t *m, size_t n);
enum infer_status jbuf_fill(struct jbuf *b, char c, size_t n); /* n times c, unmarked */
enum infer_status jbuf_lit(struct jbuf *b, const char *s);
/* n bytes that all carry the mark of one source byte. */
enum infer_status jbuf_one(struct jbuf *b, const char *p, size_t n, bool mark);
static inline enum infer_status jbuf_str(struct jbuf *b, const struct jstr *s) {
    return jbuf_add(b, s->p, s->m, s->n);
}
static inline enum infer_status jbuf_sub(struct jbuf *b, const struct jstr *s, size_t at, size_t n) {
    return jbuf_add(b, s->p + at, s->m ? s->m + at : NULL, n);
}
/* The text so far as a value; the buffer must not be used after that. */
enum infer_status jbuf_value(struct jbuf *b, bool safe, struct jv *out);
enum infer_status jv_sub(struct jinja *J, const struct jstr *s, size_t at, size_t n, struct jv *out);
enum infer_status jv_lit(struct jinja *J, struct jv *out, const char *s); /* a constant C string */

/* ---- UTF-8
 * ------------------------------------------------------------------------------------------------- */
/* Decodes one code point of valid UTF-8 at p; returns its length. */
int utf8_get(const char *p, int32_t *cp);
int utf8_put(char *out, int32_t cp); /* out[4]; returns the length */
bool utf8_valid(const char *p, size_t n);
size_t js_chars(const struct jstr *s);
/* Byte offset of code point number i (at most n). */
size_t js_offset(const struct jstr *s, size_t i);
bool js_is_space(int32_t cp); /* Python's str.isspace */
bool js_eq(const struct jstr *a, const struct jstr *b);
bool js_is(const struct jstr *s, const char *lit);
/* First place of needle in s at or behind from; SIZE_MAX when there is none. */
size_t js_find(const struct jstr *s, const struct jstr *needle, size_t from, size_t to);

/* ---- values
 * ------------------------------------------------------------------------------------------------ */
struct jundef {
    const char *what; /* message when it is used */
    bool unsafe;
};
struct jargs {
    struct jv *pos; /* pos[n_pos] */
    size_t n_pos;
    const struct jstr **kw_name; /* kw_name[n_kw], kw[n_kw] */
    struct jv *kw;
    size_t n_kw;
};
/* A filter, test, method or global function; self is the piped value or the object. */
struct jbuiltin {
    const char *name;
    enum infer_status (*call)(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out);
};
struct jmethod {
    struct jv self;
    const struct jbuiltin *fn;
};

bool jv_truth(struct jv v);
const char *jv_type(struct jv v); /* Python's name of the type */
bool jv_is_number(struct jv v);   /* bool, int or float */
double jv_number(struct jv v);
static inline int64_t jv_integer(struct jv v) { return v.kind == JV_BOOL ? v.b : v.i; }
static inline bool jv_is_int(struct jv v) { return v.kind == JV_INT || v.kind == JV_BOOL; }
static inline bool jv_is_seq(struct jv v) { return v.kind >= JV_LIST && v.kind <= JV_GEN; }
enum infer_status jv_undefined(struct jinja *J, struct jv *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails with the message of an undefined value. */
enum infer_status jv_fail_undefined(struct jinja *J, struct jv v);
enum infer_status jv_equal(struct jinja *J, struct jv a, struct jv b, bool *out);
/* -1, 0, 1; errors: types without an order. */
enum infer_status jv_compare(struct jinja *J, struct jv a, struct jv b, const char *op, int *out);
/* The elements of an iterable as a list (a view when it is one); consumes generators. */
enum infer_status jv_iterate(struct jinja *J, struct jv v, struct jlist **out);
enum infer_status jv_length(struct jinja *J, struct jv v, int64_t *out);
enum infer_status jv_contains(struct jinja *J, struct jv item, struct jv box, bool *out);
/* Adds the tuple (a, b). */
enum infer_status jv_push_pair(struct jinja *J, struct jlist *l, struct jv a, struct jv b);
/* The tuples (key, value) of d. */
enum infer_status jv_pairs(struct jinja *J, const struct jdict *d, enum jv_kind kind, struct jv *out);
/* Takes out d[key], which is there. */
enum infer_status jv_dict_remove(struct jinja *J, struct jdict *d, struct jv key);
enum infer_status jbuf_repr(struct jbuf *b, struct jv v);
enum infer_status jbuf_display(struct jbuf *b, struct jv v); /* Python's str() */
/* str(v) as a string value; strings pass through. */
enum infer_status jv_text(struct jinja *J, struct jv v, const struct jstr **out);
enum infer_status jbuf_json(struct jbuf *b, struct jv v, const char *item_sep, const char *key_sep,
                            const struct jstr *indent, bool ascii, bool sort, int level);
/* JSON text -> value, as Python's json.loads; integers beyond 64 bits become floats. errors: INFER_E_INPUT (the text
 * is no JSON, half a surrogate pair, nested deeper than JINJA_MAX_EVAL), INFER_E_MEMORY */
enum infer_status js_from_json(struct jinja *J, const struct jstr *s, struct jv *out);
void float_repr(char out[40], double f);

/* ---- operations (jinja_ops.c)
 * ------------------------------------------------------------------------------ */
enum jop { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
enum infer_status jv_binary(struct jinja *J, enum jop op, struct jv a, struct jv b, struct jv *out);
enum infer_status jv_negate(struct jinja *J, struct jv a, struct jv *out);
enum infer_status jv_concat(struct jinja *J, const struct jv *v, size_t n, struct jv *out);
enum infer_status jv_getattr(struct jinja *J, struct jv obj, const struct jstr *name, struct jv *out);
enum infer_status jv_getitem(struct jinja *J, struct jv obj, struct jv key, struct jv *out);
/* obj[a:b:c]; none for what is left out. */
enum infer_status jv_slice(struct jinja *J, struct jv obj, struct jv a, struct jv b, struct jv c,
                           struct jv *out);
enum infer_status js_escape_html(struct jbuf *b, const struct jstr *s);
enum infer_status js_percent(struct jinja *J, const struct jstr *f, struct jv args, struct jv *out);
enum infer_status js_format(struct jinja *J, const struct jstr *f, const struct jargs *a, struct jv *out);
/* int() and float() of text: false when it is not a number. */
bool js_to_int(const struct jstr *s, int base, int64_t *out);
bool js_to_float(const struct jstr *s, double *out);

/* ---- calls
 * --------------------------------------------------------------------------------------------------- */
/* Binds arguments to spec, names split by blanks, "?" before optional ones: v[i] is JV_MISSING when absent.
 */
enum infer_status jargs_bind(struct jinja *J, const struct jargs *a, const char *fn, const char *spec,
                             struct jv *v);
enum infer_status jv_call(struct jinja *J, struct jv fn, const struct jargs *a, struct jv *out);
/* Whether text, a dict or a list has a method of this name. */
bool jinja_is_method(const struct jstr *name);
/* By name, NULL when there is none. */
const struct jbuiltin *jinja_filter(const char *name, size_t n);
const struct jbuiltin *jinja_filter_seq(const char *name, size_t n);
const struct jbuiltin *jinja_test(const char *name, size_t n);
const struct jbuiltin *jinja_global(const char *name, size_t n);
const struct jbuiltin *jinja_str_method(const char *name, size_t n);
const struct jbuiltin *jinja_case_method(const char *name, size_t n);
const struct jbuiltin *jinja_method(enum jv_kind kind, const char *name, size_t n);
const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, size_t count, const char *name, size_t n);
enum infer_status js_strip(struct jinja *J, const struct jstr *s, struct jv chars, int sides, struct jv *out);
enum infer_status js_upper(struct jinja *J, const struct jstr *s, struct jv *out);
enum infer_status js_lower(struct jinja *J, const struct jstr *s, struct jv *out);
enum infer_status js_capitalize(struct jinja *J, const struct jstr *s, struct jv *out);
enum infer_status js_replace(struct jinja *J, const struct jstr *s, const struct jstr *old,
                             const struct jstr *new_, int64_t count, struct jv *out);
enum infer_status js_join(struct jinja *J, const struct jstr *sep, const struct jlist *items, bool convert,
                          struct jv *out);
bool js_is_lower(const struct jstr *s);
bool js_is_upper(const struct jstr *s);
bool js_is_alnum(int32_t cp);

/* ---- tokens (jinja_lex.c)
 * ------------------------------------------------------------------------------------ */
enum jt_kind {
    JT_END,
    JT_DATA,
    JT_PRINT_BEGIN,
    JT_PRINT_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_INT,
    JT_FLOAT,
    JT_OP, /* op: the character, or two of them as (first << 8 | second) */
};
struct jtoken {
    enum jt_kind kind;
    int line, op;
    struct jv value; /* text of data, name and string; number */
};
enum infer_status jinja_lex(struct jinja *J, const char *src, size_t n, struct jtoken **out, size_t *n_out);

/* ---- syntax tree (jinja_parse.c, jinja_stmt.c)
 * --------------------------------------------------------------- */
enum jn_kind {
    /* expressions */
    JN_CONST,   /* value */
    JN_NAME,    /* name */
    JN_LIST,    /* kids */
    JN_TUPLE,   /* kids */
    JN_DICT,    /* kids: key, value, key, value ... */
    JN_ATTR,    /* a.name */
    JN_ITEM,    /* a[b] */
    JN_SLICE,   /* a:b:c, inside JN_ITEM's b */
    JN_CALL,    /* a(kids); kids may be JN_KEYWORD, JN_STAR, JN_STARS */
    JN_FILTER,  /* a | fn(kids); a is NULL in a filter block */
    JN_TEST,    /* a is fn(kids) */
    JN_KEYWORD, /* name=a */
    JN_STAR,    /* *a */
    JN_STARS,   /* **a */
    JN_NOT,
    JN_NEG,
    JN_POS,
    JN_BINARY, /* a op b */
    JN_AND,
    JN_OR,
    JN_CONCAT,  /* kids joined by ~ */
    JN_COMPARE, /* a, then kids: JN_OPERAND */
    JN_OPERAND, /* op, a */
    JN_COND,    /* a if b else c */
    JN_NSREF,   /* name.value (value: the attribute) as a target */
    /* statements; body and other are lists linked by next */
    JN_DATA,      /* value */
    JN_PRINT,     /* a */
    JN_DO,        /* a */
    JN_IF,        /* a, body, other */
    JN_FOR,       /* a target, b iterable, c condition, body, other, op: recursive */
    JN_SET,       /* a target, b value */
    JN_SETBLOCK,  /* a target, b filter chain or NULL, body */
    JN_MACRO,     /* name, kids: parameters (JN_NAME, or JN_KEYWORD with its default), body; op: USES_ bits */
    JN_CALLBLOCK, /* a the call, macro: b */
    JN_FILTERBLOCK, /* a filter chain, body */
    JN_WITH,        /* kids: target, value ...; body */
    JN_SCOPE,       /* body */
    JN_BREAK,
    JN_CONTINUE,
};
enum { USES_VARARGS = 1, USES_KWARGS = 2, USES_CALLER = 4 };
enum jcmp { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };
struct jnode {
    enum jn_kind kind;
    int op, line;
    const struct jstr *name; /* interned: equal names are equal pointers */
    struct jv value;
    const struct jbuiltin *fn;
    struct jnode *a, *b, *c, *body, *other, *next;
    struct jnode **kids; /* kids[n] */
    size_t n;
};
struct jparser {
    struct jinja *J;
    struct jtoken *t; /* the current token; the last one is JT_END */
    int depth, n_loop;
    int soft; /* inside of how many ifs: an unknown filter there is an error only when it is reached */
    int uses; /* USES_ bits of the names met in this macro so far */
};
enum infer_status jinja_parse(struct jinja *J, const char *src, size_t n, struct jnode **out);
enum infer_status jparse_fail(struct jparser *P, const char *expected);
enum infer_status jparse_node(struct jparser *P, enum jn_kind kind, struct jnode **out);
enum infer_status jparse_expression(struct jparser *P, bool with_cond, struct jnode **out);
enum infer_status jparse_primary(struct jparser *P, struct jnode **out);
/* Expressions separated by commas make a tuple; end_name: a word that ends it ("in"), or NULL. */
enum infer_status jparse_tuple(struct jparser *P, bool simple, bool with_cond, bool parens,
                               const char *end_name, struct jnode **out);
enum infer_status jparse_filters(struct jparser *P, struct jnode *in, bool first_inline, struct jnode **out);
enum infer_status jparse_name(struct jparser *P, const struct jstr **out);
enum infer_status jparse_kid(struct jparser *P, struct jnode *n, struct jnode *kid);
bool jparse_is_op(const struct jparser *P, int op);
bool jparse_is_word(const struct jparser *P, const char *word);
bool jparse_skip_op(struct jparser *P, int op);
bool jparse_skip_word(struct jparser *P, const char *word);
enum infer_status jparse_expect_op(struct jparser *P, int op);
#define OP2(a, b) ((a) << 8 | (b))

/* ---- evaluation (jinja_eval.c: expressions, jinja_exec.c: statements)
 * ----------------------------------------- */
struct jscope {
    struct jscope *up;
    const struct jstr **name; /* name[n], value[n] */
    struct jv *value;
    size_t n, cap;
    bool captured; /* a macro was defined in it: its names outlive it */
};
struct jloop {
    struct jlist *items;
    size_t i; /* of the current item */
    int depth;
    struct jv last; /* what loop.changed saw */
    struct jnode *node;
    struct jscope *scope;
};
struct jmacro {
    const struct jnode *node; /* JN_MACRO */
    struct jscope *scope;     /* where it was defined */
};
enum infer_status jinja_eval(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out);
enum infer_status jinja_exec(struct jinja *J, struct jscope *s, const struct jnode *list, struct jbuf *out);
enum infer_status jinja_args(struct jinja *J, struct jscope *s, struct jnode *const *kids, size_t n,
                             struct jargs *a);
enum infer_status jinja_filter_chain(struct jinja *J, struct jscope *s, const struct jnode *chain,
                                     struct jv in, struct jv *out);
enum infer_status jscope_new(struct jinja *J, struct jscope *up, struct jscope **out);
enum infer_status jscope_set(struct jinja *J, struct jscope *s, const struct jstr *name, struct jv v);
enum infer_status jmacro_call(struct jinja *J, const struct jmacro *m, const struct jargs *a, struct jv *out);
enum infer_status jloop_call(struct jinja *J, const struct jloop *l, const struct jargs *a, struct jv *out);
enum infer_status jloop_attr(struct jinja *J, struct jloop *l, const struct jstr *name, struct jv *out);
