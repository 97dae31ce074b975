/* Mamba-2 by the means of delta.h: row after row, columns of a head's matrix at a time. */
#pragma once
#include "cpu/kernels/delta.h"

/* Some rows of one head: what all its columns share. */
struct ssm_rows {
    float step[STATE_ROWS], decay[STATE_ROWS];
};
static void ssm_prepare(const struct op_ssm *o, int h, const struct cpu_state_rows *r, int t0, int n,
                        struct ssm_rows *d) {
    for (int j = 0; j < n; j++) {
        float dt = softplus(r->a[(size_t)(t0 + j) * r->a_stride + (size_t)h] + o->dt_bias[h]);
        d->step[j] = fminf(fmaxf(dt, o->lo), o->hi);
        d->decay[j] = expf(o->A[h] * d->step[j]);
    }
}

/* nv vectors of columns from c on, of the last of which left are there. */
INLINE void ssm_columns(const struct op_ssm *o, const struct cpu_state_rows *r, int t0, int n,
                        const struct ssm_rows *d, int h, int c, const int nv, const int left, float *S) {
    const int P = o->head_dim, N = o->n_state, g = h / (o->n_head / o->n_group), b0 = o->n_head * P + g * N;
    const vf skip = vf_set(o->skip ? o->skip[h] : 0);
    for (int j = 0; j < n; j++) {
        const size_t t = (size_t)(t0 + j);
        const float *x = r->x + t * r->x_stride + h * P + c, *B = r->x + t * r->x_stride + b0,
                    *C = B + o->n_group * N;
        float *out = r->out + t * r->out_stride + h * P + c;
        const vf decay = vf_set(d->decay[j]), step = vf_set(d->step[j]);
        vf a[STATE_VECTORS], b[STATE_VECTORS], w[STATE_VECTORS]; /* two sums each: even and odd rows of S */
        UNROLL for (int e = 0; e < nv; e++) {
            w[e] = vf_mul(step, state_load(x + e * VL, left));
            a[e] = b[e] = vf_set(0);
        }
        state_turn(S + c, P, N, B, C, decay, false, NULL, w, nv, left, a, b);
        UNROLL for (int e = 0; e < nv; e++)
            state_store(out + e * VL, left, vf_fma(skip, state_load(x + e * VL, left), vf_add(a[e], b[e])));
    }
}

static void vec_ssm(const struct op_ssm *o, int h, int c0, int c1, const struct cpu_state_rows *r, float *S) {
    struct ssm_rows d;
    S += (size_t)h * (size_t)(o->n_state * o->head_dim);
    state_begin(S, o->n_state, o->head_dim, c0, c1, r->pos);
    for (int t0 = 0; t0 < r->n; t0 += STATE_ROWS) {
        const int n = r->n - t0 < STATE_ROWS ? r->n - t0 : STATE_ROWS;
        int c = c0;
        ssm_prepare(o, h, r, t0, n, &d);
        for (; c + CPU_STATE_COLUMNS <= c1; c += CPU_STATE_COLUMNS)
            ssm_columns(o, r, t0, n, &d, h, c, STATE_VECTORS, VL, S);
        for (; c + VL <= c1; c += VL) ssm_columns(o, r, t0, n, &d, h, c, 1, VL, S);
        if (c < c1) ssm_columns(o, r, t0, n, &d, h, c, 1, c1 - c, S);
    }
}
