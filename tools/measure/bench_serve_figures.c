/* What the samples of a run come to. */
#include <math.h>
#include "base/mem.h"
#include "tools/measure/bench_result.h"
#include "tools/measure/bench_serve.h"

static void percentiles(double *x, size_t n, double *out) {
    static const double q[] = {0.5, 0.95, 0.99};
    for (int i = 0; i < 3; i++) out[i] = n ? 1e3 * bench_percentile(x, n, q[i]) : NAN;
}

/* Of x[n] in order. */
static void curve(const double *x, size_t n, double *out) {
    for (int i = 0; i < LOAD_CURVE; i++)
        out[i] = n ? 1e3 * x[(size_t)lround(i * (double)(n - 1) / (LOAD_CURVE - 1))] : NAN;
}

static bool keeps(const struct load_sample *s, const struct load_goal *g) {
    const double gap = s->n_token > 1 ? (s->end - s->first) / (s->n_token - 1) : 0;
    return (g->first_ms <= 0 || s->first * 1e3 <= g->first_ms) && (g->gap_ms <= 0 || gap * 1e3 <= g->gap_ms);
}

void load_figures(struct load_result *r, const struct load_goal *goal, int n_stream,
                  struct load_figures *out) {
    const int n = r->n_done + r->n_failed;
    double tokens = 0, *x = mem_alloc(((size_t)n + 1) * sizeof *x);
    int good = 0, k = 0;
    *out = (struct load_figures){.n_stream = n_stream, .n_done = r->n_done, .n_failed = r->n_failed};
    for (int i = 0; i < n; i++) {
        const struct load_sample *s = &r->sample[i];
        if (s->end <= 0) continue;
        tokens += s->n_token;
        good += keeps(s, goal);
    }
    for (int i = 0; x && i < n; i++)
        if (r->sample[i].end > 0 && r->sample[i].first > 0) x[k++] = r->sample[i].first;
    percentiles(x, (size_t)k, out->first_ms); /* and in order */
    curve(x, (size_t)k, out->first_curve);
    k = 0;
    for (int i = 0; x && i < n; i++)
        if (r->sample[i].end > 0) x[k++] = r->sample[i].end;
    percentiles(x, (size_t)k, out->whole_ms);
    percentiles(r->gap, r->n_gap, out->gap_ms);
    curve(r->gap, r->n_gap, out->gap_curve);
    mem_free(x);
    out->req_s = r->n_done / r->seconds;
    out->tok_s = tokens / r->seconds;
    out->good_req_s = good / r->seconds;
    out->good = n ? (double)good / n : 0;
    out->keeps = !r->n_failed && (goal->first_ms <= 0 || out->first_ms[1] <= goal->first_ms) &&
                 (goal->gap_ms <= 0 || !(out->gap_ms[1] > goal->gap_ms));
}
