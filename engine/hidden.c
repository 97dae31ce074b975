/* What a model makes of a row before its head, for layers that draft: out of an engine (infer_hidden) and into one. */
#include "engine_impl.h"
#include "seam/weight.h"

#include <math.h>

static size_t max_rows(const struct infer_engine *e) {
    const struct op_list *list = last_part(e)->list;
    int a = list[ROW_PROMPT].max_rows, b = list[ROW_DECODE].max_rows;
    return (size_t)(a > b ? a : b);
}

enum infer_status engine_hidden_open(struct infer_engine *e) {
    const struct model *m = e->model->m;
    const size_t bytes = max_rows(e) * (size_t)m->n_embd * sizeof(float);
    if (last_part(e)->range.hidden && !(e->hidden = arena_alloc(&e->arena, bytes)))
        return err_set(INFER_E_MEMORY, "out of memory for what the layers make of a step");
    if (!m->draft_proj.n) return INFER_OK;
    if (!(e->rows = arena_alloc(&e->arena, 2 * bytes)))
        return err_set(INFER_E_MEMORY, "out of memory for the rows of a model that drafts");
    return INFER_OK;
}

void engine_hidden_fill(struct infer_engine *e, struct flight *f, const struct infer_row *rows, int n) {
    const struct model *m = e->model->m;
    const size_t n_embd = (size_t)m->n_embd;
    const float scale = m->embd_scale * m->embd.factor;
    for (int t = 0; t < n; t++) {
        float *to = e->rows + (size_t)t * 2 * n_embd;
        weight_decode_row(&m->embd, rows[t].id, to);
        for (size_t i = 0; i < n_embd; i++) to[i] *= scale;
        memcpy(to + n_embd, e->given + (size_t)t * n_embd, n_embd * sizeof *to);
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

/* The last norm, in place. */
static void norm_row(const struct model *m, float *x) {
    const struct norm_weights *w = &m->output_norm;
    const int n = m->n_embd;
    double mean = 0, sum = 0;
    for (int i = 0; m->norm == NORM_LAYER && i < n; i++) mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double scale = 1 / sqrt(sum / n + (double)m->eps);
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

enum infer_status infer_hidden(struct infer_engine *e, bool decode, int first, int n, const float **out) {
    const enum row_class cls = decode ? ROW_DECODE : ROW_PROMPT;
    const struct model *m = e->model->m;
    const size_t n_embd = (size_t)m->n_embd;
    if (!e->hidden) return err_set(INFER_E_INPUT, "the engine was made without .hidden");
    if (e->n_submit != e->n_wait || !e->n_wait)
        return err_set(INFER_E_INPUT, "no step was waited for, or one is in flight");
    const struct flight *f = &e->flight[(e->n_wait - 1) % PLAN_FLIGHTS];
    const int joined = decode ? f->n_joined : 0, n_row = f->step[cls].n_row - joined;
    if (first < 0 || n < 1 || n > n_row - first)
        return err_set(INFER_E_INPUT, "rows %d to %d of a step that had %d of that class", first,
                       first + n - 1, n_row);
    if (decode && f->step[ROW_PROMPT].n_row)
        return err_set(INFER_E_INPUT, "rows of a prompt have gone over what was made of those that decode");
    if (m->encoder) return text_rows(e, f, first, out);
    const int32_t *place = f->place[cls];
    TRY(e->backend->type->read(e->backend, cls, (struct view){0, 0, m->n_embd}, place[first + n - 1] + 1,
                               e->hidden));
    for (int i = first; i < first + n; i++) {
        float *h = e->hidden + (size_t)i * n_embd;
        memmove(h, e->hidden + (size_t)place[i] * n_embd, n_embd * sizeof *h); /* it stands there or behind */
        norm_row(m, h);
    }
    *out = e->hidden + (size_t)first * n_embd;
    return INFER_OK;
}
