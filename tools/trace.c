#include "tools/trace.h"
#include <math.h>
#include <stdlib.h>
#include "base/mem.h"

enum { MOST_ROWS = 256, TID_STEPS = 1, TID_OPS = 2, TID_THREADS = 1000 };

static int by_seconds(const void *a, const void *b) {
    const struct infer_profile_row *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : 0;
}

/* The least time that a row's work takes; 0: not known. */
static double roof_of(const struct infer_profile_row *r, double gb_s, double flops) {
    const double by_bytes = gb_s > 0 ? r->bytes / (1e9 * gb_s) : 0,
                 by_flops = flops > 0 ? r->flops / flops : 0;
    return by_bytes > by_flops ? by_bytes : by_flops;
}

static void show_row(FILE *f, const struct infer_profile_row *r, const struct infer_profile_steps *s,
                     double roof) {
    char gb[16] = "", tf[16] = "", share[16] = "";
    if (r->bytes > 0) snprintf(gb, sizeof gb, "%.2f", 1e-9 * r->bytes / r->seconds);
    if (r->flops > 0) snprintf(tf, sizeof tf, "%.3f", 1e-12 * r->flops / r->seconds);
    if (roof > 0 && r->flops > 0) snprintf(share, sizeof share, "%.0f%%", 100 * roof / r->seconds);
    fprintf(f, "%-22s %-8s %9llu %10.3f %6.1f%% %8s %8s %7s\n", r->name, r->kind,
            (unsigned long long)r->calls, 1e3 * r->seconds / (double)s->steps, 100 * r->seconds / s->seconds,
            gb, tf, share);
}

/* Of a card: how many steps were timed, what these took beside the others, and which operations are one link. */
static void show_links(FILE *f, const struct infer_profile_row *row, size_t n, bool decode,
                       const struct infer_profile_steps *s) {
    if (!s->timed_steps) return;
    fprintf(f, "links were timed in %llu of these steps", (unsigned long long)s->timed_steps);
    if (s->steps > s->timed_steps)
        fprintf(f, ", which took %.3f times the others",
                s->timed_seconds / (double)s->timed_steps * (double)(s->steps - s->timed_steps) /
                    (s->seconds - s->timed_seconds));
    fputs("; a link is\n", f);
    for (size_t i = 0; i < n; i++)
        if (row[i].decode == decode && row[i].covers) fprintf(f, "  %-20s %s\n", row[i].name, row[i].covers);
}

void profile_show(FILE *f, const struct infer_profile *p, double gb_s, double flops) {
    struct infer_profile_row row[MOST_ROWS];
    size_t n = infer_profile_rows(p, row, MOST_ROWS);
    if (n > MOST_ROWS) n = MOST_ROWS;
    qsort(row, n, sizeof *row, by_seconds);
    for (int decode = 0; decode < 2; decode++) {
        struct infer_profile_steps s;
        double sum = 0;
        infer_profile_steps(p, decode, &s);
        if (!s.steps) continue;
        for (size_t i = 0; i < n; i++) sum += row[i].decode == decode ? row[i].seconds : 0;
        fprintf(f, "\n%s: %llu steps of %.1f rows, %.3f ms a step, of which operations are %.1f%%\n",
                decode ? "decode" : "prompts", (unsigned long long)s.steps, (double)s.rows / (double)s.steps,
                1e3 * s.seconds / (double)s.steps, 100 * sum / s.seconds);
        fprintf(f, "%-22s %-8s %9s %10s %7s %8s %8s %7s\n", "operation", "kind", "calls", "ms a step",
                "share", "GB/s", "TFLOP/s", "of roof");
        for (size_t i = 0; i < n; i++)
            if (row[i].decode == decode) show_row(f, &row[i], &s, roof_of(&row[i], gb_s, flops));
        show_links(f, row, n, decode, &s);
    }
    if (gb_s > 0) fprintf(f, "\nroofs, measured now: %.1f GB/s", gb_s);
    if (gb_s > 0 && flops > 0) fprintf(f, ", %.3f TFLOP/s", 1e-12 * flops);
    if (gb_s > 0) fputc('\n', f);
}

/* ---- the trace ---- */

void trace_event(FILE *f, const char *name, int tid, int64_t begin, int64_t end, const char *args) {
    fprintf(f,
            ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}",
            name, tid, 1e-3 * (double)begin, 1e-3 * (double)(end - begin), args);
}

void trace_row(FILE *f, int tid, const char *name) {
    fprintf(f, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
            tid, name);
}

void trace_counter(FILE *f, const char *name, int64_t at, double x) {
    if (isfinite(x))
        fprintf(f, ",\n{\"name\":\"%s\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"now\":%.6g}}", name,
                1e-3 * (double)at, x);
}

static void write_span(FILE *f, const struct infer_profile_span *s) {
    char args[96];
    const char *cls = s->decode ? "decode" : "prompt";
    if (s->name && s->layer >= 0)
        snprintf(args, sizeof args, "\"class\":\"%s\",\"rows\":%d,\"layer\":%d", cls, s->rows, s->layer);
    else
        snprintf(args, sizeof args, "\"class\":\"%s\",\"rows\":%d", cls, s->rows);
    trace_event(f, s->name ? s->name : cls,
                s->thread ? TID_THREADS + s->thread
                : s->name ? TID_OPS
                          : TID_STEPS,
                s->begin, s->end, args);
    if (s->name) return;
    fprintf(f, ",\n{\"name\":\"rows\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"%s\":%d}}",
            1e-3 * (double)s->begin, cls, s->rows);
    fprintf(f, ",\n{\"name\":\"rows\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"%s\":0}}",
            1e-3 * (double)s->end, cls);
}

typedef size_t spans_of(const struct infer_profile *p, int64_t since, struct infer_profile_span *out,
                        size_t most);

/* All of one kind; *n_thread: the highest thread of them. */
static enum infer_status write_spans(FILE *f, const struct infer_profile *p, spans_of *of, int64_t since,
                                     int *n_thread) {
    const size_t most = of(p, since, NULL, 0);
    struct infer_profile_span *span = mem_alloc((most ? most : 1) * sizeof *span);
    if (!span) return err_set(INFER_E_MEMORY, "out of memory for a trace of %zu operations", most);
    const size_t n = of(p, since, span, most);
    for (size_t i = 0; i < n; i++) {
        write_span(f, &span[i]);
        if (span[i].thread > *n_thread) *n_thread = span[i].thread;
    }
    mem_free(span);
    return INFER_OK;
}

enum infer_status trace_write(FILE *f, const struct infer_profile *p, int64_t since,
                              const struct trace_extra *extra) {
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
               "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"infer\"}}");
    static const char *const rows[] = {[TID_STEPS] = "steps", [TID_OPS] = "operations"};
    for (int i = TID_STEPS; i <= TID_OPS; i++) trace_row(f, i, rows[i]);
    int n_thread = 0;
    TRY(write_spans(f, p, infer_profile_spans, since, &n_thread));
    TRY(write_spans(f, p, infer_profile_parts, since, &n_thread));
    for (int i = 1; i <= n_thread; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread %d", i);
        trace_row(f, TID_THREADS + i, name);
    }
    for (; extra; extra = extra->more)
        if (extra->write) extra->write(extra->user, f, since);
    fprintf(f, "\n]}\n");
    return fflush(f) || ferror(f) ? err_prefix(INFER_E_IO, "the trace is not written") : INFER_OK;
}
