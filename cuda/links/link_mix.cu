// LINK_MIX of decode rows, LINK_MOE_GROUPED_MIX of prompt rows: the sum of experts, and the residual stream.
#include "cuda/links/link_mix.h"
#include "cuda/decode/moe/mix_give.h"
#include "cuda/prompt/moe_grouped.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/experts_args.h"
#include "cuda/run/prompt_program_impl.h"

static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct mix_ops o = link_mix_ops(l, &d->is);
    const handoff_to to = decode_hands(m, d);
    mix_give_job *j = own<mix_give_job>(d);
    mix_args(b, l, o.mix, j);
    if (o.gate) {
        j->gate = rows{};
        j->gate_x = cuda_rows(b, l, o.gate->x);
        j->gate_w = cuda_matrix(b, o.gate->w->id, 0);
    }
    j->out = cuda_rows(b, l, o.add->out);
    j->n_row = row_count(b, cuda_out_rows(l, o.add->out));
    if (to.normed) decode_give(&j->next, to);
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    const int rows = decode_rows(s, d);
    mix_give_job j = *own<mix_give_job>(d);
    j.next.xo_pitch = decode_output_pitch(d, rows);
    CU(mix_give_launch(j, rows, s.stream));
    return INFER_OK;
}
const struct decode_code decode_mix = {false, false, NULL, make, NULL, run, NULL};
const struct prompt_code prompt_mix = {};

static void make_prompt(prompt_program *, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct op_add *a = &l->op[d->is.first + 1].add;
    pair_mix *m = own<pair_mix>(d);
    mix_args(b, l, &l->op[d->is.first].mix, m);
    m->n_row = row_count(b, d->out_rows);
    m->add = cuda_rows(b, l, a->a);
    m->out = cuda_rows(b, l, a->out);
}
static enum infer_status run_prompt(const cuda_backend *, const prompt_program *, const prompt_link *d, int n,
                                    cudaStream_t s) {
    CU(moe_grouped_mix_launch(*own<pair_mix>(d), n, s));
    return INFER_OK;
}
const struct decode_code decode_moe_grouped_mix = {};
const struct prompt_code prompt_moe_grouped_mix = {make_prompt, run_prompt};
