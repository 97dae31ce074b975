#include "tools/measure/verify_compare.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tools/measure/bench_result.h"

/* Measured with SmolLM2-135M of 30 layers (docs/verify.md): in the median row ref and cpu are 0.001 apart with weights of 16 bits and 0.015
 * with activations of 8; f16 and q8_0 0.03, q6_k 0.06, q4_0 0.25. Single rows are three to six times as far apart. One
 * device has the same bits for any number of threads; compilers may differ in the last ones. */
struct verify_limits verify_limits_of(const struct verify_record *a, const struct verify_record *b) {
    const double bits = (double)(a->bits < b->bits ? a->bits : b->bits), products = bits < 15 ? 0.05 : 0.006;
    const bool weights = strcmp(a->type, b->type) == 0 && a->bits == b->bits;
    if (!weights)
        return (struct verify_limits){hypot(products, 20 * exp2(-bits)), 4, true, "other types of weights"};
    if (strcmp(a->device, b->device) != 0 || strcmp(a->isa, b->isa) != 0)
        return (struct verify_limits){products, 4, true, "other devices"};
    const bool program = a->version && b->version && !strcmp(a->version, b->version);
    return (struct verify_limits){program ? 1e-6 : 2e-5, 1, false,
                                  program ? "one program and device" : "one device"};
}

/* What one layer leaves goes into the next. */
static double limit_at(const struct verify_limits *l, const struct verify_op *o, int n_layer) {
    const double depth = sqrt(1 + (o->layer < 0 ? n_layer : o->layer) / 8.0);
    return l->apart * (l->grows ? depth * (o->attend ? 2 : 1) : 1);
}

/* ---- rows ---- */

static double apart_of(const struct verify_row *a, const struct verify_row *b) {
    double sum = 0;
    for (int k = 0; k < VERIFY_SUMS; k++)
        sum += ((double)a->sum[k] - (double)b->sum[k]) * ((double)a->sum[k] - (double)b->sum[k]);
    const double apart = sqrt(sum / VERIFY_SUMS) / fmax((double)a->rms, 1e-12);
    return isfinite(apart) ? apart : INFINITY;
}

static double size_of(const struct verify_row *a, const struct verify_row *b) {
    const double size = fabs((double)b->rms - (double)a->rms) / fmax((double)a->rms, 1e-12);
    return isfinite(size) ? size : INFINITY;
}

/* Of the values that both rows have the two that are furthest apart; of the peaks, where these are further. */
static void show_values(struct verify_difference *d, const struct verify_row *a, const struct verify_row *b) {
    float most = -1;
    for (int k = 0; k < VERIFY_VALUES; k++) {
        const float apart = fabsf(a->value[k] - b->value[k]);
        if (apart <= most) continue;
        most = apart;
        d->at = verify_at(d->is->width, k), d->was_value = a->value[k], d->is_value = b->value[k];
        if (!isfinite(apart)) return;
    }
    if (fabsf(a->peak - b->peak) > 2 * most) d->at = -1, d->was_value = a->peak, d->is_value = b->peak;
}

/* Whether a router chose the same experts (ids, behind them weights). */
static bool same_choice(const struct verify_op *o, const struct verify_row *a, const struct verify_row *b) {
    for (int k = 0; k < VERIFY_VALUES; k++)
        if (verify_at(o->width, k) < o->width / 2 && a->value[k] != b->value[k]) return false;
    return apart_of(a, b) * (double)a->rms * sqrt(o->width) < 0.5;
}

/* ---- operations ---- */

struct walk {
    const struct verify_record *was, *is;
    struct verify_limits limits;
    struct verify_difference *d;
    struct verify_report *report;
    int n_layer;
    int cut; /* rows from this position on have taken another way */
};

static const struct verify_op *find(const struct verify_record *r, const struct verify_op *o, int from) {
    for (int i = 0; i < r->n_op; i++) {
        const struct verify_op *k = &r->op[(from + i) % r->n_op];
        if (verify_same(k, o)) return k;
    }
    return NULL;
}

/* Row by row; the middle of so many. */
struct apart {
    int n, pos[VERIFY_PROMPT];
    double apart[VERIFY_PROMPT], size[VERIFY_PROMPT];
    const struct verify_row *was[VERIFY_PROMPT], *is[VERIFY_PROMPT];
};

static void rows_apart(struct walk *w, const struct verify_op *was, const struct verify_op *is,
                       struct apart *out) {
    out->n = 0;
    for (int i = 0, j = 0; i < is->n_row; i++) {
        const struct verify_row *a, *b = &is->row[i];
        while (j < was->n_row && was->row[j].pos < b->pos) j++;
        if (j == was->n_row || (int)b->pos >= w->cut) break;
        if ((a = &was->row[j])->pos != b->pos) continue;
        if (is->route && w->limits.grows && !same_choice(is, a, b)) {
            w->cut = (int)b->pos;
            if (!w->report->left) w->report->left = is, w->report->left_pos = w->cut;
            break;
        }
        out->was[out->n] = a, out->is[out->n] = b, out->pos[out->n] = (int)b->pos;
        out->apart[out->n] = apart_of(a, b), out->size[out->n++] = size_of(a, b);
    }
}

static double middle(const double *x, int n) {
    double sorted[VERIFY_PROMPT];
    for (int i = 0; i < n; i++) sorted[i] = x[i];
    return bench_percentile(sorted, n > 0 ? (size_t)n : 0, 0.5);
}

static bool op_differs(struct walk *w, const struct verify_op *was, const struct verify_op *is) {
    struct apart r;
    rows_apart(w, was, is, &r);
    if (!r.n) return false;
    const double limit = limit_at(&w->limits, is, w->n_layer), most = limit * w->limits.one;
    const bool many = r.n > 2,
               all = many && (middle(r.apart, r.n) > limit || middle(r.size, r.n) > limit / 2);
    for (int i = 0; i < r.n; i++) {
        const double of = all ? limit : most;
        if (!(r.apart[i] > of || r.size[i] > of / 2)) continue;
        *w->d = (struct verify_difference){was, is, r.pos[i], r.apart[i], r.size[i],
                                           of,  -1, 0,        0,          w->report->compared};
        show_values(w->d, r.was[i], r.is[i]);
        return true;
    }
    const double apart = middle(r.apart, r.n);
    if (many && apart > w->report->apart) w->report->apart = apart, w->report->most = is;
    w->report->compared++;
    return false;
}

/* An operation that one list has and the other has not. */
static bool is_alone(struct walk *w, const struct verify_op *was, const struct verify_op *is) {
    *w->d = (struct verify_difference){.was = was, .is = is, .before = w->report->compared};
    return true;
}

static bool walk(struct walk *w) {
    int i = 0, j = 0;
    while (i < w->was->n_op || j < w->is->n_op) {
        const struct verify_op *was = i < w->was->n_op ? &w->was->op[i] : NULL,
                               *is = j < w->is->n_op ? &w->is->op[j] : NULL;
        if (was && is && verify_same(was, is)) {
            if (was->width != is->width || op_differs(w, was, is))
                return was->width == is->width || is_alone(w, was, is);
            i++, j++;
        } else if (was && !find(w->is, was, j)) {
            return is_alone(w, was, NULL);
        } else if (is && !find(w->was, is, i)) {
            return is_alone(w, NULL, is);
        } else {
            return is_alone(w, was, is); /* in another order */
        }
    }
    return false;
}

bool verify_compare(const struct verify_record *was, const struct verify_record *is,
                    struct verify_limits limits, struct verify_difference *d, struct verify_report *report) {
    struct walk w = {was, is, limits, d, report, .cut = INT32_MAX};
    for (int i = 0; i < is->n_op; i++)
        if (is->op[i].layer >= w.n_layer) w.n_layer = is->op[i].layer + 1;
    *d = (struct verify_difference){0};
    *report = (struct verify_report){0};
    return !walk(&w);
}

/* ---- texts ---- */

static void piece(const struct infer_model *m, int32_t id, char out[64]) {
    size_t n = 0, used = 0;
    const char *p = infer_piece(m, id, true, false, &n);
    for (size_t i = 0; i < n && used < 40; i++) {
        const unsigned char c = (unsigned char)p[i];
        used += (size_t)snprintf(out + used, 64 - used, c < ' ' ? "\\x%02x" : "%c", c);
    }
    out[used] = 0;
}

static bool ids_differ(const struct infer_model *m, const struct verify_text *was,
                       const struct verify_text *is, char *line, size_t n) {
    char a[64] = "", b[64] = "";
    int i = 0;
    while (i < was->n_id && i < is->n_id && was->ids[i] == is->ids[i]) i++;
    if (i == was->n_id && i == is->n_id) return false;
    if (i < was->n_id) piece(m, was->ids[i], a);
    if (i < is->n_id) piece(m, is->ids[i], b);
    snprintf(line, n,
             "the tokenizer: token %d of the text '%s' was %d '%s' and is %d '%s'; %d tokens, now %d", i,
             is->name, i < was->n_id ? was->ids[i] : -1, a, i < is->n_id ? is->ids[i] : -1, b, was->n_id,
             is->n_id);
    return true;
}

static bool rendered_differs(const struct verify_text *was, const struct verify_text *is, char *line,
                             size_t n) {
    const char *a = was->text ? was->text : "", *b = is->text ? is->text : "";
    size_t i = 0;
    while (a[i] && a[i] == b[i]) i++;
    if (a[i] == b[i] && !was->text == !is->text) return false;
    const size_t from = i > 12 ? i - 12 : 0;
    snprintf(line, n, "the template: byte %zu of '%s' differs: was \"%.24s\", is \"%.24s\"", i, is->name,
             a + from, b + from);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    return true;
}

bool verify_texts(const struct infer_model *m, const struct verify_record *was,
                  const struct verify_record *is, char *line, size_t n) {
    for (int i = 0; i < is->n_text; i++)
        for (int k = 0; k < was->n_text; k++)
            if (!strcmp(is->text[i].name, was->text[k].name) &&
                (rendered_differs(&was->text[k], &is->text[i], line, n) ||
                 ids_differ(m, &was->text[k], &is->text[i], line, n)))
                return false;
    return true;
}
