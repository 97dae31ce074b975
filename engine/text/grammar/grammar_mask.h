/* Inside of the matcher: the token trie, stacks and states. */
#pragma once
#include "text/grammar/grammar_int.h"
#include "text/grammar/grammar_names.h"

enum {
    TRIE_MAX_DEPTH = 4096,  /* bytes of a token */
    MATCH_STACKS = 1 << 16, /* different stacks kept */
    MATCH_STATES = 1 << 12, /* different sets of stacks kept */
    MATCH_SET = 1 << 18,    /* stacks in all sets together */
    MATCH_WIDTH = 1 << 12,  /* stacks in one set */
    MATCH_MASKS = 256,      /* masks kept */
};

/* A place in the trie. Children follow each other, so a walk reads memory in order. The tokens of a subtree are the ranks
 * lo .. hi; sets of bytes are of ASCII, wide speaks for the others. */
struct trie_node {
    uint64_t low, high;    /* bytes below this place */
    uint64_t kids;         /* bytes of its children, modulo 64 */
    uint32_t first, n_kid; /* its children */
    uint32_t lo, hi;
    bool ends;  /* a token ends here: rank lo */
    bool wide;  /* bytes from 0x80 on below */
    bool whole; /* a character begins behind this place, and every token below ends with a whole one */
};
/* Tokens that any text in quotes may hold (no quote, backslash, control character or part of a character), and all others:
 * a trie of its own for each. */
enum { TRIE_PLAIN, TRIE_OTHER, TRIE_COUNT };
/* A plain character of ASCII. */
static inline bool grammar_plain(uint8_t c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }
struct infer_grammar_vocab {
    struct arena arena;
    struct trie_node *node; /* node[n_node]; the first TRIE_COUNT are the roots */
    uint8_t *byte;          /* byte[n_node] */
    uint32_t n_node;
    int32_t n_vocab, n_word;
    int32_t *token; /* token[n_rank], sorted by bytes within each trie */
    uint32_t n_rank;
    uint16_t *n_char; /* n_char[rank] of the plain tokens */
    int most_char;    /* the most of them */
    /* comma[n_comma]: ranks of the tokens with a comma, the first n_comma_plain of the plain ones */
    uint32_t *comma, n_comma, n_comma_plain;
    int32_t *same;     /* same[n_vocab]: the next token of equal bytes, -1 */
    const char **text; /* text[n_vocab][text_len[n_vocab]] */
    uint32_t *text_len;
    uint64_t *all, *ends; /* bits: tokens of the tries; tokens that end the answer */
};

/* A stack is its top place and the stack below: where its rule returns to. 0: the bottom. */
struct gstack {
    uint32_t node, parent;
};
struct gstate {
    uint32_t first, n;  /* set[first .. first + n), ascending */
    int32_t mask;       /* which of the masks, -1: not computed */
    bool complete;      /* the bottom was reached: the text may end */
    bool row;           /* its row of next is filled */
    bool ready;         /* and what follows is known: */
    bool wide;          /* every character beyond ASCII leads back to it */
    bool no_plain;      /* no plain character leads anywhere */
    uint16_t plain;     /* where every plain character leads; 0: to different places */
    uint64_t low, high; /* ASCII bytes that lead back to it */
    uint64_t alive;     /* bytes that lead anywhere, modulo 64 */
};
struct matcher {
    const struct infer_grammar *g;
    const struct infer_grammar_vocab *v;
    struct gstack *stack; /* stack[n_stack]; 0 is the bottom */
    uint32_t n_stack;
    uint32_t *stack_index; /* hash, 2 * MATCH_STACKS */
    uint32_t *stamp;       /* stamp[MATCH_STACKS]: closure that last met the stack */
    uint32_t round;
    struct gstate *state; /* state[n_state]; 0 is dead */
    uint32_t n_state;
    uint32_t *state_index; /* hash, 2 * MATCH_STATES */
    uint32_t *set;
    uint32_t n_set;
    uint16_t *next;         /* next[MATCH_STATES][256]: state behind a byte, where the state has its row */
    uint32_t *work, *found; /* scratch of a closure, MATCH_STACKS each */
    uint64_t *mask;         /* mask[MATCH_MASKS][n_word] */
    int32_t n_mask;
    uint32_t now;        /* the current state */
    bool ended;          /* an ending token was accepted */
    bool full;           /* a pool ran out in this closure */
    bool cut;            /* a mask lacks what no pool had room for */
    uint64_t *rank;      /* a mask by rank, n_rank bits */
    struct names *names; /* NULL: names may come twice */
    struct names_mark *mark;
    uint64_t *once; /* once[n_word]: a mask without the tokens that repeat a name */
    struct {
        uint32_t kid, end; /* children still to be looked at */
        uint16_t state;
    } path[TRIE_MAX_DEPTH + 1];
};

/* The state behind a byte; 0: none, or a pool ran out (m->full). */
uint32_t matcher_step(struct matcher *m, uint32_t state, uint8_t byte);
/* grammar_once.c: the mask without tokens that make a name come twice in its object, or behind which one could not but do so. */
const uint64_t *matcher_once(struct matcher *m, const uint64_t *mask);
