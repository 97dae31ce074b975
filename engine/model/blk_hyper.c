/* Several residual streams that are mixed: each part of a layer reads one sum of them and is added to all, which a matrix of rows and columns of
 * sum 1 has mixed before; all of these are made of the streams themselves. source: Xie et al. 2025 (arXiv 2512.24880); HF modeling_deepseek_v4 */
#include "model/emit.h"
#include "seam/op_list.h"

static const struct view none = {-1, 0, 0};

/* By what the streams are read, written and mixed, or read alone. */
static struct view weights(struct emitter *e, struct view x, const struct weight_group *mix,
                           const float *scale, const float *base) {
    const struct model *m = e->m;
    struct view u = emit_buffer(e, "hyper_norm", x.width, BUF_ROWS_ALL, true);
    emit_unit_norm(e, "hyper_norm", x, u, x.width);
    struct view w = emit_buffer(e, "hyper_weights", mix->n, BUF_ROWS_ALL, true);
    emit_op(e, "hyper_mix", (struct op){.kind = OP_MATMUL, .matmul = {u, w, mix, true}});
    struct op_balance o = {w, w, m->n_stream, m->hyper.n_round, m->hyper.eps, scale, base};
    emit_op(e, "hyper_weights", (struct op){.kind = OP_BALANCE, .balance = o});
    return w;
}
static struct view read_one(struct emitter *e, struct view x, struct view w) {
    const int n = e->m->n_stream;
    struct view y = emit_buffer(e, "hyper_read", e->m->n_embd, BUF_ROWS_ALL, true);
    struct op_streams o = {x, view_columns(w, 0, n), none, none, y, n};
    emit_op(e, "hyper_read", (struct op){.kind = OP_STREAMS, .streams = o});
    return y;
}
static void write_all(struct emitter *e, struct view x, struct view w, struct view y) {
    const int n = e->m->n_stream;
    struct op_streams o = {x, view_columns(w, 2 * n, n * n), y, view_columns(w, n, n), x, n};
    emit_op(e, "hyper_write", (struct op){.kind = OP_STREAMS, .streams = o});
}

void emit_hyper_begin(struct emitter *e, struct view x) {
    const int n = e->m->n_embd;
    for (int i = 1; i < e->m->n_stream; i++) {
        struct op_norm o = {
            .x = view_columns(x, 0, n), .out = view_columns(x, i * n, n), .kind = NORM_NONE, .dim = n};
        emit_op(e, "hyper_begin", (struct op){.kind = OP_NORM, .norm = o});
    }
}

void emit_hyper_layer(struct emitter *e, const struct layer *l, struct view x) {
    struct view w = weights(e, x, &l->hyper[0].mix, l->hyper[0].scale, l->hyper[0].base),
                y = read_one(e, x, w);
    write_all(e, x, w, emit_entries(e, l, emit_normed(e, "attn_norm", y, &l->attn_norm)));
    w = weights(e, x, &l->hyper[1].mix, l->hyper[1].scale, l->hyper[1].base), y = read_one(e, x, w);
    write_all(e, x, w, emit_feed_forward(e, l, y, emit_normed(e, "ffn_norm", y, &l->ffn_norm)));
}

struct view emit_hyper_end(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    return read_one(e, x, weights(e, x, &m->hyper.head, m->hyper.scale, m->hyper.base));
}
