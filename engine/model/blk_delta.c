/* A layer with the gated delta rule: out(norm(delta(silu(conv(W h)))) * silu(z)), z = W_z h, with a step and a forgetting of each head.
 * source: Yang et al. 2024 (arXiv 2412.06464); HF modeling_qwen3_next, modeling_qwen3_5. With decays of each row these and the gate, a sigmoid, are
 * of low rank; Qwen4-Exp's gate is a sigmoid, too. source: Kimi Team 2025 (arXiv 2510.26692); HF modeling_kimi_linear. */
#include "model/emit.h"
#include "seam/op_list.h"

/* z, b and a: columns of one product, or two of them by a second one. */
struct gates {
    struct view z, b, a;
};
static struct gates emit_gates(struct emitter *e, const struct layer *l, struct view h) {
    const struct state_sizes *s = &l->mixer.sizes;
    const int inner = s->n_head * s->head_dim, low = s->head_dim;
    struct view all = emit_matmul(e, "delta_gates", h, &l->mixer.gates, BUF_ROWS_ALL);
    struct gates g = {view_columns(all, 0, inner), view_columns(all, inner, s->n_head),
                      view_columns(all, inner + s->n_head, s->n_head)};
    if (!e->m->arch->mixer.by_row) return g;
    g.a = emit_matmul(e, "delta_decays", view_columns(all, 0, low), &l->mixer.decay_up, BUF_ROWS_ALL);
    g.z = emit_matmul(e, "delta_gate_up", view_columns(all, low, low), &l->mixer.gate_up, BUF_ROWS_ALL);
    g.b = view_columns(all, 2 * low, s->n_head);
    return g;
}

struct view emit_delta(struct emitter *e, const struct layer *l, struct view h) {
    const struct state_sizes *s = &l->mixer.sizes;
    const int inner = s->n_head * s->head_dim;
    struct view in = emit_matmul(e, "delta_in", h, &l->mixer.in, BUF_ROWS_ALL);
    const struct gates g = emit_gates(e, l, h);
    struct view conv = emit_buffer(e, "delta_conv", s->channels, BUF_ROWS_ALL, false),
                y = emit_buffer(e, "delta", inner, BUF_ROWS_ALL, false);
    struct op_conv c = {.x = in,
                        .out = conv,
                        .state = l->mixer.conv_store,
                        .K = s->taps,
                        .w = l->mixer.conv_w,
                        .bias = l->mixer.conv_bias,
                        .silu = true};
    emit_op(e, "delta_conv", (struct op){.kind = OP_CONV, .conv = c});
    struct op_delta d = {.qkv = conv,
                         .a = g.a,
                         .b = g.b,
                         .out = y,
                         .state = l->mixer.store,
                         .n_key = s->n_group,
                         .n_value = s->n_head,
                         .dk = s->n_state,
                         .dv = s->head_dim,
                         .tiled = e->m->tiled,
                         .A = l->mixer.decay,
                         .dt_bias = l->mixer.dt_bias,
                         .beta = e->m->delta_beta};
    emit_op(e, "delta", (struct op){.kind = OP_DELTA, .delta = d});
    emit_norm(e, "delta_norm", y, y, s->head_dim, &l->mixer.norm);
    const bool sigmoid = e->m->arch->mixer.by_row || e->m->arch->mixer.gate_sigmoid;
    const enum act_kind act = sigmoid ? ACT_SIGMOID : ACT_SILU;
    struct op_glu gate = {.gate = g.z, .up = y, .out = y, .act = act};
    emit_op(e, "delta_gate", (struct op){.kind = OP_GLU, .glu = gate});
    return emit_part(e, "delta_out", y, &l->mixer.out, l->mixer.partial);
}
