/* Several residual streams that are read by gates: a part of a layer reads the mean of their norms, each number times a gate of low rank, and
 * what comes of it is added to all, times a gate for each. One layer adds what runs of tokens read of a table before.
 * source: HF modeling_qwen4_exp */
#include "model/emit.h"
#include "seam/op_list.h"

static struct view stream(const struct emitter *e, struct view x, int i) {
    return view_columns(x, i * e->m->n_embd, e->m->n_embd);
}
/* out = act(gate) * up; the gate may have one number for all. */
static void gated(struct emitter *e, const char *name, struct view gate, struct view up, struct view out,
                  enum act_kind act, float limit) {
    struct op_glu o = {.gate = gate, .up = up, .out = out, .act = act, .k = {.limit = limit}};
    emit_op(e, name, (struct op){.kind = OP_GLU, .glu = o});
}
/* Of each stream. */
static struct view norms(struct emitter *e, const char *name, struct view x, const struct norm_weights *w) {
    struct view n = emit_buffer(e, name, x.width, BUF_ROWS_ALL, true);
    emit_norm(e, name, x, n, e->m->n_embd, w);
    return n;
}

/* The mean of n by gates of its own. */
static struct view read_streams(struct emitter *e, const struct stream_gates *g, struct view n) {
    const int streams = e->m->n_stream;
    struct view low = emit_matmul(e, "gates_down", n, &g->down, BUF_ROWS_ALL);
    emit_map(e, "gates_silu", low, low, ACT_SILU, (struct act_numbers){0});
    struct view all = emit_matmul(e, "gates_up", low, &g->up, BUF_ROWS_ALL),
                y = emit_buffer(e, "gates_read", e->m->n_embd, BUF_ROWS_ALL, true);
    gated(e, "gates", all, n, all, ACT_SIGMOID, 0);
    emit_op(e, "gates_sum", (struct op){.kind = OP_ADD, .add = {stream(e, all, 0), stream(e, all, 1), y}});
    for (int i = 2; i < streams; i++) emit_add(e, "gates_sum", y, stream(e, all, i));
    emit_map(e, "gates_mean", y, y, ACT_SCALE, (struct act_numbers){.limit = 1 / (float)streams});
    return y;
}

/* Stream i += 2 sigmoid(inject n)[i] y. */
static void write_streams(struct emitter *e, const struct stream_gates *g, struct view n, struct view y,
                          struct view x) {
    struct view w = emit_exact(e, "gates_inject", n, &g->inject),
                part = emit_buffer(e, "gates_part", e->m->n_embd, BUF_ROWS_ALL, true);
    emit_map(e, "gates_sigmoid", w, w, ACT_SIGMOID, (struct act_numbers){0});
    for (int i = 0; i < e->m->n_stream; i++) {
        gated(e, "gates_part", view_columns(w, i, 1), y, part, ACT_SCALE, 2);
        emit_add(e, "gates_write", stream(e, x, i), part);
    }
}

/* x += v + silu(conv(norm v)), v[i] = sigmoid(root(key[i] . query[i] / sqrt(n_embd))) value. */
static void ngrams(struct emitter *e, const struct layer *l, struct view x) {
    const struct model *m = e->m;
    static const float least = 1e-6f; /* of the class */
    struct view rows = emit_buffer(e, "ngram", m->ngram.n_head * m->n_ngram, BUF_ROWS_ALL, true);
    struct op_ngram o = {rows, l->ngram.state, &m->ngram_table.member[0], &m->ngram};
    emit_op(e, "ngram", (struct op){.kind = OP_NGRAM, .ngram = o});
    struct view both = emit_matmul(e, "ngram_key_value", rows, &l->ngram.in, BUF_ROWS_ALL),
                key = norms(e, "ngram_key_norm", view_columns(both, 0, x.width), &l->ngram.key_norm),
                query = norms(e, "ngram_query_norm", x, &l->ngram.query_norm),
                value = view_columns(both, x.width, m->n_embd),
                s = emit_buffer(e, "ngram_gate", m->n_stream, BUF_ROWS_ALL, true);
    gated(e, "ngram_product", key, query, query, ACT_SCALE, 1);
    for (int i = 0; i < m->n_stream; i++) {
        struct op_matmul sum = {stream(e, query, i), view_columns(s, i, 1), &m->ngram_sum, true};
        emit_op(e, "ngram_score", (struct op){.kind = OP_MATMUL, .matmul = sum});
    }
    emit_map(e, "ngram_root", s, s, ACT_ROOT, (struct act_numbers){.eps = least});
    struct view v = emit_buffer(e, "ngram_gated", x.width, BUF_ROWS_ALL, true);
    for (int i = 0; i < m->n_stream; i++)
        gated(e, "ngram_gated", view_columns(s, i, 1), value, stream(e, v, i), ACT_SIGMOID, 0);
    struct view n = norms(e, "ngram_conv_norm", v, &l->ngram.conv_norm),
                y = emit_buffer(e, "ngram_conv", x.width, BUF_ROWS_ALL, true);
    struct op_conv c = {.x = n,
                        .out = y,
                        .state = l->ngram.conv_store,
                        .K = l->ngram.n_tap,
                        .w = l->ngram.taps,
                        .silu = true};
    emit_op(e, "ngram_conv", (struct op){.kind = OP_CONV, .conv = c});
    emit_add(e, "ngram_sum", v, y);
    emit_add(e, "ngram_add", x, v);
}

void emit_gates_layer(struct emitter *e, const struct layer *l, struct view x) {
    if (l->ngram.on) ngrams(e, l, x);
    struct view n = norms(e, "gates_norm", x, &l->gates[0].norm), y = read_streams(e, &l->gates[0], n);
    write_streams(e, &l->gates[0], n, emit_mixer(e, l, y), x);
    n = norms(e, "gates_norm", x, &l->gates[1].norm), y = read_streams(e, &l->gates[1], n);
    write_streams(e, &l->gates[1], n, emit_feed_forward(e, l, y, y), x);
}

struct view emit_gates_end(struct emitter *e, struct view x) {
    const struct stream_gates *g = &e->m->head_gates;
    return read_streams(e, g, norms(e, "gates_norm", x, &g->norm));
}
