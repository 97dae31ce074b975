#include "model/forward.h"
#include "seam/op_list.h"

/* An emitter: the list under construction. Its arrays are as long as the longest list, so emitting cannot fail. */
struct emitter {
    struct op_list *list;
    const struct model *m;
    int op_cap, buf_cap, layer;
};

/* ---- emitting ----------------------------------------------------------------------------------------------- */

static struct view buffer(struct emitter *e, const char *name, int width, enum buf_rows rows, bool residual) {
    struct op_list *l = e->list;
    if (l->n_buf == e->buf_cap) infer_bug("more than %d buffers", e->buf_cap);
    l->buf[l->n_buf] = (struct buf){.name = name, .width = width, .rows = rows, .float32 = residual};
    return (struct view){l->n_buf++, 0, width};
}

static void push(struct emitter *e, const char *name, struct op op) {
    if (e->list->n_op == e->op_cap) infer_bug("more than %d operations", e->op_cap);
    op.layer = e->layer;
    op.name = name;
    e->list->op[e->list->n_op++] = op;
}

static void norm(struct emitter *e, const char *name, struct view x, struct view out, int dim,
                 const float *w) {
    push(e, name, (struct op){.kind = OP_NORM, .norm = {x, out, e->m->arch->norm, dim, e->m->eps, w, NULL}});
}

static struct view matmul(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                          enum buf_rows rows) {
    struct view out = buffer(e, name, w->n, rows, false);
    push(e, name, (struct op){.kind = OP_MATMUL, .matmul = {x, out, w}});
    return out;
}

static void add(struct emitter *e, const char *name, struct view x, struct view y) {
    push(e, name, (struct op){.kind = OP_ADD, .add = {x, y, x}});
}

static void rope(struct emitter *e, const char *name, struct view x, int n_head, const struct layer *l) {
    if (l->rope->kind == ROPE_NONE) return;
    push(e, name, (struct op){.kind = OP_ROPE, .rope = {x, n_head, l->head_dim_k, l->rope}});
}

/* ---- the model ---------------------------------------------------------------------------------------------- */

/* x += out(attend(rope(norm(q)), rope(norm(k)), v)), q k v = W norm(x) */
static void attention(struct emitter *e, const struct layer *l, struct view x) {
    int n_q = l->n_head * l->head_dim_k, n_k = l->n_kv_head * l->head_dim_k,
        n_v = l->n_kv_head * l->head_dim_v;
    struct view h = buffer(e, "attn_norm", e->m->n_embd, BUF_ROWS_ALL, false);
    norm(e, "attn_norm", x, h, e->m->n_embd, l->attn_norm);
    struct view qkv = matmul(e, "attn_qkv", h, &l->qkv, BUF_ROWS_ALL);
    struct view q = view_columns(qkv, 0, n_q), k = view_columns(qkv, n_q, n_k),
                v = view_columns(qkv, n_q + n_k, n_v);
    if (l->q_norm) norm(e, "attn_q_norm", q, q, l->head_dim_k, l->q_norm);
    if (l->k_norm) norm(e, "attn_k_norm", k, k, l->head_dim_k, l->k_norm);
    rope(e, "rope_q", q, l->n_head, l);
    rope(e, "rope_k", k, l->n_kv_head, l);
    push(e, "kv_put", (struct op){.kind = OP_KV_PUT, .kv_put = {k, v, l->store}});
    struct view a = buffer(e, "attend", l->n_head * l->head_dim_v, BUF_ROWS_ALL, false);
    float scale = e->m->attn_scale != 0 ? e->m->attn_scale : 1 / __builtin_sqrtf((float)l->head_dim_k);
    push(e, "attend",
         (struct op){.kind = OP_ATTEND, .attend = {q, a, l->store, l->n_head, scale, 0, l->window, NULL}});
    add(e, "attn_add", x, matmul(e, "attn_output", a, &l->out, BUF_ROWS_ALL));
}

/* x += down(act(gate) * up), gate up = W norm(x) */
static void feed_forward(struct emitter *e, const struct layer *l, struct view x) {
    struct view h = buffer(e, "ffn_norm", e->m->n_embd, BUF_ROWS_ALL, false);
    norm(e, "ffn_norm", x, h, e->m->n_embd, l->ffn_norm);
    struct view gu = matmul(e, "ffn_gate_up", h, &l->gate_up, BUF_ROWS_ALL);
    struct view f = buffer(e, "ffn_glu", l->n_ff, BUF_ROWS_ALL, false);
    push(e, "ffn_glu",
         (struct op){
             .kind = OP_GLU,
             .glu = {view_columns(gu, 0, l->n_ff), view_columns(gu, l->n_ff, l->n_ff), f, e->m->arch->act}});
    add(e, "ffn_add", x, matmul(e, "ffn_down", f, &l->down, BUF_ROWS_ALL));
}

/* logits = head(norm(rows of x that want an output)) */
static void output(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    struct view y = buffer(e, "output_rows", m->n_embd, BUF_ROWS_OUT, true);
    push(e, "output_rows", (struct op){.kind = OP_ROWS, .rows = {x, y}});
    struct view h = buffer(e, "output_norm", m->n_embd, BUF_ROWS_OUT, false);
    norm(e, "output_norm", y, h, m->n_embd, m->output_norm);
    struct view logits = matmul(e, "logits", h, &m->head, BUF_ROWS_OUT);
    push(e, "select", (struct op){.kind = OP_SELECT, .select = {logits, m->n_vocab}});
}

enum infer_status forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                               const struct layer_range *range, enum row_class cls, int max_rows,
                               int max_out) {
    struct emitter e = {out, m, 16 * m->n_layer + 8, 10 * m->n_layer + 8, -1};
    *out = (struct op_list){.cls = cls, .max_rows = max_rows, .max_out = max_out};
    out->op = arena_alloc(arena, (size_t)e.op_cap * sizeof *out->op);
    out->buf = arena_alloc(arena, (size_t)e.buf_cap * sizeof *out->buf);
    if (!out->op || !out->buf) return err_set(INFER_E_MEMORY, "out of memory for %d operations", e.op_cap);

    struct view x = buffer(&e, "x", m->n_embd, BUF_ROWS_ALL, true);
    struct op_embed embed = {x, &m->embd, m->embd_scale};
    if (range->first) embed = (struct op_embed){x, range->rows, 1};
    push(&e, "embed", (struct op){.kind = OP_EMBED, .embed = embed});
    for (int il = range->first; il < range->end; il++) {
        e.layer = il;
        attention(&e, &m->layer[il], x);
        feed_forward(&e, &m->layer[il], x);
    }
    e.layer = -1;
    if (range->end == m->n_layer) output(&e, x);
    list_lives(out);
    return INFER_OK;
}
