// LINK_MATMUL, LINK_GATED, LINK_ACTED, LINK_RESIDUAL, LINK_LOW, LINK_LOW_GATED, LINK_LOW_SUM, LINK_ADAPTED, LINK_ADAPTED_SUM.
#include "cuda/decode/gemv/act_made.h"
#include "cuda/run/adapters_run.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/look.h"
#include "cuda/run/prompt_program_impl.h"
#include "seam/op_list.h"

static enum infer_status run(const decode_step &s, const decode_link *d, bool overlap) {
    return decode_matmul_run(s, d, decode_output_pitch(d, decode_rows(s, d)), overlap);
}

// ---- MATMUL: a second launch where no kernel takes both regions; times a factor
struct matmul_store {
    float factor; // 1: none
    rows out;
};
static void make_store(decode_maker &m, decode_link *d) {
    const struct op_list *l = decode_list(m.b);
    const rows y = cuda_rows(m.b, l, link_writes(l, &d->is));
    d->mm.job.y = y.p;
    d->mm.job.y_row = y.stride;
    if (d->other.k) { // of the same rows
        gemv_args &j = d->other.job;
        const gemv_args own = j;
        j = d->mm.job;
        memcpy(j.w, own.w, sizeof j.w);
        memcpy(j.steps, own.steps, sizeof j.steps);
        memcpy(j.up, own.up, sizeof j.up);
        memcpy(j.down, own.down, sizeof j.down);
        memcpy(j.seg, own.seg, sizeof j.seg);
        j.n_seg = own.n_seg;
        d->other.nth = d->mm.nth;
    }
    *own<matmul_store>(d) =
        matmul_store{m.b->plan.group[l->op[d->is.matmul].matmul.w->id].member[0].factor, y};
}
static enum infer_status run_store(const decode_step &s, const decode_link *d, bool overlap) {
    const matmul_store *e = own<matmul_store>(d);
    const int rows = decode_rows(s, d);
    TRY(run(s, d, overlap));
    if (d->other.k) TRY(decode_matmul_launch(s, &d->other, d->other.job, rows));
    if (e->factor != 1)
        CU(cuda_scale_rows(s.b, e->out, e->factor, rows, d->out_rows, op_queue{s.stream, overlap}));
    return INFER_OK;
}
const struct decode_code decode_matmul = {true, false,     decode_matmul_has,    make_store,
                                          NULL, run_store, decode_matmul_prepare};
static enum infer_status prompt_store(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                      int n, cudaStream_t s) {
    TRY(prompt_matmul_run(b, p, d, n, s));
    if (d->factor != 1) CU(cuda_scale_rows(b, d->scaled, d->factor, n, d->out_rows, op_queue{s, false}));
    return INFER_OK;
}
const struct prompt_code prompt_matmul = {prompt_matmul_make, prompt_store};

// ---- GATED
static void make_gated(decode_maker &m, decode_link *d) {
    d->mm.job.act = decode_list(m.b)->op[d->is.first + d->is.n_op - 1].glu.act;
    give_to(&d->mm.job, decode_gives_result(m.b, d, ACT_GATED));
}
static void hand_over_gated(const cuda_backend *b, decode_link *d, uint32_t tag) {
    gemv_args &j = d->mm.job;
    if (!d[1].is.in.packets) return;
    j.give_handoff = decode_take_over(b, d + 1, j.steps[0] * 8 * d->mm.k->r, tag);
    j.seq = &b->t.step->seq;
    j.tag = tag;
}
const struct decode_code decode_gated = {true, false, decode_matmul_has, make_gated, hand_over_gated,
                                         run,  NULL};
const struct prompt_code prompt_gated = {prompt_matmul_make, prompt_matmul_run};

// ---- ACTED: of prompt rows alone
const struct decode_code decode_acted = {};
const struct prompt_code prompt_acted = {prompt_matmul_make, prompt_matmul_run};

// ---- inputs of gate and up, or of what attention left
struct made_input {
    bool made;
    act_made from;
};
// What the link in front would make rows of (bfloat16 in two parts), unless the form is written over it: one kernel makes the form of it, and
// rows where they are wanted.
static bool take_parts(decode_link *d, rows x, made_input *e) {
    decode_link *front = d - 1;
    if (!d->from_rows || d->input.xo == front->output.xo || !front->to_rows || front->output.x.p != x.p ||
        front->output.x.width != x.width)
        return false;
    e->made = true;
    e->from.parts = front->output.xo;
    e->from.parts_row = front->output.xo_row;
    front->to_rows = false;
    return true;
}
static void make_gate(const cuda_backend *b, const struct op_glu *g, made_input *e) {
    const struct op_list *l = decode_list(b);
    e->made = true;
    e->from.gate = cuda_rows(b, l, g->gate);
    e->from.up = cuda_rows(b, l, g->up);
    e->from.act = g->act;
}
static enum infer_status make_input(const decode_step &s, const decode_link *d, const made_input &e, int rows,
                                    bool overlap) {
    if (!e.made) return decode_matmul_input(s, d, overlap);
    act_rows_job in = d->input;
    in.xo_pitch = decode_input_pitch(d, rows);
    CU(act_made_give(in, e.from, rows, overlap, s.stream));
    return INFER_OK;
}

// ---- RESIDUAL: the sum, and its norm for the next matmul
static void make_residual(decode_maker &m, decode_link *d) {
    const struct op_list *l = decode_list(m.b);
    const rows x = cuda_rows(m.b, l, link_writes(l, &d->is));
    const handoff_to to = decode_hands(m, d);
    gemv_args &j = d->mm.job;
    decode_scales(m.b, &j, m.nth);
    j.res = x.p;
    j.res_row = x.stride;
    j.next_norm = to.norm;
    j.square_out = to.square;
    give_to(&j, to.form);
}
// With a gate in front, whose result nobody reads as rows.
static void make_gated_residual(decode_maker &m, decode_link *d) {
    const struct op_list *l = decode_list(m.b);
    made_input *e = own<made_input>(d);
    make_residual(m, d);
    if (d->is.before < 0 || l->op[d->is.before].kind != OP_GLU || l->op[d->is.before].glu.up.buf < 0) return;
    make_gate(m.b, &l->op[d->is.before].glu, e);
    if (!look_watches(m.b) && take_parts(d, e->from.up, e)) e->from.up.p = NULL;
    d->input.x.p = NULL;
}
static enum infer_status run_residual(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = decode_rows(s, d);
    gemv_args j = d->mm.job;
    j.xo_pitch = decode_output_pitch(d, rows);
    TRY(make_input(s, d, *own<made_input>(d), rows, overlap));
    return decode_matmul_launch(s, &d->mm, j, rows);
}
const struct decode_code decode_residual = {true,         false, decode_matmul_has, make_gated_residual, NULL,
                                            run_residual, NULL};
const struct prompt_code prompt_residual = {prompt_matmul_make, prompt_matmul_run};

// ---- LOW, LOW_GATED, LOW_SUM: these of one row, whose kernel multiplies by A and B, too
static void make_low(decode_maker &m, decode_link *d) {
    make_store(m, d);
    decode_adapted_make(m, d);
}
static void make_low_gated(decode_maker &m, decode_link *d) {
    make_gated(m, d);
    decode_adapted_make(m, d);
}
static void make_low_sum(decode_maker &m, decode_link *d) {
    make_residual(m, d);
    decode_adapted_make(m, d);
}
const struct decode_code decode_low = {false, false, decode_adapted_has, make_low, NULL, run_store, NULL};
const struct decode_code decode_low_gated = {
    false, false, decode_adapted_has, make_low_gated, hand_over_gated, run, NULL};
const struct decode_code decode_low_sum = {false, false, decode_adapted_has, make_low_sum, NULL, run, NULL};
const struct prompt_code prompt_low = {}, prompt_low_gated = {}, prompt_low_sum = {};

// ---- ADAPTED, ADAPTED_SUM: rows times A in front of the matmul, whose weights are on their way meanwhile
struct adapted_jobs {
    matmul_store store; // make_store
    lowrank_job low;
    made_input input; // ADAPTED_SUM
};
static lowrank_job low_job(const cuda_backend *b, const decode_link *d) {
    const struct op_list *l = decode_list(b);
    lowrank_job j = cuda_adapters_job(b, l, &l->op[d->is.matmul + 1]);
    if (d->is.norm < 0) return j;
    const struct op_norm *n = &l->op[d->is.norm].norm;
    j.x = cuda_rows(b, l, n->x);
    j.norm = cuda_constant(b, n->w);
    j.eps = n->eps;
    return j;
}
static void make_adapted(decode_maker &m, decode_link *d) {
    make_store(m, d);
    own<adapted_jobs>(d)->low = low_job(m.b, d);
}
static enum infer_status run_adapted(const decode_step &s, const decode_link *d, bool overlap) {
    lowrank_job j = own<adapted_jobs>(d)->low;
    const int rows = decode_rows(s, d), tiles = cuda_adapters_tiles(s.b, rows);
    j.one = rows == 1;
    CU(op_lowrank_down(j, tiles, false, op_queue{s.stream, overlap}));
    TRY(run_store(s, d, overlap));
    CU(op_lowrank_up(j, tiles, op_queue{s.stream, overlap}));
    return INFER_OK;
}
const struct decode_code decode_adapted = {true,        false, decode_matmul_has, make_adapted, NULL,
                                           run_adapted, NULL};
const struct prompt_code prompt_adapted = {};

// Onto the stream, to which the matmul adds then as RESIDUAL's does.
static void make_adapted_sum(decode_maker &m, decode_link *d) {
    const struct op_list *l = decode_list(m.b);
    make_residual(m, d);
    lowrank_job j = low_job(m.b, d);
    j.out = cuda_rows(m.b, l, link_writes(l, &d->is));
    adapted_jobs *e = own<adapted_jobs>(d);
    e->low = j;
    if (d->is.first < d->is.matmul)
        make_gate(m.b, &l->op[d->is.first].glu, &e->input);
    else
        take_parts(d, d->input.x, &e->input);
}
static enum infer_status run_adapted_sum(const decode_step &s, const decode_link *d, bool overlap) {
    lowrank_job low = own<adapted_jobs>(d)->low;
    const int rows = decode_rows(s, d), tiles = cuda_adapters_tiles(s.b, rows);
    gemv_args j = d->mm.job;
    low.one = rows == 1;
    j.xo_pitch = decode_output_pitch(d, rows);
    TRY(make_input(s, d, own<adapted_jobs>(d)->input, rows, overlap));
    CU(op_lowrank_down(low, tiles, false, op_queue{s.stream, overlap}));
    CU(op_lowrank_up(low, tiles, op_queue{s.stream, overlap}));
    return decode_matmul_launch(s, &d->mm, j, rows);
}
const struct decode_code decode_adapted_sum = {
    true, false, decode_matmul_has, make_adapted_sum, NULL, run_adapted_sum, NULL};
static void make_prompt_sum(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    lowrank_job *j = &own<adapted_jobs>(d)->low;
    prompt_matmul_make(p, b, d);
    *j = cuda_adapters_job(b, l, &l->op[d->is.matmul + 1]);
    j->out = cuda_rows(b, l, link_writes(l, &d->is));
}
static enum infer_status run_prompt_sum(const cuda_backend *b, const prompt_program *p, const prompt_link *d,
                                        int n, cudaStream_t s) {
    TRY(cuda_adapters_prompt(b, own<adapted_jobs>(d)->low, d->out_rows, s));
    return prompt_matmul_run(b, p, d, n, s);
}
const struct prompt_code prompt_adapted_sum = {make_prompt_sum, run_prompt_sum};
