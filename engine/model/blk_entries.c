/* Attention by one key that is the value, too, to a window and, in one softmax, to entries of runs of positions, all or those that index
 * heads choose; what heads give is turned back, so that it depends on distances alone, and goes through a matrix for each group of heads.
 * source: DeepSeek-AI 2026 (DeepSeek-V4, section 2.3); HF modeling_deepseek_v4 */
#include "model/emit.h"
#include "seam/op_list.h"

static const struct view none = {-1, 0, 0};

/* The last numbers of each head. */
static void turn(struct emitter *e, const char *name, struct view x, int n_head, const struct rope *r,
                 bool back) {
    const int dim = x.width / n_head, rest = dim - r->n_rot;
    struct op_rope o = {view_columns(x, rest, x.width - rest), n_head, dim, r, back};
    emit_op(e, name, (struct op){.kind = OP_ROPE, .rope = o});
}
static void put(struct emitter *e, const char *name, struct view k, int store) {
    emit_op(e, name, (struct op){.kind = OP_KV_PUT, .kv_put = {k, none, store}});
}

/* Entries of what both has, x and gates side by side, into a store. */
static void entries(struct emitter *e, const struct layer *l, struct view both, int n, const float *bias,
                    const struct norm_weights *norm, int state, int store) {
    const int width = both.width / 2;
    struct view out = emit_buffer(e, "entry", n, BUF_ROWS_ALL, true);
    struct op_compress o = {.x = view_columns(both, 0, width),
                            .gate = view_columns(both, width, width),
                            .out = out,
                            .state = state,
                            .ratio = l->entry.every,
                            .bias = bias};
    emit_op(e, "entry", (struct op){.kind = OP_COMPRESS, .compress = o});
    emit_norm(e, "entry_norm", out, out, n, norm);
    turn(e, "entry_rope", out, 1, l->entry.rope, false);
    put(e, "entry_put", out, store);
}

/* Which entries heads of their own choose, of x and of the latent of queries. */
static void index_entries(struct emitter *e, const struct layer *l, struct view h, struct view low) {
    struct view both = emit_exact(e, "index_entry", h, &l->entry.index_in),
                w = emit_exact(e, "index_weights", h, &l->index.kw),
                q = emit_exact(e, "index_q", low, &l->index.q);
    entries(e, l, both, l->index.head_dim, l->entry.index_bias, &l->entry.index_norm, l->entry.index_state,
            l->index.store);
    turn(e, "index_rope_q", q, l->index.n_head, l->attn.rope, false);
    emit_choice(e, l, q, w);
}

struct view emit_entries(struct emitter *e, const struct layer *l, struct view h) {
    const int n = l->attn.head_dim_k, n_head = l->attn.n_head;
    struct view low = emit_matmul(e, "attn_q_a", h, &l->mla.qkv_a, BUF_ROWS_ALL);
    emit_norm(e, "attn_q_a_norm", low, low, low.width, &l->mla.q_a_norm);
    struct view q = emit_matmul(e, "attn_q_b", low, &l->mla.q_b, BUF_ROWS_ALL),
                kv = emit_matmul(e, "attn_kv", h, &l->entry.in, BUF_ROWS_ALL), k = view_columns(kv, 0, n);
    emit_unit_norm(e, "attn_q_norm", q, q, n);
    turn(e, "rope_q", q, n_head, l->attn.rope, false);
    emit_norm(e, "attn_kv_norm", k, k, n, &l->mla.kv_a_norm);
    turn(e, "rope_k", k, 1, l->attn.rope, false);
    put(e, "kv_put", k, l->attn.store);
    if (l->entry.every)
        entries(e, l, view_columns(kv, n, kv.width - n), n, l->entry.bias, &l->entry.norm, l->entry.state,
                l->entry.store);
    if (l->index.n_head) index_entries(e, l, h, low);
    struct view a = emit_buffer(e, "attend", n_head * n, BUF_ROWS_ALL, false);
    struct op_attend at = {.q = q,
                           .out = a,
                           .store = l->attn.store,
                           .n_head = n_head,
                           .scale = e->m->attn_scale != 0 ? e->m->attn_scale : 1 / __builtin_sqrtf((float)n),
                           .window = l->attn.window,
                           .sinks = l->attn.sinks,
                           .chosen = l->index.n_head ? e->chosen : none,
                           .by = l->index.by,
                           .entries = l->entry.every ? l->entry.store + 1 : 0};
    emit_op(e, "attend", (struct op){.kind = OP_ATTEND, .attend = at});
    turn(e, "rope_back", a, n_head, l->attn.rope, true);
    struct view groups =
        emit_buffer(e, "attn_output_a", e->m->hyper.n_group * e->m->hyper.rank, BUF_ROWS_ALL, false);
    emit_op(e, "attn_output_a", (struct op){.kind = OP_HEADS, .heads = {a, groups, &l->entry.out_a}});
    return emit_part(e, "attn_output", groups, &l->attn.out, l->attn.partial);
}
