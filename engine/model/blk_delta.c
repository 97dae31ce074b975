/* A layer with the gated delta rule: out(norm(delta(silu(conv(W h)))) * silu(z)), z = W_z h, with a step and a forgetting of each head.
 * source: Yang et al. 2024 (arXiv 2412.06464); HF modeling_qwen3_next, modeling_qwen3_5. */
#include "model/emit.h"
#include "seam/op_list.h"

struct view emit_delta(struct emitter *e, const struct layer *l, struct view h) {
    const struct state_sizes *s = &l->mixer.sizes;
    const int inner = s->n_head * s->head_dim;
    struct view in = emit_matmul(e, "delta_in", h, &l->mixer.in, BUF_ROWS_ALL),
                gates = emit_matmul(e, "delta_gates", h, &l->mixer.gates, BUF_ROWS_ALL),
                conv = emit_buffer(e, "delta_conv", s->channels, BUF_ROWS_ALL, false),
                y = emit_buffer(e, "delta", inner, BUF_ROWS_ALL, false);
    struct view z = view_columns(gates, 0, inner), b = view_columns(gates, inner, s->n_head),
                a = view_columns(gates, inner + s->n_head, s->n_head);
    struct op_conv c = {.x = in,
                        .out = conv,
                        .state = l->mixer.conv_store,
                        .K = s->taps,
                        .w = l->mixer.conv_w,
                        .bias = l->mixer.conv_bias,
                        .silu = true};
    emit_op(e, "delta_conv", (struct op){.kind = OP_CONV, .conv = c});
    struct op_delta d = {.qkv = conv,
                         .a = a,
                         .b = b,
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
    struct op_glu gate = {.gate = z, .up = y, .out = y, .act = ACT_SILU};
    emit_op(e, "delta_gate", (struct op){.kind = OP_GLU, .glu = gate});
    return emit_part(e, "delta_out", y, &l->mixer.out, l->mixer.partial);
}
