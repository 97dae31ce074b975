// LINK_DELTA and LINK_MIX of decode rows: the jobs, but for whom they hand their results.
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

void delta_make(const cuda_backend *b, const struct cuda_link *k, delta_decode_job *j) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct delta_ops o = link_delta_ops(l, k);
    const rows x = cuda_rows(b, l, o.conv->x), z = cuda_rows(b, l, o.glu->gate),
               alpha = cuda_rows(b, l, o.delta->a), beta = cuda_rows(b, l, o.delta->b);
    memset(j, 0, sizeof *j);
    j->t = b->t;
    j->x = x.p;
    j->x_row = x.stride;
    j->z = z.p;
    j->z_row = z.stride;
    j->a = alpha.p;
    j->a_row = alpha.stride;
    j->b = beta.p;
    j->b_row = beta.stride;
    j->conv_w = cuda_constant(b, o.conv->w);
    j->conv_bias = cuda_constant(b, o.conv->bias);
    j->A = cuda_constant(b, o.delta->A);
    j->dt_bias = cuda_constant(b, o.delta->dt_bias);
    j->norm = cuda_constant(b, o.norm->w);
    j->eps = o.norm->eps;
    j->conv = cuda_state(b, o.conv->state, 0);
    j->conv_elem = (size_t)b->c.state[o.conv->state].n_elem;
    j->state = cuda_state(b, o.delta->state, 0);
    j->state_elem = (size_t)b->c.state[o.delta->state].n_elem;
    j->n_key = o.delta->n_key;
    j->n_value = o.delta->n_value;
    j->tiled = o.delta->tiled;
    j->arrived = (int *)(b->work + b->plan.counter);
}

void mix_make(const cuda_backend *b, const struct cuda_link *k, mix_give_job *j) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct mix_ops o = link_mix_ops(l, k);
    memset(j, 0, sizeof *j);
    j->x = cuda_rows(b, l, o.mix->x);
    if (!o.mix->plain) j->w = cuda_rows(b, l, view_columns(o.mix->choice, o.mix->n_used, o.mix->n_used));
    if (o.mix->shared.buf >= 0) j->shared = cuda_rows(b, l, o.mix->shared);
    if (o.gate) {
        j->gate_x = cuda_rows(b, l, o.gate->x);
        j->gate_w = cuda_matrix(b, o.gate->w->id, 0);
    } else if (o.mix->gate.buf >= 0)
        j->gate = cuda_rows(b, l, o.mix->gate);
    j->out = cuda_rows(b, l, o.add->out);
    j->n_used = o.mix->n_used;
    j->n_row = cuda_out_rows(l, o.add->out) ? &b->t.step->n_out : &b->t.step->n_row;
}
