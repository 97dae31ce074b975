/* What stands behind the pooling: of each text once, on the host, in double. */
#include "base/mem.h"
#include "model/model.h"
#include "seam/weight.h"

#include <math.h>

int model_vector_width(const struct model *m) {
    return m->n_head_part ? m->head_part[m->n_head_part - 1].w.n : m->n_embd;
}

static double activated(enum act_kind act, double x) {
    switch (act) {
    case ACT_CAP:
        return tanh(x);
    case ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

/* y[n] = norm(act(factor W x + bias)); row[k]: room */
static void part(const struct model *m, const struct head_part *p, const double *x, float *row, double *y) {
    const struct weight *w = &p->w;
    double mean = 0, sum = 0;
    for (int i = 0; i < w->n; i++) {
        double dot = 0;
        weight_decode_row(w, i, row);
        for (int k = 0; k < w->k; k++) dot += (double)row[k] * x[k];
        y[i] = activated(p->act, (double)w->factor * dot + (w->bias ? (double)w->bias[i] : 0));
        mean += y[i] / w->n;
    }
    if (!p->norm.w) return;
    for (int i = 0; i < w->n; i++) sum += (y[i] - mean) * (y[i] - mean);
    for (int i = 0; i < w->n; i++)
        y[i] = (y[i] - mean) / sqrt(sum / w->n + (double)m->eps) * (double)p->norm.w[i] +
               (p->norm.bias ? (double)p->norm.bias[i] : 0);
}

enum infer_status model_vector(const struct model *m, const double *pooled, float *out) {
    size_t most = (size_t)m->n_embd;
    double *work;
    for (int i = 0; i < m->n_head_part; i++)
        if ((size_t)m->head_part[i].w.n > most) most = (size_t)m->head_part[i].w.n;
    TRY(mem_new(&work, 3 * most * sizeof *work, "a vector"));
    double *x = work, *y = work + most;
    for (int i = 0; i < m->n_embd; i++) x[i] = pooled[i];
    for (int i = 0; i < m->n_head_part; i++) {
        part(m, &m->head_part[i], x, (float *)(work + 2 * most), y);
        double *made = y;
        y = x, x = made;
    }
    for (int i = 0; i < model_vector_width(m); i++) out[i] = (float)x[i];
    mem_free(work);
    return INFER_OK;
}
