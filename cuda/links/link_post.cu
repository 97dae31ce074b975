// LINK_POST: the product on its own (of decode rows on zeros), then what comes between it and the residual stream.
#include "cuda/links/link_post.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

template <class J> static void post_args(const cuda_backend *b, const struct post_ops &o, J *p) {
    p->normed = o.norm != NULL;
    if (o.norm) p->norm = cuda_constant(b, o.norm->w), p->eps = o.norm->eps;
    p->factor = o.factor;
    p->scale = o.scale;
}

void decode_post_give(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const handoff_to to = decode_hands(m, d);
    post_job &p = d->post;
    p.give.x = cuda_rows(b, decode_list(b), link_writes(decode_list(b), &d->is));
    p.gives = d->is.gives != FORM_ROWS;
    p.give.n_row = row_count(b, d->out_rows);
    p.give.square_row = to.square_row;
    give_to(&p.give, to.form);
    if (to.normed) decode_give(&p.give, to);
}
void decode_post_make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    gemv_args &j = d->mm.job;
    post_job &p = d->post;
    decode_post_give(m, d);
    j.res = p.y = (float *)(b->work + b->plan.post);
    j.res_row = (size_t)p.give.x.width;
    j.next_norm = (const float *)(b->work + b->plan.part); // any floats: nobody takes this
    j.square_out = (float *)(b->work + b->plan.post_square);
    p.squares = j.square_out;
    give_to(&j, decode_idle_form(m));
}
static void make(decode_maker &m, decode_link *d) {
    decode_post_make(m, d);
    post_args(m.b, link_post_ops(decode_list(m.b), &m.b->plan, &d->is), &d->post);
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = decode_rows(s, d);
    TRY(decode_matmul_run(s, d, 0, overlap));
    if (d->mm.streamk) return INFER_OK;
    post_job p = d->post;
    p.give.xo_pitch = decode_output_pitch(d, rows);
    CU(post_norm_launch(p, rows, overlap, s.stream));
    return INFER_OK;
}
const struct decode_code decode_post = {true, false, decode_matmul_has, make, NULL, run, NULL};

static void make_prompt(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    prompt_post_job *j = own<prompt_post_job>(d);
    prompt_matmul_make(p, b, d);
    j->x = cuda_rows(b, l, link_writes(l, &d->is));
    j->y = cuda_rows(b, l, l->op[d->is.matmul].matmul.out);
    post_args(b, link_post_ops(l, &b->plan, &d->is), j);
    j->n_row = d->gemm.job[0].n_row;
}
static enum infer_status run_prompt(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                    int n, cudaStream_t s) {
    TRY(prompt_matmul_run(b, p, d, n, s));
    CU(prompt_post_launch(*own<prompt_post_job>(d), n, s));
    return INFER_OK;
}
const struct prompt_code prompt_post = {make_prompt, run_prompt};
