/* The reference backend: what a layer keeps of the positions before, in sum. Row after row, a state rounded to float32 behind each, so
 * that nothing depends on where a step ends. */
#include "ref/ref_impl.h"
#include "seam/ngram.h"
#include "seam/weight.h"

#include <math.h>

/* ---- convolutions -------------------------------------------------------------------------------------------- */

/* Channel c's input j positions before row t, which is row i of its sequence in the step. */
static double conv_input(struct ref *r, const struct op_conv *o, int t, int i, int c, int j) {
    if (r->step.pos[t] < j) return 0;
    if (j <= i) return (double)ref_row(r, o->x, t - j)[c];
    return (double)ref_state(r, o->state, r->step.slot[t])[(o->K - 1 - (j - i)) * o->x.width + c];
}

static void ref_conv(struct ref *r, const struct op_conv *o) {
    int n = r->step.n_row, C = o->x.width;
    for (int t = 0, i = 0; t < n; t++) {
        i = t && r->step.slot[t] == r->step.slot[t - 1] ? i + 1 : 0;
        bool last = t + 1 == n || r->step.slot[t + 1] != r->step.slot[t];
        for (int c = 0; c < C; c++) {
            double y = o->bias ? (double)o->bias[c] : 0, kept[CONV_MAX];
            for (int j = 0; j < o->K; j++)
                y += (double)o->w[c * o->K + j] * conv_input(r, o, t, i, c, o->K - 1 - j);
            ref_row(r, o->out, t)[c] = (float)(o->silu ? y / (1 + exp(-y)) : y);
            for (int j = 0; last && j < o->K - 1; j++) kept[j] = conv_input(r, o, t, i, c, o->K - 2 - j);
            for (int j = 0; last && j < o->K - 1; j++)
                ref_state(r, o->state, r->step.slot[t])[j * C + c] = (float)kept[j];
        }
    }
}

/* ---- matrices of each head ------------------------------------------------------------------------------------ */

static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

/* Before the first position there was nothing. */
static void begin(float *S, int n, int pos) {
    for (int i = 0; pos == 0 && i < n; i++) S[i] = 0;
}

/* y[n] = S^T x, S [m][n] */
static void transposed(const float *S, int m, int n, const double *x, double *y) {
    for (int j = 0; j < n; j++) y[j] = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) y[j] += (double)S[i * n + j] * x[i];
}

/* y = x / sqrt(sum x^2 + 1e-6) / divisor */
static void unit(const float *x, int n, double divisor, double *y) {
    double sum = 1e-6;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++) y[i] = (double)x[i] / sqrt(sum) / divisor;
}

/* Value head h of row t. */
static void delta_head(struct ref *r, const struct op_delta *o, int t, int h) {
    const int dk = o->dk, dv = o->dv, g = op_delta_key(o, h);
    const float *q = ref_row(r, o->qkv, t) + g * dk, *k = q + o->n_key * dk;
    const float *v = ref_row(r, o->qkv, t) + 2 * o->n_key * dk + h * dv;
    const int rows = op_delta_by_row(o) ? dk : 1; /* that decay by themselves */
    const float *a = ref_row(r, o->a, t) + h * rows;
    const double beta = (double)op_delta_beta(o) / (1 + exp(-(double)ref_row(r, o->b, t)[h]));
    double q1[STATE_DIM_MAX], k1[STATE_DIM_MAX], decay[STATE_DIM_MAX], kept[STATE_DIM_MAX], y[STATE_DIM_MAX];
    float *S = ref_state(r, o->state, r->step.slot[t]) + (size_t)h * (size_t)(dk * dv);
    unit(q, dk, sqrt(dk), q1);
    unit(k, dk, 1, k1);
    begin(S, dk * dv, r->step.pos[t]);
    for (int i = 0; i < dk; i++) {
        const int at = rows > 1 ? i : 0;
        decay[i] = exp((double)o->A[h] * softplus((double)a[at] + (double)o->dt_bias[h * rows + at]));
        kept[i] = decay[i] * k1[i];
    }
    transposed(S, dk, dv, kept, y);
    for (int i = 0; i < dk; i++)
        for (int j = 0; j < dv; j++)
            S[i * dv + j] = (float)(decay[i] * (double)S[i * dv + j] + k1[i] * beta * ((double)v[j] - y[j]));
    transposed(S, dk, dv, q1, y);
    for (int j = 0; j < dv; j++) ref_row(r, o->out, t)[h * dv + j] = (float)y[j];
}

static void ref_delta(struct ref *r, const struct op_delta *o) {
    for (int t = 0; t < r->step.n_row; t++)
        for (int h = 0; h < o->n_value; h++) delta_head(r, o, t, h);
}

/* Head h of row t. */
static void ssm_head(struct ref *r, const struct op_ssm *o, int t, int h) {
    const int P = o->head_dim, N = o->n_state, g = h / (o->n_head / o->n_group);
    const float *row = ref_row(r, o->xbc, t), *x = row + h * P, *B = row + o->n_head * P + g * N;
    double D = softplus((double)ref_row(r, o->dt, t)[h] + (double)o->dt_bias[h]);
    D = fmin(fmax(D, (double)o->lo), (double)o->hi);
    double decay = exp((double)o->A[h] * D), C[STATE_DIM_MAX], y[STATE_DIM_MAX];
    float *S = ref_state(r, o->state, r->step.slot[t]) + (size_t)h * (size_t)(N * P);
    begin(S, N * P, r->step.pos[t]);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < P; j++)
            S[i * P + j] = (float)(decay * (double)S[i * P + j] + (double)B[i] * D * (double)x[j]);
        C[i] = (double)B[o->n_group * N + i];
    }
    transposed(S, N, P, C, y);
    for (int j = 0; j < P; j++)
        ref_row(r, o->out, t)[h * P + j] = (float)(y[j] + (o->skip ? (double)o->skip[h] : 0) * (double)x[j]);
}

static void ref_ssm(struct ref *r, const struct op_ssm *o) {
    for (int t = 0; t < r->step.n_row; t++)
        for (int h = 0; h < o->n_head; h++) ssm_head(r, o, t, h);
}

/* ---- entries of runs ------------------------------------------------------------------------------------------ */

/* Channel c of what the run that ends at pos comes to; state [span][2][width]. */
static float entry(const struct op_compress *o, const float *state, int pos, int c) {
    const int n = o->out.width, width = o->x.width, span = op_compress_span(o), run = pos + 1 - o->ratio,
              first = run ? pos + 1 - span : run;
    double top = -INFINITY, sum = 0, all = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int p = first; p <= pos; p++) {
            const int at = width > n && p >= run ? c + n : c;
            const float *x = state + (size_t)(p % span) * 2 * (size_t)width + at;
            const double g = (double)x[width] + (double)o->bias[p % o->ratio * width + at];
            if (!pass) top = fmax(top, g);
            if (pass) sum += exp(g - top), all += exp(g - top) * (double)x[0];
        }
    return (float)(all / sum);
}

static void ref_compress(struct ref *r, const struct op_compress *o) {
    const size_t width = (size_t)o->x.width;
    for (int t = 0; t < r->step.n_row; t++) {
        const int pos = r->step.pos[t];
        float *state = ref_state(r, o->state, r->step.slot[t]),
              *place = state + (size_t)(pos % op_compress_span(o)) * 2 * width;
        memcpy(place, ref_row(r, o->x, t), width * sizeof *place);
        memcpy(place + width, ref_row(r, o->gate, t), width * sizeof *place);
        for (int c = 0; c < o->out.width; c++)
            ref_row(r, o->out, t)[c] = (pos + 1) % o->ratio ? 0 : entry(o, state, pos, c);
    }
}

/* ---- n-grams --------------------------------------------------------------------------------------------------- */

static void ref_ngram(struct ref *r, const struct op_ngram *o) {
    const int k = o->w->k, kept = o->by->size - 1;
    int32_t a[NGRAM_SIZE_MAX];
    for (int t = 0, i = 0; t < r->step.n_row; t++) {
        i = t && r->step.slot[t] == r->step.slot[t - 1] ? i + 1 : 0;
        const bool last = t + 1 == r->step.n_row || r->step.slot[t + 1] != r->step.slot[t];
        float *state = ref_state(r, o->state, r->step.slot[t]), *out = ref_row(r, o->out, t);
        for (int h = 0; h < o->by->n_head; h++, out += k) {
            ngram_ids(o->by, &r->step, t, i, state + h * kept, a);
            const int64_t row = ngram_row(o->by, h, a);
            const struct weight part = weight_matrix(o->w, (int)(row / o->w->n));
            weight_decode_row(&part, (int)(row % o->w->n), out);
            for (int e = 0; e < k; e++) out[e] *= o->w->factor;
            if (last) ngram_keep(o->by, &r->step, t, i, state + h * kept);
        }
    }
}

void ref_run_state(struct ref *r, const struct op *op) {
    if (op->kind == OP_CONV) ref_conv(r, &op->conv);
    if (op->kind == OP_DELTA) ref_delta(r, &op->delta);
    if (op->kind == OP_SSM) ref_ssm(r, &op->ssm);
    if (op->kind == OP_COMPRESS) ref_compress(r, &op->compress);
    if (op->kind == OP_NGRAM) ref_ngram(r, &op->ngram);
}
