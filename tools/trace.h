/* Where the time went, as people read it: a table on stderr (--profile), and a trace in the format of Chrome (--trace), which
 * chrome://tracing and Perfetto open. source of the format: "Trace Event Format", the Chromium project. */
#pragma once
#include <stdio.h>
#include "infer_profile.h"

/* Rows of prompts and decode apart, the longest first, each beside the roof of its operation: the time that its bytes need at gb_s (1e9 bytes
 * a second) or its products at flops a second, whichever is longer; 0 or NAN: not known. */
void profile_show(FILE *f, const struct infer_profile *p, double gb_s, double flops);
/* What runs beside an engine's steps. */
struct trace_extra {
    void (*write)(void *user, FILE *f, int64_t since); /* events, each behind a comma; NULL: none */
    void *user;
    const struct trace_extra *more; /* NULL: nothing */
};
/* Steps and operations of the last `since` ns of CLOCK_MONOTONIC on, as one JSON object. errors: INFER_E_MEMORY, INFER_E_IO (f; the reason is what f's writer
 * left as this thread's message) */
enum infer_status trace_write(FILE *f, const struct infer_profile *p, int64_t since,
                              const struct trace_extra *extra);
/* One event of `pid` 1 in row `tid` of the trace, behind a comma: from begin to end, in ns. args: members of a JSON object, or "". name needs
 * no escapes. */
void trace_event(FILE *f, const char *name, int tid, int64_t begin, int64_t end, const char *args);
/* The name of row `tid`, behind a comma. */
void trace_row(FILE *f, int tid, const char *name);
/* The value of a counter from then on, behind a comma; NAN: nothing. */
void trace_counter(FILE *f, const char *name, int64_t at, double x);
