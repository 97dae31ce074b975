/* Counters and histograms, for /metrics. */
#pragma once
#include <stdatomic.h>
#include "tools/serve/buf.h"

enum { METRIC_BUCKETS = 32 };
struct histogram {
    atomic_ullong bucket[METRIC_BUCKETS + 1], count, sum_us;
};
struct metrics {
    atomic_ullong prompt_tokens, cached_tokens, answer_tokens;
    atomic_ullong finished[3]; /* stop, length, tool calls */
    atomic_ullong failed, gone, timed_out, refused, queue_full;
    atomic_ullong steps, busy; /* steps; choices in them */
    atomic_ullong prompt_us, answer_us;
    struct histogram first, gap, whole, queue;
};

void histogram_add(struct histogram *h, const double *bound, int n, double seconds);
extern const double metric_seconds[], metric_gaps[];
extern const int metric_n_seconds, metric_n_gaps;
struct server;
/* Prometheus text 0.0.4. */
void metrics_write(struct server *s, struct buf *out);
