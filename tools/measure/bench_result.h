/* Results of `infer bench`: statistics, table, JSON, and what a comparison may conclude from them. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum { BENCH_MAX_REPS = 1000, BENCH_NAME = 48, BENCH_KEPT = 64 };

struct bench_result {
    char test[BENCH_NAME];              /* pp512, tg128, tg64@d16384, tg64x8, tg64x8@d1024 */
    double tok_s, tok_s_min, tok_s_max; /* median and range of the repetitions */
    double gb_s, share;                 /* NAN: does not apply. share: of the ceiling probed around the
                                   repetitions: memory bandwidth for decode rows, arithmetic for prompt rows */
    double ms_p50, ms_p95, ms_p99;      /* of a step: a token of every sequence, or the whole prompt */
    /* share of their time that the program's threads waited for a processor which others had; NAN: unknown */
    double waited;
    double joules;       /* a token; NAN: not counted here */
    double celsius, mhz; /* of the hottest card, or NAN: at the end; its clock on average */
    double right,
        per_step;     /* share of guesses that were right, tokens a step of a sequence; NAN: nobody guessed */
    double throttled; /* share of the repetitions in which a card was held back; NAN: unknown */
    double rate[BENCH_KEPT]; /* tok/s of each repetition in their order, n_rate of them */
    int n_rate;
};

/* Percentile q (0 to 1) of x[n], which is sorted in place; between two values the nearest one counts. */
double bench_percentile(double *x, size_t n, double q);

/* {"test": .., "tok_s": .., ...}; values that do not apply are null. NULL: out of memory. */
json_t *bench_result_json(const struct bench_result *r);
/* The other way; errors: INFER_E_INPUT naming the key that is missing or has another type. */
enum infer_status bench_result_read(struct bench_result *r, const json_t *j);

/* One result against an earlier one of the same test. Where both have a share of the ceiling, a change must show in the speed
 * and in the share (memory that is slower today is no fault of the program, nor is a probe that was disturbed): the one that
 * moved less counts, and none where they moved apart. */
enum bench_verdict { BENCH_SAME, BENCH_FASTER, BENCH_SLOWER, BENCH_NOISY };
struct bench_change {
    enum bench_verdict verdict;
    double ratio;     /* new / old */
    double threshold; /* a ratio further from 1 than this counts */
    bool by_share;
    double speed,
        half; /* of the speeds alone, and its interval of 95%: times exp(-half) to exp(half); NAN: too few repetitions */
};
enum { BENCH_FEW = 8 };
/* Half the interval of 95% of a result's speed, as a share of it; NAN: fewer than BENCH_FEW repetitions. */
double bench_interval(const struct bench_result *r);
/* The ratio of two speeds and half its interval; false: too few repetitions. */
bool bench_ratio(const struct bench_result *new_one, const struct bench_result *old, double *ratio,
                 double *half);
/* reps: repetitions of each. The threshold is half the ranges of the repetitions of both, added as errors are, and what the
 * probed ceiling moved by between the two runs, and the share of their time that their threads waited; at least 0.025 (what one machine's medians differ by from minute to minute).
 * With BENCH_FEW repetitions and more of both it is half the interval of 95% of the ratio instead of the ranges, 0.015 at least.
 * A threshold above 0.10, or fewer than 3 repetitions, leaves a smaller change open (NOISY). */
struct bench_change bench_compare(const struct bench_result *new_one, const struct bench_result *old,
                                  int reps_new, int reps_old);
/* The same of two programs that took turns: ratio[round][block] is the speed new / old in one of n_block blocks of a round;
 * every round has fresh processes, since two of one program may differ. Counted are the rounds' medians, so that it does not matter
 * what the blocks' noise is like, nor what processes differ by. A change is one that is off by over 1%, and by something with a
 * confidence of 95% (Student's t). NOISY: it is off by over 2.5% without that, or known to 5% at best.
 * The blocks of each round are sorted; least and most: the bounds of that confidence. */
enum { BENCH_ROUNDS = 10 };
struct bench_turns_change {
    enum bench_verdict verdict;
    double ratio, least, most;
};
struct bench_turns_change bench_compare_turns(double *ratio, int n_block);
/* What moved, as words: "share -1.2%"; where speed and share moved apart, "speed +4.6%, share the other way". Returns text. */
const char *bench_moved(const struct bench_change *c, char text[64]);
const char *bench_verdict_name(enum bench_verdict v);
