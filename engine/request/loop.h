/* An answer that repeats itself: the last tokens are one cycle over and over, token for token. Such an answer says nothing new,
 * and a greedy one never ends.
 *
 * A cycle of p tokens, p up to LOOP_CYCLE, is a loop when the last n tokens are repetitions of it, n at least LOOP_TOKENS and at
 * least LOOP_TIMES * p. That is meant to be late rather than wrong: a rule of a table, a row of zeros or a chorus is shorter, and a list
 * with numbers is no cycle. */
#pragma once
#include <stdint.h>

enum {
    LOOP_CYCLE = 256,
    LOOP_TOKENS = 256,
    LOOP_TIMES = 4,
    LOOP_THOUGHT = 128 /* LOOP_TOKENS of a thought */
};

struct loop {
    int32_t recent[2 * LOOP_CYCLE]; /* the last LOOP_CYCLE tokens, from at on, oldest first */
    int32_t same[LOOP_CYCLE]; /* same[i]: how many tokens in a row equal the one LOOP_CYCLE - i before them */
    int at, longest;          /* of same */
};

/* Begins an answer. */
void loop_start(struct loop *l);
/* Adds a token, which is >= 0; the length of the shortest cycle that is a loop now, 0: none. LOOP_CYCLE comparisons, under 100 ns. */
int loop_push(struct loop *l, int32_t id);
/* The same with so many tokens in place of LOOP_TOKENS, of those that were added. */
int loop_cycle(const struct loop *l, int tokens);
