/* Inside of constrained output: expressions of a grammar, and the automaton that they become. */
#pragma once
#include "text/grammar/grammar.h"
#include "base/mem.h"

/* ---- expressions, as parsed ---- */

enum gexpr_kind {
    GE_TEXT,   /* text[n] */
    GE_CLASS,  /* range[n]: one code point of these; negated: of all others */
    GE_RULE,   /* rule */
    GE_SEQ,    /* kids */
    GE_ALT,    /* kids */
    GE_REPEAT, /* kids->expr, min to max times; max -1: no end */
    GE_MEET, /* kids, rules: texts of all that are not negated, and of none that is; n: how many. A rule's whole body */
};
struct grange {
    int32_t lo, hi;
};
struct gexpr {
    enum gexpr_kind kind;
    const char *text;
    struct grange *range;
    size_t n;
    bool negated;
    int rule, min, max;
    struct gexpr *first, *last, *next; /* kids, and the next of the parent's */
};
struct grule {
    const char *name;
    size_t n_name;
    struct gexpr *body;                      /* NULL: used, not defined */
    int line;                                /* where it was first met */
    uint32_t start, end, body_from, body_to; /* nodes of the automaton; those of the body follow each other */
    bool nullable;
};

/* ---- the automaton ---- */

enum gedge_kind { GX_BYTE, GX_EMPTY, GX_CALL };
struct gedge {
    uint32_t to, next;    /* next edge of the node, 0: none */
    uint8_t kind, lo, hi; /* GX_BYTE: bytes lo..hi */
    uint16_t rule;        /* GX_CALL: goes on at to when the rule is done */
};
struct gnode {
    uint32_t edge; /* first edge, 0: none */
    bool end;      /* last node of its rule */
};
struct infer_grammar {
    struct arena arena;
    struct grule *rule; /* rule[n_rule]; rule[0] is root */
    int n_rule;
    uint32_t *index; /* index[n_index]: open addressing by name, rule + 1 */
    uint32_t n_index;
    struct gnode *node; /* node[n_node] */
    struct gedge *edge; /* edge[n_edge]; 0 is none */
    uint32_t n_node, cap_node, n_edge, cap_edge;
    uint32_t start; /* where a text begins */
    int n_repeat;
    /* its texts are JSON in which no object has a name twice, which the automaton does not say */
    bool names_once;
};

/* gbnf.c: text -> rules. errors: as infer_grammar_from_gbnf */
enum infer_status gbnf_parse(struct infer_grammar *g, const char *text, size_t n);
/* grammar_build.c: rules -> automaton. */
enum infer_status grammar_build(struct infer_grammar *g);
