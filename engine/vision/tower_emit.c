/* A tower as a list of operations: patches, blocks, and the family's way from patches to rows of the text model. */
#include "vision/tower_impl.h"

struct view tower_buffer(struct tower_emitter *e, const char *name, int width, enum buf_rows rows) {
    struct op_list *l = e->list;
    if (l->n_buf == e->buf_cap) infer_bug("more than %d buffers", e->buf_cap);
    l->buf[l->n_buf] = (struct buf){.name = name, .width = width, .rows = rows, .float32 = true};
    return (struct view){l->n_buf++, 0, width};
}

void tower_op(struct tower_emitter *e, const char *name, struct op op) {
    if (e->list->n_op == e->op_cap) infer_bug("more than %d operations", e->op_cap);
    op.layer = e->layer;
    op.name = name;
    e->list->op[e->list->n_op++] = op;
}

void tower_normed(struct tower_emitter *e, const char *name, enum norm_kind kind, struct view x,
                  struct view out, int dim, float eps, const struct tower_norm *w) {
    struct op_norm o = {.x = x,
                        .out = out,
                        .kind = kind,
                        .dim = dim,
                        .eps = eps,
                        .w = w ? w->w : NULL,
                        .bias = w ? w->bias : NULL,
                        .n_w = w && w->n != dim ? w->n : 0};
    tower_op(e, name, (struct op){.kind = OP_NORM, .norm = o});
}

void tower_mapped(struct tower_emitter *e, const char *name, struct view x, struct view out,
                  enum act_kind act, struct act_numbers k) {
    struct op_glu o = {.gate = x, .up = tower_nowhere, .out = out, .act = act, .k = k};
    tower_op(e, name, (struct op){.kind = OP_GLU, .glu = o});
}

static void bound(struct tower_emitter *e, const char *name, struct view x, struct view out,
                  const float *range) {
    tower_mapped(e, name, x, out, ACT_CLAMP, (struct act_numbers){.limit = range[1], .beta = range[0]});
}

struct view tower_product(struct tower_emitter *e, const char *name, struct view x,
                          const struct tower_linear *w, struct view out) {
    const enum buf_rows rows = e->list->buf[x.buf].rows;
    if (out.buf < 0) out = tower_buffer(e, name, w->w.n, rows);
    if (w->bounded) {
        struct view in = tower_buffer(e, "bounded", x.width, rows);
        bound(e, name, x, in, w->in);
        x = in;
    }
    tower_op(e, name, (struct op){.kind = OP_MATMUL, .matmul = {x, out, &w->w, false}});
    if (w->bounded) bound(e, name, out, out, w->out);
    return out;
}

struct view tower_merged(struct tower_emitter *e, const char *name, struct view x, int n, bool mean) {
    struct view out = tower_buffer(e, name, mean ? x.width : n * x.width, BUF_ROWS_OUT);
    tower_op(e, name, (struct op){.kind = OP_MERGE, .merge = {x, out, n, mean}});
    return out;
}

/* A norm of the tower's kind. */
static void own_norm(struct tower_emitter *e, const char *name, struct view x, struct view out, int dim,
                     float eps, const struct tower_norm *w) {
    const struct tower_family *f = e->t->family;
    tower_normed(e, name, f->norm_by_bias && !w->bias ? NORM_RMS : f->norm, x, out, dim, eps, w);
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* Several members of one input side by side. */
static struct view products(struct tower_emitter *e, const char *name, struct view x,
                            const struct tower_linear *w, int n) {
    int width = 0;
    for (int i = 0; i < n; i++) width += w[i].w.n;
    struct view all = tower_buffer(e, name, width, BUF_ROWS_ALL);
    for (int i = 0, col = 0; i < n; col += w[i++].w.n)
        tower_product(e, name, x, &w[i], view_columns(all, col, w[i].w.n));
    return all;
}

static void turn(struct tower_emitter *e, const char *name, struct view x) {
    const struct tower *t = e->t;
    const int dim = t->head_dim;
    for (int i = 0; i < 2 && t->rope[i].n_rot; i++) {
        const struct view part = view_columns(x, i * (dim / 2), x.width - i * (dim / 2));
        tower_op(e, name, (struct op){.kind = OP_ROPE, .rope = {part, t->n_head, dim, &t->rope[i], false}});
    }
}

static struct view attention(struct tower_emitter *e, const struct tower_layer *l, struct view h) {
    const struct tower *t = e->t;
    const int n = t->n_head * t->head_dim;
    struct view qkv = products(e, "attn_qkv", h, l->qkv, l->n_qkv), q = view_columns(qkv, 0, n),
                k = view_columns(qkv, n, n), v = view_columns(qkv, 2 * n, n),
                a = tower_buffer(e, "attend", n, BUF_ROWS_ALL);
    const float eps = t->eps, scale = t->family->attn_scale;
    if (l->q_norm.w) own_norm(e, "attn_q_norm", q, q, l->q_norm.n, eps, &l->q_norm);
    if (l->k_norm.w) own_norm(e, "attn_k_norm", k, k, l->k_norm.n, eps, &l->k_norm);
    if (t->family->v_norm) tower_normed(e, "attn_v_norm", NORM_RMS, v, v, t->head_dim, eps, NULL);
    turn(e, "rope_q", q);
    turn(e, "rope_k", k);
    struct op_attend o = {.q = q,
                          .out = a,
                          .store = -1,
                          .n_head = t->n_head,
                          .scale = scale != 0 ? scale : 1 / __builtin_sqrtf((float)t->head_dim),
                          .both = t->window ? (e->layer + 1) % t->whole_every == 0 : !e->within,
                          .k = k,
                          .v = v,
                          .n_kv_head = t->n_head};
    tower_op(e, "attend", (struct op){.kind = OP_ATTEND, .attend = o});
    return tower_product(e, "attn_out", a, &l->out, tower_nowhere);
}

static struct view feed_forward(struct tower_emitter *e, const struct tower_layer *l, struct view h) {
    const struct tower *t = e->t;
    struct view gu = products(e, "ffn_up", h, l->up, l->n_up),
                f = tower_buffer(e, "ffn_act", t->n_ff, BUF_ROWS_ALL);
    struct op_glu o = {.gate = view_columns(gu, 0, t->n_ff),
                       .up = l->gated ? view_columns(gu, t->n_ff, t->n_ff) : tower_nowhere,
                       .out = f,
                       .act = t->act,
                       .k = t->act_k};
    tower_op(e, "ffn_act", (struct op){.kind = OP_GLU, .glu = o});
    return tower_product(e, "ffn_down", f, &l->down, tower_nowhere);
}

/* x += scale * post(F(norm x)) */
static void part(struct tower_emitter *e, const struct tower_layer *l, struct view x,
                 const struct tower_norm *norm, const struct tower_norm *post, const struct tower_norm *scale,
                 struct view (*f)(struct tower_emitter *, const struct tower_layer *, struct view)) {
    const struct tower *t = e->t;
    const float eps = t->family->block_eps > 0 ? t->family->block_eps : t->eps;
    struct view h = tower_buffer(e, "norm", t->n_embd, BUF_ROWS_ALL);
    own_norm(e, "norm", x, h, t->n_embd, eps, norm);
    struct view y = f(e, l, h);
    if (post->w) own_norm(e, "post_norm", y, y, t->n_embd, eps, post);
    if (scale->w) tower_normed(e, "layer_scale", NORM_NONE, y, y, t->n_embd, 0, scale);
    tower_op(e, "add", (struct op){.kind = OP_ADD, .add = {x, y, x}});
}

/* Attention of four patches among each other; then they are one: their mean, and a feed-forward part of all four. source: HF
 * modeling_minicpmv4_6 */
static void middle(struct tower_emitter *e, struct view x, struct view rows) {
    const struct tower *t = e->t;
    const struct tower_layer *l = &t->middle;
    struct view h = tower_buffer(e, "middle_norm", t->n_embd, BUF_ROWS_ALL);
    own_norm(e, "middle_norm", x, h, t->n_embd, t->eps, &l->ln1);
    e->within = true;
    struct view y = attention(e, l, h);
    e->within = false;
    tower_op(e, "add", (struct op){.kind = OP_ADD, .add = {x, y, x}});
    struct view mean = tower_merged(e, "middle_mean", x, 4, true), m = tower_merged(e, "middle", x, 4, false);
    own_norm(e, "middle_norm_2", m, m, m.width, t->eps, &l->ln2);
    struct view up = tower_product(e, "middle_up", m, &l->up[0], tower_nowhere);
    tower_mapped(e, "middle_act", up, up, ACT_GELU_TANH, (struct act_numbers){0});
    struct view down = tower_product(e, "middle_down", up, &l->down, tower_nowhere);
    tower_op(e, "add", (struct op){.kind = OP_ADD, .add = {down, mean, rows}});
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

/* x = W pixels + what the place has */
static struct view patches(struct tower_emitter *e, struct view in) {
    const struct tower *t = e->t;
    const int n_pixel = t->patch_embd.w.k;
    const float eps = 1e-5f;
    struct view pixels = view_columns(in, 0, n_pixel);
    if (t->patch_norm[0].w) {
        struct view h = tower_buffer(e, "patch_norm", n_pixel, BUF_ROWS_ALL);
        tower_normed(e, "patch_norm_1", NORM_LAYER, pixels, h, n_pixel, eps, &t->patch_norm[0]);
        pixels = h;
    }
    struct view x = tower_product(e, "patch_embd", pixels, &t->patch_embd, tower_nowhere);
    if (t->patch_norm[1].w)
        tower_normed(e, "patch_norm_2", NORM_LAYER, x, x, t->n_embd, eps, &t->patch_norm[1]);
    if (t->embd_norm.w) own_norm(e, "norm_embd", x, x, t->n_embd, t->eps, &t->embd_norm);
    if (t->places != TABLE_NONE)
        tower_op(e, "position_embd",
                 (struct op){.kind = OP_ADD, .add = {x, view_columns(in, n_pixel, t->n_embd), x}});
    if (t->patch_norm[2].w)
        tower_normed(e, "patch_norm_3", NORM_LAYER, x, x, t->n_embd, eps, &t->patch_norm[2]);
    return x;
}

static enum infer_status begin(struct tower_emitter *e, struct tower *t) {
    struct op_list *l = &t->list[ROW_PROMPT];
    *e = (struct tower_emitter){.t = t,
                                .list = l,
                                .op_cap = 40 * (t->n_layer + 2) + 8 * t->n_deepstack,
                                .buf_cap = 24 * (t->n_layer + 2) + 6 * t->n_deepstack,
                                .layer = -1};
    l->cls = ROW_PROMPT, l->max_rows = t->max_rows, l->max_out = t->max_out;
    t->list[ROW_DECODE] = (struct op_list){.cls = ROW_DECODE, .max_rows = 1};
    l->op = arena_alloc(&t->arena, (size_t)e->op_cap * sizeof *l->op);
    l->buf = arena_alloc(&t->arena, (size_t)e->buf_cap * sizeof *l->buf);
    return l->op && l->buf ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for %d operations", e->op_cap);
}

enum infer_status tower_emit(struct tower *t) {
    struct tower_emitter e;
    TRY(begin(&e, t));
    struct view in = tower_buffer(&e, "pixels", t->in_width, BUF_ROWS_ALL);
    t->rows = tower_buffer(&e, "rows", t->late ? t->n_embd : t->n_out * (1 + t->n_deepstack), BUF_ROWS_OUT);
    tower_op(&e, "pixels", (struct op){.kind = OP_EMBED, .embed = {in, NULL, 1, false}});
    struct view x = t->first ? in : patches(&e, in);
    if (t->pre_ln.w && !t->first) own_norm(&e, "pre_norm", x, x, t->n_embd, t->eps, &t->pre_ln);
    for (int il = t->first; il < t->last; il++) {
        const struct tower_layer *l = &t->layer[il];
        e.layer = il;
        part(&e, l, x, &l->ln1, &l->attn_post, &l->ls1, attention);
        part(&e, l, x, &l->ln2, &l->ffn_post, &l->ls2, feed_forward);
        tower_deepstack(&e, il, x, t->rows);
    }
    if (t->late && !t->n_query) {
        middle(&e, x, t->rows);
    } else {
        e.layer = -1;
        if (t->post_ln.w && !(t->n_query && t->first))
            own_norm(&e, "post_norm", x, x, t->n_embd, t->eps, &t->post_ln);
        if (t->late)
            tower_op(&e, "patches", (struct op){.kind = OP_MERGE, .merge = {x, t->rows, 1, false}});
        else
            t->family->merger(&e, x, view_columns(t->rows, 0, t->n_out));
    }
    list_lives(e.list);
    e.list->buf[t->rows.buf].last = e.list->n_op; /* read behind the step */
    return INFER_OK;
}
