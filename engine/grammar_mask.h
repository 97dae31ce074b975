/* Inside of the matcher: the token trie, stacks and states. */
#pragma once
#include "grammar_int.h"

enum {
    TRIE_MAX_DEPTH = 4096,  /* bytes of a token */
    MATCH_STACKS = 1 << 16, /* different stacks kept */
    MATCH_STATES = 1 << 12, /* different sets of stacks kept */
    MATCH_SET = 1 << 18,    /* stacks in all sets together */
    MATCH_WIDTH = 1 << 12,  /* stacks in one set */
    MATCH_MASKS = 256,      /* masks kept */
};

struct trie_node {
    uint64_t low, high; /* ASCII bytes in this subtree, its own byte too */
    uint32_t skip;      /* the first node behind the subtree */
    int32_t token;      /* that ends here, -1: none; others of the same bytes in same[] */
    uint16_t depth;
    uint8_t byte;
    bool wide;   /* the subtree holds bytes from 0x80 on */
    bool starts; /* its byte begins a character */
    bool whole;  /* it begins at a character, and every token in it ends with a whole one */
};
struct grammar_vocab {
    struct arena arena;
    struct trie_node *node; /* node[n_node] in the order of a walk */
    uint32_t n_node;
    int32_t n_vocab, n_word;
    int32_t *same;     /* same[n_vocab]: the next token of equal bytes, -1 */
    const char **text; /* text[n_vocab][text_len[n_vocab]] */
    uint32_t *text_len;
    uint64_t *all, *ends; /* bits: tokens of the trie; tokens that end the answer */
};

/* A stack is its top place and the stack below: where its rule returns to. 0: the bottom. */
struct gstack {
    uint32_t node, parent;
};
struct gstate {
    uint32_t first, n; /* set[first .. first + n), ascending */
    int32_t mask;      /* which of the masks, -1: not computed */
    bool complete;     /* the bottom was reached: the text may end */
};
struct matcher {
    const struct grammar *g;
    const struct grammar_vocab *v;
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
    uint16_t *next;         /* next[MATCH_STATES][256]: state behind a byte, UNKNOWN: not computed */
    uint32_t *work, *found; /* scratch of a closure, MATCH_STACKS each */
    uint64_t *mask;         /* mask[MATCH_MASKS][n_word] */
    int32_t n_mask;
    uint32_t now; /* the current state */
    bool ended;   /* an ending token was accepted */
    bool full;    /* a pool ran out in this closure */
    uint16_t path[TRIE_MAX_DEPTH + 1];
};
enum { MATCH_UNKNOWN = 0xffff };
