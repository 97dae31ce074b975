/* The positions that attention looks at: keys of all positions, kept beside the others, and queries of some heads, with a weight for each.
 * source: DeepSeek-AI 2025 (arXiv 2512.02556); HF modeling_deepseek_v32, modeling_glm_moe_dsa, modeling_minimax_m3_vl */
#include "model/emit.h"
#include "seam/op_list.h"

static void rotate_by(struct emitter *e, const char *name, struct view x, int n_head, int head_dim,
                      const struct rope *by) {
    emit_op(
        e, name,
        (struct op){.kind = OP_ROPE, .rope = {.x = x, .n_head = n_head, .head_dim = head_dim, .rope = by}});
}
/* The first numbers of each head, as many as those of attention that do. */
static void rotate(struct emitter *e, const char *name, struct view x, int n_head, int head_dim) {
    rotate_by(e, name, x, n_head, head_dim, &e->m->index_rope);
}

/* At each position the mean of so many keys as a run has, of which that of a run's last position is read. */
static struct view means(struct emitter *e, const struct layer *l, struct view k) {
    struct view out = emit_buffer(e, "index_mean", k.width, BUF_ROWS_ALL, true);
    struct op_conv c = {
        .x = k, .out = out, .state = l->index.state, .K = l->index.by.block, .w = l->index.mean};
    emit_op(e, "index_mean", (struct op){.kind = OP_CONV, .conv = c});
    return out;
}

void emit_choice(struct emitter *e, const struct layer *l, struct view q, struct view w) {
    const int lists = l->index.by.by_head ? l->index.n_head : 1;
    e->chosen = emit_buffer(e, "index", lists * choice_room(&l->index.by), BUF_ROWS_ALL, true);
    struct op_index o = {.q = q,
                         .w = w,
                         .chosen = e->chosen,
                         .store = l->index.store,
                         .n_head = l->index.n_head,
                         .by = l->index.by};
    emit_op(e, "index", (struct op){.kind = OP_INDEX, .index = o});
}

void emit_index(struct emitter *e, const struct layer *l, struct view h, struct view low) {
    static const float eps = 1e-6f; /* of the class */
    const int n_head = l->index.n_head, n = l->index.head_dim;
    struct view kw = emit_exact(e, "index_k", h, &l->index.kw), k = view_columns(kw, 0, n);
    struct op_norm norm = {.x = k,
                           .out = k,
                           .kind = NORM_LAYER,
                           .dim = n,
                           .eps = eps,
                           .w = l->index.k_norm.w,
                           .bias = l->index.k_norm.bias};
    emit_op(e, "index_k_norm", (struct op){.kind = OP_NORM, .norm = norm});
    rotate(e, "index_rope_k", k, 1, n);
    emit_op(e, "index_put", (struct op){.kind = OP_KV_PUT, .kv_put = {k, {-1, 0, 0}, l->index.store}});
    struct view q = emit_matmul(e, "index_q", low, &l->index.q, BUF_ROWS_ALL);
    rotate(e, "index_rope_q", q, n_head, n);
    emit_choice(e, l, q, view_columns(kw, n, n_head));
}

void emit_index_runs(struct emitter *e, const struct layer *l, struct view h) {
    static const struct view none = {-1, 0, 0};
    const int n_head = l->index.n_head, n = l->index.head_dim;
    struct view k = emit_exact(e, "index_k", h, &l->index.kw), q = emit_exact(e, "index_q", h, &l->index.q);
    if (l->index.mean) k = means(e, l, k);
    emit_norm(e, "index_k_norm", k, k, n, &l->index.k_norm);
    emit_norm(e, "index_q_norm", q, q, n, &l->index.q_norm);
    if (l->index.mean)
        rotate_by(e, "index_rope_k", k, 1, n, l->index.first_rope);
    else
        emit_rope(e, "index_rope_k", k, 1, n, l);
    emit_rope(e, "index_rope_q", q, n_head, n, l);
    emit_op(e, "index_put", (struct op){.kind = OP_KV_PUT, .kv_put = {k, none, l->index.store}});
    emit_choice(e, l, q, none);
}
