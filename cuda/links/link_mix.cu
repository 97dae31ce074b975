// LINK_MIX of decode rows, LINK_MOE_GROUPED_MIX of prompt rows: the sum of experts, and the residual stream.
#include "cuda/decode/moe/mix_give.h"
#include "cuda/prompt/moe_grouped.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"
#include "seam/op_list.h"

static rows at(const cuda_backend *b, const struct op_list *l, struct view v) {
    return v.buf < 0 ? rows{} : cuda_rows(b, l, v);
}
template <class J>
static void mix_args(const cuda_backend *b, const struct op_list *l, const struct op_mix *o, J *j) {
    j->x = at(b, l, o->x);
    if (!o->plain) j->w = at(b, l, view_columns(o->choice, o->n_used, o->n_used));
    j->shared = at(b, l, o->shared);
    j->gate = at(b, l, o->gate);
    j->n_used = o->n_used;
}

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
    m->n_row = prompt_rows(b, d);
    m->add = at(b, l, a->a);
    m->out = at(b, l, a->out);
}
static enum infer_status run_prompt(const cuda_backend *, const prompt_program *, const prompt_link *d, int n,
                                    cudaStream_t s) {
    CU(moe_grouped_mix_launch(*own<pair_mix>(d), n, s));
    return INFER_OK;
}
const struct decode_code decode_moe_grouped_mix = {};
const struct prompt_code prompt_moe_grouped_mix = {make_prompt, run_prompt};
