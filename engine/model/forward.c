#include "model/forward.h"
#include "model/emit.h"
#include "seam/op_list.h"

/* ---- the model ---------------------------------------------------------------------------------------------- */

/* q and k of all heads, each head or the whole row. */
static void qk_norm(struct emitter *e, const struct layer *l, struct view q, struct view k) {
    emit_norm(e, "attn_q_norm", q, q, l->attn.qk_row ? q.width : l->attn.head_dim_k, &l->attn.q_norm);
    emit_norm(e, "attn_k_norm", k, k, l->attn.qk_row ? k.width : l->attn.head_dim_k, &l->attn.k_norm);
}
/* V, from its own columns or, where there are none, from K as it comes. */
static struct view value(struct emitter *e, const struct layer *l, struct view qkv, int n_q, int n_k) {
    int n_v = l->attn.n_kv_head * l->attn.head_dim_v;
    bool own = l->attn.qkv.n > n_q + n_k;
    struct view from = view_columns(qkv, own ? n_q + n_k : n_q, n_v), v = from;
    if (!e->m->arch->attn.v_norm) return from;
    if (!own) v = emit_buffer(e, "attn_v_norm", n_v, BUF_ROWS_ALL, false);
    emit_unit_norm(e, "attn_v_norm", from, v, l->attn.head_dim_v);
    return v;
}

static float attend_scale(const struct model *m, const struct layer *l) {
    return m->attn_scale != 0 ? m->attn_scale : 1 / __builtin_sqrtf((float)l->attn.head_dim_k);
}

/* Of encoders: keys and values are those of the step. */
static struct view attend_rows(struct emitter *e, const struct layer *l, struct view q, struct view k,
                               struct view v) {
    const struct model *m = e->m;
    struct view a = emit_buffer(e, "attend", l->attn.n_head * l->attn.head_dim_v, BUF_ROWS_ALL, false);
    struct op_attend o = {.q = q,
                          .out = a,
                          .store = -1,
                          .n_head = l->attn.n_head,
                          .scale = attend_scale(m, l),
                          .softcap = m->attn_softcap,
                          .window = l->attn.window,
                          .k = k,
                          .v = v,
                          .n_kv_head = l->attn.n_kv_head,
                          .bias = m->attn_bias,
                          .n_bias = m->n_attn_bias};
    emit_op(e, "attend", (struct op){.kind = OP_ATTEND, .attend = o});
    return a;
}

static struct view attend(struct emitter *e, const struct layer *l, struct view q) {
    const struct model *m = e->m;
    struct view a = emit_buffer(e, "attend", l->attn.n_head * l->attn.head_dim_v, BUF_ROWS_ALL, false);
    const float scale = attend_scale(m, l);
    const bool both = m->both == BOTH_ALL || (m->both == BOTH_WINDOWED && l->attn.window);
    const bool from_1 = m->arch->attn.temp_unrotated, grows = !from_1 || l->attn.rope->kind == ROPE_NONE;
    emit_op(e, "attend",
            (struct op){.kind = OP_ATTEND,
                        .attend = {.q = q,
                                   .out = a,
                                   .store = l->attn.store,
                                   .n_head = l->attn.n_head,
                                   .scale = scale,
                                   .softcap = m->attn_softcap,
                                   .window = l->attn.window,
                                   .sinks = l->attn.sinks,
                                   .temp_beta = grows ? m->temp_beta : 0,
                                   .temp_len = m->temp_len,
                                   .temp_offset = from_1,
                                   .chunked = m->arch->attn.chunked,
                                   .both = both,
                                   .chosen = e->chosen,
                                   .by = l->index.by}});
    return a;
}

/* With the epsilon of latents. */
static void latent_norm(struct emitter *e, const char *name, struct view x, struct view out,
                        const struct norm_weights *w) {
    struct op_norm o = {.x = x,
                        .out = out,
                        .kind = e->m->norm,
                        .dim = x.width,
                        .eps = e->m->latent_eps,
                        .w = w->w,
                        .bias = w->bias};
    emit_op(e, name, (struct op){.kind = OP_NORM, .norm = o});
}

/* Each head's product of x, as wide as out says. */
static struct view heads(struct emitter *e, const char *name, struct view x, const struct weight_group *w,
                         int width) {
    struct view out = emit_buffer(e, name, width, BUF_ROWS_ALL, false);
    emit_op(e, name, (struct op){.kind = OP_HEADS, .heads = {x, out, w}});
    return out;
}

/* By a latent c = norm(W h), kept beside a rotated key of all heads: scores are (k_b q) . c + rope(q) . rope(k), the values of a head
 * v_b c, so that a head's sum over positions is v_b of the weighted sum of latents. source: DeepSeek-AI 2024 (arXiv 2405.04434) */
static struct view latent_attention(struct emitter *e, const struct layer *l, struct view h) {
    int rank = l->attn.head_dim_v, n_rot = l->attn.head_dim_k - rank, head = l->mla.n_nope + n_rot;
    struct view both = emit_matmul(e, "attn_qkv_a", h, &l->mla.qkv_a, BUF_ROWS_ALL);
    struct view kv = view_columns(both, l->mla.qkv_a.n - l->attn.head_dim_k, l->attn.head_dim_k),
                c = view_columns(kv, 0, rank), q = view_columns(both, 0, l->mla.qkv_a.n - l->attn.head_dim_k);
    if (l->mla.q_rank) {
        struct view low = emit_buffer(e, "attn_q_a_norm", l->mla.q_rank, BUF_ROWS_ALL, false);
        latent_norm(e, "attn_q_a_norm", q, low, &l->mla.q_a_norm);
        if (l->index.n_head) emit_index(e, l, h, low);
        q = emit_matmul(e, "attn_q_b", low, &l->mla.q_b, BUF_ROWS_ALL);
    }
    emit_rope(e, "rope_q", view_columns(q, l->mla.n_nope, q.width - l->mla.n_nope), l->attn.n_head, head, l);
    q = heads(e, "attn_k_b", q, &l->mla.k_b, l->attn.n_head * l->attn.head_dim_k);
    latent_norm(e, "attn_kv_a_norm", c, c, &l->mla.kv_a_norm);
    emit_rope(e, "rope_k", view_columns(kv, rank, n_rot), 1, n_rot, l);
    emit_op(e, "kv_put", (struct op){.kind = OP_KV_PUT, .kv_put = {kv, {-1, 0, 0}, l->attn.store}});
    struct view a = heads(e, "attn_v_b", attend(e, l, q), &l->mla.v_b, l->attn.n_head * l->mla.n_value);
    return emit_part(e, "attn_output", a, &l->attn.out, l->attn.partial);
}

/* out(attend(rope(norm(q)), keys and values of another layer)), q = W h */
static struct view borrowed_attention(struct emitter *e, const struct layer *l, struct view h) {
    struct view q = emit_matmul(e, "attn_q", h, &l->attn.qkv, BUF_ROWS_ALL);
    emit_norm(e, "attn_q_norm", q, q, l->attn.head_dim_k, &l->attn.q_norm);
    emit_rope(e, "rope_q", q, l->attn.n_head, l->attn.head_dim_k, l);
    return emit_part(e, "attn_output", attend(e, l, q), &l->attn.out, l->attn.partial);
}

/* out(attend(rope(norm(q)), rope(norm(k)), v)), q k v = W h */
static struct view attention(struct emitter *e, const struct layer *l, struct view h) {
    const struct model *m = e->m;
    if (m->arch->attn.latent) return latent_attention(e, l, h);
    if (l->attn.borrows) return borrowed_attention(e, l, h);
    int n_q = l->attn.n_head * l->attn.head_dim_k, n_k = l->attn.n_kv_head * l->attn.head_dim_k;
    struct view gate = {-1, 0, 0};
    if (l->attn.q_gate.n) gate = emit_matmul(e, "attn_gate", h, &l->attn.q_gate, BUF_ROWS_ALL);
    struct view qkv = emit_matmul(e, "attn_qkv", h, &l->attn.qkv, BUF_ROWS_ALL);
    struct view q = view_columns(qkv, 0, n_q), k = view_columns(qkv, n_q, n_k),
                v = value(e, l, qkv, n_q, n_k);
    if (!m->arch->attn.qk_norm_late) qk_norm(e, l, q, k);
    if (m->qkv_limit > 0)
        emit_map(e, "attn_clamp", qkv, qkv, ACT_CLAMP,
                 (struct act_numbers){.beta = -m->qkv_limit, .limit = m->qkv_limit});
    emit_rope(e, "rope_q", q, l->attn.n_head, l->attn.head_dim_k, l);
    emit_rope(e, "rope_k", k, l->attn.n_kv_head, l->attn.head_dim_k, l);
    if (m->arch->attn.qk_norm_late) qk_norm(e, l, q, k);
    if (m->qk_unit && l->attn.rope->kind != ROPE_NONE) {
        emit_unit_norm(e, "attn_q_norm", q, q, l->attn.head_dim_k);
        emit_unit_norm(e, "attn_k_norm", k, k, l->attn.head_dim_k);
    }
    if (!m->encoder) emit_op(e, "kv_put", (struct op){.kind = OP_KV_PUT, .kv_put = {k, v, l->attn.store}});
    if (l->index.n_head) emit_index_runs(e, l, h);
    struct view a = m->encoder ? attend_rows(e, l, q, k, v) : attend(e, l, q);
    if (l->attn.q_gate.n) {
        const enum act_kind act = m->arch->attn.gate_softplus ? ACT_SOFTPLUS : ACT_SIGMOID;
        struct op_glu o = {.gate = gate, .up = a, .out = a, .act = act};
        emit_op(e, "attn_gated", (struct op){.kind = OP_GLU, .glu = o});
    }
    return emit_part(e, "attn_output", a, &l->attn.out, l->attn.partial && !emit_sums_both(l));
}

/* What the layer makes of other positions. */
static struct view mixer(struct emitter *e, const struct layer *l, struct view h) {
    switch (l->mixer.kind) {
    case MIX_DELTA:
        return emit_delta(e, l, h);
    case MIX_CONV:
        return emit_conv(e, l, h);
    case MIX_SSM:
        return emit_ssm(e, l, h);
    case MIX_BOTH: {
        struct view a = attention(e, l, h);
        emit_add(e, "mixer_add", a, emit_ssm(e, l, h));
        if (emit_sums_both(l)) emit_reduce(e, "mixer_reduce", a);
        return a;
    }
    default:
        return attention(e, l, h);
    }
}

struct view emit_mixer(struct emitter *e, const struct layer *l, struct view h) {
    return mixer(e, l, h);
}

/* Without a limit it is none. */
static enum act_kind act_of(const struct model *m, const struct act_numbers *k) {
    const bool limited = m->act == ACT_SILU_CLAMP || m->act == ACT_SILU_LIMIT;
    return limited && k->limit == 0 ? ACT_SILU : m->act;
}
/* act(gate) * up of the columns of gu, n each; act(gu) where it is no wider. */
static struct view gated(struct emitter *e, const char *name, struct view gu, int n,
                         const struct act_numbers *k) {
    struct view f = emit_buffer(e, name, n, BUF_ROWS_ALL, false);
    if (gu.width == n) {
        emit_map(e, name, gu, f, act_of(e->m, k), *k);
        return f;
    }
    struct op_glu o = {.gate = view_columns(gu, 0, n),
                       .up = view_columns(gu, n, n),
                       .out = f,
                       .act = act_of(e->m, k),
                       .k = *k};
    emit_op(e, name, (struct op){.kind = OP_GLU, .glu = o});
    return f;
}

/* down[id j](act(gate[id j]) * up[id j]), gate up = W h, of each choice j of a row; h times the choice's weight where that belongs there
 * (gate and up are linear, so it is their outputs that are multiplied). */
static struct view chosen(struct emitter *e, const struct layer *l, struct view h, struct view choice) {
    const int k = l->moe.n_used, n = l->moe.n_ff, n_all = l->moe.n_own ? l->moe.n_expert : 0;
    struct view gu = emit_buffer(e, "ffn_experts", k * l->moe.experts.n, BUF_ROWS_ALL, false),
                down = emit_buffer(e, "ffn_experts_down", k * l->moe.experts_down.n, BUF_ROWS_ALL, false);
    struct op_experts up = {.x = h,
                            .choice = choice,
                            .out = gu,
                            .w = &l->moe.experts,
                            .n_used = k,
                            .weighted = e->m->arch->moe.weight_on_input,
                            .first = l->moe.first,
                            .n_all = n_all};
    emit_op(e, "ffn_experts", (struct op){.kind = OP_EXPERTS, .experts = up});
    struct view f = gated(e, "ffn_experts_glu", gu, k * n, &l->act);
    struct op_experts o = {.x = f,
                           .choice = choice,
                           .out = down,
                           .w = &l->moe.experts_down,
                           .n_used = k,
                           .by_choice = true,
                           .first = l->moe.first,
                           .n_all = n_all};
    emit_op(e, "ffn_experts_down", (struct op){.kind = OP_EXPERTS, .experts = o});
    return down;
}

/* sum_j w[j] of these, by the backend that has the weights. */
static struct view remote(struct emitter *e, struct view h, struct view choice) {
    struct view y = emit_buffer(e, "ffn_remote", h.width, BUF_ROWS_ALL, true);
    emit_op(e, "ffn_remote", (struct op){.kind = OP_REMOTE, .remote = {h, choice, y}});
    return y;
}

static struct view shared_part(struct emitter *e, const struct layer *l, struct view h) {
    struct view s = emit_matmul(e, "ffn_shared", h, &l->moe.shared, BUF_ROWS_ALL);
    s = gated(e, "ffn_shared_glu", s, l->moe.n_ff_shared, &l->act_all);
    return emit_matmul(e, "ffn_shared_down", s, &l->moe.shared_down, BUF_ROWS_ALL);
}

/* up(sum_j w[j] of what the chosen make of down(h)), and the shared part. source: HF modeling_nemotron_h */
static struct view by_latent(struct emitter *e, const struct layer *l, struct view h, struct view choice,
                             bool away) {
    static const struct view none = {-1, 0, 0};
    struct view small = emit_matmul(e, "ffn_latent_down", h, &l->moe.latent_down, BUF_ROWS_ALL), sum;
    if (away) {
        sum = remote(e, small, choice);
    } else {
        struct view y = chosen(e, l, small, choice);
        sum = emit_buffer(e, "ffn_mix", l->moe.n_latent, BUF_ROWS_ALL, false);
        struct op_mix o = {
            .x = y, .choice = choice, .shared = none, .gate = none, .out = sum, .n_used = l->moe.n_used};
        emit_op(e, "ffn_mix", (struct op){.kind = OP_MIX, .mix = o});
    }
    struct view out = emit_matmul(e, "ffn_latent_up", sum, &l->moe.latent_up, BUF_ROWS_ALL);
    if (l->moe.n_ff_shared) emit_add(e, "ffn_shared_add", out, shared_part(e, l, h));
    return out;
}

/* sum_j w[j] of what the experts that router * r chooses make of h, and the part that all rows share: down(act(gate) * up), by a gate of
 * its own or as it is. */
static struct view own_experts(struct emitter *e, const struct layer *l, struct view h, struct view r) {
    struct view none = {-1, 0, 0}, shared = none, gate = none;
    bool away = e->layer < e->range->n_remote;
    struct view logits = emit_buffer(e, "ffn_router", l->moe.n_expert, BUF_ROWS_ALL, true),
                choice = emit_buffer(e, "ffn_choice", 2 * l->moe.n_used, BUF_ROWS_ALL, true);
    emit_op(e, "ffn_router", (struct op){.kind = OP_MATMUL, .matmul = {r, logits, &l->moe.router, true}});
    const int told = l->moe.told ? e->m->n_vocab : 0;
    emit_op(e, "ffn_choice",
            (struct op){.kind = OP_ROUTE, .route = {logits, choice, &l->moe.route, l->moe.told, told}});
    if (l->moe.n_latent) return by_latent(e, l, h, choice, away);
    struct view y = away ? remote(e, h, choice) : chosen(e, l, h, choice);
    if (away && !l->moe.n_ff_shared) return y;
    if (l->moe.n_ff_shared) shared = shared_part(e, l, h);
    if (l->moe.shared_gate.n) gate = emit_matmul(e, "ffn_shared_gate", h, &l->moe.shared_gate, BUF_ROWS_ALL);
    struct view out =
        l->moe.n_ff_shared ? shared : emit_buffer(e, "ffn_mix", e->m->n_embd, BUF_ROWS_ALL, false);
    struct op_mix o = {.x = y,
                       .choice = choice,
                       .shared = shared,
                       .gate = gate,
                       .out = out,
                       .n_used = away ? 1 : l->moe.n_used,
                       .plain = away || e->m->arch->moe.weight_on_input};
    emit_op(e, "ffn_mix", (struct op){.kind = OP_MIX, .mix = o});
    return out;
}

static struct view experts(struct emitter *e, const struct layer *l, struct view h, struct view r) {
    struct view y = own_experts(e, l, h, r);
    const struct op_norm bias = {.x = y, .out = y, .kind = NORM_NONE, .dim = y.width, .bias = l->moe.bias};
    if (l->moe.bias) emit_op(e, "ffn_experts_bias", (struct op){.kind = OP_NORM, .norm = bias});
    if (l->moe.partial) emit_reduce(e, "ffn_reduce", y);
    return y;
}

/* down(act(gate) * up) or down(act(up)), gate up = W h. */
static struct view dense(struct emitter *e, const struct layer *l, struct view h) {
    struct view gu = emit_matmul(e, "ffn_gate_up", h, &l->dense.gate_up, BUF_ROWS_ALL);
    if (l->below) emit_sparse(e, l, view_columns(gu, 0, l->dense.n_ff));
    struct view f = gated(e, "ffn_glu", gu, l->dense.n_ff, &l->act_all);
    return emit_part(e, "ffn_down", f, &l->dense.down, l->dense.partial);
}

struct view emit_attention(struct emitter *e, const struct layer *l, struct view h) {
    return attention(e, l, h);
}
struct view emit_dense(struct emitter *e, const struct layer *l, struct view h) {
    return dense(e, l, h);
}

/* F(norm x): dense; experts; or, of x once more, post_1(dense(norm x)) + post_2(experts(norm_2 x)). */
static struct view feed_forward(struct emitter *e, const struct layer *l, struct view x, struct view h) {
    if (!l->moe.n_expert) return dense(e, l, h);
    if (!e->m->arch->moe.beside) return experts(e, l, h, h);
    int n = e->m->n_embd;
    struct view d = dense(e, l, h), s = emit_normed(e, "ffn_experts_norm", x, &l->moe.experts_norm);
    s = experts(e, l, s, emit_normed(e, "ffn_router_norm", x, &l->moe.router_norm));
    emit_norm(e, "post_dense_norm", d, d, n, &l->moe.post_dense_norm);
    emit_norm(e, "post_experts_norm", s, s, n, &l->moe.post_experts_norm);
    emit_add(e, "ffn_beside", d, s);
    return d;
}

struct view emit_feed_forward(struct emitter *e, const struct layer *l, struct view x, struct view h) {
    return feed_forward(e, l, x, h);
}

/* e = norm(proj x) + table[id], x the embedding: the input of each layer, one after the other. */
static void layer_inputs(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    if (!m->n_layer_input) return;
    const struct weight *table = &m->input_table.member[0];
    struct view own = emit_matmul(e, "inputs_proj", x, &m->input_proj, BUF_ROWS_ALL),
                read = emit_buffer(e, "inputs_table", own.width, BUF_ROWS_ALL, false);
    emit_norm(e, "inputs_norm", own, own, m->n_layer_input, &m->input_proj_norm);
    float scale = __builtin_sqrtf((float)m->n_layer_input / 2);
    emit_op(e, "inputs_table", (struct op){.kind = OP_EMBED, .embed = {read, table, scale, .beside = true}});
    emit_add(e, "inputs_add", own, read);
    e->inputs = own;
}

/* x += norm(out(act(gate x) * e)), e the layer's own input. */
static void layer_input(struct emitter *e, const struct layer *l, struct view x) {
    const int n = e->m->n_layer_input;
    if (!n) return;
    struct view g = emit_matmul(e, "input_gate", x, &l->input.gate, BUF_ROWS_ALL);
    struct op_glu o = {
        .gate = g, .up = view_columns(e->inputs, e->layer * n, n), .out = g, .act = e->m->act, .k = l->act};
    emit_op(e, "input_glu", (struct op){.kind = OP_GLU, .glu = o});
    struct view y = emit_matmul(e, "input_out", g, &l->input.out, BUF_ROWS_ALL);
    emit_norm(e, "input_norm", y, y, e->m->n_embd, &l->input.norm);
    emit_add(e, "input_add", x, y);
}

static void mix(struct emitter *e, const struct layer *l, struct view x, struct view h) {
    struct view a = mixer(e, l, h);
    emit_norm(e, "post_attn_norm", a, a, e->m->n_embd, &l->post_attn_norm);
    if (l->attn_again_norm.w) { /* x = norm_2(x + norm(x + a)) */
        emit_add(e, "attn_add", a, x);
        emit_norm(e, "attn_sum_norm", a, a, e->m->n_embd, &l->attn_sum_norm);
        emit_add(e, "attn_again_add", x, a);
        emit_norm(e, "attn_again_norm", x, x, e->m->n_embd, &l->attn_again_norm);
        return;
    }
    emit_add(e, "attn_add", x, a);
    emit_norm(e, "attn_sum_norm", x, x, e->m->n_embd, &l->attn_sum_norm);
}

/* x += what a row of a picture has for behind this layer; such rows are of prompts. source: Meng et al. 2024 (arXiv 2406.04334) */
static void picture_part(struct emitter *e, struct view x) {
    const int n = e->m->n_embd;
    if (e->layer >= e->m->n_deepstack || e->range->first || e->list->cls != ROW_PROMPT) return;
    struct view y = emit_buffer(e, "deepstack", n, BUF_ROWS_ALL, false);
    emit_op(e, "deepstack", (struct op){.kind = OP_INPUT, .input = {y, (1 + e->layer) * n}});
    emit_add(e, "deepstack_add", x, y);
}

/* x += post(A(norm x)); x += post(F(norm x)), and x = norm x behind each where encoders have that. Parallel: x += A(h); x += F(h) with the same h = norm x, which there always is. Absent norms
 * and parts are left out. */
static void block(struct emitter *e, const struct layer *l, struct view x) {
    int n = e->m->n_embd;
    struct view h = e->m->target ? e->beside : emit_normed(e, "attn_norm", x, &l->attn_norm), own = h, a, f;
    if (l->attn_norm_2.w) own = emit_normed(e, "attn_norm_2", x, &l->attn_norm_2);
    if (e->m->parallel) {
        h = l->ffn_norm.w ? emit_normed(e, "ffn_norm", x, &l->ffn_norm) : h;
        a = mixer(e, l, own);
        emit_add(e, "attn_add", x, a);
        f = feed_forward(e, l, x, h);
        emit_add(e, "ffn_add", x, f);
    } else {
        if (l->mixer.kind != MIX_NONE) mix(e, l, x, own);
        if (l->dense.n_ff || l->moe.n_expert) {
            f = feed_forward(e, l, x, emit_normed(e, "ffn_norm", x, &l->ffn_norm));
            emit_norm(e, "post_ffn_norm", f, f, n, &l->post_ffn_norm);
            emit_add(e, "ffn_add", x, f);
            emit_norm(e, "ffn_sum_norm", x, x, n, &l->ffn_sum_norm);
        }
    }
    layer_input(e, l, x);
    if (l->scale != 1) emit_map(e, "layer_scale", x, x, ACT_SCALE, (struct act_numbers){.limit = l->scale});
    emit_vectors(e, x);
    picture_part(e, x);
}

/* logits = cap(head(norm(rows of x that want an output))) */
static void output(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    struct view y = emit_buffer(e, "output_rows", m->n_embd, BUF_ROWS_OUT, true);
    emit_op(e, "output_rows", (struct op){.kind = OP_ROWS, .rows = {x, y}});
    struct view h = m->output_norm.w ? emit_buffer(e, "output_norm", m->n_embd, BUF_ROWS_OUT, false) : y;
    emit_norm(e, "output_norm", y, h, m->n_embd, &m->output_norm);
    struct view logits =
        m->share.n ? emit_gathered(e, h) : emit_matmul(e, "logits", h, &m->head, BUF_ROWS_OUT);
    if (m->logit_softcap > 0)
        emit_map(e, "logits_cap", logits, logits, ACT_CAP, (struct act_numbers){.limit = m->logit_softcap});
    emit_op(e, "select", (struct op){.kind = OP_SELECT, .select = {logits, m->n_vocab}});
}

/* What encoders add to embeddings beside positions. source: Devlin et al. 2019 (arXiv 1810.04805) */
static void encoder_input(struct emitter *e, struct view x) {
    const struct model *m = e->m;
    const struct op_norm type = {.x = x, .out = x, .kind = NORM_NONE, .dim = m->n_embd, .bias = m->type_embd};
    if (m->type_embd) emit_op(e, "type_embd", (struct op){.kind = OP_NORM, .norm = type});
    emit_norm(e, "embd_norm", x, x, m->n_embd, &m->embd_norm);
}

/* How a model has several residual streams; begin NULL: it has one. */
struct streams {
    void (*begin)(struct emitter *e, struct view x);
    void (*layer)(struct emitter *e, const struct layer *l, struct view x);
    struct view (*end)(struct emitter *e, struct view x);
};
static struct streams streams_of(const struct model *m) {
    if (m->hyper.n_round) return (struct streams){emit_hyper_begin, emit_hyper_layer, emit_hyper_end};
    if (m->stream_low) return (struct streams){emit_hyper_begin, emit_gates_layer, emit_gates_end};
    if (m->n_stream) return (struct streams){emit_streams_begin, emit_streams_layer, emit_streams_end};
    return (struct streams){0};
}

static enum infer_status begin(struct emitter *e, struct arena *arena, struct op_list *out,
                               const struct model *m, const struct layer_range *range) {
    const int n = m->n_layer, streams = m->n_stream ? n + 1 : 0;
    *e = (struct emitter){.list = out,
                          .m = m,
                          .range = range,
                          .arena = arena,
                          .op_cap = (range->adapters ? 2 : 1) * (61 * n + 80 * streams + 21 + MODEL_TAPS),
                          .buf_cap = 45 * n + 20 * streams + 17,
                          .layer = -1,
                          .long_context = m->n_ctx_short && range->n_ctx > m->n_ctx_short,
                          .inputs = {-1, 0, 0}};
    out->op = arena_alloc(arena, (size_t)e->op_cap * sizeof *out->op);
    out->buf = arena_alloc(arena, (size_t)e->buf_cap * sizeof *out->buf);
    if (!out->op || !out->buf) return err_set(INFER_E_MEMORY, "out of memory for %d operations", e->op_cap);
    return INFER_OK;
}

enum infer_status forward_emit(struct op_list *out, struct arena *arena, const struct model *m,
                               const struct layer_range *range, enum row_class cls, int max_rows,
                               int max_out) {
    struct emitter e;
    *out = (struct op_list){.cls = cls, .max_rows = max_rows, .max_out = max_out};
    TRY(begin(&e, arena, out, m, range));
    const struct taps *taps = range->taps;
    const int streams = m->n_stream ? m->n_stream : 1;
    struct view all = emit_buffer(&e, "x", streams * m->n_embd, BUF_ROWS_ALL, true),
                x = view_columns(all, 0, m->n_embd), tapped = {-1, 0, 0};
    if (taps) tapped = emit_buffer(&e, "taps", taps->n * taps->n_embd, BUF_ROWS_ALL, true); /* FORWARD_TAPS */
    struct op_embed embed = {x, &m->embd, m->embd_scale, false};
    if (range->first) embed = (struct op_embed){.out = x};
    if (model_drafts(m))
        emit_draft_input(&e, x);
    else
        emit_op(&e, "embed", (struct op){.kind = OP_EMBED, .embed = embed});
    if (!range->first && m->position)
        emit_op(&e, "position",
                (struct op){.kind = OP_POSITION, .position = {x, m->position, m->n_type * m->n_ctx_train}});
    if (!range->first && m->arch->scale.embd_norm) emit_unit_norm(&e, "embd_norm", x, x, m->n_embd);
    if (!range->first) encoder_input(&e, x);
    if (!range->first) layer_inputs(&e, x);
    const struct streams several = streams_of(m);
    if (several.begin) several.begin(&e, all);
    for (int il = range->first; il < range->end; il++) {
        emit_taps(&e, il, x, tapped);
        e.layer = il;
        if (several.layer)
            several.layer(&e, &m->layer[il], all);
        else
            block(&e, &m->layer[il], x);
    }
    e.layer = -1;
    if (several.end) x = several.end(&e, all);
    emit_taps(&e, range->end, x, tapped);
    if (m->encoder)
        emit_norm(&e, "output_norm", x, x, m->n_embd, &m->output_norm);
    else if (range->end == m->n_layer)
        output(&e, x);
    TRY(e.status);
    list_lives(out);
    if (range->hidden) out->buf[x.buf].last = out->n_op;
    if (taps) out->buf[tapped.buf].last = out->n_op;
    return INFER_OK;
}

enum infer_status forward_emit_experts(struct op_list *out, struct arena *arena, const struct model *m,
                                       int first, int end, enum row_class cls, int max_rows) {
    static const struct layer_range none = {0};
    static const struct view absent = {-1, 0, 0};
    struct emitter e;
    int used = 1;
    *out = (struct op_list){.cls = cls, .max_rows = max_rows};
    TRY(begin(&e, arena, out, m, &none));
    for (int il = first; il < end; il++)
        if (m->layer[il].moe.n_used > used) used = m->layer[il].moe.n_used;
    struct view x = emit_buffer(&e, "x", model_expert_width(m), BUF_ROWS_ALL, true),
                choices = emit_buffer(&e, "choice", 2 * used, BUF_ROWS_ALL, true),
                y = emit_buffer(&e, "out", x.width, BUF_ROWS_ALL, true);
    for (int il = first; il < end; il++) {
        const struct layer *l = &m->layer[il];
        if (!l->moe.n_expert) continue;
        e.layer = il;
        struct view choice = view_columns(choices, 0, 2 * l->moe.n_used), d = chosen(&e, l, x, choice);
        struct op_mix o = {.x = d,
                           .choice = choice,
                           .shared = absent,
                           .gate = absent,
                           .out = y,
                           .n_used = l->moe.n_used,
                           .plain = m->arch->moe.weight_on_input};
        emit_op(&e, "ffn_mix", (struct op){.kind = OP_MIX, .mix = o});
    }
    list_lives(out);
    return INFER_OK;
}
