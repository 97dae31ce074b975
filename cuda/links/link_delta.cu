// LINK_DELTA.
#include "cuda/links/link_delta.h"
#include "cuda/decode/state/delta_decode.h"
#include "cuda/prompt/delta_prompt.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

// What the jobs of decode and prompt rows have in common.
template <class J>
static void delta_args(const cuda_backend *b, const struct op_list *l, const struct delta_ops &o, J *j) {
    const rows x = cuda_rows(b, l, o.conv->x), alpha = cuda_rows(b, l, o.delta->a),
               beta = cuda_rows(b, l, o.delta->b);
    j->t = b->t;
    j->x = x.p;
    j->x_row = x.stride;
    j->a = alpha.p;
    j->a_row = alpha.stride;
    j->b = beta.p;
    j->b_row = beta.stride;
    j->conv_w = cuda_constant(b, o.conv->w);
    j->conv_bias = cuda_constant(b, o.conv->bias);
    j->A = cuda_constant(b, o.delta->A);
    j->dt_bias = cuda_constant(b, o.delta->dt_bias);
    j->conv = cuda_state(b, o.conv->state, 0);
    j->conv_elem = (size_t)b->c.state[o.conv->state].n_elem;
    j->state = cuda_state(b, o.delta->state, 0);
    j->state_elem = (size_t)b->c.state[o.delta->state].n_elem;
    j->n_key = o.delta->n_key;
    j->n_value = o.delta->n_value;
    j->tiled = o.delta->tiled;
}

static void make(decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct delta_ops o = link_delta_ops(l, &d->is);
    const rows z = cuda_rows(b, l, o.glu->gate);
    delta_decode_job *j = own<delta_decode_job>(d);
    delta_args(b, l, o, j);
    j->z = z.p;
    j->z_row = z.stride;
    j->norm = cuda_constant(b, o.norm->w);
    j->eps = o.norm->eps;
    j->arrived = (int *)(b->work + b->plan.counter);
    give_to(j, decode_gives_result(b, d, ACT_GATED));
    j->wait = m.first;
    m.first = false;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    delta_decode_job j = *own<delta_decode_job>(d);
    j.xo_pitch = decode_output_pitch(d, s.rows);
    CU(delta_decode_launch(j, s.rows, s.b->c.n_slot, true, s.b->sm_count, s.stream));
    return INFER_OK;
}
const struct decode_code decode_delta = {false, true, NULL, make, NULL, run, NULL};

// ---- prompt
struct prompt_delta_jobs {
    delta_prompt_job delta; // what is in front of the norm
    delta_norm_job norm;
};
// The cuts of the step, which all layers share.
delta_cuts prompt_cuts(const cuda_backend *b) {
    const struct delta_room room = delta_room_of(b->c.list[ROW_PROMPT]->max_rows, b->c.n_slot, 0);
    uint8_t *at = b->work + b->plan.prompt_room;
    return delta_cuts{(int *)at, (struct delta_chunk *)(at + room.chunk), (struct delta_run *)(at + 16)};
}
static void make_norm(const cuda_backend *b, const struct delta_ops &o, prompt_tiles out, delta_norm_job *n) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const rows x = cuda_rows(b, l, o.norm->x), z = cuda_rows(b, l, o.glu->gate);
    n->x = x.p;
    n->x_row = x.stride;
    n->z = z.p;
    n->z_row = z.stride;
    n->w = cuda_constant(b, o.norm->w);
    n->eps = o.norm->eps;
    n->n_head = o.delta->n_value;
    n->n_row = &b->t.step->n_row;
    n->tiles = out.tiles;
    n->k_tiles = out.k_tiles;
    n->order = out.order;
}
// q, k and v between the kernels lie where the convolution's result would: q and k of a row as halves in front of its v.
static void make_prompt(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct delta_ops o = link_delta_ops(l, &d->is);
    const rows between = cuda_rows(b, l, o.conv->out), y = cuda_rows(b, l, o.delta->out);
    const struct delta_room room = delta_room_of(l->max_rows, b->c.n_slot, o.delta->n_value);
    prompt_delta_jobs *e = own<prompt_delta_jobs>(d);
    delta_prompt_job *j = &e->delta;
    p->has_delta = true;
    delta_args(b, l, o, j);
    j->n_block = 2 * j->n_key + j->n_value;
    j->first_half = 0;
    j->n_half = 2 * j->n_key;
    j->stages = delta_prompt_stages(cuda_route_case(b).shared_bytes);
    j->cuts = prompt_cuts(b);
    j->qk = (uint8_t *)between.p;
    j->qk_row = between.stride * sizeof(float);
    j->v = between.p + 2 * j->n_key * DELTA_DIM;
    j->v_row = between.stride;
    j->pair = b->work + b->plan.prompt_room + room.pair;
    j->factor = b->work + b->plan.prompt_room + room.factor;
    j->out = y.p;
    j->out_row = y.stride;
    make_norm(b, o, prompt_output(b, d, ACT_GATED), &e->norm);
}
enum infer_status prompt_delta_cut(const cuda_backend *b, cudaStream_t s) {
    CU(delta_cuts_launch(b->t, prompt_cuts(b), s));
    return INFER_OK;
}
static enum infer_status run_prompt(const cuda_backend *b, const prompt_program *, const prompt_link *d,
                                    int n, cudaStream_t s) {
    const prompt_delta_jobs *e = own<prompt_delta_jobs>(d);
    CU(delta_prompt_launch(e->delta, n, b->c.n_slot, b->sm_count, s));
    CU(delta_norm_launch(e->norm, n, s));
    return INFER_OK;
}
const struct prompt_code prompt_delta = {make_prompt, run_prompt};
