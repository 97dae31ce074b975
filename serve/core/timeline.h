/* The newest requests, for a trace: when each came, was read, began, had its first token and ended; and those that run. */
#pragma once
#include <stdio.h>
#include "serve/core/job.h"

struct timeline;
/* errors: INFER_E_MEMORY */
enum infer_status timeline_open(struct timeline **out);
void timeline_close(struct timeline *t);
/* t NULL: nothing, here and below. What has been read waits; its choice began, its first token came (once each, later ones change nothing). */
void timeline_waits(struct timeline *t, const struct job *j);
void timeline_began(struct timeline *t, const struct job *j);
void timeline_first(struct timeline *t, const struct job *j);
/* It is over, with its counts. began, first and now in host_seconds, 0: never. */
void timeline_add(struct timeline *t, const struct job *j, double began, double first, double now);
/* struct trace_extra of a timeline: each request in a row of the trace in which no other is at that time. */
void timeline_write(void *timeline, FILE *f, int64_t since);
