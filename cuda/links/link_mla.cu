// LINK_LATENT of decode rows: keys and queries, attention, values.
#include "cuda/run/decode_latent.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

struct mla_jobs {
    latent_heads_job front, values;
    latent_job attend;
};
static bool mla_make(const cuda_backend *b, const struct cuda_link *k, mla_jobs *e) {
    const struct op_list *l = decode_list(b);
    const struct latent_ops o = link_latent_ops(l, k);
    memset(e, 0, sizeof *e);
    if (!latent_make(b, l, o.attend, &e->attend)) return false;
    latent_heads_job &f = e->front;
    f.stack = latent_stack(b, l, o.keys);
    f.key = cuda_rows(b, l, o.put->k);
    f.norm = cuda_constant(b, o.norm->w);
    f.eps = o.norm->eps;
    f.neox = o.q_rope->rope->kind == ROPE_NEOX;
    f.table = cuda_rope_table(b, o.q_rope->rope);
    f.kv = e->attend.kv;
    e->values.stack = latent_stack(b, l, o.values);
    return latent_heads_take(b, o.keys, f.stack) && latent_heads_take(b, o.values, e->values.stack);
}
static bool has(const decode_maker &m, const struct cuda_link *k, enum link_form, enum link_form) {
    mla_jobs e;
    return mla_make(m.b, k, &e);
}
static void make(decode_maker &m, decode_link *d) {
    mla_jobs *e = own<mla_jobs>(d);
    (void)mla_make(m.b, &d->is, e);
    if (d->is.gives != FORM_ROWS) give_to(&e->values.give, decode_form(m.b, d->is.gives, d[1].is.slot));
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    const mla_jobs *e = own<mla_jobs>(d);
    latent_heads_job v = e->values;
    v.give.xo_pitch = decode_output_pitch(d, s.rows);
    CU(latent_heads_launch(e->attend.t, e->front, s.rows, overlap, s.stream));
    CU(latent_decode_launch(e->attend, s.rows, overlap, s.stream));
    CU(latent_heads_launch(e->attend.t, v, s.rows, overlap, s.stream));
    return INFER_OK;
}
static cudaError_t prepare(void) {
    const cudaError_t e = latent_prepare();
    return e == cudaSuccess ? latent_heads_prepare() : e;
}
const struct decode_code decode_latent = {false, true, has, make, NULL, run, prepare};
const struct prompt_code prompt_latent = {};
