/* Several residual streams: each layer predicts all of them, computes with the first and corrects all by what came of it; beside attention
 * something of low rank is added; each layer has an input of its own. In the first layers gates are left out but for the largest.
 * sources: Baykal et al. 2023 (arXiv 2301.13310); HF modeling_gemma3n. */
#include "model/emit.h"
#include "seam/op_list.h"

#define TINY 1e-30f /* an epsilon where there is none */

static struct view stream(const struct emitter *e, struct view x, int i) {
    return view_columns(x, i * e->m->n_embd, e->m->n_embd);
}
/* out = f * x, f a number a row, or as many as x has. */
static void times(struct emitter *e, const char *name, struct view f, struct view x, struct view out) {
    struct op_glu o = {.gate = f, .up = x, .out = out, .act = ACT_SCALE, .k = {.limit = 1}};
    emit_op(e, name, (struct op){.kind = OP_GLU, .glu = o});
}
static void norm(struct emitter *e, const char *name, struct view x, struct view out, enum norm_kind kind,
                 const float *w, const float *bias) {
    struct op_norm o = {.x = x, .out = out, .kind = kind, .dim = x.width, .eps = TINY, .w = w, .bias = bias};
    emit_op(e, name, (struct op){.kind = OP_NORM, .norm = o});
}
/* In float32, whatever the weights are. */
static struct view exactly(struct emitter *e, const char *name, struct view x, const struct weight_group *w) {
    struct view out = emit_buffer(e, name, w->n, BUF_ROWS_ALL, true);
    emit_op(e, name, (struct op){.kind = OP_MATMUL, .matmul = {x, out, w, true}});
    return out;
}

/* rms(x), as the mean of x * x / rms(x). */
static struct view magnitude(struct emitter *e, struct view x) {
    norm(e, "stream_unit", x, e->part, NORM_RMS, NULL, NULL);
    times(e, "stream_square", x, e->part, e->part);
    return exactly(e, "stream_size", e->part, &e->m->mean);
}
/* y as large as size says. */
static void resize(struct emitter *e, struct view size, struct view y) {
    norm(e, "stream_unit", y, y, NORM_RMS, NULL, NULL);
    times(e, "stream_resize", size, y, y);
}

void emit_streams_begin(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    e->predicted = emit_buffer(e, "predicted", x.width, BUF_ROWS_ALL, true);
    e->part = emit_buffer(e, "stream_part", m->n_embd, BUF_ROWS_ALL, true);
    struct view size = magnitude(e, stream(e, x, 0));
    for (int i = 1; i < m->n_stream; i++) {
        struct op_matmul o = {stream(e, x, 0), stream(e, x, i), &m->stream_in[i - 1], false};
        emit_op(e, "stream_in", (struct op){.kind = OP_MATMUL, .matmul = o});
        resize(e, size, stream(e, x, i));
    }
}

struct view emit_streams_end(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    struct view first = stream(e, x, 0), size = magnitude(e, first);
    for (int i = 1; i < m->n_stream; i++) {
        struct op_matmul o = {stream(e, x, i), e->part, &m->stream_out[i - 1], false};
        emit_op(e, "stream_out", (struct op){.kind = OP_MATMUL, .matmul = o});
        resize(e, size, e->part);
        emit_add(e, "stream_add", first, e->part);
    }
    emit_map(e, "stream_mean", first, first, ACT_SCALE,
             (struct act_numbers){.limit = 1 / (float)m->n_stream});
    return first;
}

/* w tanh(router norm(x)) */
static struct view coefficients(struct emitter *e, const struct layer *l, struct view x,
                                const struct weight_group *w) {
    struct view h = emit_normed(e, "stream_norm", x, &l->stream.norm),
                r = exactly(e, "stream_router", h, &l->stream.router);
    emit_map(e, "stream_tanh", r, r, ACT_CAP, (struct act_numbers){.limit = 1});
    return exactly(e, "stream_coefs", r, w);
}

/* Stream j of the prediction: x_j + sum_i c[j][i] x_i. */
static void predict(struct emitter *e, const struct layer *l, struct view x) {
    const int n = e->m->n_stream;
    struct view c = coefficients(e, l, stream(e, x, 0), &l->stream.predict);
    for (int j = 0; j < n; j++) {
        struct view out = stream(e, e->predicted, j);
        for (int i = 0; i < n; i++) {
            times(e, "predict", view_columns(c, j * n + i, 1), stream(e, x, i), i ? e->part : out);
            if (i) emit_add(e, "predict_add", out, e->part);
        }
        emit_add(e, "predict_add", out, stream(e, x, j));
    }
}
/* Stream j behind the layer: the prediction + c[j] (y - the first one's). */
static void correct(struct emitter *e, const struct layer *l, struct view y, struct view x) {
    struct view c = coefficients(e, l, y, &l->stream.correct),
                away = emit_buffer(e, "innovation", y.width, BUF_ROWS_ALL, true);
    emit_map(e, "innovation", stream(e, e->predicted, 0), away, ACT_SCALE, (struct act_numbers){.limit = -1});
    emit_add(e, "innovation_add", away, y);
    for (int j = 0; j < e->m->n_stream; j++) {
        times(e, "correct", view_columns(c, j, 1), away, e->part);
        struct op_add o = {stream(e, e->predicted, j), e->part, stream(e, x, j)};
        emit_op(e, "correct_add", (struct op){.kind = OP_ADD, .add = o});
    }
}
/* All but the first += norm(out(act(gate (scale x)) * e)), e the layer's own input. */
static void own_input(struct emitter *e, const struct layer *l, struct view x) {
    const int n = e->m->n_layer_input;
    norm(e, "input_scale", stream(e, x, 0), e->part, NORM_NONE, l->stream.scale.w, NULL);
    struct view g = emit_matmul(e, "input_gate", e->part, &l->input.gate, BUF_ROWS_ALL);
    struct op_glu o = {
        .gate = g, .up = view_columns(e->inputs, e->layer * n, n), .out = g, .act = e->m->act, .k = l->act};
    emit_op(e, "input_glu", (struct op){.kind = OP_GLU, .glu = o});
    struct view y = emit_matmul(e, "input_out", g, &l->input.out, BUF_ROWS_ALL);
    emit_norm(e, "input_norm", y, y, e->m->n_embd, &l->input.norm);
    for (int i = 1; i < e->m->n_stream; i++) emit_add(e, "input_add", stream(e, x, i), y);
}

void emit_streams_layer(struct emitter *e, const struct layer *l, struct view x) {
    const int n = e->m->n_embd;
    predict(e, l, x);
    struct view first = stream(e, e->predicted, 0), h = emit_normed(e, "attn_norm", first, &l->attn_norm);
    struct view low = emit_matmul(e, "laurel_l", h, &l->stream.laurel_l, BUF_ROWS_ALL),
                beside = emit_matmul(e, "laurel_r", low, &l->stream.laurel_r, BUF_ROWS_ALL);
    emit_norm(e, "laurel_norm", beside, beside, n, &l->stream.laurel_norm);
    emit_add(e, "laurel_add", beside, h);
    struct view a = emit_attention(e, l, h), y = emit_buffer(e, "stream_layer", n, BUF_ROWS_ALL, true);
    emit_norm(e, "post_attn_norm", a, a, n, &l->post_attn_norm);
    emit_op(e, "attn_add", (struct op){.kind = OP_ADD, .add = {first, a, y}});
    emit_add(e, "attn_beside", y, beside);
    emit_map(e, "attn_half", y, y, ACT_SCALE, (struct act_numbers){.limit = __builtin_sqrtf(0.5f)});
    struct view f = emit_dense(e, l, emit_normed(e, "ffn_norm", y, &l->ffn_norm));
    emit_norm(e, "post_ffn_norm", f, f, n, &l->post_ffn_norm);
    emit_add(e, "ffn_add", y, f);
    correct(e, l, y, x);
    own_input(e, l, x);
}

/* max(0, gate - mean - sparse std), as std times max(0, y - sparse) of y = (gate - mean) / std; std is the mean of gate * y. */
void emit_sparse(struct emitter *e, const struct layer *l, struct view gate) {
    struct view y = emit_buffer(e, "sparse", gate.width, BUF_ROWS_ALL, true),
                both = emit_buffer(e, "sparse_both", gate.width, BUF_ROWS_ALL, true);
    norm(e, "sparse_unit", gate, y, NORM_LAYER, NULL, NULL);
    times(e, "sparse_square", gate, y, both);
    struct view std = exactly(e, "sparse_std", both, &l->mean);
    norm(e, "sparse_below", y, y, NORM_NONE, NULL, l->below);
    emit_map(e, "sparse_cut", y, y, ACT_CLAMP, (struct act_numbers){.beta = 0, .limit = 3e38f});
    times(e, "sparse_times", std, y, gate);
}
