/* The positions that attention looks at: keys of all positions, kept beside the latents, and queries of some heads with a weight for each.
 * source: DeepSeek-AI 2025 (arXiv 2512.02556); HF modeling_deepseek_v32, modeling_glm_moe_dsa */
#include "model/emit.h"
#include "seam/op_list.h"

/* The first numbers of each head, as many as those of attention that do. */
static void rotate(struct emitter *e, const char *name, struct view x, int n_head, int head_dim) {
    emit_op(e, name, (struct op){.kind = OP_ROPE, .rope = {x, n_head, head_dim, &e->m->index_rope}});
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
    e->chosen = emit_buffer(e, "index", l->index.n_top, BUF_ROWS_ALL, true);
    struct op_index o = {.q = q,
                         .w = view_columns(kw, n, n_head),
                         .chosen = e->chosen,
                         .store = l->index.store,
                         .n_head = n_head,
                         .n_top = l->index.n_top};
    emit_op(e, "index", (struct op){.kind = OP_INDEX, .index = o});
}
