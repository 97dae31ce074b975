/* Layers with a state beside attention: short convolutions and Mamba-2. */
#include "model/emit.h"
#include "seam/op_list.h"

#include <math.h>

/* act(gate) * up, in the place of gate. */
static void gate(struct emitter *e, const char *name, struct view gate, struct view up, enum act_kind act) {
    struct op_glu o = {gate, up, gate, act, {.limit = 1}};
    emit_op(e, name, (struct op){.kind = OP_GLU, .glu = o});
}

/* out(C * conv(B * X)), B C X = W h. source: HF modeling_lfm2. */
struct view emit_conv(struct emitter *e, const struct layer *l, struct view h) {
    const int n = l->mixer.sizes.channels;
    struct view in = emit_matmul(e, "conv_in", h, &l->mixer.in, BUF_ROWS_ALL),
                y = emit_buffer(e, "conv", n, BUF_ROWS_ALL, false);
    struct view b = view_columns(in, 0, n), c = view_columns(in, n, n), x = view_columns(in, 2 * n, n);
    gate(e, "conv_gate", b, x, ACT_SCALE);
    struct op_conv o = {.x = b,
                        .out = y,
                        .state = l->mixer.conv_store,
                        .K = l->mixer.sizes.taps,
                        .w = l->mixer.conv_w,
                        .bias = l->mixer.conv_bias};
    emit_op(e, "conv", (struct op){.kind = OP_CONV, .conv = o});
    gate(e, "conv_out_gate", y, c, ACT_SCALE);
    return emit_part(e, "conv_out", y, &l->mixer.out, l->mixer.partial);
}

/* The norm of all ranks' heads, and of it the columns of this rank. */
static struct view gathered_norm(struct emitter *e, const struct layer *l, struct view z) {
    const int *col = l->mixer.gathered;
    struct view all = emit_buffer(e, "ssm_all", col[e->m->share.n], BUF_ROWS_ALL, true);
    emit_op(e, "ssm_gather", (struct op){.kind = OP_GATHER, .gather = {z, all, col}});
    emit_norm(e, "ssm_norm", all, all, l->mixer.norm_dim, &l->mixer.norm);
    return view_columns(all, col[e->m->share.rank], z.width);
}

/* out(norm(silu(z) * ssm(silu(conv(x B C)), dt))), z x B C dt = W h; the norm of each group's heads apart.
 * source: Dao & Gu 2024 (arXiv 2405.21060); HF modeling_mamba2. */
struct view emit_ssm(struct emitter *e, const struct layer *l, struct view h) {
    const struct state_sizes *s = &l->mixer.sizes;
    const int inner = s->n_head * s->head_dim;
    struct view in = emit_matmul(e, "ssm_in", h, &l->mixer.in, BUF_ROWS_ALL),
                xbc = emit_buffer(e, "ssm_conv", s->channels, BUF_ROWS_ALL, false),
                y = emit_buffer(e, "ssm", inner, BUF_ROWS_ALL, false);
    struct view z = view_columns(in, 0, inner), dt = view_columns(in, inner + s->channels, s->n_head);
    struct op_conv conv = {.x = view_columns(in, inner, s->channels),
                           .out = xbc,
                           .state = l->mixer.conv_store,
                           .K = s->taps,
                           .w = l->mixer.conv_w,
                           .bias = l->mixer.conv_bias,
                           .silu = true};
    emit_op(e, "ssm_conv", (struct op){.kind = OP_CONV, .conv = conv});
    struct op_ssm o = {.xbc = xbc,
                       .dt = dt,
                       .out = y,
                       .state = l->mixer.store,
                       .n_head = s->n_head,
                       .head_dim = s->head_dim,
                       .n_group = s->n_group,
                       .n_state = s->n_state,
                       .A = l->mixer.decay,
                       .dt_bias = l->mixer.dt_bias,
                       .skip = l->mixer.skip,
                       .lo = 0,
                       .hi = INFINITY};
    emit_op(e, "ssm", (struct op){.kind = OP_SSM, .ssm = o});
    gate(e, "ssm_gate", z, y, ACT_SILU);
    if (l->mixer.gathered) {
        z = gathered_norm(e, l, z);
    } else {
        emit_norm(e, "ssm_norm", z, z, inner / s->n_group, &l->mixer.norm);
    }
    return emit_part(e, "ssm_out", z, &l->mixer.out, l->mixer.partial && !emit_sums_both(l));
}
