/* Counters and histograms, for /metrics. */
#pragma once
#include <stdatomic.h>
#include "serve/buf.h"

enum { METRIC_BUCKETS = 32 };
struct histogram {
    atomic_ullong bucket[METRIC_BUCKETS + 1], count, sum_us;
};
/* Bounds of buckets, rising. */
struct bounds {
    int n;
    double of[METRIC_BUCKETS];
};
extern const struct bounds metric_first, metric_gaps, metric_long, metric_tokens, metric_choices, metric_rows,
    metric_steps;

/* Where a request is (job.reached). */
enum metric_state { STATE_READ, STATE_QUEUE, STATE_PROMPT, STATE_ANSWER, METRIC_STATES };
enum { METRIC_REASONS = 16 };
struct metrics {
    atomic_ullong prompt_tokens, cached_tokens, answer_tokens;
    atomic_ullong guessed_tokens, right_tokens; /* by who drafts; of these, those that were right */
    atomic_ullong finished[3];                  /* stop, length, tool calls */
    atomic_ullong failed, queue_full, key_full, put_aside;
    atomic_ullong gone[METRIC_STATES];
    atomic_ullong refused[METRIC_REASONS]; /* metrics_refused */
    atomic_ullong grammars_known, grammars_made;
    atomic_ullong steps, busy; /* steps; choices in them */
    atomic_ullong rows_all;    /* tokens that were computed: of prompts, and answered */
    atomic_ullong prompt_us, answer_us;
    atomic_int kv_tokens, kv_free; /* positions of all sequences; those that are free */
    atomic_int longest;            /* tokens of a prompt and its answer */
    struct histogram first, gap, each, whole, queue, inference, prefill, decode; /* seconds */
    struct histogram step[2]; /* seconds; 1: with rows of prompts */
    struct histogram prompts, answers, asked, choices, rows;
    /* of the step that is computed: the engine thread's */
    int step_tokens;
    bool step_prompt;
};

void histogram_add(struct histogram *h, const struct bounds *b, double x);
struct refusal;
/* A request was refused. */
void metrics_refused(struct metrics *m, const struct refusal *r);
struct server;
/* Prometheus text 0.0.4. */
void metrics_write(struct server *s, struct buf *out);
/* Parts of it, where there are several models: a model's, loaded or not; what is of requests that found none; the process. */
void metrics_of_model(struct server *s, bool loaded, struct buf *out);
void metrics_of_front(struct server *s, struct buf *out);
void metrics_of_process(struct server *s, struct buf *out);
