// LINK_FP8, LINK_FP8_SUM, LINK_FP8_GATED, of decode rows.
#include "cuda/links/link_fp8.h"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/prompt/gemm_fp8.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/look.h"
#include "cuda/run/prompt_program_impl.h"

struct fp8_jobs {
    rows x; // which the first product takes,
    const float *norm;
    float eps;             // normed; norm NULL: as they are
    const uint8_t *halves; // in their place, as the attention leaves them: rows of halves; NULL: none
    size_t half_row;
    enum prompt_epilogue epilogue;
    prompt_job job, down; // down: of the gated units of job, whose epilogue is GLU
    enum layout head;     // of a head's matrix, which goes by halves
    bool is_head;
};

static prompt_job job_of(const cuda_backend *b, const struct op_matmul *m, bool glu, int order) {
    prompt_job j = {};
    prompt_place_weights(b, m->w->id, 0, glu, &j);
    j.k_tiles = (m->w->k + prompt_tile_cols(order) - 1) / prompt_tile_cols(order);
    return j;
}
static void to_rows(prompt_job *j, rows out) {
    j->out = out.p;
    j->stride = out.stride;
}
// Attention whose result nobody else reads leaves halves, instead of what becomes rows behind it.
static void take_halves(const cuda_backend *b, decode_link *d, fp8_jobs *e) {
    decode_link *front = d - 1;
    const struct op_list *l = decode_list(b);
    const struct view x = link_writes(l, &front->is);
    if (look_watches(b) || front->is.kind != LINK_ATTEND || !front->to_rows || front->output.x.p != e->x.p ||
        e->norm || e->x.width % FP8_COLS || l->buf[x.buf].last != d->is.first)
        return;
    const act_form form = decode_form(b, FORM_HALVES, ACT_ATTENDED);
    front->to_rows = false;
    give_to(own<attend_job>(front), form);
    e->halves = form.at;
    e->half_row = form.row;
}
static void make_gated(const cuda_backend *b, const struct fp8_ops &f, rows out, fp8_jobs *e) {
    e->epilogue = EPILOGUE_GLU;
    e->down = job_of(b, f.down, false, ORDER_CODES);
    e->down.n_row = e->job.n_row;
    to_rows(&e->down, out);
    e->job.glu = b->work + b->plan.tiles[ACT_GATED];
    e->down.x = e->job.glu;
    e->job.glu_order = ORDER_CODES;
    e->job.glu_k_tiles = e->down.k_tiles;
    e->job.act = f.glu->act;
}
static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct fp8_ops f = link_fp8_ops(l, &d->is);
    fp8_jobs *e = own<fp8_jobs>(d);
    e->is_head = f.rows != NULL;
    e->head = b->plan.group[f.matmul->w->id].region[0].layout;
    const int order = e->is_head ? prompt_matmul_order(GROUP_WGMMA, e->head) : ORDER_CODES;
    e->x = cuda_rows(b, l, f.norm ? f.norm->x : f.matmul->x);
    if (f.norm) {
        e->norm = cuda_constant(b, f.norm->w);
        e->eps = f.norm->eps;
    }
    e->job = job_of(b, f.matmul, f.glu != NULL, order);
    e->job.n_row = row_count(b, d->out_rows || e->is_head);
    e->job.x = b->work + b->plan.tiles[ACT_NORMED]; // of a head
    if (f.glu) return make_gated(b, f, cuda_rows(b, l, f.add->out), e);
    e->epilogue = f.add ? EPILOGUE_ADD : EPILOGUE_STORE;
    to_rows(&e->job, cuda_rows(b, l, f.add ? f.add->out : f.matmul->out));
    take_halves(b, d, e);
}

static enum infer_status run_head(const decode_step &s, const decode_link *d, const fp8_jobs *e) {
    const op_queue q = {s.stream, false};
    const int order = prompt_matmul_order(GROUP_WGMMA, e->head),
              r = route_default(GROUP_WGMMA, e->head, 90, s.b->sm_count, e->job.n_slab, s.outs);
    TRY(cuda_run_ops(s.b, ROW_DECODE, d->is.first, 1, s.rows, s.outs, q));
    CU(prompt_norm_launch(e->x, e->norm, e->eps, e->job.n_row, (uint8_t *)e->job.x, e->job.k_tiles, order,
                          s.outs, s.stream));
    CU(prompt_matmul_launch(e->job, e->head, EPILOGUE_STORE, &cuda_routes[r], s.outs, s.b->sm_count,
                            s.stream));
    return cuda_run_ops(s.b, ROW_DECODE, d->is.first + d->is.n_op - 1, 1, s.rows, s.outs, q);
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    const fp8_jobs *e = own<fp8_jobs>(d);
    const int n = decode_rows(s, d), sms = s.b->sm_count;
    if (e->is_head) return run_head(s, d, e);
    CU(e->halves ? fp8_quantise_rows(e->job, e->halves, e->half_row, n, s.stream)
                 : fp8_norm(e->x, e->norm, e->eps, e->job, n, s.stream));
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
