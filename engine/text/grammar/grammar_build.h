/* Inside of the automaton's making. */
#pragma once
#include "base/mem.h"
#include "text/grammar/grammar_int.h"

/* errors: INFER_E_INPUT (too many places, edges), INFER_E_MEMORY */
enum infer_status grammar_node(struct infer_grammar *g, uint32_t *out);
enum infer_status grammar_edge(struct infer_grammar *g, uint32_t from, struct gedge e);

/* A walk over places: stack[..] those that were met, seen[place] the number of the walk that last met it; n_node of each. */
struct reaching {
    uint32_t *seen, *stack, number;
};
/* Places that are reached from start without a byte, into w->stack; returns how many. A call that can be empty is passed. */
uint32_t grammar_reach(const struct infer_grammar *g, struct reaching *w, uint32_t start);
/* The rules that rule r may begin with: call[first[r] .. first[r + 1]). */
struct begins {
    uint16_t *call;
    uint32_t *first;
};
/* grammar_meet.c: the automata of rules that are what others have in common; those of all others are there. errors: INFER_E_INPUT (no regular
 * rules; size), INFER_E_MEMORY */
enum infer_status grammar_meets(struct infer_grammar *g);
/* grammar_left.c: makes the automaton anew where a rule begins with itself. errors: INFER_E_INPUT (nothing else ends it; size), INFER_E_MEMORY */
enum infer_status grammar_left(struct infer_grammar *g, const struct reaching *w, const struct begins *b);
