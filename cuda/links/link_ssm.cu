// LINK_SSM.
#include "cuda/links/link_ssm.h"
#include "cuda/decode/state/ssm_decode.h"
#include "cuda/prompt/ssm_prompt.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

// What the jobs of decode and prompt rows have in common.
template <class J>
static void ssm_args(const cuda_backend *b, const struct op_list *l, const struct ssm_ops &o, J *j) {
    const rows x = cuda_rows(b, l, o.conv->x), dt = cuda_rows(b, l, o.ssm->dt);
    j->t = b->t;
    j->x = x.p;
    j->x_row = x.stride;
    j->dt = dt.p;
    j->dt_row = dt.stride;
    j->conv_w = cuda_constant(b, o.conv->w);
    j->conv_bias = cuda_constant(b, o.conv->bias);
    j->A = cuda_constant(b, o.ssm->A);
    j->dt_bias = cuda_constant(b, o.ssm->dt_bias);
    j->skip = cuda_constant(b, o.ssm->skip);
    j->lo = o.ssm->lo;
    j->hi = o.ssm->hi;
    j->conv = cuda_state(b, o.conv->state, 0);
    j->conv_elem = (size_t)b->c.state[o.conv->state].n_elem;
    j->state = cuda_state(b, o.ssm->state, 0);
    j->state_elem = (size_t)b->c.state[o.ssm->state].n_elem;
    j->n_head = o.ssm->n_head;
    j->n_group = o.ssm->n_group;
}
// Weights of a norm from a group's to the next one's.
static int step_of(const struct op_norm *n) { return op_norm_weights(n) == n->dim ? 0 : n->dim; }

static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct ssm_ops o = link_ssm_ops(l, &d->is);
    const rows z = cuda_rows(b, l, o.glu->gate);
    ssm_decode_job *j = own<ssm_decode_job>(d);
    ssm_args(b, l, o, j);
    j->z = z.p;
    j->z_row = z.stride;
    j->norm = o.norm ? cuda_constant(b, o.norm->w) : NULL;
    j->norm_step = o.norm ? step_of(o.norm) : 0;
    j->eps = o.norm ? o.norm->eps : 0;
    j->arrived = (int *)(b->work + b->plan.counter);
    give_to(j, decode_gives_result(b, d, o.norm ? ACT_NORMED : ACT_GATED)); // act_slot_of
    j->wait = m.first;
    m.first = false;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    ssm_decode_job j = *own<ssm_decode_job>(d);
    j.xo_pitch = decode_output_pitch(d, s.rows);
    CU(ssm_decode_launch(j, s.rows, true, s.stream));
    return INFER_OK;
}
const struct decode_code decode_ssm = {false, true, NULL, make, NULL, run, NULL};

// ---- prompt
struct prompt_ssm_jobs {
    ssm_prompt_job ssm; // what is in front of the gate
    ssm_norm_job norm;
};
static void make_norm(const cuda_backend *b, const struct ssm_ops &o, prompt_tiles out, ssm_norm_job *n) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const rows x = cuda_rows(b, l, o.glu->up), z = cuda_rows(b, l, o.glu->gate);
    n->x = x.p;
    n->x_row = x.stride;
    n->z = z.p;
    n->z_row = z.stride;
    n->w = o.norm ? cuda_constant(b, o.norm->w) : NULL;
    n->eps = o.norm ? o.norm->eps : 0;
    n->w_step = o.norm ? step_of(o.norm) : 0;
    n->dim = o.norm ? o.norm->dim : o.ssm->head_dim;
    n->n_group = x.width / n->dim;
    n->n_row = &b->t.step->n_row;
    n->tiles = out.tiles;
    n->k_tiles = out.k_tiles;
    n->order = out.order;
}
// x, B and C between the kernels lie where the convolution's result would: B and C of a row as halves behind its x.
static void make_prompt(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct ssm_ops o = link_ssm_ops(l, &d->is);
    const rows between = cuda_rows(b, l, o.conv->out), y = cuda_rows(b, l, o.ssm->out);
    const int inner = o.ssm->n_head * o.ssm->head_dim;
    const struct delta_room room = chunk_room_of(l->max_rows, b->c.n_slot, o.ssm->n_head, SSM_PAIR_BYTES);
    prompt_ssm_jobs *e = own<prompt_ssm_jobs>(d);
    ssm_prompt_job *j = &e->ssm;
    p->has_ssm = true;
    ssm_args(b, l, o, j);
    j->head_dim = o.ssm->head_dim;
    j->n_half = 2 * j->n_group;
    j->first_half = inner / DELTA_DIM;
    j->n_block = j->first_half + j->n_half;
    j->stages = ssm_prompt_stages(cuda_route_case(b).shared_bytes);
    j->cuts = prompt_cuts(b);
    j->v = between.p;
    j->v_row = between.stride;
    j->qk = (uint8_t *)(between.p + inner);
    j->qk_row = between.stride * sizeof(float);
    j->pair = b->work + b->plan.prompt_room + room.pair;
    j->factor = b->work + b->plan.prompt_room + room.factor;
    j->out = y.p;
    j->out_row = y.stride;
    make_norm(b, o, prompt_output(b, d, ACT_GATED), &e->norm);
}
static enum infer_status run_prompt(const cuda_backend *b, const prompt_program *, const prompt_link *d,
                                    int n, cudaStream_t s) {
    const prompt_ssm_jobs *e = own<prompt_ssm_jobs>(d);
    CU(ssm_prompt_launch(e->ssm, n, b->c.n_slot, b->sm_count, s));
    CU(ssm_norm_launch(e->norm, n, s));
    return INFER_OK;
}
const struct prompt_code prompt_ssm = {make_prompt, run_prompt};
