// LINK_MLA of decode rows: keys and queries, attention, values.
#include "cuda/links/link_mla.h"
#include "cuda/run/decode_mla.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

struct mla_jobs {
    mla_heads_job front, values;
    mla_job attend;
};
static bool make_jobs(const cuda_backend *b, const struct cuda_link *k, mla_jobs *e) {
    const struct op_list *l = decode_list(b);
    const struct mla_ops o = link_mla_ops(l, k);
    memset(e, 0, sizeof *e);
    if (!mla_make(b, l, o.attend, &e->attend)) return false;
    mla_heads_job &f = e->front;
    f.stack = mla_stack(b, l, o.keys);
    f.key = cuda_rows(b, l, o.put->k);
    f.norm = cuda_constant(b, o.norm->w);
    f.eps = o.norm->eps;
    f.neox = o.q_rope->rope->kind == ROPE_NEOX;
    f.table = cuda_rope_table(b, o.q_rope->rope);
    f.kv = e->attend.kv;
    e->values.stack = mla_stack(b, l, o.values);
    return mla_heads_take(b, o.keys, f.stack) && mla_heads_take(b, o.values, e->values.stack);
}
static bool has(const decode_maker &m, const struct cuda_link *k, enum link_form, enum link_form) {
    mla_jobs e;
    return make_jobs(m.b, k, &e);
}
static void make(decode_maker &m, decode_link *d) {
    mla_jobs *e = own<mla_jobs>(d);
    (void)make_jobs(m.b, &d->is, e);
    if (d->is.gives != FORM_ROWS) give_to(&e->values.give, decode_form(m.b, d->is.gives, d[1].is.slot));
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    const mla_jobs *e = own<mla_jobs>(d);
    mla_heads_job v = e->values;
    v.give.xo_pitch = decode_output_pitch(d, s.rows);
    CU(mla_heads_launch(e->attend.t, e->front, s.rows, overlap, s.stream));
    CU(mla_decode_run(e->attend, s.rows, overlap, s.stream));
    CU(mla_heads_launch(e->attend.t, v, s.rows, overlap, s.stream));
    return INFER_OK;
}
static cudaError_t prepare(void) {
    const cudaError_t e = mla_prepare();
    return e == cudaSuccess ? mla_heads_prepare() : e;
}
const struct decode_code decode_mla = {false, true, has, make, NULL, run, prepare};
const struct prompt_code prompt_mla = {};
