/* Figures of runs of load beside targets, and as a picture. */
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include "base/mem.h"
#include "files/outfile.h"
#include "tools/measure/bench.h"
#include "tools/measure/bench_serve.h"
#include "tools/tool.h"

/* ---- a picture ---- */

struct text {
    char *p; /* p[cap] */
    size_t n, cap;
};
static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(t->p + t->n, t->cap - t->n, format, ap);
    va_end(ap);
    if (n > 0 && t->n + (size_t)n < t->cap) t->n += (size_t)n;
}

/* Both curves of each run as a block of data, then two plots over each other. */
static void draw(struct text *t, const char *path, const struct load_figures *f, int n) {
    add(t, "# gnuplot draws this: percent of all, milliseconds to the first token and between tokens\n");
    for (int i = 0; i < n; i++) {
        add(t, "$run%d << END\n", i);
        for (int k = 0; k < LOAD_CURVE; k++) add(t, "%d %g %g\n", k, f[i].first_curve[k], f[i].gap_curve[k]);
        add(t, "END\n");
    }
    add(t,
        "set terminal pngcairo size 1100,700 font 'sans,10'\nset output '%s.png'\nset multiplot layout 2,1\n"
        "set logscale y\nset grid\nset key left top noenhanced\nset xlabel 'percent of them'\n",
        path);
    for (int part = 0; part < 2; part++) {
        add(t, "set ylabel '%s'\nplot ", part ? "from token to token, ms" : "to the first token, ms");
        for (int i = 0; i < n; i++)
            add(t, "%s$run%d using 1:%d with lines title '%d streams: %.1f req/s, %.0f tok/s'", i ? ", " : "",
                i, part + 2, f[i].n_stream, f[i].req_s, f[i].tok_s);
        add(t, "\n");
    }
    add(t, "unset multiplot\n");
}

enum infer_status load_plot(struct outfile *out, const char *path, const struct load_figures *f, int n) {
    struct text t = {.cap = 4096 + strlen(path) + (size_t)n * LOAD_CURVE * 48};
    TRY(mem_new(&t.p, t.cap, "a picture"));
    draw(&t, path, f, n);
    enum infer_status st = outfile_write(out, t.p, t.n);
    mem_free(t.p);
    return st;
}

/* ---- targets ---- */

#define FIGURE(field) offsetof(struct load_figures, field)
static const struct {
    const char *name;
    size_t offset;
    bool most; /* the figure may be as great, else it has to be */
} figures[] = {
    {"req_s", FIGURE(req_s), false},
    {"tok_s", FIGURE(tok_s), false},
    {"good_req_s", FIGURE(good_req_s), false},
    {"first_ms_p50", FIGURE(first_ms[0]), true},
    {"first_ms_p95", FIGURE(first_ms[1]), true},
    {"first_ms_p99", FIGURE(first_ms[2]), true},
    {"gap_ms_p50", FIGURE(gap_ms[0]), true},
    {"gap_ms_p95", FIGURE(gap_ms[1]), true},
    {"gap_ms_p99", FIGURE(gap_ms[2]), true},
    {"whole_ms_p50", FIGURE(whole_ms[0]), true},
    {"whole_ms_p95", FIGURE(whole_ms[1]), true},
    {"whole_ms_p99", FIGURE(whole_ms[2]), true},
};
#undef FIGURE

/* Its place among the figures; -1: there is none of this name. */
static int figure_of(const char *name) {
    for (int i = 0; i < (int)(sizeof figures / sizeof *figures); i++)
        if (strcmp(figures[i].name, name) == 0) return i;
    return -1;
}

static enum infer_status check_targets(const json_t *root) {
    json_t *j;
    const char *name;
    if (!json_is_object(root) || !json_object_size(root))
        return err_set(INFER_E_INPUT, "no object of figures");
    json_object_foreach((json_t *)root, name, j) {
        if (figure_of(name) < 0)
            return err_set(
                INFER_E_INPUT,
                "no figure '%s': req_s, tok_s, good_req_s, and first_ms, gap_ms, whole_ms with _p50, "
                "_p95 or _p99",
                name);
        if (!json_is_number(j)) return err_set(INFER_E_INPUT, "'%s' is no number", name);
    }
    return INFER_OK;
}

enum infer_status load_targets_open(json_t **out, const char *path) {
    TRY(bench_load_json(path, out));
    const enum infer_status st = check_targets(*out);
    return st ? err_prefix(st, "%s", path) : INFER_OK;
}

enum infer_status load_targets(const json_t *targets, const struct load_figures *f, FILE *out, int *missed) {
    json_t *j;
    const char *name;
    json_object_foreach((json_t *)targets, name, j) {
        const int i = figure_of(name);
        const double target = json_number_value(j);
        double x;
        memcpy(&x, (const char *)f + figures[i].offset, sizeof x);
        const bool kept = figures[i].most ? x <= target : x >= target;
        fprintf(out, "%-14s %10.1f, target at %s %10.1f: %s\n", name, x, figures[i].most ? "most " : "least",
                target, kept ? "reached" : "MISSED");
        *missed += !kept;
    }
    return tool_flush();
}
