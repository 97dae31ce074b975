/* The newest requests that were answered, for a trace: when each came, began, had its first token and ended. */
#pragma once
#include <stdio.h>
#include "serve/core/job.h"

struct timeline;
/* errors: INFER_E_MEMORY */
enum infer_status timeline_open(struct timeline **out);
void timeline_close(struct timeline *t);
/* began, first and now in host_seconds, 0: never; its counts are there. t NULL: nothing. */
void timeline_add(struct timeline *t, const struct job *j, double began, double first, double now);
/* struct trace_extra of a timeline: each request in a row of the trace in which no other is at that time. */
void timeline_write(void *timeline, FILE *f, int64_t since);
