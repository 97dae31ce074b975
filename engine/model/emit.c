#include "model/emit.h"
#include "seam/op_list.h"

struct view emit_buffer(struct emitter *e, const char *name, int width, enum buf_rows rows, bool float32) {
    struct op_list *l = e->list;
    if (l->n_buf == e->buf_cap) infer_bug("more than %d buffers", e->buf_cap);
    l->buf[l->n_buf] = (struct buf){.name = name, .width = width, .rows = rows, .float32 = float32};
    return (struct view){l->n_buf++, 0, width};
}

static void put_op(struct emitter *e, const char *name, struct op op) {
    if (e->list->n_op == e->op_cap) infer_bug("more than %d operations", e->op_cap);
    op.layer = e->layer;
    op.name = name;
    e->list->op[e->list->n_op++] = op;
}

/* ---- adapters ---- */

/* group NULL: vectors behind the layer */
static void put_lowrank(struct emitter *e, const char *name, const struct weight_group *group,
                        struct op_lowrank o) {
    struct adapter_site *site;
    if (!e->range->adapters || e->status) return;
    e->status = adapters_at(e->range->adapters, e->arena, group, e->layer, &site);
    if (e->status || !site) return;
    o.w = &site->low;
    put_op(e, name, (struct op){.kind = OP_LOWRANK, .lowrank = o});
}

void emit_vectors(struct emitter *e, struct view x) {
    static const struct view none = {-1, 0, 0};
    put_lowrank(e, "layer_vector", NULL, (struct op_lowrank){.x = x, .choice = none, .out = x});
}

void emit_op(struct emitter *e, const char *name, struct op op) {
    static const struct view none = {-1, 0, 0};
    put_op(e, name, op);
    if (op.kind == OP_MATMUL)
        put_lowrank(e, name, op.matmul.w,
                    (struct op_lowrank){.x = op.matmul.x, .choice = none, .out = op.matmul.out});
    if (op.kind == OP_EXPERTS)
        put_lowrank(e, name, op.experts.w,
                    (struct op_lowrank){.x = op.experts.x,
                                        .choice = op.experts.choice,
                                        .out = op.experts.out,
                                        .n_used = op.experts.n_used,
                                        .by_choice = op.experts.by_choice,
                                        .weighted = op.experts.weighted,
                                        .first = op.experts.first});
}

/* Groups of dim elements of x; an absent norm (w NULL) is none. */
void emit_norm(struct emitter *e, const char *name, struct view x, struct view out, int dim,
               const struct norm_weights *w) {
    struct op_norm o = {.x = x,
                        .out = out,
                        .kind = e->m->norm,
                        .dim = dim,
                        .eps = w->eps > 0 ? w->eps : e->m->eps,
                        .w = w->w,
                        .bias = w->bias,
                        .n_w = w->n == dim ? 0 : w->n};
    if (w->w) emit_op(e, name, (struct op){.kind = OP_NORM, .norm = o});
}

/* The norm of x in a buffer of its own; x itself where there is none. */
struct view emit_normed(struct emitter *e, const char *name, struct view x, const struct norm_weights *w) {
    if (!w->w) return x;
    struct view h = emit_buffer(e, name, e->m->n_embd, BUF_ROWS_ALL, false);
    emit_norm(e, name, x, h, e->m->n_embd, w);
    return h;
}

/* x in the order of the group's columns. */
static struct view in_order(struct emitter *e, struct view x, const struct weight_group *w,
                            enum buf_rows rows) {
    const int32_t *from = w->member[0].columns;
    if (!from) return x;
    struct view out = emit_buffer(e, "columns", x.width, rows, false);
    emit_op(e, "columns", (struct op){.kind = OP_COLUMNS, .columns = {x, out, from}});
    return out;
}

static struct view product(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                           enum buf_rows rows, bool exact) {
    const struct weight_group *part = w->n_split ? w->split : w;
    struct view out = emit_buffer(e, name, w->n, rows, false), in[WEIGHT_GROUP_MAX];
    for (int i = 0, col = 0; i < (w->n_split ? w->n_split : 1); col += part[i++].n) {
        int k = 0;
        while (k < i && part[k].member[0].columns != part[i].member[0].columns) k++;
        in[i] = k < i ? in[k] : in_order(e, x, &part[i], rows);
        emit_op(e, name,
                (struct op){.kind = OP_MATMUL,
                            .matmul = {in[i], view_columns(out, col, part[i].n), &part[i], exact}});
    }
    return out;
}
struct view emit_matmul(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                        enum buf_rows rows) {
    return product(e, name, x, w, rows, false);
}
struct view emit_exact(struct emitter *e, const char *name, struct view x, const struct weight_group *w) {
    return product(e, name, x, w, BUF_ROWS_ALL, true);
}

/* ---- ranks ---- */

void emit_reduce(struct emitter *e, const char *name, struct view x) {
    e->list->buf[x.buf].float32 = true;
    emit_op(e, name, (struct op){.kind = OP_REDUCE, .reduce = {x}});
}
struct view emit_part(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                      bool partial) {
    struct view out = emit_matmul(e, name, x, w, BUF_ROWS_ALL);
    if (partial) emit_reduce(e, name, out);
    return out;
}
struct view emit_gathered(struct emitter *e, struct view h) {
    const struct model *m = e->m;
    struct view own = emit_matmul(e, "logits", h, &m->head, BUF_ROWS_OUT),
                logits = emit_buffer(e, "logits_all", m->n_vocab, BUF_ROWS_OUT, true);
    emit_op(e, "logits_gather", (struct op){.kind = OP_GATHER, .gather = {own, logits, m->share.vocab}});
    return logits;
}

void emit_add(struct emitter *e, const char *name, struct view x, struct view y) {
    emit_op(e, name, (struct op){.kind = OP_ADD, .add = {x, y, x}});
}

/* head_dim: from a head's first rotated number to the next head's. */
void emit_rope(struct emitter *e, const char *name, struct view x, int n_head, int head_dim,
               const struct layer *l) {
    const struct rope *r = e->long_context && l->attn.rope_long ? l->attn.rope_long : l->attn.rope;
    if (r->kind == ROPE_NONE) return;
    emit_op(
        e, name,
        (struct op){.kind = OP_ROPE, .rope = {.x = x, .n_head = n_head, .head_dim = head_dim, .rope = r}});
}

void emit_map(struct emitter *e, const char *name, struct view x, struct view out, enum act_kind act,
              struct act_numbers k) {
    static const struct view none = {-1, 0, 0};
    emit_op(e, name,
            (struct op){.kind = OP_GLU, .glu = {.gate = x, .up = none, .out = out, .act = act, .k = k}});
}

/* Groups of dim elements of x, without weights. */
void emit_unit_norm(struct emitter *e, const char *name, struct view x, struct view out, int dim) {
    struct op_norm o = {.x = x, .out = out, .kind = e->m->norm, .dim = dim, .eps = e->m->eps};
    emit_op(e, name, (struct op){.kind = OP_NORM, .norm = o});
}
