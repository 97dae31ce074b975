// The program of decode rows: links one after the other, each leaving its result as the next one reads it. In a plain Llama five
// kernels a layer: q k v; rope, cache write and attention; output projection with the residual; gate, up and their product;
// down with the residual.
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/decode_profile.h"

// What to leave out, for measuring: all but one name, or one name.
struct selection {
    const char *only, *without;
};
static bool chosen(const selection &s, const char *name) {
    return s.only ? !strcmp(s.only, name) : !s.without || strcmp(s.without, name) != 0;
}

// A step on its way through the links.
struct decode_step {
    cuda_backend *b;
    struct decode_program *p;
    int rows, outs; // at most
    bool shared;    // two rows may be of one sequence
    bool beside;    // one row may go in packets
    selection s;
    cudaStream_t stream;
};

// ---- matmuls
static enum infer_status run_one(const decode_step &s, const matmul_link *l, mm_job j) {
    if (!s.beside) {
        j.give_handoff = NULL;
        j.take_handoff = NULL;
    }
    j.x_bytes = l->x_bytes;
    if (l->even) {
        even_job e = l->even_job;
        e.j.x_bytes = l->x_bytes;
        if (!s.beside) e.j.give_handoff = NULL, e.j.take_handoff = NULL;
        CU(launch_overlapped(l->even->run[e.j.give_handoff || e.j.take_handoff], l->blocks,
                             l->even->warps * 32, even_smem(l->even, l->x_bytes), true, s.stream, e));
        return INFER_OK;
    }
    j.n_cand = l->blocks * l->k->warps;
    if (j.cand) s.p->n_cand = j.n_cand;
    CU(launch_overlapped(l->k->run[j.give_handoff || j.take_handoff], l->blocks, l->k->warps * 32,
                         mm_smem(l->k, j.x_bytes), true, s.stream, j));
    return INFER_OK;
}
// The rows of a launch that begins with row `first` of the step.
static void begin_at(skinny_job *w, size_t first) {
    mm_job &j = w->j;
    w->first = (int)first;
    w->rms += first;
    j.x += first * 128;
    j.square += first * j.square_row;
    j.scale += first;
    j.scale_next += first;
    j.res += first * j.res_row;
    j.square_out += first * j.square_row;
    j.xo += j.xo_pitch ? first * 128 : first * j.xo_row;
    if (w->epilogue != EPI_HEAD) j.y += first * j.y_row; // whose rows are those that are wanted
}
// Rows first .. first + rows - 1 of a step of `all`.
static enum infer_status run_part(const decode_step &s, const matmul_link *l, const mm_job &j, int first,
                                  int rows, int all) {
    const cuda_backend *b = s.b;
    skinny_job w = {};
    w.j = j;
    w.j.give_handoff = NULL;
    w.epilogue = l->k->epilogue;
    w.rms = (uint2 *)(b->work + b->plan.scale) + 2 * b->plan.max_decode;
    w.seq = &b->t.step->seq;
    w.tag = 1 + (uint32_t)l->nth;
    w.part = (float4 *)(b->work + b->plan.stage);
    w.count = (int *)(b->work + b->plan.wide_count);
    if (!skinny_plan(&w, l->k, rows, skinny_chip(b), b->sm_count, decode_shared_memory(b),
                     b->plan.stage_bytes))
        return cuda_error(cudaErrorInvalidConfiguration, "skinny_plan");
    w.pitch = half_pitch(all);
    begin_at(&w, (size_t)first);
    if (w.j.cand) s.p->n_cand = w.j.n_cand;
    CU(skinny_launch(&w, b->sm_count, s.stream));
    return INFER_OK;
}
// Many rows of halves. The head works on all rows of the step and leaves those that are wanted.
static enum infer_status run_half(const decode_step &s, const matmul_link *l, const mm_job &j, int rows) {
    const int most = skinny_most(l->k->epilogue);
    for (int i = 0; i < rows; i += most) TRY(run_part(s, l, j, i, rows - i < most ? rows - i : most, rows));
    return INFER_OK;
}
// Which of the kernels for few rows takes a step; -1: none.
static int few_kernel(const matmul_link *l, int rows) {
    const int i = rows <= 2 ? 0 : rows <= 4 ? 1 : 2;
    return rows > 1 && rows <= 8 && l->few[i] ? i : -1;
}
static enum infer_status run_few(const decode_step &s, const matmul_link *l, mm_job j, int i) {
    const cuda_backend *b = s.b;
    const int t = 2 << i, tiles = few_tiles(l->k->r, l->k->epilogue), blocks = b->sm_count;
    const size_t smem = few_plan(l->k, t, j.u, decode_shared_memory(b), &j.few);
    const int groups = j.few.groups;
    j.few.rows = (int16_t)b->c.list[ROW_DECODE]->max_rows;
    j.give_handoff = NULL;
    j.take_handoff = NULL;
    for (int r = 0; r < 2; r++) j.steps[r] = j.steps[r] * l->k->r / tiles;
    if (l->k->l2 != LAYOUT_COUNT) j.split = decode_best_split(j, l->k, blocks);
    j.n_cand = blocks * groups * (l->k->warps / t);
    if (j.cand) s.p->n_cand = j.n_cand;
    CU(launch_overlapped(l->k->few[i], blocks, groups * l->k->warps * 32, smem, true, s.stream, j));
    return INFER_OK;
}
static enum infer_status run_matmul(const decode_step &s, const matmul_link *l, const mm_job &j, int rows) {
    const int few = few_kernel(l, rows);
    return rows == 1 ? run_one(s, l, j) : few >= 0 ? run_few(s, l, j, few) : run_half(s, l, j, rows);
}

// ---- links
// How the input of a matmul lies in a step of that many rows: rows of a tile, 0: plain rows.
static int input_pitch(const decode_link *d, int rows) {
    return rows > 1 && few_kernel(&d->mm, rows) < 0 ? half_pitch(rows) : 0;
}
// The same of what a link gives.
static int output_pitch(const decode_link *d, int rows) {
    return d->is.gives == FORM_ROWS ? 0 : input_pitch(d + 1, rows);
}
static enum infer_status run_attend(const decode_step &s, const decode_link *d, bool overlap) {
    attend_job a = d->attend;
    a.xo_pitch = output_pitch(d, s.rows);
    a.put = !s.shared;
    if (!s.beside) {
        a.take_handoff = NULL;
        a.give_handoff = NULL;
    }
    if (s.shared) CU(attend_put_launch(a, s.rows, true, s.stream));
    CU(attend_launch(a, s.rows, s.b->sm_count, true, s.stream));
    if (d->to_rows) CU(act_rows_take(d->output, s.rows, overlap, s.stream));
    return INFER_OK;
}
static enum infer_status run_delta(const decode_step &s, const decode_link *d, bool overlap) {
    delta_decode_job j = d->delta;
    j.xo_pitch = output_pitch(d, s.rows);
    CU(delta_decode_launch(j, s.rows, true, s.b->sm_count, s.stream));
    if (d->to_rows) CU(act_rows_take(d->output, s.rows, overlap, s.stream));
    return INFER_OK;
}
static enum infer_status run_mix(const decode_step &s, const decode_link *d) {
    const int rows = d->out_rows ? s.outs : s.rows;
    mix_give_job j = d->mix;
    j.next.xo_pitch = output_pitch(d, rows);
    CU(mix_give_launch(j, rows, s.stream));
    return INFER_OK;
}
static enum infer_status run_experts(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = d->out_rows ? s.outs : s.rows;
    if (s.b->c.list[ROW_DECODE]->max_rows > 1)
        return batch_run(s.b, &d->batch, rows, output_pitch(d, rows), s.stream);
    experts_one_job j = d->experts.job;
    j.beside = s.beside;
    CU(experts_one_launch(j, d->experts.plan, overlap, s.stream));
    return INFER_OK;
}
static enum infer_status run_fused(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = d->out_rows ? s.outs : s.rows;
    mm_job j = d->mm.job;
    j.xo_pitch = output_pitch(d, rows);
    if (d->from_rows) {
        act_rows_job in = d->input;
        in.xo_pitch = input_pitch(d, rows);
        if (d->is.before < 0)
            CU(act_rows_give(in, rows, overlap, s.stream));
        else
            CU(act_front_give(in, d->front, rows, overlap, s.stream));
    }
    if (d->is.kind == LINK_POST) j.xo_pitch = 0;
    TRY(run_matmul(s, &d->mm, j, rows));
    if (d->is.kind == LINK_MATMUL && d->other.k) TRY(run_matmul(s, &d->other, d->other.job, rows));
    if (d->is.kind == LINK_POST && !d->mm.even) {
        post_job p = d->post;
        p.give.xo_pitch = output_pitch(d, rows);
        CU(post_norm_launch(p, rows, overlap, s.stream));
    }
    if (d->is.kind == LINK_MATMUL && d->factor != 1)
        CU(cuda_scale_rows(s.b, d->scaled, d->factor, rows, d->out_rows, op_queue{s.stream, overlap}));
    if (d->to_rows) CU(act_rows_take(d->output, rows, overlap, s.stream));
    return INFER_OK;
}
static enum infer_status run_head(const decode_step &s, const decode_link *d, bool overlap) {
    if (chosen(s.s, d->name)) TRY(run_fused(s, d, overlap));
    const struct op_list *l = s.b->c.list[ROW_DECODE];
    const struct op *select = &l->op[l->n_op - 1];
    if (!chosen(s.s, select->name)) return INFER_OK;
    select_job j = cuda_select(s.b, l, &select->select);
    j.cand = s.p->cand;
    j.n_cand = s.p->n_cand;
    CU(select_launch(j, s.outs, op_queue{s.stream, true}));
    return INFER_OK;
}
static enum infer_status run_embed(const decode_step &s, const decode_link *d) {
    embed_job e = d->embed;
    e.xo_pitch = output_pitch(d, s.rows);
    CU(embed_launch(e, s.rows, s.stream));
    return INFER_OK;
}
// Operations of the links i .. by the plain kernels, which may join some; *n: links done. Some of these kernels look at the step
// before they wait, so they wait at their launch until the step is there for sure.
static enum infer_status run_plain(const decode_step &s, int i, int *n) {
    const decode_link *d = &s.p->link[i];
    const op_queue q = {s.stream, i > s.p->settled};
    const bool all = !s.s.only && !s.s.without;
    for (*n = 1; all && i + *n < s.p->n_link && d[*n].is.kind == LINK_PLAIN;) ++*n;
    TRY(cuda_run_ops(s.b, ROW_DECODE, d->is.first, *n, s.rows, s.outs, q));
    return INFER_OK;
}
static enum infer_status run_link(const decode_step &s, int i, int *n) {
    const decode_link *d = &s.p->link[i];
    const bool overlap = i > s.p->settled;
    *n = 1;
    if (d->is.kind == LINK_HEAD) return run_head(s, d, overlap);
    if (!chosen(s.s, d->name)) return INFER_OK;
    switch (d->is.kind) {
    case LINK_EMBED:
        return run_embed(s, d);
    case LINK_ATTEND:
        return run_attend(s, d, overlap);
    case LINK_DELTA:
        return run_delta(s, d, overlap);
    case LINK_LATENT:
        return latent_link_run(&d->latent, s.rows, output_pitch(d, s.rows), overlap, s.stream);
    case LINK_MIX:
        return run_mix(s, d);
    case LINK_EXPERTS:
        return run_experts(s, d, overlap);
    case LINK_PLAIN:
        return run_plain(s, i, n);
    default:
        return run_fused(s, d, overlap);
    }
}
// Whether a link of that name takes or gives packets.
static bool in_packets(const struct decode_program *p, const char *name) {
    for (int i = 1; i < p->n_link; i++)
        if (p->link[i].is.in.packets &&
            (!strcmp(p->link[i].name, name) || !strcmp(p->link[i - 1].name, name)))
            return true;
    return false;
}
static enum infer_status run_links(cuda_backend *b, struct decode_program *p, int rows, bool shared,
                                   const selection &sel, cudaStream_t stream) {
    const int most = b->c.list[ROW_DECODE]->max_out, outs = rows < most ? rows : most;
    const bool whole = !sel.only && (!sel.without || !in_packets(p, sel.without));
    const decode_step s = {b, p, rows, outs, shared, rows == 1 && !shared && whole, sel, stream};
    for (int i = 0, n; i < p->n_link; i += n) TRY(run_link(s, i, &n));
    return INFER_OK;
}
enum infer_status decode_run(cuda_backend *b, struct decode_program *p, int rows, bool shared,
                             cudaStream_t s) {
    return run_links(b, p, rows, shared, selection{}, s);
}

// ---- measuring
// Microseconds of a replay of the chosen links, for rows rows of the step that ran last.
static enum infer_status time_links(cuda_backend *b, struct decode_program *p, int rows,
                                    const selection &keep, float *us) {
    cudaGraph_t g;
    cudaGraphExec_t ge;
    cudaEvent_t t0, t1;
    CU(cudaEventCreate(&t0));
    CU(cudaEventCreate(&t1));
    CU(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    enum infer_status st = run_links(b, p, rows, false, keep, b->stream);
    CU(cudaStreamEndCapture(b->stream, &g));
    TRY(st);
    CU(cudaGraphInstantiate(&ge, g, 0));
    float best = 1e9f, ms;
    for (int i = 0; i < 8; i++) {
        CU(cudaEventRecord(t0, b->stream));
        CU(cudaGraphLaunch(ge, b->stream));
        CU(cudaEventRecord(t1, b->stream));
        CU(cudaEventSynchronize(t1));
        CU(cudaEventElapsedTime(&ms, t0, t1));
        if (i > 1 && ms < best) best = ms;
    }
    *us = best * 1e3f;
    CU(cudaGraphExecDestroy(ge));
    CU(cudaGraphDestroy(g));
    CU(cudaEventDestroy(t0));
    CU(cudaEventDestroy(t1));
    return INFER_OK;
}

// The nth name of the program in the order of its links, and how many have it; NULL: no more.
static const char *nth_name(const cuda_backend *b, int nth, int *count) {
    const struct decode_program *p = b->decode;
    const struct op_list *l = b->c.list[ROW_DECODE];
    const bool head = p->link[p->n_link - 1].is.kind == LINK_HEAD; // whose choice has a name of its own
    auto name = [&](int i) { return i < p->n_link ? p->link[i].name : l->op[l->n_op - 1].name; };
    for (int i = 0; i < p->n_link + head; i++) {
        int same = 0;
        while (same < i && strcmp(name(same), name(i)) != 0) same++;
        if (same < i || nth--) continue;
        *count = 0;
        for (int k = i; k < p->n_link + head; k++) *count += !strcmp(name(k), name(i));
        return name(i);
    }
    return NULL;
}
enum infer_status decode_profile(struct backend *base, int rows,
                                 void (*line)(const char *name, float alone, float without, int n)) {
    cuda_backend *b = (cuda_backend *)base;
    float all, alone, without;
    const char *name;
    if (!b->decode) return err_set(INFER_E_UNSUPPORTED, "cuda: decode is not fused");
    int has;
    CU(cudaStreamSynchronize(b->stream));
    CU(cudaMemcpy(&has, &b->t.step->n_row, sizeof has, cudaMemcpyDeviceToHost));
    if (has > rows) return err_set(INFER_E_INPUT, "a profile of %d rows of a step that has %d", rows, has);
    TRY(time_links(b, b->decode, rows, selection{}, &all));
    line("all", all, 0, 1);
    for (int i = 0, n; (name = nth_name(b, i, &n)) != NULL; i++) {
        TRY(time_links(b, b->decode, rows, selection{name, NULL}, &alone));
        TRY(time_links(b, b->decode, rows, selection{NULL, name}, &without));
        line(name, alone, all - without, n);
    }
    return INFER_OK;
}
