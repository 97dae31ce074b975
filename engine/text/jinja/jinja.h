/* Jinja: an interpreter for the part of the template language that chat templates use.
 *
 * A rendering (struct jinja) owns one arena; every value, string and syntax node lives in it and dies with
 * jinja_end. Strings carry marks: which bytes came from text that must not turn into special tokens; every
 * operation keeps them. Templates come from model files, so everything is bounded: steps, depth, memory,
 * output. There are no host objects to reach, and what a template changes (namespaces, append, pop) is gone with
 * the rendering. source: Jinja 3.1 template documentation and the settings of Hugging Face transformers' chat
 * templates (trim_blocks, lstrip_blocks, loop controls, sandboxed); what llama.cpp, minja and minijinja add. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include "base/mem.h"
#include "base/status.h"
#include "files/textfile.h"

enum {
    JINJA_MAX_SOURCE = TEXT_MAX_TEMPLATE, /* bytes of template text */
    JINJA_MAX_DEPTH = 64,                 /* nested brackets, statements, macro calls */
    JINJA_MAX_EVAL = 1200,                /* nested evaluations (long chains of operators), nested values */
    JINJA_MAX_STEPS = 10 * 1000000,       /* evaluated nodes and visited elements */
    JINJA_MAX_STRING = 16 << 20,          /* bytes of one string, also of the output */
    JINJA_MAX_RANGE = 1000000,            /* elements of range() */
    JINJA_MAX_MEMORY = 512 << 20,         /* bytes of the arena */
};

enum jv_kind {
    JV_MISSING, /* no value: an argument that was not given */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STRING,
    JV_LIST,
    JV_TUPLE,
    JV_RANGE,
    JV_VIEW, /* dict.items() and its like */
    JV_GEN,  /* a one-shot sequence, as map() and select() give */
    JV_DICT,
    JV_NAMESPACE,
    JV_LOOP,
    JV_MACRO,
    JV_FUNC,   /* a global function */
    JV_METHOD, /* a function bound to a value */
    JV_CYCLER,
    JV_JOINER,
};

/* UTF-8 text p[n], not ended by 0. m: NULL when no byte is marked, else m[n], non-zero where marked. */
struct jstr {
    const char *p;
    const uint8_t *m;
    size_t n;
    bool safe;         /* went through the safe filter: joins escape the other side, as Markup does */
    struct jbuf *home; /* buffer that p points into, when text can be appended in place */
};

/* A value; small ones by value, others in the arena. */
struct jv {
    enum jv_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jstr *s;
        struct jlist *l;
        struct jdict *d;
        const struct jundef *u;
        const struct jbuiltin *fn;
        struct jmethod *method;
        struct jloop *loop;
        struct jmacro *macro;
    };
};

struct jlist {
    struct jv *v; /* v[n] */
    size_t n, cap;
    const char *type;       /* Python's name of the type, for messages and repr */
    bool used;              /* JV_GEN: already iterated; JV_JOINER, JV_CYCLER: see their functions */
    size_t pos;             /* JV_CYCLER: the next item */
    int64_t from, to, step; /* JV_RANGE: what its elements came from */
};

struct jentry {
    struct jv key, value;
};

/* Keeps the order of insertion; index is an open-addressing table once n > 8. */
struct jdict {
    struct jentry *e; /* e[n] */
    size_t n, cap;
    uint32_t *index; /* index[n_index]: entry + 1, 0 empty */
    size_t n_index;
};

/* State of one rendering. Zero it, set now, then build variables and call jinja_render. */
struct jinja {
    struct arena arena;
    struct tm now; /* for strftime_now */
    uint64_t steps;
    int eval_depth, call_depth;
    int line;            /* of the statement or call being run, for messages */
    int flow;            /* break or continue on its way out */
    struct jdict *names; /* interned names of the template */
    const struct jdict *vars;
};

/* Renders template text src[n] (UTF-8) with variables vars; *out is a view into J's arena.
 * errors: INFER_E_INPUT with "template line N: ..." (syntax, undefined use, wrong types, raise_exception,
 * budgets), INFER_E_MEMORY. */
enum infer_status jinja_render(struct jinja *J, const char *src, size_t n, const struct jdict *vars,
                               struct jstr *out);
void jinja_end(struct jinja *J);

/* ---- building values (the caller's text must outlive J, or use jv_string_copy) ---- */
enum infer_status jv_string(struct jinja *J, struct jv *out, const char *p, size_t n);
/* Copies the text; mark: whether every byte is marked. */
enum infer_status jv_string_copy(struct jinja *J, struct jv *out, const char *p, size_t n, bool mark);
enum infer_status jv_list(struct jinja *J, struct jv *out, enum jv_kind kind, size_t cap);
enum infer_status jv_push(struct jinja *J, struct jlist *l, struct jv v);
enum infer_status jv_dict(struct jinja *J, struct jv *out);
/* Sets d[key]; an equal key keeps its place and first spelling. errors: an unhashable key. */
enum infer_status jv_dict_set(struct jinja *J, struct jdict *d, struct jv key, struct jv value);
/* d[key] or NULL. */
const struct jv *jv_dict_get(const struct jdict *d, struct jv key);

static inline struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
static inline struct jv jv_bool(bool b) { return (struct jv){.kind = JV_BOOL, .b = b}; }
static inline struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
static inline struct jv jv_float(double f) { return (struct jv){.kind = JV_FLOAT, .f = f}; }
