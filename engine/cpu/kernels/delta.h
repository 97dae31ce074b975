/* Matrices of each head as state: row after row, STATE_COLUMNS of their columns at a time, which stay in the first cache. A column's sums
 * have one order, whatever columns and rows are beside it. */
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/simd/simd.h"

#include <math.h>

enum { STATE_VECTORS = CPU_STATE_COLUMNS / VL, STATE_ROWS = 8 };

INLINE float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

/* y = x * scale / sqrt(sum x^2 + 1e-6) */
INLINE void unit_vector(const float *x, int n, float scale, float *y) {
    vf s = vf_set(0);
    for (int i = 0; i < n; i += VL) {
        vf v = vf_loadn(x + i, n - i < VL ? n - i : VL);
        s = vf_fma(v, v, s);
    }
    vf f = vf_set(scale / sqrtf(vf_sum(s) + 1e-6f));
    for (int i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vf_storen(y + i, vf_mul(vf_loadn(x + i, left), f), left);
    }
}

/* left columns, VL: all */
INLINE vf state_load(const float *p, int left) { return left < VL ? vf_loadn(p, left) : vf_load(p); }
INLINE void state_store(float *p, int left, vf x) {
    if (left < VL)
        vf_storen(p, x, left);
    else
        vf_store(p, x);
}
/* nv vectors of columns of n rows, stride apart: S = decay S + write w^T, by_row: decay each[i] of row i; its columns times read are added to a (even rows) and b (odd). */
INLINE void state_turn(float *S, int stride, int n, const float *write, const float *read, vf decay,
                       const bool by_row, const float *each, const vf *w, const int nv, const int left, vf *a,
                       vf *b) {
    for (int i = 0; i < n; i++) {
        float *s = S + (size_t)i * (size_t)stride;
        UNROLL for (int e = 0; e < nv; e++) {
            const vf by = by_row ? vf_set(each[i]) : decay;
            const vf x = vf_fma(vf_set(write[i]), w[e], vf_mul(by, state_load(s + e * VL, left)));
            if (i % 2)
                b[e] = vf_fma(vf_set(read[i]), x, b[e]);
            else
                a[e] = vf_fma(vf_set(read[i]), x, a[e]);
            state_store(s + e * VL, left, x);
        }
    }
}

/* Some rows of one head: what all its columns share. */
struct delta_rows {
    float q[STATE_ROWS][STATE_DIM_MAX], k[STATE_ROWS][STATE_DIM_MAX];
    float decay[STATE_ROWS], beta[STATE_ROWS];
    float each[STATE_ROWS][STATE_DIM_MAX],
        kept[STATE_ROWS][STATE_DIM_MAX]; /* by row: decays, and k times them */
};
/* Row j of some, whose state's rows decay by themselves. */
static void delta_each(const struct op_delta *o, int h, const float *a, int j, struct delta_rows *d) {
    for (int i = 0; i < o->dk; i++) {
        d->each[j][i] = expf(o->A[h] * softplus(a[h * o->dk + i] + o->dt_bias[h * o->dk + i]));
        d->kept[j][i] = d->k[j][i] * d->each[j][i];
    }
}
static void delta_prepare(const struct op_delta *o, int h, const struct cpu_state_rows *r, int t0, int n,
                          struct delta_rows *d) {
    const int g = op_delta_key(o, h), dk = o->dk;
    for (int j = 0; j < n; j++) {
        const size_t t = (size_t)(t0 + j);
        const float *q = r->x + t * r->x_stride + g * dk, *k = q + o->n_key * dk;
        unit_vector(q, dk, 1 / sqrtf((float)dk), d->q[j]);
        unit_vector(k, dk, 1, d->k[j]);
        if (op_delta_by_row(o))
            delta_each(o, h, r->a + t * r->a_stride, j, d);
        else
            d->decay[j] = expf(o->A[h] * softplus(r->a[t * r->a_stride + (size_t)h] + o->dt_bias[h]));
        d->beta[j] = op_delta_beta(o) / (1 + expf(-r->b[t * r->b_stride + (size_t)h]));
    }
}

/* nv vectors of columns from c on, of the last of which left are there. */
INLINE void delta_columns(const struct op_delta *o, const struct cpu_state_rows *r, int t0, int n,
                          const struct delta_rows *d, int h, int c, const bool by_row, const int nv,
                          const int left, float *S) {
    const int dk = o->dk, dv = o->dv, v0 = 2 * o->n_key * dk + h * dv + c;
    for (int j = 0; j < n; j++) {
        const size_t t = (size_t)(t0 + j);
        const float *v = r->x + t * r->x_stride + v0, *k = by_row ? d->kept[j] : d->k[j];
        float *out = r->out + t * r->out_stride + h * dv + c;
        const vf decay = vf_set(by_row ? 1 : d->decay[j]), beta = vf_set(d->beta[j]);
        vf a[STATE_VECTORS], b[STATE_VECTORS], w[STATE_VECTORS]; /* two sums each: even and odd rows of S */
        UNROLL for (int e = 0; e < nv; e++) a[e] = b[e] = vf_set(0);
        for (int i = 0; i < dk; i += 2) {
            const float *s = S + (size_t)i * (size_t)dv + c;
            UNROLL for (int e = 0; e < nv; e++) a[e] =
                vf_fma(vf_set(k[i]), state_load(s + e * VL, left), a[e]);
            if (i + 1 == dk) break;
            s += dv;
            UNROLL for (int e = 0; e < nv; e++) b[e] =
                vf_fma(vf_set(k[i + 1]), state_load(s + e * VL, left), b[e]);
        }
        UNROLL for (int e = 0; e < nv; e++) {
            vf x = state_load(v + e * VL, left);
            const vf there = vf_add(a[e], b[e]);
            w[e] = vf_mul(beta, vf_sub(x, by_row ? there : vf_mul(decay, there)));
            a[e] = b[e] = vf_set(0);
        }
        state_turn(S + c, dv, dk, d->k[j], d->q[j], decay, by_row, d->each[j], w, nv, left, a, b);
        UNROLL for (int e = 0; e < nv; e++) state_store(out + e * VL, left, vf_add(a[e], b[e]));
    }
}

/* Columns c0 .. c1 of the state of the rows' sequence; before the first position there was nothing. */
static void state_begin(float *S, int m, int n, int c0, int c1, int pos) {
    for (int i = 0; pos == 0 && i < m; i++) memset(S + i * n + c0, 0, sizeof *S * (size_t)(c1 - c0));
}

INLINE void delta_head(const struct op_delta *o, int h, int c0, int c1, const bool by_row,
                       const struct cpu_state_rows *r, float *S) {
    struct delta_rows d;
    S += (size_t)h * (size_t)(o->dk * o->dv);
    state_begin(S, o->dk, o->dv, c0, c1, r->pos);
    for (int t0 = 0; t0 < r->n; t0 += STATE_ROWS) {
        const int n = r->n - t0 < STATE_ROWS ? r->n - t0 : STATE_ROWS;
        int c = c0;
        delta_prepare(o, h, r, t0, n, &d);
        for (; c + CPU_STATE_COLUMNS <= c1; c += CPU_STATE_COLUMNS)
            delta_columns(o, r, t0, n, &d, h, c, by_row, STATE_VECTORS, VL, S);
        for (; c + VL <= c1; c += VL) delta_columns(o, r, t0, n, &d, h, c, by_row, 1, VL, S);
        if (c < c1) delta_columns(o, r, t0, n, &d, h, c, by_row, 1, c1 - c, S);
    }
}
static void vec_delta(const struct op_delta *o, int h, int c0, int c1, const struct cpu_state_rows *r,
                      float *S) {
    if (op_delta_by_row(o))
        delta_head(o, h, c0, c1, true, r, S);
    else
        delta_head(o, h, c0, c1, false, r, S);
}
