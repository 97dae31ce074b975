// LINK_MATMUL, LINK_GATED, LINK_RESIDUAL.
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"
#include "seam/op_list.h"

static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    return decode_matmul_run(s, d, decode_output_pitch(d, decode_rows(s, d)), overlap);
}

// ---- MATMUL: a second launch where no kernel takes both regions; times a factor
struct matmul_store {
    float factor; // 1: none
    rows out;
};
static void make_store(decode_maker &m, decode_link *d) {
    const struct op_list *l = decode_list(m.b);
    const rows y = cuda_rows(m.b, l, link_writes(l, &d->is));
    d->mm.job.y = y.p;
    d->mm.job.y_row = y.stride;
    if (d->other.k) { // of the same rows
        gemv_args &j = d->other.job;
        const gemv_args own = j;
        j = d->mm.job;
        memcpy(j.w, own.w, sizeof j.w);
        memcpy(j.steps, own.steps, sizeof j.steps);
        memcpy(j.up, own.up, sizeof j.up);
        memcpy(j.down, own.down, sizeof j.down);
        memcpy(j.seg, own.seg, sizeof j.seg);
        j.n_seg = own.n_seg;
        d->other.nth = d->mm.nth;
    }
    *own<matmul_store>(d) =
        matmul_store{m.b->plan.group[l->op[d->is.matmul].matmul.w->id].member[0].factor, y};
}
static enum infer_status run_store(const decode_step &s, const decode_link *d, bool overlap) {
    const matmul_store *e = own<matmul_store>(d);
    const int rows = decode_rows(s, d);
    TRY(run(s, d, overlap));
    if (d->other.k) TRY(decode_matmul_launch(s, &d->other, d->other.job, rows));
    if (e->factor != 1)
        CU(cuda_scale_rows(s.b, e->out, e->factor, rows, d->out_rows, op_queue{s.stream, overlap}));
    return INFER_OK;
}
const struct decode_code decode_matmul = {true, false,     decode_matmul_has,    make_store,
                                          NULL, run_store, decode_matmul_prepare};
static enum infer_status prompt_store(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                      int n, cudaStream_t s) {
    TRY(prompt_matmul_run(b, p, d, n, s));
    if (d->factor != 1) CU(cuda_scale_rows(b, d->scaled, d->factor, n, d->out_rows, op_queue{s, false}));
    return INFER_OK;
}
const struct prompt_code prompt_matmul = {prompt_matmul_make, prompt_store};

// ---- GATED
static void make_gated(decode_maker &m, decode_link *d) {
    d->mm.job.act = decode_list(m.b)->op[d->is.first + d->is.n_op - 1].glu.act;
    give_to(&d->mm.job, decode_gives_result(m.b, d, ACT_GATED));
}
static void hand_over_gated(const cuda_backend *b, decode_link *d, uint32_t tag) {
    gemv_args &j = d->mm.job;
    if (!d[1].is.in.packets) return;
    j.give_handoff = decode_take_over(b, d + 1, j.steps[0] * 8 * d->mm.k->r, tag);
    j.seq = &b->t.step->seq;
    j.tag = tag;
}
const struct decode_code decode_gated = {true, false, decode_matmul_has, make_gated, hand_over_gated,
                                         run,  NULL};
const struct prompt_code prompt_gated = {prompt_matmul_make, prompt_matmul_run};

// ---- RESIDUAL: the sum, and its norm for the next matmul
static void make_residual(decode_maker &m, decode_link *d) {
    const struct op_list *l = decode_list(m.b);
    const rows x = cuda_rows(m.b, l, link_writes(l, &d->is));
    const handoff_to to = decode_hands(m, d);
    gemv_args &j = d->mm.job;
    decode_scales(m.b, &j, m.nth);
    j.res = x.p;
    j.res_row = x.stride;
    j.next_norm = to.norm;
    j.square_out = to.square;
    give_to(&j, to.form);
}
const struct decode_code decode_residual = {true, false, decode_matmul_has, make_residual, NULL, run, NULL};
const struct prompt_code prompt_residual = {prompt_matmul_make, prompt_matmul_run};
