// LINK_REDUCED: the product on zeros, then the sum over ranks, added to the residual stream; LINK_SUMMED: rows in place of the product.
#include "cuda/common/launch.h"
#include "cuda/ranks/rank_gemv.h"
#include "cuda/ranks/rank_reduced.h"
#include "cuda/run/cuda_ranks.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

struct reduced_decode {
    rank_reduced_job sum;
    const struct rank_gemv_kernel *one; // one row, the product and the sum; NULL: two kernels
};
static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    decode_post_make(m, d);
    d->post.factor = d->post.scale = 1;
    reduced_decode *e = own<reduced_decode>(d);
    e->sum = rank_reduced_job{cuda_ranks_wires(b), rank_ops_before(l, d->is.matmul + 1), d->post};
    const matmul_link &mm = d->mm;
    const struct rank_gemv_kernel *k = rank_gemv_find(mm.k->l, mm.k->ga);
    // of the same shape, so that bits are the same, too
    const bool same = k && k->r == mm.k->r && k->warps == mm.k->warps && k->ring == mm.k->ring;
    const bool plain = !mm.job.bias && mm.k->l2 == LAYOUT_COUNT && (!d->post.gives || d->post.give.norm);
    e->one = cuda_ranks_wired(b) && same && plain ? k : NULL;
}
// One row: the matmul's own job, to the stream.
static enum infer_status run_one(const decode_step &s, const decode_link *d, bool overlap) {
    const reduced_decode *e = own<reduced_decode>(d);
    const act_rows_job &give = e->sum.post.give;
    rank_gemv_job j = {d->mm.job, e->sum.w, e->sum.nth, e->sum.post.gives};
    j.j.x_bytes = d->mm.x_bytes;
    j.j.res = give.x.p;
    j.j.res_row = give.x.stride;
    j.j.give = give.give;
    j.j.xo = give.xo;
    j.j.xo_row = give.xo_row;
    j.j.xo_unit = give.xo_unit;
    if (give.norm) {
        j.j.next_norm = give.norm;
        j.j.scale = give.scale;
        j.j.square_out = give.square;
    }
    if (!s.beside) j.j.take_handoff = NULL;
    TRY(decode_matmul_input(s, d, overlap));
    CU(launch_overlapped(e->one->run[j.j.take_handoff != NULL], d->mm.blocks, e->one->warps * 32,
                         mm_smem(d->mm.k, d->mm.x_bytes), true, s.stream, j));
    return INFER_OK;
}
// The sum over ranks of what lies in the job, to the stream.
static enum infer_status run_sum(const decode_step &s, const decode_link *d, rank_reduced_job j, int rows,
                                 bool overlap) {
    post_job &p = j.post;
    const size_t width = (size_t)p.give.x.width;
    p.give.xo_pitch = decode_output_pitch(d, rows);
    if (cuda_ranks_wired(s.b)) {
        CU(rank_reduced_launch(j, rows, overlap, s.stream));
        return INFER_OK;
    }
    TRY(cuda_ranks_sum(s.b, ::rows{p.y, width, (int)width}, rows, s.stream));
    CU(post_norm_launch(p, rows, overlap, s.stream));
    return INFER_OK;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = decode_rows(s, d);
    const reduced_decode *e = own<reduced_decode>(d);
    if (rows == 1 && e->one) return run_one(s, d, overlap);
    TRY(decode_matmul_run(s, d, 0, overlap));
    return run_sum(s, d, e->sum, rows, overlap);
}
const struct decode_code decode_reduced = {true, false, decode_matmul_has, make,
                                           NULL, run,   rank_gemv_prepare};

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

// ---- rows
static void make_summed(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    decode_post_give(m, d);
    d->post.factor = d->post.scale = 1;
    d->post.y = cuda_rows(b, l, l->op[d->is.first].reduce.x).p;
    *own<rank_reduced_job>(d) =
        rank_reduced_job{cuda_ranks_wires(b), rank_ops_before(l, d->is.first), d->post};
}
static enum infer_status run_summed(const decode_step &s, const decode_link *d, bool overlap) {
    return run_sum(s, d, *own<rank_reduced_job>(d), decode_rows(s, d), overlap);
}
const struct decode_code decode_summed = {false, false, NULL, make_summed, NULL, run_summed, NULL};

static enum infer_status run_prompt_summed(const cuda_backend *b, const prompt_program *,
                                           const prompt_link *d, int n, cudaStream_t s) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct op *o = &l->op[d->is.first];
    return cuda_ranks_sum_to(b, cuda_rows(b, l, o[0].reduce.x), cuda_rows(b, l, o[1].add.out), n, s);
}
const struct prompt_code prompt_summed = {NULL, run_prompt_summed};
