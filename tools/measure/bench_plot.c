/* infer bench --plot: the results as SVG, a panel for what the tests differ in: depth, sequences, lengths, and with other saved runs threads and
 * bits of a weight. Lines are tests of one kind, whiskers the interval of 95% (the range, with few repetitions); the saved run of --compare is
 * dashed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "files/outfile.h"
#include "tools/measure/bench.h"
#include "tools/tool.h"

enum { LEFT = 70, TOP = 40, WIDTH = 560, HEIGHT = 260, LEGEND = 170, PANEL = HEIGHT + 90, MOST = 256 };
/* names of lines: room, width of a letter, height, distance from the frame; LABELS: values of an axis that are written, about */
enum { NAME = 96, LETTER = 7, LINE = 18, BESIDE = 12, LABELS = 16 };
/* AXIS_BITS: hundredths */
enum axis { AXIS_DEPTH, AXIS_SEQUENCES, AXIS_LENGTH, AXIS_THREADS, AXIS_BITS, AXES };
static const char *const axis_names[] = {"positions already in the context", "sequences decoded together",
                                         "tokens of the test", "threads", "bits of a weight"};
static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"};

struct point {
    int at[AXES];
    bool prompt, saved;
    double y, least, most;
};

/* What a run is of. */
struct run_of {
    int threads;
    double bits;
};
/* pp512, tg128, tg64x8@d1024 */
static bool read_point(struct point *p, const struct bench_result *r, const struct run_of *run, bool saved) {
    int n = 0;
    *p = (struct point){.at = {0, 1, 0, run->threads, (int)(100 * run->bits + 0.5)},
                        .prompt = r->test[0] == 'p',
                        .saved = saved,
                        .y = r->tok_s};
    const char *at = r->test + 2;
    if (sscanf(at, "%d%n", &p->at[AXIS_LENGTH], &n) != 1) return false;
    at += n;
    if (*at == 'x' && sscanf(at, "x%d%n", &p->at[AXIS_SEQUENCES], &n) == 1) at += n;
    if (*at == '@') sscanf(at, "@d%d", &p->at[AXIS_DEPTH]);
    const double half = bench_interval(r);
    p->least = isfinite(half) ? r->tok_s * exp(-half) : r->tok_s_min;
    p->most = isfinite(half) ? r->tok_s * exp(half) : r->tok_s_max;
    return true;
}

struct plot {
    FILE *f;
    struct point p[MOST], other[MOST];    /* this run's, then the others' */
    int n, n_other, place[MOST], n_place; /* values of the axis, rising */
    int lost;                             /* for which there is no place */
    double top;
    enum axis axis;
};

static bool same_line(const struct plot *d, const struct point *a, const struct point *b) {
    bool same = a->prompt == b->prompt && a->saved == b->saved;
    for (int i = 0; i < AXES; i++) same = same && (i == (int)d->axis || a->at[i] == b->at[i]);
    return same;
}

static void places(struct plot *d) {
    d->n_place = 0, d->top = 0;
    for (int i = 0; i < d->n; i++) {
        int k = 0;
        while (k < d->n_place && d->place[k] < d->p[i].at[d->axis]) k++;
        d->top = fmax(d->top, d->p[i].most);
        if (k < d->n_place && d->place[k] == d->p[i].at[d->axis]) continue;
        memmove(d->place + k + 1, d->place + k, (size_t)(d->n_place - k) * sizeof *d->place);
        d->place[k] = d->p[i].at[d->axis], d->n_place++;
    }
}

static double x_of(const struct plot *d, const struct point *p) {
    int k = 0;
    while (d->place[k] != p->at[d->axis]) k++;
    return LEFT + WIDTH * (k + 0.5) / d->n_place;
}
static double y_of(const struct plot *d, double y) { return TOP + HEIGHT * (1 - y / d->top); }

static void draw_frame(const struct plot *d) {
    fprintf(d->f, "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#888'/>\n", LEFT, TOP,
            WIDTH, HEIGHT);
    for (int i = 0; i <= 4; i++)
        fprintf(
            d->f,
            "<text x='%d' y='%.1f' text-anchor='end'>%.4g</text><line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#ddd'/>\n",
            LEFT - 6, y_of(d, d->top * i / 4) + 4, d->top * i / 4, LEFT, LEFT + WIDTH,
            y_of(d, d->top * i / 4), y_of(d, d->top * i / 4));
    for (int k = 0; k < d->n_place; k += 1 + (d->n_place - 1) / LABELS)
        fprintf(d->f, "<text x='%.1f' y='%d' text-anchor='middle'>%.4g</text>\n",
                LEFT + WIDTH * (k + 0.5) / d->n_place, TOP + HEIGHT + 18,
                d->axis == AXIS_BITS ? d->place[k] / 100.0 : d->place[k]);
    fprintf(d->f, "<text x='%d' y='%d' text-anchor='middle'>%s</text><text x='%d' y='%d'>tok/s</text>\n",
            LEFT + WIDTH / 2, TOP + HEIGHT + 38, axis_names[d->axis], LEFT, TOP - 10);
}

static bool differs(const struct plot *d, enum axis a) {
    for (int i = 1; i < d->n; i++)
        if (d->p[i].at[a] != d->p[0].at[a]) return true;
    return false;
}
static void line_name(const struct plot *d, const struct point *p, char name[NAME]) {
    int n = snprintf(name, NAME, "%s", p->prompt ? "pp" : "tg");
    if (d->axis != AXIS_LENGTH) n += snprintf(name + n, NAME - (size_t)n, "%d", p->at[AXIS_LENGTH]);
    if (d->axis != AXIS_SEQUENCES && p->at[AXIS_SEQUENCES] > 1)
        n += snprintf(name + n, NAME - (size_t)n, "x%d", p->at[AXIS_SEQUENCES]);
    if (d->axis != AXIS_DEPTH && p->at[AXIS_DEPTH])
        n += snprintf(name + n, NAME - (size_t)n, "@d%d", p->at[AXIS_DEPTH]);
    if (d->axis != AXIS_THREADS && differs(d, AXIS_THREADS))
        n += snprintf(name + n, NAME - (size_t)n, ", %d threads", p->at[AXIS_THREADS]);
    if (d->axis != AXIS_BITS && differs(d, AXIS_BITS))
        n += snprintf(name + n, NAME - (size_t)n, ", %.4g bits", p->at[AXIS_BITS] / 100.0);
    if (p->saved) snprintf(name + n, NAME - (size_t)n, " saved");
}

static bool is_first(const struct plot *d, int i) {
    for (int k = 0; k < i; k++)
        if (same_line(d, &d->p[i], &d->p[k])) return false;
    return true;
}

/* The line of point i, which is its first. */
static void draw_line(const struct plot *d, int i, int *n_line) {
    char name[NAME];
    const char *colour = colours[*n_line % 6], *dash = d->p[i].saved ? " stroke-dasharray='5 4'" : "";
    const struct point *before = NULL;
    for (int k = 0; k < d->n_place; k++)
        for (int j = i; j < d->n; j++) {
            const struct point *p = &d->p[j];
            if (p->at[d->axis] != d->place[k] || !same_line(d, &d->p[i], p)) continue;
            const double x = x_of(d, p);
            if (before)
                fprintf(d->f, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s'%s/>\n",
                        x_of(d, before), y_of(d, before->y), x, y_of(d, p->y), colour, dash);
            fprintf(
                d->f,
                "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/><line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='%s'/>\n",
                x, y_of(d, p->y), colour, x, x, y_of(d, p->least), y_of(d, p->most), colour);
            before = p;
        }
    line_name(d, &d->p[i], name);
    fprintf(d->f, "<text x='%d' y='%d' fill='%s'>%s</text>\n", LEFT + WIDTH + BESIDE,
            TOP + 14 + LINE * (*n_line)++, colour, name);
}

/* What the panel of this axis takes: all names of lines fit beside it. */
static void measure_panel(struct plot *d, enum axis axis, int *width, int *height) {
    char name[NAME];
    int n_line = 0;
    d->axis = axis;
    places(d);
    for (int i = 0; i < d->n; i++) {
        if (!is_first(d, i)) continue;
        line_name(d, &d->p[i], name);
        const int wide = LEFT + WIDTH + 2 * BESIDE + LETTER * (int)strlen(name);
        if (wide > *width) *width = wide;
        n_line++;
    }
    *height = TOP + 14 + LINE * n_line > PANEL ? TOP + 14 + LINE * n_line : PANEL;
}

static void draw(struct plot *d, const struct bench *b) {
    enum axis with[AXES];
    int n = 0, width = LEFT + WIDTH + LEGEND, below[AXES + 1] = {0};
    for (int a = 0; a < AXES; a++) {
        d->axis = (enum axis)a;
        places(d);
        if (d->n_place > 1) with[n++] = d->axis;
    }
    if (!n) with[n++] = AXIS_LENGTH;
    for (int i = 0; i < n; i++) {
        measure_panel(d, with[i], &width, &below[i + 1]);
        below[i + 1] += below[i];
    }
    fprintf(
        d->f,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='12'>\n"
        "<rect width='100%%' height='100%%' fill='#fff'/>\n<text x='%d' y='18' font-size='14'>%s %s, %s %s</text>\n",
        width, below[n], LEFT, b->session.info.arch, b->session.info.type_name, b->session.place.device,
        b->session.place.isa ? b->session.place.isa : "");
    for (int i = 0; i < n; i++) {
        int n_line = 0;
        d->axis = with[i];
        places(d);
        fprintf(d->f, "<g transform='translate(0 %d)'>\n", below[i]);
        draw_frame(d);
        for (int k = 0; k < d->n; k++)
            if (is_first(d, k)) draw_line(d, k, &n_line);
        fprintf(d->f, "</g>\n");
    }
    fprintf(d->f, "</svg>\n");
}

static double number_of(const json_t *root, const char *part, const char *name) {
    return json_number_value(json_object_get(json_object_get(root, part), name));
}
static double bits_of(double token_bytes, double parameters) {
    return parameters > 0 ? 8 * token_bytes / parameters : 0;
}

/* saved: by --compare, and dashed; else one of --plot-with. */
static enum infer_status add_saved(struct plot *d, const json_t *root, bool saved) {
    json_t *results = json_object_get(root, "results"), *j;
    size_t i;
    struct bench_result r;
    if (!json_is_array(results)) return err_set(INFER_E_INPUT, "no results of infer bench");
    const struct run_of run = {
        (int)number_of(root, "machine", "threads"),
        bits_of(number_of(root, "model", "token_bytes"), number_of(root, "model", "active_parameters"))};
    json_array_foreach(results, i, j) {
        TRY(bench_result_read(&r, j));
        if (d->n_other < MOST)
            d->n_other += read_point(&d->other[d->n_other], &r, &run, saved);
        else
            d->lost++;
    }
    return INFER_OK;
}

static enum infer_status add_others(struct plot *d, const struct options *o) {
    const char *paths = o->plot_with;
    char path[4096];
    for (size_t n; *paths; paths += n + (paths[n] == ',')) {
        n = strcspn(paths, ",");
        snprintf(path, sizeof path, "%.*s", (int)n, paths);
        json_t *root;
        TRY(outfile_differs(o->plot, path));
        TRY(bench_load_json(path, &root));
        const enum infer_status st = add_saved(d, root, false);
        json_decref(root);
        if (st) return err_prefix(st, "%s", path);
    }
    return INFER_OK;
}

enum infer_status bench_plot_open(struct bench *b) {
    const char *path = b->o->plot, *end = strrchr(path, '.');
    static const char *const others[] = {".png", ".pdf", ".jpg", ".jpeg", ".gif", ".eps", ".ps"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (end && !strchr(end, '/') && strcasecmp(end, others[i]) == 0)
            return err_set(INFER_E_INPUT, "--plot %s: drawings are SVG: name it %.*s.svg", path,
                           (int)(end - path), path);
    TRY(mem_new(&b->plot, sizeof *b->plot, "a drawing"));
    if (b->saved) TRY(add_saved(b->plot, b->saved, true));
    return b->o->plot_with ? add_others(b->plot, b->o) : INFER_OK;
}

void bench_plot_close(struct plot *d) { mem_free(d); }

enum infer_status bench_plot(struct bench *b) {
    struct plot *d = b->plot;
    char *text = NULL;
    size_t n = 0;
    struct outfile *out = b->drawn;
    const struct infer_model_info *info = &b->session.info;
    const struct run_of run = {b->session.place.n_thread,
                               bits_of((double)info->token_bytes, (double)info->n_param_token)};
    int i = 0, k = 0;
    for (; i < b->n && d->n < MOST; i++) d->n += read_point(&d->p[d->n], &b->result[i], &run, false);
    for (; k < d->n_other && d->n < MOST; k++) d->p[d->n++] = d->other[k];
    d->lost += b->n - i + d->n_other - k;
    if (d->lost)
        tool_say("--plot %s: %d of %d results are not drawn: %d is the most", b->o->plot, d->lost,
                 d->lost + d->n, MOST);
    if (!(d->f = open_memstream(&text, &n))) return err_set(INFER_E_MEMORY, "out of memory for a drawing");
    draw(d, b);
    fclose(d->f);
    const enum infer_status st = outfile_write(out, text, n);
    free(text);
    if (st) return st;
    b->drawn = NULL;
    return outfile_close(out);
}
