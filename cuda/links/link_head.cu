// LINK_HEAD of decode rows: logits, whose blocks leave candidates, and the choice of a token.
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const rows logits = cuda_rows(b, l, l->op[d->is.matmul].matmul.out);
    gemv_args &h = d->mm.job;
    h.rowmap = b->t.out_row;
    h.n_row = &b->t.step->n_out;
    h.y = logits.p;
    h.y_row = logits.stride;
    m.p->cand = h.cand = (float2 *)(b->work + b->plan.cand);
    const size_t bytes = decode_block_bytes(&d->mm);
    if (decode_fit_together(b, bytes, bytes)) d->mm.blocks *= 2;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    if (decode_chosen(s.s, d->name))
        TRY(decode_matmul_run(s, d, decode_output_pitch(d, decode_rows(s, d)), overlap));
    const struct op_list *l = decode_list(s.b);
    const struct op *select = &l->op[l->n_op - 1];
    if (!decode_chosen(s.s, select->name)) return INFER_OK;
    select_job j = cuda_select(s.b, l, &select->select);
    j.cand = s.p->cand;
    j.n_cand = s.p->n_cand;
    CU(select_launch(j, s.outs, op_queue{s.stream, true}));
    return INFER_OK;
}
const struct decode_code decode_head = {true, false, decode_matmul_has, make, NULL, run, NULL};
const struct prompt_code prompt_head = {};
