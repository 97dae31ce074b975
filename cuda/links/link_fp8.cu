// LINK_FP8, LINK_FP8_SUM, LINK_FP8_GATED, of decode rows.
#include "cuda/links/link_fp8.h"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/prompt/gemm_fp8.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

struct fp8_jobs {
    rows x; // which the first product takes,
    const float *norm;
    float eps; // normed; norm NULL: as they are
    enum prompt_epilogue epilogue;
    prompt_job job, down; // down: of the gated units of job, whose epilogue is GLU
};

static prompt_job job_of(const cuda_backend *b, const struct op_matmul *m, bool glu) {
    prompt_job j = {};
    prompt_place_weights(b, m->w->id, 0, glu, &j);
    j.k_tiles = (m->w->k + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS;
    j.n_row = row_count(b, false);
    return j;
}
static void to_rows(prompt_job *j, rows out) {
    j->out = out.p;
    j->stride = out.stride;
}
static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct fp8_ops f = link_fp8_ops(l, &d->is);
    const rows out = cuda_rows(b, l, link_writes(l, &d->is));
    fp8_jobs *e = own<fp8_jobs>(d);
    e->x = cuda_rows(b, l, f.norm ? f.norm->x : f.matmul->x);
    if (f.norm) {
        e->norm = cuda_constant(b, f.norm->w);
        e->eps = f.norm->eps;
    }
    e->job = job_of(b, f.matmul, f.glu != NULL);
    e->job.n_row = row_count(b, d->out_rows);
    e->epilogue = f.glu ? EPILOGUE_GLU : f.add ? EPILOGUE_ADD : EPILOGUE_STORE;
    if (!f.glu) return to_rows(&e->job, out);
    e->down = job_of(b, f.down, false);
    e->down.n_row = e->job.n_row;
    to_rows(&e->down, out);
    e->job.glu = b->work + b->plan.tiles[ACT_GATED];
    e->down.x = e->job.glu;
    e->job.glu_order = ORDER_CODES;
    e->job.glu_k_tiles = e->down.k_tiles;
    e->job.act = f.glu->act;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    const fp8_jobs *e = own<fp8_jobs>(d);
    const int n = decode_rows(s, d), sms = s.b->sm_count;
    CU(fp8_norm(e->x, e->norm, e->eps, e->job, n, s.stream));
    CU(fp8_launch(e->job, e->epilogue, n, sms, s.stream));
    if (e->epilogue != EPILOGUE_GLU) return INFER_OK;
    CU(fp8_quantise(e->down, n, s.stream));
    CU(fp8_launch(e->down, EPILOGUE_ADD, n, sms, s.stream));
    return INFER_OK;
}
const struct decode_code decode_fp8 = {false, false, NULL, make, NULL, run, NULL};
const struct decode_code decode_fp8_sum = {false, false, NULL, make, NULL, run, NULL};
const struct decode_code decode_fp8_gated = {false, false, NULL, make, NULL, run, NULL};
const struct prompt_code prompt_fp8 = {};
const struct prompt_code prompt_fp8_sum = {};
const struct prompt_code prompt_fp8_gated = {};
