/* What a model makes of a row before its head, for layers that draft: out of an engine (infer_hidden) and into one. */
#include "engine_impl.h"
#include "model/forward.h"
#include "seam/weight.h"

#include <math.h>

static size_t max_rows(const struct infer_engine *e) {
    const struct op_list *list = last_part(e)->list;
    int a = list[ROW_PROMPT].max_rows, b = list[ROW_DECODE].max_rows;
    return (size_t)(a > b ? a : b);
}

enum infer_status engine_hidden_open(struct infer_engine *e) {
    const struct model *m = e->model->m;
    const struct taps *taps = last_part(e)->range.taps;
    const size_t number = max_rows(e) * sizeof(float), n_embd = (size_t)m->n_embd;
    const bool hidden = last_part(e)->range.hidden;
    if ((hidden && !(e->hidden = arena_alloc(&e->arena, number * n_embd))) ||
        (taps && !(e->tapped = arena_alloc(&e->arena, number * (size_t)(taps->n * taps->n_embd)))))
        return err_set(INFER_E_MEMORY, "out of memory for what the layers make of a step");
    if (!model_drafts(m)) return INFER_OK;
    if (!(e->rows = arena_alloc(&e->arena, number * (n_embd + (size_t)model_given(m)))))
        return err_set(INFER_E_MEMORY, "out of memory for the rows of a model that drafts");
    return INFER_OK;
}

void engine_hidden_fill(struct infer_engine *e, struct flight *f, const struct infer_row *rows, int n) {
    const struct model *m = e->model->m;
    const size_t n_embd = (size_t)m->n_embd, given = (size_t)model_given(m);
    const float scale = m->embd_scale * m->embd.factor;
    for (int t = 0; t < n; t++) {
        float *to = e->rows + (size_t)t * (n_embd + given);
        weight_decode_row(&m->embd, rows[t].id, to);
        for (size_t i = 0; i < n_embd; i++) to[i] *= scale;
        memcpy(to + n_embd, e->given + (size_t)t * given, given * sizeof *to);
        f->input[rows[t].decode ? ROW_DECODE : ROW_PROMPT][t] = to;
    }
    for (int c = 0; c < ROW_CLASS_COUNT; c++) f->step[c].input = f->input[c];
}

enum infer_status infer_step_hidden(struct infer_engine *e, const struct infer_row *rows, const float *hidden,
                                    int n, struct infer_output *out) {
    if (!e->rows) return err_set(INFER_E_INPUT, "the model is not one that drafts");
    e->given = hidden;
    enum infer_status s = infer_submit(e, rows, n);
    e->given = NULL;
    return s ? s : infer_wait(e, out);
}

/* Sums of x - mean, squared; in parts, which a processor adds side by side. */
enum { SUMS = 8 };
static double squares(const float *x, int n, double mean) {
    double part[SUMS] = {0}, sum = 0;
    int i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++) part[k] += ((double)x[i + k] - mean) * ((double)x[i + k] - mean);
    for (; i < n; i++) part[0] += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (int k = 0; k < SUMS; k++) sum += part[k];
    return sum;
}

/* The last norm, in place. */
static void norm_row(const struct model *m, float *x) {
    const struct norm_weights *w = &m->output_norm;
    const int n = m->n_embd;
    double mean = 0;
    for (int i = 0; m->norm == NORM_LAYER && i < n; i++) mean += (double)x[i] / n;
    const double scale = 1 / sqrt(squares(x, n, mean) / n + (double)m->eps);
    for (int i = 0; w->w && i < n; i++)
        x[i] = (float)(((double)x[i] - mean) * scale * (double)w->w[i] + (w->bias ? (double)w->bias[i] : 0));
}

enum infer_status infer_vector(const struct infer_model *m, const double *pooled, float *out) {
    return model_vector(m->m, pooled, out);
}

/* Of an encoder, all rows of the step at once: they are normalised, and stand in their order. */
static enum infer_status text_rows(struct infer_engine *e, const struct flight *f, int first,
                                   const float **out) {
    if (e->hidden_of != e->n_wait) {
        const struct view x = {0, 0, e->model->m->n_embd};
        TRY(e->backend->type->read(e->backend, ROW_PROMPT, x, f->step[ROW_PROMPT].n_row, e->hidden));
        e->hidden_of = e->n_wait;
    }
    *out = e->hidden + (size_t)first * (size_t)e->model->m->n_embd;
    return INFER_OK;
}

/* Rows of the step that was waited for last are there to be read; *last: where the last of them stands. */
static enum infer_status check_read(const struct infer_engine *e, enum row_class cls, int first, int n,
                                    const char *field, bool there) {
    if (!there) return err_set(INFER_E_INPUT, "the engine was made without .%s", field);
    if (e->n_submit != e->n_wait || !e->n_wait)
        return err_set(INFER_E_INPUT, "no step was waited for, or one is in flight");
    const struct flight *f = &e->flight[(e->n_wait - 1) % PLAN_FLIGHTS];
    const int joined = cls == ROW_DECODE ? f->n_joined : 0, n_row = f->step[cls].n_row - joined;
    if (first < 0 || n < 1 || n > n_row - first)
        return err_set(INFER_E_INPUT, "rows %d to %d of a step that had %d of that class", first,
                       first + n - 1, n_row);
    if (cls == ROW_DECODE && f->step[ROW_PROMPT].n_row)
        return err_set(INFER_E_INPUT, "rows of a prompt have gone over what was made of those that decode");
    return INFER_OK;
}

/* Rows of a view to their places in to, in the order in which they were given. */
static enum infer_status read_rows(struct infer_engine *e, enum row_class cls, struct view v, int first,
                                   int n, float *to) {
    const int32_t *place = e->flight[(e->n_wait - 1) % PLAN_FLIGHTS].place[cls];
    const size_t width = (size_t)v.width;
    TRY(e->backend->type->read(e->backend, cls, v, place[first + n - 1] + 1, to));
    for (int i = first; i < first + n; i++) /* it stands there or behind */
        memmove(to + (size_t)i * width, to + (size_t)place[i] * width, width * sizeof *to);
    return INFER_OK;
}

/* Rows that decode are read all at once: each request asks for its own, and to ask a device takes as long as they all do. *again: they were
 * there. */
static enum infer_status read_some(struct infer_engine *e, enum row_class cls, struct view v, int *first,
                                   int *n, float *to, unsigned *of, bool *again) {
    *again = cls == ROW_DECODE && *of == e->n_wait;
    if (*again) return INFER_OK;
    const struct flight *f = &e->flight[(e->n_wait - 1) % PLAN_FLIGHTS];
    if (cls == ROW_DECODE) *first = 0, *n = f->step[cls].n_row - f->n_joined;
    TRY(read_rows(e, cls, v, *first, *n, to));
    *of = cls == ROW_DECODE ? e->n_wait : 0;
    return INFER_OK;
}

enum infer_status infer_hidden(struct infer_engine *e, bool decode, int first, int n, const float **out) {
    const enum row_class cls = decode ? ROW_DECODE : ROW_PROMPT;
    const struct model *m = e->model->m;
    const struct view v = {0, 0, m->n_embd};
    int from = first, count = n;
    bool again;
    TRY(check_read(e, cls, first, n, "hidden", e->hidden));
    if (m->encoder) return text_rows(e, &e->flight[(e->n_wait - 1) % PLAN_FLIGHTS], first, out);
    TRY(read_some(e, cls, v, &from, &count, e->hidden, &e->hidden_of, &again));
    for (int i = from; i < from + count && !again && !m->target; i++)
        norm_row(m, e->hidden + (size_t)i * (size_t)m->n_embd);
    *out = e->hidden + (size_t)first * (size_t)m->n_embd;
    return INFER_OK;
}

enum infer_status infer_tapped(struct infer_engine *e, bool decode, int first, int n, const float **out) {
    const enum row_class cls = decode ? ROW_DECODE : ROW_PROMPT;
    const struct taps *taps = last_part(e)->range.taps;
    bool again;
    TRY(check_read(e, cls, first, n, "hidden_for", taps));
    const struct view v = {FORWARD_TAPS, 0, taps->n * taps->n_embd};
    *out = e->tapped + (size_t)first * (size_t)v.width;
    return read_some(e, cls, v, &first, &n, e->tapped, &e->tapped_of, &again);
}
