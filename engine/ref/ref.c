/* The reference backend: the specification in plain C. Every formula of backend.h as written there, one row after the
 * other, double accumulators, float32 buffers. Never tuned, never a route of another backend. */
#include "ref/ref_impl.h"
#include "seam/comm.h"
#include "seam/kv_low.h"
#include "seam/draw.h"
#include "seam/op_list.h"
#include "seam/balance.h"
#include "seam/router.h"
#include "seam/profile.h"
#include "seam/tap.h"
#include "seam/weight.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* ---- operations ---------------------------------------------------------------------------------------------- */

static void ref_embed(struct ref *r, const struct op_embed *o) {
    for (int t = 0; t < r->step.n_row; t++) {
        float *out = ref_row(r, o->out, t);
        const bool given = r->step.input && r->step.input[t];
        if (given && !o->beside) {
            memcpy(out, r->step.input[t], (size_t)o->out.width * sizeof *out);
            continue;
        }
        weight_decode_row(o->w, op_embed_row(o, r->step.id[t], given), out);
        for (int i = 0; i < o->w->k; i++) out[i] *= o->scale * o->w->factor;
    }
}

/* The group of a row that begins at column at. */
static void norm_group(const struct op_norm *o, const float *x, float *out, int at) {
    double sum = 0, mean = 0;
    if (o->kind == NORM_LAYER) {
        for (int i = 0; i < o->dim; i++) mean += (double)x[i];
        mean /= o->dim;
    }
    for (int i = 0; i < o->dim; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    double scale = o->kind == NORM_NONE ? 1 : 1 / sqrt(sum / o->dim + (double)o->eps);
    for (int i = 0; i < o->dim; i++) {
        double y = ((double)x[i] - mean) * scale;
        int k = (at + i) % op_norm_weights(o);
        out[i] = (float)(y * (o->w ? (double)o->w[k] : 1) + (o->bias ? (double)o->bias[k] : 0));
    }
}

static void ref_norm(struct ref *r, const struct op_norm *o) {
    for (int t = 0; t < ref_rows_in(r, o->x); t++)
        for (int i = 0; i < o->x.width; i += o->dim)
            norm_group(o, ref_row(r, o->x, t) + i, ref_row(r, o->out, t) + i, i);
}

/* Four rows' sums side by side, each in its own order: several times as fast, and the same bits. */
static void four_sums(const float *w, const float *const *x, int n, double *sum) {
    double a = 0, b = 0, c = 0, d = 0;
    for (int k = 0; k < n; k++) {
        const double v = (double)w[k];
        a += v * (double)x[0][k], b += v * (double)x[1][k];
        c += v * (double)x[2][k], d += v * (double)x[3][k];
    }
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
}

static void ref_matmul(struct ref *r, const struct op_matmul *o) {
    int col = 0, n_row = ref_rows_in(r, o->x);
    for (int g = 0; g < o->w->n_member; g++) {
        const struct weight *w = &o->w->member[g];
        for (int n = 0; n < w->n; n++) {
            weight_decode_row(w, n, r->row);
            for (int t = 0; t < n_row; t += 4) {
                const float *x[4];
                double sum[4];
                for (int i = 0; i < 4; i++) x[i] = ref_row(r, o->x, t + i < n_row ? t + i : t);
                four_sums(r->row, x, w->k, sum);
                for (int i = 0; i < 4 && t + i < n_row; i++)
                    ref_row(r, o->out, t + i)[col + n] =
                        (float)(sum[i] * (double)w->factor + (w->bias ? (double)w->bias[n] : 0));
            }
        }
        col += w->n;
    }
}

static void ref_rope(struct ref *r, const struct op_rope *o) {
    int half = o->rope->n_rot / 2;
    bool neox = o->rope->kind == ROPE_NEOX;
    for (int t = 0; t < ref_rows_in(r, o->x); t++)
        for (int h = 0; h < o->n_head; h++) {
            float *x = ref_row(r, o->x, t) + h * o->head_dim;
            for (int i = 0; i < half; i++) {
                double a = (double)step_axis(&r->step, o->rope, t, i) * (double)o->rope->inv_freq[i];
                double c = (double)o->rope->mscale * cos(a),
                       s = (double)o->rope->mscale * sin(o->back ? -a : a);
                float *p = neox ? &x[i] : &x[2 * i], *q = neox ? &x[i + half] : &x[2 * i + 1];
                double re = (double)*p * c - (double)*q * s, im = (double)*q * c + (double)*p * s;
                *p = (float)re;
                *q = (float)im;
            }
        }
}

static void ref_route(struct ref *r, const struct op_route *o) {
    for (int t = 0; t < ref_rows_in(r, o->logits); t++)
        router_row(o->router, ref_row(r, o->logits, t), step_told(&r->step, o, t), ref_row(r, o->choice, t));
}

static void ref_balance(struct ref *r, const struct op_balance *o) {
    for (int t = 0; t < ref_rows_in(r, o->x); t++) balance_row(o, ref_row(r, o->x, t), ref_row(r, o->out, t));
}

static void ref_streams(struct ref *r, const struct op_streams *o) {
    const int m = op_streams_out(o), d = o->x.width / o->n;
    for (int t = 0; t < ref_rows_in(r, o->x); t++) {
        const float *x = ref_row(r, o->x, t), *M = ref_row(r, o->M, t),
                    *y = o->write.buf >= 0 ? ref_row(r, o->y, t) : NULL;
        float *out = ref_row(r, o->out, t);
        for (int i = 0; i < d; i++) {
            double sum[STREAMS_MAX];
            for (int k = 0; k < m; k++) {
                sum[k] = y ? (double)ref_row(r, o->write, t)[k] * (double)y[i] : 0;
                for (int j = 0; j < o->n; j++) sum[k] += (double)M[j * m + k] * (double)x[j * d + i];
            }
            for (int k = 0; k < m; k++) out[k * d + i] = (float)sum[k];
        }
    }
}

/* Member m, whose outputs begin at column col, of choice j of row t. */
static void expert_product(struct ref *r, const struct op_experts *o, const struct weight *m, int col, int t,
                           int j) {
    const float *x = ref_row(r, o->x, t) + (o->by_choice ? j * o->w->k : 0),
                *choice = ref_row(r, o->choice, t);
    const int e = op_experts_matrix(o, (int)choice[j]);
    float *out = ref_row(r, o->out, t) + col + j * m->n;
    if (e < 0) {
        memset(out, 0, (size_t)m->n * sizeof *out);
        return;
    }
    const struct weight w = weight_matrix(m, e);
    for (int n = 0; n < w.n; n++) {
        double sum = 0;
        weight_decode_row(&w, n, r->row);
        for (int k = 0; k < w.k; k++) sum += (double)r->row[k] * (double)x[k];
        sum = sum * (double)w.factor + (w.bias ? (double)w.bias[n] : 0);
        out[n] = (float)(sum * (o->weighted ? (double)choice[o->n_used + j] : 1));
    }
}

static void ref_remote(struct ref *r, const struct op *op) {
    const struct op_remote *o = &op->remote;
    const struct remote *other = r->c.remote;
    for (int t = 0; t < ref_rows_in(r, o->x) && r->out->status == INFER_OK; t++)
        r->out->status = other->run(other->user, r->list->cls, op->layer, 1, ref_row(r, o->x, t),
                                    ref_row(r, o->choice, t), ref_row(r, o->out, t));
}

static void ref_experts(struct ref *r, const struct op_experts *o) {
    for (int t = 0; t < ref_rows_in(r, o->x); t++)
        for (int m = 0, col = 0; m < o->w->n_member; col += o->n_used * o->w->member[m++].n)
            for (int j = 0; j < o->n_used; j++) expert_product(r, o, &o->w->member[m], col, t, j);
}

/* One part of one row: x its input, out its first column; s: what it is times. */
static void lowrank_product(const struct lowrank_part *p, int matrix, double s, const float *x, float *out) {
    const float *a = p->a ? p->a + (size_t)matrix * (size_t)p->r * (size_t)p->k : NULL;
    const float *b = p->b + (size_t)matrix * (size_t)p->n * (size_t)p->r;
    double ax[LOWRANK_MAX];
    for (int j = 0; j < p->r; j++) {
        ax[j] = a ? 0 : 1;
        for (int k = 0; a && k < p->k; k++)
            ax[j] += (double)a[(size_t)j * (size_t)p->k + (size_t)k] * (double)x[k];
    }
    for (int i = 0; i < p->n; i++) {
        double sum = 0;
        for (int j = 0; j < p->r; j++) sum += (double)b[(size_t)j * (size_t)p->n + (size_t)i] * ax[j];
        out[i] = (float)((double)out[i] + s * sum);
    }
}
static void lowrank_row(struct ref *r, const struct op_lowrank *o, const struct lowrank_part *p, int t,
                        double s) {
    const float *x = ref_row(r, o->x, t), *choice = o->choice.buf >= 0 ? ref_row(r, o->choice, t) : NULL;
    float *out = ref_row(r, o->out, t);
    if (!choice) lowrank_product(p, 0, s, x, out + p->col);
    for (int j = 0; choice && j < o->n_used; j++) {
        const int e = op_lowrank_matrix(o, p, (int)choice[j]);
        if (e < 0) continue;
        lowrank_product(p, e, o->weighted ? s * (double)choice[o->n_used + j] : s,
                        o->by_choice ? x + (size_t)j * (size_t)p->k : x, out + p->col * o->n_used + j * p->n);
    }
}
static void ref_lowrank(struct ref *r, const struct op_lowrank *o) {
    const bool wanted = r->list->buf[o->out.buf].rows == BUF_ROWS_OUT;
    for (int t = 0; t < ref_rows_in(r, o->out); t++)
        for (int i = 0; i < o->w->n_part; i++) {
            const struct lowrank_part *p = &o->w->part[i];
            const int slot = r->step.slot[wanted ? r->step.out_row[t] : t];
            const double s = (double)step_adapter(&r->step, slot, p->adapter);
            if (s != 0) lowrank_row(r, o, p, t, s);
        }
}

static void ref_heads(struct ref *r, const struct op_heads *o) {
    const struct weight *stack = &o->w->member[0];
    int rest = op_heads_rest(o);
    for (int h = 0; h < stack->n_stack; h++) {
        const struct weight w = weight_matrix(stack, h);
        for (int n = 0; n < w.n; n++) {
            weight_decode_row(&w, n, r->row);
            for (int t = 0; t < ref_rows_in(r, o->x); t++) {
                const float *x = ref_row(r, o->x, t) + h * (w.k + rest);
                double sum = 0;
                for (int k = 0; k < w.k; k++) sum += (double)r->row[k] * (double)x[k];
                ref_row(r, o->out, t)[h * (w.n + rest) + n] = (float)(sum * (double)w.factor);
            }
        }
        for (int t = 0; t < ref_rows_in(r, o->x); t++)
            for (int i = 0; i < rest; i++)
                ref_row(r, o->out, t)[h * (w.n + rest) + w.n + i] =
                    ref_row(r, o->x, t)[h * (w.k + rest) + w.k + i];
    }
}

static void ref_mix(struct ref *r, const struct op_mix *o) {
    for (int t = 0; t < ref_rows_in(r, o->x); t++) {
        const float *x = ref_row(r, o->x, t), *w = o->plain ? NULL : ref_row(r, o->choice, t) + o->n_used;
        const float *shared = o->shared.buf >= 0 ? ref_row(r, o->shared, t) : NULL;
        double s = o->gate.buf >= 0 ? 1 / (1 + exp(-(double)*ref_row(r, o->gate, t))) : 1;
        float *out = ref_row(r, o->out, t);
        for (int i = 0; i < o->out.width; i++) {
            double y = shared ? s * (double)shared[i] : 0;
            for (int j = 0; j < o->n_used; j++) y += (w ? (double)w[j] : 1) * (double)x[j * o->out.width + i];
            out[i] = (float)y;
        }
    }
}

static double activate(const struct op_glu *o, double x) {
    switch (o->act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_RELU2:
        return x > 0 ? x * x : 0;
    case ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_CAP:
        return (double)o->k.limit * tanh(x / (double)o->k.limit);
    case ACT_SCALE:
        return (double)o->k.limit * x;
    case ACT_SILU_LIMIT:
        x = x > (double)o->k.limit ? (double)o->k.limit : x;
        return x / (1 + exp(-x));
    case ACT_SWIGLU_OAI:
        x = fmin(x, (double)o->k.limit);
        return x / (1 + exp(-(double)o->k.alpha * x));
    case ACT_XIELU:
        if (x > 0) return (double)o->k.alpha * x * x + (double)o->k.beta * x;
        return (double)o->k.alpha_n * (expm1(fmin(x, (double)o->k.eps)) - x) + (double)o->k.beta * x;
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_CLAMP:
        return isnan(x) ? x : fmin(fmax(x, (double)o->k.beta), (double)o->k.limit);
    case ACT_SOFTPLUS:
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case ACT_SILU_CLAMP:
        x = x / (1 + exp(-x));
        return x > (double)o->k.limit ? (double)o->k.limit : x;
    case ACT_ROOT:
        return x == 0 ? x : copysign(sqrt(fmax(fabs(x), (double)o->k.eps)), x);
    case ACT_KIND_COUNT:
        break;
    }
    infer_bug("activation %d", (int)o->act);
}

/* What the activation is times, of up. */
static double factor(const struct op_glu *o, double up) {
    const bool clamped = o->act == ACT_SILU_CLAMP || o->act == ACT_SILU_LIMIT;
    if (o->act != ACT_SWIGLU_OAI && !clamped) return up;
    if (clamped) return isnan(up) ? up : fmax(-(double)o->k.limit, fmin(up, (double)o->k.limit));
    return fmax(-(double)o->k.limit, fmin(up, (double)o->k.limit)) + 1;
}

static void ref_glu(struct ref *r, const struct op_glu *o) {
    for (int t = 0; t < ref_rows_in(r, o->gate); t++) {
        const float *gate = ref_row(r, o->gate, t), *up = o->up.buf >= 0 ? ref_row(r, o->up, t) : NULL;
        float *out = ref_row(r, o->out, t);
        const int each = o->out.width / o->gate.width;
        for (int i = 0; i < o->out.width; i++)
            out[i] = (float)(activate(o, (double)gate[i / each]) * (up ? factor(o, (double)up[i]) : 1));
    }
}

static void ref_add(struct ref *r, const struct op_add *o) {
    for (int t = 0; t < ref_rows_in(r, o->a); t++) {
        const float *a = ref_row(r, o->a, t), *b = ref_row(r, o->b, t);
        float *out = ref_row(r, o->out, t);
        for (int i = 0; i < o->a.width; i++) out[i] = a[i] + b[i];
    }
}

static void ref_position(struct ref *r, const struct op_position *o) {
    for (int t = 0; t < r->step.n_row; t++) {
        float *x = ref_row(r, o->x, t);
        const float *y = o->table + (size_t)r->step.pos[t] * (size_t)o->x.width;
        for (int i = 0; i < o->x.width; i++) x[i] += y[i];
    }
}

static void ref_columns(struct ref *r, const struct op_columns *o) {
    for (int t = 0; t < ref_rows_in(r, o->x); t++) {
        const float *x = ref_row(r, o->x, t);
        float *out = ref_row(r, o->out, t);
        for (int i = 0; i < o->x.width; i++) out[i] = x[o->from[i]];
    }
}

static size_t stride_of(const struct ref *r, struct view v) {
    return r->list->buf[v.buf].row_bytes / sizeof(float);
}
static void ref_reduce(struct ref *r, const struct op_reduce *o) {
    r->out->status = r->c.comm->type->reduce(r->c.comm, ref_row(r, o->x, 0), ref_rows_in(r, o->x),
                                             stride_of(r, o->x), o->x.width);
}
static void ref_gather(struct ref *r, const struct op_gather *o) {
    const int n = ref_rows_in(r, o->x), rank = r->c.comm->rank;
    for (int t = 0; t < n; t++)
        memcpy(ref_row(r, o->out, t) + o->col[rank], ref_row(r, o->x, t), (size_t)o->x.width * sizeof(float));
    r->out->status =
        r->c.comm->type->gather(r->c.comm, ref_row(r, o->out, 0), n, stride_of(r, o->out), o->col);
}

static void ref_rows(struct ref *r, const struct op_rows *o) {
    for (int j = 0; j < r->step.n_out; j++)
        memmove(ref_row(r, o->out, j), ref_row(r, o->x, r->step.out_row[j]),
                (size_t)o->x.width * sizeof(float));
}

static void ref_merge(struct ref *r, const struct op_merge *o) {
    for (int j = 0; j < r->step.n_out; j++)
        for (int i = 0; i < o->out.width; i++) {
            double sum = 0;
            for (int k = 0; o->mean && k < o->n; k++) sum += (double)ref_row(r, o->x, j * o->n + k)[i];
            ref_row(r, o->out, j)[i] =
                o->mean ? (float)(sum / o->n) : ref_row(r, o->x, j * o->n + i / o->x.width)[i % o->x.width];
        }
}

static void ref_input(struct ref *r, const struct op_input *o) {
    for (int t = 0; t < r->step.n_row; t++)
        for (int i = 0; i < o->out.width; i++)
            ref_row(r, o->out, t)[i] = r->step.input && r->step.input[t] ? r->step.input[t][o->from + i] : 0;
}

static void ref_select(struct ref *r, const struct op_select *o) {
    for (int j = 0; j < r->step.n_out; j++) {
        const float *logits = ref_row(r, o->logits, j);
        const struct infer_draw *draw = r->step.draw ? r->step.draw[j] : NULL;
        struct infer_top top;
        int best = 0, want = r->step.want[j];
        for (int i = 1; i < o->n_vocab; i++) /* NaN is not the greatest */
            if (logits[i] > logits[best] || (isnan(logits[best]) && logits[i] > -INFINITY)) best = i;
        if (draw || want & WANT_TOP) {
            memcpy(r->x, logits, (size_t)o->n_vocab * sizeof *r->x);
            draw_edit(r->x, 0, o->n_vocab, draw);
            draw_top(&top, r->x, o->n_vocab, draw);
            top.chosen = logits[best];
            if (draw) best = draw_token(&top, r->x, o->n_vocab, draw, r->heap);
            if (!(want & WANT_TOKEN)) top.chosen = 0;
        }
        r->out->token[j] = want & WANT_TOKEN ? best : -1;
        if (want & WANT_TOKEN) r->last.token[r->step.slot[r->step.out_row[j]]] = best;
        if (want & WANT_TOP) r->out->top[j] = top, r->out->has_top = true;
        if (want & WANT_LOGITS)
            memcpy(r->out->logits + (size_t)r->out->has_logits++ * (size_t)o->n_vocab, logits,
                   (size_t)o->n_vocab * sizeof(float));
    }
}

/* Numbers and rows that are elsewhere. */
static void run_rows(struct ref *r, const struct op *op) {
    if (op->kind == OP_ROWS)
        ref_rows(r, &op->rows);
    else if (op->kind == OP_MERGE)
        ref_merge(r, &op->merge);
    else if (op->kind == OP_INPUT)
        ref_input(r, &op->input);
    else
        ref_columns(r, &op->columns);
}

/* Stacks of matrices, and what goes with them. */
static void run_stacks(struct ref *r, const struct op *op) {
    if (op->kind == OP_ROUTE)
        ref_route(r, &op->route);
    else if (op->kind == OP_MIX)
        ref_mix(r, &op->mix);
    else if (op->kind == OP_LOWRANK)
        ref_lowrank(r, &op->lowrank);
    else if (op->kind == OP_HEADS)
        ref_heads(r, &op->heads);
    else
        ref_experts(r, &op->experts);
}

/* Element by element, or row by row. */
static void run_elements(struct ref *r, const struct op *op) {
    if (op->kind == OP_GLU)
        ref_glu(r, &op->glu);
    else if (op->kind == OP_ADD)
        ref_add(r, &op->add);
    else if (op->kind == OP_POSITION)
        ref_position(r, &op->position);
    else if (op->kind == OP_BALANCE)
        ref_balance(r, &op->balance);
    else
        ref_streams(r, &op->streams);
}

/* What looks at the positions before. */
static void run_positions(struct ref *r, const struct op *op) {
    if (op->kind == OP_INDEX)
        ref_index(r, &op->index);
    else
        ref_attend(r, &op->attend);
}

/* What other backends have a part in. */
static void run_with_others(struct ref *r, const struct op *op) {
    if (op->kind == OP_REMOTE)
        ref_remote(r, op);
    else if (op->kind == OP_REDUCE)
        ref_reduce(r, &op->reduce);
    else
        ref_gather(r, &op->gather);
}

static void run_op(struct ref *r, const struct op *op) {
    switch (op->kind) {
    case OP_EMBED:
        ref_embed(r, &op->embed);
        return;
    case OP_NORM:
        ref_norm(r, &op->norm);
        return;
    case OP_MATMUL:
        ref_matmul(r, &op->matmul);
        return;
    case OP_ROPE:
        ref_rope(r, &op->rope);
        return;
    case OP_KV_PUT:
        ref_kv_put(r, &op->kv_put);
        return;
    case OP_ATTEND:
    case OP_INDEX:
        run_positions(r, op);
        return;
    case OP_GLU:
    case OP_ADD:
    case OP_POSITION:
    case OP_BALANCE:
    case OP_STREAMS:
        run_elements(r, op);
        return;
    case OP_ROWS:
    case OP_MERGE:
    case OP_INPUT:
    case OP_COLUMNS:
        run_rows(r, op);
        return;
    case OP_SELECT:
        ref_select(r, &op->select);
        return;
    case OP_CONV:
    case OP_DELTA:
    case OP_SSM:
    case OP_COMPRESS:
    case OP_NGRAM:
        ref_run_state(r, op);
        return;
    case OP_ROUTE:
    case OP_EXPERTS:
    case OP_MIX:
    case OP_LOWRANK:
    case OP_HEADS:
        run_stacks(r, op);
        return;
    case OP_REMOTE:
    case OP_REDUCE:
    case OP_GATHER:
        run_with_others(r, op);
        return;
    default:
        infer_bug("operation %d", (int)op->kind);
    }
}

static const float *read_row(void *r, struct view v, int t) { return ref_row(r, v, t); }
static int rows_of(const struct ref *r, const struct op *op) {
    return op_rows_count(r->list, op, r->step.n_row, r->step.n_out);
}

/* The NaN guard: of what op writes, or of the view. */
static enum infer_status check_view(struct ref *r, const struct op *op, struct view v) {
    for (int t = 0; t < rows_of(r, op); t++)
        for (int i = 0; i < v.width; i++)
            if (!isfinite(ref_row(r, v, t)[i]))
                return op_not_finite(op, op_row_pos(r->list, op, &r->step, t), i);
    return INFER_OK;
}
static enum infer_status check_finite(struct ref *r, const struct op *op) {
    const struct op_use u = op_uses(op);
    return u.n_write ? check_view(r, op, u.write[0]) : INFER_OK;
}
/* Without being asked: of norms, and of logits. */
static enum infer_status check_some(struct ref *r, const struct op *op) {
    if (op->kind == OP_NORM) return check_finite(r, op);
    return op->kind == OP_SELECT && !r->c.any_logits ? check_view(r, op, op->select.logits) : INFER_OK;
}

/* ---- the backend --------------------------------------------------------------------------------------------- */

static size_t kv_pool_bytes(const struct backend_config *c, int store, size_t row_bytes) {
    if (!config_uses_store(c, store)) return 0;
    const struct kv_store *s = &c->store[store];
    return (size_t)c->kv_group[s->group].n_page * (size_t)s->n_kv_head * (size_t)kv_page_rows(s) * row_bytes;
}

static size_t state_pool_bytes(const struct backend_config *c, int store) {
    if (!config_uses_state(c, store)) return 0;
    return (size_t)c->n_state_slot * (size_t)c->state[store].n_elem * sizeof(float);
}

static enum infer_status ref_sizes(const struct backend_config *c, struct backend_sizes *out) {
    TRY(weights_known(c, "ref"));
    *out = (struct backend_sizes){0};
    size_t max_k = 0, max_out = 0, n_vocab = (size_t)c->n_vocab;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        struct op_list *l = c->list[cls];
        for (int i = 0; i < l->n_buf; i++) l->buf[i].row_bytes = (size_t)l->buf[i].width * sizeof(float);
        max_out += (size_t)l->max_out;
    }
    for (int i = 0; i < c->n_group; i++)
        max_k = (size_t)c->group[i]->k > max_k ? (size_t)c->group[i]->k : max_k;
    for (int i = 0; i < c->n_store; i++)
        out->kv_bytes +=
            kv_pool_bytes(c, i, kv_k_bytes(&c->store[i])) + kv_pool_bytes(c, i, kv_v_bytes(&c->store[i]));
    for (int i = 0; i < c->n_state; i++) out->kv_bytes += state_pool_bytes(c, i);
    out->workspace_bytes =
        max_k * sizeof(float) + ((size_t)c->n_ctx + 1) * (2 * sizeof(double) + sizeof(float)) + 4096;
    out->workspace_bytes += n_vocab * (sizeof(float) + sizeof(struct draw_candidate));
    out->output_bytes = 2 * max_out * (sizeof(int32_t) + sizeof(struct infer_top)) +
                        2 * ROW_CLASS_COUNT * (size_t)c->n_logits * n_vocab * sizeof(float);
    return INFER_OK;
}

static void ref_close(struct backend *b) {
    struct ref *r = (struct ref *)b;
    if (!r) return;
    for (int i = 0; r->state && i < r->c.n_state; i++) mem_free(r->state[i]);
    mem_free(r->state);
    for (int i = 0; i < r->c.n_store; i++) {
        if (r->k) mem_free(r->k[i]);
        if (r->v) mem_free(r->v[i]);
    }
    for (size_t i = 0; i < sizeof r->result / sizeof *r->result; i++) {
        mem_free(r->result[i].token);
        mem_free(r->result[i].top);
        mem_free(r->result[i].logits);
    }
    mem_free(r->k);
    mem_free(r->v);
    mem_free(r->row);
    mem_free(r->head);
    mem_free(r->score);
    mem_free(r->index);
    mem_free(r->x);
    mem_free(r->heap);
    mem_free(r->last.token);
    mem_free(r->activation);
    mem_free(r);
}

static enum infer_status take_memory(struct ref *r) {
    const struct backend_config *c = &r->c;
    size_t max_k = 1;
    for (int i = 0; i < c->n_group; i++)
        max_k = (size_t)c->group[i]->k > max_k ? (size_t)c->group[i]->k : max_k;
    TRY(mem_new(&r->k, (size_t)c->n_store * sizeof *r->k, "the key/value cache"));
    TRY(mem_new(&r->v, (size_t)c->n_store * sizeof *r->v, "the key/value cache"));
    for (int i = 0; i < c->n_store; i++) {
        TRY(mem_new(&r->k[i], kv_pool_bytes(c, i, kv_k_bytes(&c->store[i])), "the key/value cache"));
        TRY(mem_new(&r->v[i], kv_pool_bytes(c, i, kv_v_bytes(&c->store[i])), "the key/value cache"));
    }
    TRY(mem_new(&r->state, (size_t)c->n_state * sizeof *r->state, "states"));
    for (int i = 0; i < c->n_state; i++) TRY(mem_new(&r->state[i], state_pool_bytes(c, i), "states"));
    TRY(mem_new(&r->row, max_k * sizeof *r->row, "a weight row"));
    TRY(mem_new(&r->head, 1024 * sizeof *r->head, "a cache row"));
    TRY(mem_new(&r->score, 2 * ((size_t)c->n_ctx + 1) * sizeof *r->score, "attention scores"));
    TRY(mem_new(&r->index, ((size_t)c->n_ctx + 1) * sizeof *r->index, "scores of a choice"));
    TRY(mem_new(&r->x, (size_t)c->n_vocab * sizeof *r->x, "a row of logits"));
    TRY(mem_new(&r->heap, (size_t)c->n_vocab * sizeof *r->heap, "candidates"));
    int max_rows = c->list[0]->max_rows > c->list[1]->max_rows ? c->list[0]->max_rows : c->list[1]->max_rows;
    void *last;
    TRY(mem_new(&last, last_tokens_bytes(c->n_slot, max_rows), "last tokens"));
    last_tokens_open(&r->last, last, c->n_slot);
    TRY(mem_new(&r->activation, c->activation_bytes, "activations"));
    int max_out = c->list[0]->max_out > c->list[1]->max_out ? c->list[0]->max_out : c->list[1]->max_out;
    for (size_t i = 0; i < sizeof r->result / sizeof *r->result; i++) {
        TRY(mem_new(&r->result[i].token, (size_t)max_out * sizeof(int32_t), "tokens"));
        TRY(mem_new(&r->result[i].top, (size_t)max_out * sizeof(struct infer_top), "candidates"));
        TRY(mem_new(&r->result[i].logits, (size_t)c->n_logits * (size_t)c->n_vocab * sizeof(float),
                    "logits"));
    }
    return INFER_OK;
}

static enum infer_status ref_open(struct backend **out, const struct backend_config *c) {
    struct ref *r;
    *out = NULL;
    TRY(mem_new(&r, sizeof *r, "the reference backend"));
    r->base.type = &backend_ref;
    r->c = *c;
    enum infer_status s = take_memory(r);
    if (s != INFER_OK) {
        ref_close(&r->base);
        return s;
    }
    *out = &r->base;
    return INFER_OK;
}

static enum infer_status ref_upload(struct backend *b) {
    (void)b; /* the map is read in place */
    return INFER_OK;
}

static enum infer_status ref_compile(struct backend *b, enum row_class cls) {
    (void)b, (void)cls; /* the list is run as it is */
    return INFER_OK;
}

static void run_ops(struct ref *r, bool guard) {
    const struct op_list *l = r->list;
    int64_t begin = r->c.profile ? profile_now() : 0;
    for (int i = 0; i < l->n_op && r->out->status == INFER_OK; i++) {
        const struct op *op = &l->op[i];
        if (r->c.tap && r->c.tap->row) tap_op(r->c.tap, op, rows_of(r, op), read_row, r);
        run_op(r, op);
        if (r->c.profile) begin = profile_op(r->c.profile, l, op, &r->step, begin);
        if (atomic_load(&r->cancelled))
            r->out->status = err_set(INFER_E_CANCEL, "cancelled");
        else if (r->out->status == INFER_OK)
            r->out->status = guard ? check_finite(r, op) : check_some(r, op);
        if (r->c.tap && r->c.tap->wrote) tap_wrote(r->c.tap, l, op, &r->step, read_row, r);
    }
}

static enum infer_status ref_run(struct backend *b, enum row_class cls, const struct step *s) {
    struct ref *r = (struct ref *)b;
    r->list = r->c.list[cls];
    r->step = *s;
    r->out = &r->result[r->n_run++ % (2 * ROW_CLASS_COUNT)];
    r->out->has_logits = 0;
    r->out->has_top = false;
    r->out->status = last_tokens_resolve(&r->last, &r->step);
    run_ops(r, r->c.nan_guard);
    if (r->out->status == INFER_E_NAN && !r->c.nan_guard && !r->c.comm) {
        r->out->status = INFER_OK; /* once more, for the operation that wrote it first */
        run_ops(r, true);
        if (r->out->status == INFER_OK) r->out->status = INFER_E_NAN;
    }
    atomic_store(&r->cancelled, false);
    if (r->out->status != INFER_OK && r->c.comm) r->c.comm->type->abort(r->c.comm);
    return INFER_OK;
}

static enum infer_status ref_wait(struct backend *b, struct step_result *out) {
    struct ref *r = (struct ref *)b;
    struct ref_result *res = &r->result[r->n_wait++ % (2 * ROW_CLASS_COUNT)];
    *out = (struct step_result){res->token, res->has_logits ? res->logits : NULL,
                                res->has_top ? res->top : NULL};
    return res->status;
}

static enum infer_status ref_read(struct backend *b, enum row_class cls, struct view v, int n_row,
                                  float *out) {
    struct ref *r = (struct ref *)b;
    r->list = r->c.list[cls];
    for (int t = 0; t < n_row; t++)
        memcpy(out + (size_t)t * (size_t)v.width, ref_row(r, v, t), (size_t)v.width * 4);
    return INFER_OK;
}

/* Rows of the caller into a view. */
static void put_rows(struct ref *r, struct view v, int n_row, const float *x) {
    for (int t = 0; t < n_row; t++)
        memcpy(ref_row(r, v, t), x + (size_t)t * (size_t)v.width, (size_t)v.width * sizeof *x);
}

static enum infer_status ref_run_layer(struct backend *b, enum row_class cls, int layer, int n_row,
                                       const float *x, const float *choice, float *out) {
    struct ref *r = (struct ref *)b;
    const struct op_list *l = r->list = r->c.list[cls];
    enum infer_status st = INFER_OK;
    int i = 0;
    while (l->op[i].layer != layer) i++;
    r->step = (struct step){.n_row = n_row};
    put_rows(r, l->op[i].experts.x, n_row, x);
    put_rows(r, l->op[i].experts.choice, n_row, choice);
    for (; i < l->n_op && l->op[i].layer == layer && st == INFER_OK; i++) {
        run_op(r, &l->op[i]);
        if (atomic_exchange(&r->cancelled, false))
            st = err_set(INFER_E_CANCEL, "cancelled");
        else if (r->c.nan_guard)
            st = check_finite(r, &l->op[i]);
    }
    if (st != INFER_OK) return st;
    return ref_read(&r->base, cls, (struct view){REMOTE_OUT, 0, l->buf[REMOTE_OUT].width}, n_row, out);
}

static enum infer_status ref_kv_read(struct backend *b, int store, int page, float *k, float *v) {
    struct ref *r = (struct ref *)b;
    const struct kv_store *s = &r->c.store[store];
    const int rows = kv_page_rows(s);
    for (int i = 0; i < s->n_kv_head * rows; i++) {
        ref_kv_load_row(s->k_type, k + (size_t)i * (size_t)s->head_dim_k,
                        r->k[store] + ref_kv_offset(s, kv_k_bytes(s), page, i / rows, i % rows),
                        s->head_dim_k, kv_turn_of(s, false));
        ref_kv_load_row(s->v_type, v + (size_t)i * (size_t)kv_v_dim(s),
                        r->v[store] + ref_kv_offset(s, kv_v_bytes(s), page, i / rows, i % rows), kv_v_dim(s),
                        kv_turn_of(s, true));
    }
    return INFER_OK;
}

static enum infer_status ref_kv_write(struct backend *b, int store, int page, const float *k,
                                      const float *v) {
    struct ref *r = (struct ref *)b;
    const struct kv_store *s = &r->c.store[store];
    const int rows = kv_page_rows(s);
    for (int i = 0; i < s->n_kv_head * rows; i++) {
        ref_kv_store_row(s->k_type, r->k[store] + ref_kv_offset(s, kv_k_bytes(s), page, i / rows, i % rows),
                         k + (size_t)i * (size_t)s->head_dim_k, s->head_dim_k, kv_turn_of(s, false));
        ref_kv_store_row(s->v_type, r->v[store] + ref_kv_offset(s, kv_v_bytes(s), page, i / rows, i % rows),
                         v + (size_t)i * (size_t)kv_v_dim(s), kv_v_dim(s), kv_turn_of(s, true));
    }
    return INFER_OK;
}

static enum infer_status ref_kv_page(struct backend *b, int store, int page, void *bytes, bool write) {
    struct ref *r = (struct ref *)b;
    const struct kv_store *s = &r->c.store[store];
    size_t kb = ref_kv_offset(s, kv_k_bytes(s), 1, 0, 0), vb = ref_kv_offset(s, kv_v_bytes(s), 1, 0, 0);
    uint8_t *k = r->k[store] + (size_t)page * kb, *v = r->v[store] + (size_t)page * vb, *other = bytes;
    memcpy(write ? k : other, write ? other : k, kb);
    memcpy(write ? v : other + kb, write ? other + kb : v, vb);
    return INFER_OK;
}

static enum infer_status ref_kv_copy(struct backend *b, int group, int from, int to) {
    struct ref *r = (struct ref *)b;
    for (int i = 0; i < r->c.n_store; i++) {
        if (r->c.store[i].group != group || !config_uses_store(&r->c, i)) continue;
        const struct kv_store *s = &r->c.store[i];
        size_t kb = ref_kv_offset(s, kv_k_bytes(s), 1, 0, 0), vb = ref_kv_offset(s, kv_v_bytes(s), 1, 0, 0);
        memcpy(r->k[i] + (size_t)to * kb, r->k[i] + (size_t)from * kb, kb);
        memcpy(r->v[i] + (size_t)to * vb, r->v[i] + (size_t)from * vb, vb);
    }
    return INFER_OK;
}

static enum infer_status ref_state_read(struct backend *b, int store, int slot, float *out) {
    struct ref *r = (struct ref *)b;
    memcpy(out, ref_state(r, store, slot), (size_t)r->c.state[store].n_elem * sizeof *out);
    return INFER_OK;
}
static enum infer_status ref_state_write(struct backend *b, int store, int slot, const float *x) {
    struct ref *r = (struct ref *)b;
    memcpy(ref_state(r, store, slot), x, (size_t)r->c.state[store].n_elem * sizeof *x);
    return INFER_OK;
}
static enum infer_status ref_state_copy(struct backend *b, int from, int to) {
    struct ref *r = (struct ref *)b;
    for (int i = 0; i < r->c.n_state; i++)
        if (config_uses_state(&r->c, i)) TRY(ref_state_read(b, i, from, ref_state(r, i, to)));
    return INFER_OK;
}

static void ref_cancel(struct backend *b) { atomic_store(&((struct ref *)b)->cancelled, true); }

static void ref_info(const struct backend *b, struct backend_info *out) {
    (void)b;
    *out = (struct backend_info){
        .device_name = "reference", .isa = "plain C, double accumulators", .n_thread = 1};
}

const struct backend_type backend_ref = {
    .name = "ref",
    .sizes = ref_sizes,
    .open = ref_open,
    .upload = ref_upload,
    .compile = ref_compile,
    .run = ref_run,
    .wait = ref_wait,
    .run_layer = ref_run_layer,
    .read = ref_read,
    .kv_read = ref_kv_read,
    .kv_write = ref_kv_write,
    .kv_page = ref_kv_page,
    .kv_copy = ref_kv_copy,
    .state_read = ref_state_read,
    .state_write = ref_state_write,
    .state_copy = ref_state_copy,
    .cancel = ref_cancel,
    .info = ref_info,
    .close = ref_close,
};
