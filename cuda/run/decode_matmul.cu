// Matmuls of decode rows: which kernel, its weights and input, its launches.
#include "cuda/run/adapters_run.h"
#include "cuda/run/decode_program_impl.h"
#include "seam/op_list.h"

// ---- which kernel
static int best_split(const gemv_args &j, const struct mm_kernel *k, int blocks) {
    int best = 1;
    double least = 1e30;
    for (int s = 1; s < blocks; s++) {
        double a = (double)((j.steps[0] + s - 1) / s) * layout_unit_bytes(k->l);
        const int rest = blocks - s;
        double c = (double)((j.steps[1] + rest - 1) / rest) * layout_unit_bytes(k->l2);
        double t = a > c ? a : c;
        if (t < least) {
            least = t;
            best = s;
        }
    }
    return best;
}
static bool is_half(enum layout l) { return layout_kind(l) == KIND_HALVES; }
static enum mm_epilogue epilogue_of(enum link_product p) {
    return p == PRODUCT_GATED    ? EPI_GLU
           : p == PRODUCT_CHOSEN ? EPI_HEAD
           : p == PRODUCT_ROWS   ? EPI_STORE
                                 : EPI_ADD;
}
// Shared memory of a block for one row.
size_t decode_block_bytes(const matmul_link *l) { return mm_smem(l->k, l->x_bytes); }
// Whether a multiprocessor has room for two blocks; the system takes 1 KB of each.
bool decode_fit_together(const cuda_backend *b, size_t one, size_t other) {
    return one + other + 2048 <= b->prop.sharedMemPerMultiprocessor;
}
// The kernel; false when no streaming one takes it. next: whose block fetches weights beside this one's if both fit; halves
// take a shorter ring for that (measured, 8B F16: 3,739 us a token, 4,029 where it does not fit).
static bool find_kernel(const cuda_backend *b, matmul_link *l, const cuda_region *r, int n, int ga,
                        enum mm_epilogue epi, const matmul_link *next) {
    const enum layout l0 = r[0].layout, l1 = n == 2 ? r[1].layout : LAYOUT_COUNT;
    for (int nth = 0;; nth++) {
        l->k = mm_find(l0, l1, ga, epi, nth);
        if (!l->k) return false;
        if (decode_block_bytes(l) > decode_shared_memory(b)) continue;
        const size_t own = decode_block_bytes(l), other = next              ? decode_block_bytes(next)
                                                          : epi == EPI_HEAD ? own
                                                                            : 0;
        if (!is_half(l0) || !other || decode_fit_together(b, own, other) ||
            !mm_find(l0, l1, ga, epi, nth + 1))
            return true;
    }
}
// n regions of a group, from first on.
static void place_weights(const cuda_backend *b, const float (*up)[2], gemv_args *j,
                          const struct mm_kernel *k, int group, int first, int n) {
    const cuda_group *g = &b->plan.group[group];
    for (int i = 0; i < n; i++) {
        const cuda_region *r = &g->region[first + i];
        j->w[i] = b->weights + r->offset;
        j->steps[i] = r->rows / (16 * k->r);
        j->up[i] = up[group][first + i];
        j->down[i] = 0x1p24f / up[group][first + i];
    }
    if (n == 2) j->split = best_split(*j, k, b->sm_count);
    j->u = g->region[0].u;
    j->k = g->k;
    for (int i = 0; i < g->n_member; i++) {
        const cuda_member *m = &g->member[i];
        if (m->region < first || m->region >= first + n) continue;
        auto &seg = j->seg[j->n_seg++];
        seg.region = m->region - first;
        seg.row = m->base;
        seg.n = m->n;
        seg.col = m->col;
    }
    j->n_out = g->member[0].n;
    if (g->bias) j->bias = (const float *)(b->work + b->plan.constant + g->bias_offset);
}
// Kernel, weights and input of n regions of a matmul from first on; false when no kernel takes them.
static bool make_regions(const cuda_backend *b, const float (*up)[2], matmul_link *l,
                         const struct cuda_link *k, enum link_form form, const matmul_link *next, int first,
                         int n) {
    const struct op_list *list = b->c.list[ROW_DECODE];
    const int group = list->op[k->matmul].matmul.w->id;
    const cuda_group *g = &b->plan.group[group];
    const act_form in = decode_form(b, form, k->slot);
    memset(l, 0, sizeof *l);
    l->x_bytes = (size_t)g->region[0].u * in.unit;
    if (!find_kernel(b, l, g->region + first, n, in.ga, epilogue_of(k->product), next)) return false;
    place_weights(b, up, &l->job, l->k, group, first, n);
    few_shape few;
    for (int i = 0; i < 3; i++)
        l->few[i] = l->k->few[i] && few_plan(l->k, 2 << i, g->region[0].u, decode_shared_memory(b), &few);
    l->job.x = in.at;
    l->job.x_row = in.row;
    l->job.x_unit = in.unit;
    l->blocks = b->sm_count;
    return in.ga || list->max_rows == 1 ||
           skinny_fits(l->k, &l->job, skinny_chip(b), decode_shared_memory(b));
}
// The same of all regions; other: where no kernel takes both regions at once, the second one by itself, else its k is NULL.
static bool make_all(const decode_maker &m, matmul_link *l, matmul_link *other, const struct cuda_link *k,
                     enum link_form form, const matmul_link *next) {
    const cuda_backend *b = m.b;
    const float(*up)[2] = m.p->up;
    const int n = b->plan.group[decode_list(b)->op[k->matmul].matmul.w->id].n_region;
    other->k = NULL;
    if (n > (k->product == PRODUCT_CHOSEN ? 1 : 2)) return false;
    if (make_regions(b, up, l, k, form, next, 0, n)) return true;
    return n == 2 && k->product == PRODUCT_ROWS && make_regions(b, up, l, k, form, next, 0, 1) &&
           make_regions(b, up, other, k, form, next, 1, 1);
}
bool decode_matmul_has(const decode_maker &m, const struct cuda_link *k, enum link_form in, enum link_form) {
    matmul_link l, other;
    return make_all(m, &l, &other, k, in, NULL);
}
bool decode_matmul_make(const decode_maker &m, decode_link *d, const matmul_link *next) {
    return make_all(m, &d->mm, &d->other, &d->is, d->is.wants, next);
}

// ---- adapters, of one row
// Blocks that have steps of both regions.
static int adapted_blocks(const matmul_link *l) {
    const gemv_args &j = l->job;
    if (l->k->l2 == LAYOUT_COUNT) return j.steps[0] < l->blocks ? j.steps[0] : l->blocks;
    return j.steps[0] >= j.split && j.steps[1] >= l->blocks - j.split ? l->blocks : 0;
}
static const struct gemv_adapted_kernel *adapted_kernel(const cuda_backend *b, const matmul_link *l) {
    const struct gemv_adapted_kernel *k = gemv_adapted_find(l->k);
    const int groups = (l->job.u + 7) / 8, blocks = adapted_blocks(l);
    const size_t own = 16 << 10; // of the kernel itself
    const bool fits = groups <= ADAPTED_GROUPS && groups * ADAPTED_RANKS <= blocks * ADAPTED_PIECES;
    return k && fits && decode_block_bytes(l) + own <= decode_shared_memory(b) ? k : NULL;
}
static bool has_adapted(const decode_maker &m, const struct cuda_link *k, enum link_form in) {
    matmul_link l, other;
    return make_all(m, &l, &other, k, in, NULL) && !other.k && adapted_kernel(m.b, &l);
}
// A gate's result is codes, which nothing but such a kernel reads beside adapters.
bool decode_adapted_has(const decode_maker &m, const struct cuda_link *k, enum link_form in, enum link_form) {
    const struct op_list *l = decode_list(m.b);
    const int down = k->matmul + 3;
    if (!has_adapted(m, k, in)) return false;
    if (k->product != PRODUCT_GATED) return true;
    const struct cuda_link behind = {
        .kind = LINK_LOW_SUM, .product = PRODUCT_ADDED, .norm = -1, .matmul = down, .before = -1};
    return down < l->n_op && l->op[down].kind == OP_MATMUL && has_adapted(m, &behind, FORM_INT8_16);
}
void decode_adapted_make(const decode_maker &m, decode_link *d) {
    const cuda_backend *b = m.b;
    const struct op_list *l = decode_list(b);
    const struct op *low = &l->op[d->is.matmul + 1];
    const cuda_group *g = &b->plan.group[l->op[d->is.matmul].matmul.w->id];
    matmul_link *mm = &d->mm;
    gemv_adapted_job *e = &mm->adapted_job;
    const int i = (int)(d - m.p->link);
    mm->adapted = adapted_kernel(b, mm);
    e->weights = b->weights;
    e->scale = cuda_adapters_one(b);
    e->n_part = low->lowrank.w->n_part;
    memcpy(e->part, cuda_adapters_parts(b, l, low), (size_t)e->n_part * sizeof *e->part);
    e->sums = (uint2 *)(b->work + b->plan.low + adapted_sums_at(&b->plan.lowrank)) +
              (size_t)(i % LOWRANK_ONE_TURNS) * LOWRANK_ONE_RANKS * LOWRANK_ONE_GROUPS;
    e->seq = &b->t.step->seq;
    e->tag = 1 + (uint32_t)i;
    e->groups = (mm->job.u + 7) / 8;
    e->blocks = adapted_blocks(mm);
    if (d->is.product == PRODUCT_GATED)
        e->apart = (size_t)(g->member[1].base / UNIT_ROWS) * (size_t)mm->job.u * layout_unit_bytes(mm->k->l);
}

// ---- packets
enum { HAND_OVER_BYTES = 64 << 20 };
uint8_t *decode_take_over(const cuda_backend *b, decode_link *to, int columns, uint32_t tag) {
    const matmul_link &m = to->mm;
    const size_t bytes = (size_t)m.job.steps[0] * m.k->r * m.job.u * layout_unit_bytes(m.k->l);
    if (bytes > HAND_OVER_BYTES) return NULL; // measured: a long stream loses more to the polls than it gains
    if (m.job.u < m.k->warps) return NULL;    // every warp must see that the kernels before are done
    to->mm.job.take_handoff = b->work + b->plan.packet[to->is.slot];
    to->mm.job.seq = &b->t.step->seq;
    to->mm.job.tag = tag;
    to->mm.job.take_columns = columns;
    return (uint8_t *)m.job.take_handoff;
}
// ---- launches
static enum infer_status run_one(const decode_step &s, const matmul_link *l, gemv_args j) {
    if (!s.beside) {
        j.give_handoff = NULL;
        j.take_handoff = NULL;
    }
    j.x_bytes = l->x_bytes;
    if (l->streamk) {
        streamk_job e = l->streamk_job;
        e.j.x_bytes = l->x_bytes;
        if (!s.beside) e.j.give_handoff = NULL, e.j.take_handoff = NULL;
        CU(launch_overlapped(l->streamk->run[e.j.give_handoff || e.j.take_handoff], l->blocks,
                             l->streamk->warps * 32, streamk_smem(l->streamk, l->x_bytes), true, s.stream,
                             e));
        return INFER_OK;
    }
    if (l->adapted) {
        gemv_adapted_job e = l->adapted_job;
        e.j = j;
        CU(launch_overlapped(l->adapted->run[j.give_handoff || j.take_handoff], l->blocks, l->k->warps * 32,
                             mm_smem(l->k, j.x_bytes), true, s.stream, e));
        return INFER_OK;
    }
    j.n_cand = l->blocks * l->k->warps;
    if (j.cand) s.p->n_cand = j.n_cand;
    CU(launch_overlapped(l->twin ? l->twin : l->k->run[j.give_handoff || j.take_handoff], l->blocks,
                         l->k->warps * 32, mm_smem(l->k, j.x_bytes), true, s.stream, j));
    return INFER_OK;
}
// The rows of a launch that begins with row `first` of the step.
static void begin_at(skinny_job *w, size_t first) {
    gemv_args &j = w->j;
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
static enum infer_status run_part(const decode_step &s, const matmul_link *l, const gemv_args &j, int first,
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
static enum infer_status run_half(const decode_step &s, const matmul_link *l, const gemv_args &j, int rows) {
    const int most = skinny_most(l->k, skinny_chip(s.b));
    for (int i = 0; i < rows; i += most) TRY(run_part(s, l, j, i, rows - i < most ? rows - i : most, rows));
    return INFER_OK;
}
// Which of the kernels for few rows takes a step; -1: none.
static int few_kernel(const matmul_link *l, int rows) {
    const int i = rows <= 2 ? 0 : rows <= 4 ? 1 : 2;
    return rows > 1 && rows <= 8 && l->few[i] ? i : -1;
}
static enum infer_status run_few(const decode_step &s, const matmul_link *l, gemv_args j, int i) {
    const cuda_backend *b = s.b;
    const int t = 2 << i, tiles = few_tiles(l->k->r, l->k->epilogue), blocks = b->sm_count;
    const size_t smem = few_plan(l->k, t, j.u, decode_shared_memory(b), &j.few);
    const int groups = j.few.groups;
    j.few.rows = (int16_t)b->c.list[ROW_DECODE]->max_rows;
    j.give_handoff = NULL;
    j.take_handoff = NULL;
    for (int r = 0; r < 2; r++) j.steps[r] = j.steps[r] * l->k->r / tiles;
    if (l->k->l2 != LAYOUT_COUNT) j.split = best_split(j, l->k, blocks);
    j.n_cand = blocks * groups * (l->k->warps / t);
    if (j.cand) s.p->n_cand = j.n_cand;
    CU(launch_overlapped(l->k->few[i], blocks, groups * l->k->warps * 32, smem, true, s.stream, j));
    return INFER_OK;
}
enum infer_status decode_matmul_launch(const decode_step &s, const matmul_link *l, const gemv_args &j,
                                       int rows) {
    const int few = few_kernel(l, rows);
    return rows == 1 ? run_one(s, l, j) : few >= 0 ? run_few(s, l, j, few) : run_half(s, l, j, rows);
}
int decode_input_pitch(const decode_link *d, int rows) {
    return rows > 1 && few_kernel(&d->mm, rows) < 0 ? half_pitch(rows) : 0;
}
enum infer_status decode_matmul_input(const decode_step &s, const decode_link *d, bool overlap) {
    const int rows = decode_rows(s, d);
    if (!d->from_rows) return INFER_OK;
    act_rows_job in = d->input;
    in.xo_pitch = decode_input_pitch(d, rows);
    CU(d->is.before < 0 ? act_rows_give(in, rows, overlap, s.stream)
                        : act_front_give(in, d->front, rows, overlap, s.stream));
    return INFER_OK;
}
enum infer_status decode_matmul_run(const decode_step &s, const decode_link *d, int pitch, bool overlap) {
    gemv_args j = d->mm.job;
    j.xo_pitch = pitch;
    TRY(decode_matmul_input(s, d, overlap));
    return decode_matmul_launch(s, &d->mm, j, decode_rows(s, d));
}
cudaError_t decode_matmul_prepare(void) {
    cudaError_t e = mm_prepare();
    if (e == cudaSuccess) e = streamk_prepare();
    if (e == cudaSuccess) e = gemv_adapted_prepare();
    if (e == cudaSuccess) e = gemv_twin_prepare();
    return e == cudaSuccess ? skinny_prepare() : e;
}
