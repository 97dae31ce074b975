/* infer bench --draft, --lookup: what guesses bring. */
#pragma once
#include "tools/session.h"

/* n tokens of each of n_seq answers, behind prompts of depth random tokens. */
struct bench_guess_test {
    struct infer_sched *sched;
    struct session_draft draft;
    double share; /* of guesses that count as right, by lot; below 0: those that are */
    int n, n_seq, depth, n_vocab;
    uint64_t *random; /* goes on */
};
/* Of steps that were timed: in each a request has one, so that tokens / steps is what a request gets of a step. */
struct bench_guesses {
    int tokens, steps, guessed, right;
};
/* Positions that such a test takes of a sequence. */
int bench_guess_ctx(int n, int depth);
/* Adds to *out; *seconds for n x n_seq tokens. A lookup is told the answer, which is computed before without guesses: a text that is copied.
 * errors: INFER_E_MEMORY, INFER_E_FULL, what fails a request */
enum infer_status bench_guess_repeat(const struct bench_guess_test *t, struct bench_guesses *out,
                                     double *seconds);
