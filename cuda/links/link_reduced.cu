// LINK_REDUCED: the product on zeros, then the sum over ranks, added to the residual stream.
#include "cuda/ranks/rank_reduced.h"
#include "cuda/run/cuda_ranks.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    decode_post_make(m, d);
    d->post.factor = d->post.scale = 1;
    rank_reduced_job *j = own<rank_reduced_job>(d);
    j->w = cuda_ranks_wires(b);
    j->nth = rank_ops_before(l, d->is.matmul + 1);
    j->post = d->post;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = decode_rows(s, d), pitch = decode_output_pitch(d, rows);
    TRY(decode_matmul_run(s, d, 0, overlap));
    if (cuda_ranks_wired(s.b)) {
        rank_reduced_job j = *own<rank_reduced_job>(d);
        j.post.give.xo_pitch = pitch;
        CU(rank_reduced_launch(j, rows, overlap, s.stream));
        return INFER_OK;
    }
    post_job p = d->post;
    p.give.xo_pitch = pitch;
    const size_t width = (size_t)p.give.x.width;
    TRY(cuda_ranks_sum(s.b, ::rows{p.y, width, (int)width}, rows, s.stream));
    CU(post_norm_launch(p, rows, overlap, s.stream));
    return INFER_OK;
}
const struct decode_code decode_reduced = {true, false, decode_matmul_has, make, NULL, run, NULL};

// Prompt rows: the product where the others read it.
struct reduced_prompt {
    rows x;
};
static void make_prompt(prompt_program *p, cuda_backend *b, prompt_link *d) {
    prompt_matmul_make(p, b, d);
    own<reduced_prompt>(d)->x =
        cuda_rows(b, b->c.list[ROW_PROMPT], link_writes(b->c.list[ROW_PROMPT], &d->is));
}
static enum infer_status run_prompt(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                    int n, cudaStream_t s) {
    prompt_link to_mail = *d;
    const rows x = own<reduced_prompt>(d)->x;
    for (int i = 0; i < to_mail.gemm.n_job; i++) {
        to_mail.gemm.job[i].out = cuda_ranks_mail(b);
        to_mail.gemm.job[i].stride = (size_t)x.width;
    }
    TRY(prompt_matmul_run(b, p, &to_mail, n, s));
    return cuda_ranks_add(b, x, n, s);
}
const struct prompt_code prompt_reduced = {make_prompt, run_prompt};
