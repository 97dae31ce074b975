/* Memory and power while a trace is kept, ten times a second: counters beside its steps. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include "base/status.h"

struct levels;

/* A thread of its own samples until levels_close. errors: INFER_E_MEMORY (also: no thread) */
enum infer_status levels_open(struct levels **out);
void levels_close(struct levels *l);
/* Of struct trace_extra: the samples of the last `since` ns of CLOCK_MONOTONIC on; of an hour, the newest are kept. What is not told here
 * (cards, power) has no counter. */
void levels_write(void *levels, FILE *f, int64_t since);
