// LINK_EXPERTS of decode rows: engines of one row at most, engines of several; LINK_MOE_GROUPED of prompt rows.
#include "cuda/links/link_experts.h"
#include "cuda/common/prompt_tiles.cuh"
#include "cuda/decode/moe/experts_batch.h"
#include "cuda/decode/moe/experts_one.h"
#include "cuda/plan/moe_grouped_plan.h"
#include "cuda/prompt/moe_grouped.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/experts_args.h"
#include "cuda/run/prompt_program_impl.h"

// ---- engines of one row
struct one_jobs {
    experts_one_job job;
    struct experts_plan plan;
};
// Member i of a group of stacks; a step of its kernel takes so many row tiles of it.
static experts_stack one_stack(const cuda_backend *b, const struct weight_group *w, int i, int tiles) {
    const stack_args a = stack_of(b, w, i);
    experts_stack s = {};
    s.layout = a.m.layout;
    s.first = a.first;
    s.stack = a.step;
    s.tile = (size_t)tiles * a.tile;
    s.u = a.m.u;
    s.factor = a.m.factor;
    s.bias = a.m.bias;
    return s;
}
static void take_router(const cuda_backend *b, const struct experts_ops &o, experts_one_job *j) {
    const struct op_list *l = decode_list(b);
    router_args(b, o.norm, o.router, o.route, j);
    j->x_router = cuda_rows(b, l, o.norm ? o.norm->x : o.router->x).p;
    j->x = cuda_rows(b, l, o.norm ? o.norm->x : o.gated->x).p;
}
// The shared expert's, and what weighs it.
static bool take_shared(const cuda_backend *b, const struct experts_ops &o, experts_one_job *j) {
    const struct weight_group *up = o.shared->w, *down = o.shared_down->w;
    j->shared = true;
    j->n_ff_shared = up->member[0].n;
    j->gate_shared = one_stack(b, up, 0, j->paired ? 2 : 1);
    j->up_shared = j->single ? j->gate_shared : one_stack(b, up, 1, j->paired ? 2 : 1);
    if (j->paired) j->up_shared.first = j->gate_shared.first + j->gate_shared.tile / 2;
    j->down_shared = one_stack(b, down, 0, 1);
    if (o.weigh) {
        const stack_args w = stack_of(b, o.weigh->w, 0);
        j->weigh.w = w.first;
        j->weigh.layout = w.m.layout;
        j->weigh.row = w.m.base % UNIT_ROWS;
        j->weigh.factor = w.m.factor;
        j->weigh.bias = w.m.bias;
        if (layout_kind(w.m.layout) == KIND_CODES) return false;
    }
    return b->plan.group[up->id].paired == j->paired && down->n_member == 1 &&
           j->gate_shared.layout == j->gate.layout && j->up_shared.layout == j->gate.layout &&
           j->down_shared.layout == j->down.layout && !j->gate_shared.bias && !j->up_shared.bias &&
           !j->down_shared.bias;
}
static void take_stacks(const cuda_backend *b, const struct experts_ops &o, experts_one_job *j) {
    j->paired = b->plan.group[o.gated->w->id].paired;
    j->single = o.single;
    j->gate = one_stack(b, o.gated->w, 0, j->paired ? 2 : 1);
    j->up = o.single ? j->gate : one_stack(b, o.gated->w, 1, j->paired ? 2 : 1);
    if (j->paired) j->up.first = j->gate.first + j->gate.tile / 2;
    j->k = o.gated->w->k;
    j->n_ff = o.gated->w->member[0].n;
    glu_args(o.glu, j);
    j->down = one_stack(b, o.down->w, 0, 1);
    j->d = o.down->w->n;
}

static bool one_make(const cuda_backend *b, const struct cuda_link *k, one_jobs *e) {
    experts_one_job *j = &e->job;
    const struct op_list *l = decode_list(b);
    const struct experts_ops o = link_experts_ops(l, k);
    const size_t room = b->plan.half_row_bytes * 2; // of the packets of a slot
    memset(e, 0, sizeof *e);
    if (l->max_rows != 1) return false;
    take_router(b, o, j);
    take_stacks(b, o, j);
    if (o.shared && !take_shared(b, o, j)) return false;
    const size_t codes = (size_t)j->gate.u * EXPERTS_UNIT_PACKETS;
    j->out_kind = o.add ? EXPERTS_ADD : o.mix ? EXPERTS_MIX : EXPERTS_EACH;
    j->out = cuda_rows(b, l, link_writes(l, k)).p;
    if (!o.mix) j->choice = cuda_rows(b, l, o.route->choice).p;
    j->codes = b->work + b->plan.packet[ACT_ATTENDED];
    j->logits = (uint2 *)(j->codes + codes);
    j->glu = b->work + b->plan.packet[ACT_GATED];
    j->seq = &b->t.step->seq;
    j->copies =
        codes < room ? (int)((room - codes) / ((size_t)(j->route.n_expert + 2) * sizeof *j->logits)) : 0;
    if (j->copies > EXPERTS_COPIES) j->copies = EXPERTS_COPIES;
    return o.down->w->n_member == 1 && j->gate.layout == j->up.layout && j->copies > 0 &&
           (size_t)experts_all_steps(j) * 32 <= room &&
           experts_one_plan(j, b->sm_count, decode_shared_memory(b), &e->plan);
}

// ---- engines of several rows, which may have steps of one
struct batch_jobs {
    batch_router_job router;
    batch_run run;
    enum layout gated, down;
    batch_mix_job mix;
    bool mixes;
};
static void make_router(const cuda_backend *b, const struct experts_ops &o, bool out_rows,
                        batch_router_job *j) {
    const struct op_list *l = decode_list(b);
    router_args(b, o.norm, o.router, o.route, j);
    j->o.n_row = row_count(b, out_rows);
    j->o.choice = cuda_rows(b, l, o.route->choice);
    j->o.n_used = j->route.n_used;
    j->o.n_expert = j->route.n_expert;
    j->o.order.pair = (int *)(b->work + b->plan.batch_pairs);
    j->o.order.item = (int4 *)(b->work + b->plan.batch_items);
    j->x = cuda_rows(b, l, o.norm ? o.norm->x : o.router->x);
    if (!o.norm && !view_same(o.router->x, o.gated->x)) j->other = cuda_rows(b, l, o.gated->x);
    // not where the list has them: that memory may be another operation's, which this link does while they are read
    static_assert(BATCH_GROUPS * sizeof *j->arrived <= BATCH_COUNT_BYTES, "counters");
    j->logits = rows{(float *)(b->work + b->plan.batch_count + BATCH_COUNT_BYTES), (size_t)j->route.n_expert,
                     j->route.n_expert};
    if (o.norm) j->inv_k = 1.f / (float)o.norm->dim;
    j->xo = b->work + b->plan.half[ACT_NORMED];
    j->xo_row = b->plan.half_row_bytes;
    j->arrived = (int *)(b->work + b->plan.batch_count);
}
// The stacks of a group, which are one region.
static void make_stacks(const cuda_backend *b, const float (*up)[2], const struct weight_group *w,
                        batch_job *j) {
    const stack_args s = stack_of(b, w, 0);
    const dev_matrix &m = s.m;
    j->w = m.region;
    j->step = s.step;
    j->u = m.u;
    j->k = m.k;
    j->tiles = (b->plan.group[w->id].paired ? 2 * m.n : m.n + UNIT_ROWS - 1) / UNIT_ROWS;
    j->up = up[w->id][0];
    j->down = 0x1p24f / j->up;
    j->bias = m.bias;
    j->n = m.n;
}
static void make_gated(const cuda_backend *b, const float (*up)[2], const struct experts_ops &o,
                       batch_jobs *e) {
    batch_job &j = e->run.gated;
    make_stacks(b, up, o.gated->w, &j);
    j.single = o.single;
    if (j.bias && !o.single) j.bias_up = (size_t)(cuda_matrix(b, o.gated->w->id, 1).bias - j.bias);
    j.x = e->router.xo;
    j.x_row = e->router.xo_row;
    glu_args(o.glu, &j);
    j.xo = b->work + b->plan.half[ACT_GATED];
    j.xo_row = (size_t)j.n * 2;
}
static void make_down(const cuda_backend *b, const float (*up)[2], const struct experts_ops &o,
                      batch_jobs *e) {
    batch_job &j = e->run.down;
    const rows y = cuda_rows(b, decode_list(b), o.down->out);
    make_stacks(b, up, o.down->w, &j);
    j.after = e->run.gated.tiles;
    j.x = e->run.gated.xo;
    j.x_row = e->run.gated.xo_row;
    j.y = y.p;
    j.y_row = y.stride;
}
// Whether a matrix that all rows take is like those of a stack; then it is the job's, too.
static bool like_stack(const cuda_backend *b, const float (*up)[2], const struct weight_group *w,
                       const struct weight_group *stack, batch_job *j) {
    const cuda_group *g = &b->plan.group[w->id], *s = &b->plan.group[stack->id];
    batch_job own = {};
    make_stacks(b, up, w, &own);
    j->w_shared = own.w;
    j->up_shared = own.up;
    j->down_shared = own.down;
    return g->n_region == 1 && !g->scaled && g->paired == s->paired && g->n_member == s->n_member &&
           g->region[0].layout == s->region[0].layout && own.u == j->u && own.tiles == j->tiles &&
           own.k == j->k && own.n == j->n && !own.bias && !j->bias;
}
// The expert that all rows take, and what weighs it; false: it is no choice like the others.
static bool make_shared(const cuda_backend *b, const float (*up)[2], const struct experts_ops &o,
                        batch_jobs *e) {
    const struct op_list *l = decode_list(b);
    const rows y = cuda_rows(b, l, o.shared_down->out);
    batch_router_job &r = e->router;
    r.o.shared = true;
    e->run.down.y_shared = y.p;
    e->run.down.y_shared_row = y.stride;
    if (r.other.p || !like_stack(b, up, o.shared->w, o.gated->w, &e->run.gated) ||
        !like_stack(b, up, o.shared_down->w, o.down->w, &e->run.down))
        return false;
    if (!o.weigh) return true;
    const stack_args w = stack_of(b, o.weigh->w, 0);
    r.weigh.w = w.first;
    r.weigh.layout = w.m.layout;
    r.weigh.row = w.m.base % UNIT_ROWS;
    r.weigh.factor = w.m.factor;
    r.weigh.bias = w.m.bias;
    r.weighed = cuda_rows(b, l, o.weigh->out);
    return layout_kind(w.m.layout) >= KIND_HALVES && w.m.u == r.router_u;
}
static void make_run(batch_jobs *e) {
    const batch_router_job &j = e->router;
    batch_run &r = e->run;
    r.gated.n_pair = r.down.n_pair = j.o.n_used + j.o.shared;
    r.order = j.o.order;
    r.n_row = j.o.n_row;
    r.route = j.route;
    r.logits = j.logits;
    r.choice = j.o.choice;
}
static void batch_mix(const cuda_backend *b, const struct cuda_link *k, const struct experts_ops &o,
                      batch_jobs *e) {
    const struct op_list *l = decode_list(b);
    batch_mix_job &j = e->mix;
    e->mixes = o.mix != NULL;
    if (!o.mix) return;
    j.n_row = e->router.o.n_row;
    mix_args(b, l, o.mix, &j);
    if (o.add) j.add = cuda_rows(b, l, o.add->a);
    j.out = cuda_rows(b, l, link_writes(l, k));
}
// Whether the kernels take the matrices and the activation.
static bool fits(const cuda_backend *b, const struct experts_ops &o) {
    const cuda_group *g = &b->plan.group[o.gated->w->id], *d = &b->plan.group[o.down->w->id];
    const struct op_list *l = decode_list(b);
    const struct view x = o.norm ? o.norm->x : o.router->x; // four columns at once, as of gated->x
    const int items = d->n_stack + l->max_rows * (o.down->n_used + (o.shared != NULL)) / 8 + 1; // at most
    return items / b->sm_count + 2 <= BATCH_ITEMS && l->max_rows <= 8 * (BATCH_GROUPS - 1) &&
           (g->paired || o.single) && g->n_region == 1 && d->n_region == 1 && d->n_member == 1 &&
           !g->scaled && !d->scaled && g->k % 32 == 0 && d->k % 32 == 0 && x.col % 4 == 0 &&
           o.gated->x.col % 4 == 0 && (o.glu->act <= ACT_RELU2 || o.glu->act == ACT_SWIGLU_OAI) &&
           batch_router_fits(o.router->w->k, decode_shared_memory(b));
}
static bool batch_make(const cuda_backend *b, const float (*up)[2], const struct cuda_link *k,
                       batch_jobs *e) {
    const struct op_list *l = decode_list(b);
    const struct experts_ops o = link_experts_ops(l, k);
    memset(e, 0, sizeof *e);
    if (!fits(b, o)) return false;
    make_router(b, o, cuda_out_rows(l, link_writes(l, k)), &e->router);
    make_gated(b, up, o, e);
    make_down(b, up, o, e);
    if (o.shared && !make_shared(b, up, o, e)) return false;
    make_run(e);
    batch_mix(b, k, o, e);
    e->gated = b->plan.group[o.gated->w->id].region[0].layout;
    e->down = b->plan.group[o.down->w->id].region[0].layout;
    return batch_plan(&e->run, e->gated, e->down, b->sm_count, decode_shared_memory(b));
}

// ---- the link of decode rows
enum { MOST_OPS = 4095 }; // for the tags of one row
static bool several(const cuda_backend *b) { return decode_list(b)->max_rows > 1; }
static bool has(const decode_maker &m, const struct cuda_link *k, enum link_form, enum link_form) {
    one_jobs one;
    batch_jobs batch;
    if (several(m.b)) return batch_make(m.b, m.p->up, k, &batch);
    return decode_list(m.b)->n_op < MOST_OPS && one_make(m.b, k, &one);
}
static void make(decode_maker &m, decode_link *d) {
    if (several(m.b)) {
        batch_jobs *e = own<batch_jobs>(d);
        (void)batch_make(m.b, m.p->up, &d->is, e);
        const handoff_to to = decode_hands(m, d);
        if (to.normed) decode_give(&e->mix.next, to);
        return;
    }
    one_jobs *e = own<one_jobs>(d);
    experts_one_job &j = e->job;
    (void)one_make(m.b, &d->is, e);
    if (j.out_kind != EXPERTS_ADD) return;
    const handoff_to to = decode_hands(m, d);
    j.scale = to.scale;
    j.next_norm = to.norm;
    j.square_out = to.square;
    give_to(&j, to.form);
}
static void hand_over(const cuda_backend *b, decode_link *d, uint32_t tag) {
    if (!several(b)) own<one_jobs>(d)->job.tag = tag;
}
static enum infer_status run_batch(const decode_step &s, const decode_link *d) {
    const batch_jobs *e = own<batch_jobs>(d);
    const int rows = decode_rows(s, d);
    batch_router_job router = e->router;
    batch_run run = e->run;
    run.both &= rows <= BATCH_FEW;
    router.few = run.few = run.both && rows <= run.few_most && rows * run.gated.n_pair <= BATCH_FEW_PAIRS;
    CU(batch_router_launch(router, rows, s.b->sm_count, s.stream));
    CU(batch_launch(&run, e->gated, e->down, s.b->sm_count, s.stream));
    if (!e->mixes) return INFER_OK;
    batch_mix_job m = e->mix;
    m.next.xo_pitch = decode_output_pitch(d, rows);
    CU(batch_mix_launch(m, rows, s.stream));
    return INFER_OK;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    if (several(s.b)) return run_batch(s, d);
    const one_jobs *e = own<one_jobs>(d);
    experts_one_job j = e->job;
    j.beside = s.beside;
    CU(experts_one_launch(j, e->plan, overlap, s.stream));
    return INFER_OK;
}
static cudaError_t prepare(void) {
    const cudaError_t e = experts_one_prepare();
    return e == cudaSuccess ? batch_prepare() : e;
}
const struct decode_code decode_experts = {false, false, has, make, hand_over, run, prepare};
const struct prompt_code prompt_experts = {};

// ---- prompt rows
struct moe_grouped_jobs {
    pair_order order;
    pair_gemm gated, down;
    rows x; // what becomes activations in this order:
    int x_order;
    enum layout layout[2];
};
static int order_of(enum layout l) { return prompt_matmul_order(GROUP_WGMMA, l); }
static int tiles_of(int columns) { return (columns + PROMPT_TILE_COLS - 1) / PROMPT_TILE_COLS; }

static void make_gemm(const cuda_backend *b, const struct op_experts *o, pair_order order, pair_gemm *j,
                      enum layout *l) {
    const stack_args s = stack_of(b, o->w, 0);
    *l = s.m.layout;
    j->w = s.m.region;
    j->u = s.m.u;
    j->slabs = s.n_tile;
    j->n = s.m.n;
    j->factor = s.m.factor;
    for (int i = 0; i < b->plan.group[o->w->id].n_member; i++) j->bias[i] = cuda_matrix(b, o->w->id, i).bias;
    j->k_tiles = tiles_of(s.m.k);
    j->o = order;
}
static void make_moe_grouped(prompt_program *, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct op *o = &l->op[d->is.first];
    const struct op_experts *up = &o[0].experts, *down = &o[2].experts;
    moe_grouped_jobs *e = own<moe_grouped_jobs>(d);
    e->order.n_row = row_count(b, d->out_rows);
    e->order.choice = cuda_rows(b, l, up->choice);
    e->order.n_expert = b->plan.group[up->w->id].n_stack;
    e->order.first = up->first;
    e->order.n_all = up->n_all;
    e->order.n_used = up->n_used;
    uint8_t *at = b->work + b->plan.pairs;
    const struct moe_grouped_plan place = moe_grouped_plan_of(l);
    e->order.pair = (int *)(at + place.pair);
    e->order.next = (int *)(at + place.next);
    e->order.tile = (int4 *)(at + place.tile);
    make_gemm(b, up, e->order, &e->gated, &e->layout[0]);
    make_gemm(b, down, e->order, &e->down, &e->layout[1]);
    e->x = cuda_rows(b, l, up->x);
    e->x_order = order_of(e->layout[0]);
    e->gated.single = o[1].glu.up.buf < 0;
    e->gated.x = at + place.x;
    e->gated.glu = at + place.glu;
    e->gated.glu_k_tiles = e->down.k_tiles;
    e->gated.glu_order = order_of(e->layout[1]);
    glu_args(&o[1].glu, &e->gated);
    e->down.x = e->gated.glu;
    e->down.out = cuda_rows(b, l, down->out);
}
static enum infer_status run_moe_grouped(const cuda_backend *b, const prompt_program *, const prompt_link *d,
                                         int n, cudaStream_t s) {
    const moe_grouped_jobs *e = own<moe_grouped_jobs>(d);
    const rows out = e->down.out;
    if (e->order.n_all) // what others have
        CU(cudaMemset2DAsync(out.p, out.stride * 4, 0, (size_t)out.width * 4, (size_t)n, s));
    CU(moe_grouped_order_launch(e->order, s));
    CU(moe_grouped_gather_launch(e->order, e->x, (uint8_t *)e->gated.x, e->gated.k_tiles, e->x_order, n, s));
    CU(moe_grouped_gemm_launch(e->gated, e->layout[0], n, b->sm_count, s));
    CU(moe_grouped_gemm_launch(e->down, e->layout[1], n, b->sm_count, s));
    return INFER_OK;
}
const struct decode_code decode_moe_grouped = {};
const struct prompt_code prompt_moe_grouped = {make_moe_grouped, run_moe_grouped};
