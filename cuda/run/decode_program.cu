// The fused program for decode rows: five kernels a layer (q k v; rope, cache write and attention; output projection
// with the residual; gate, up and their product; down with the residual), each leaving its result as the next one
// reads it. Built from the list by its shape; a list of another shape runs op by op.
#include "cuda/run/decode_program.h"
#include "cuda/run/decode_profile.h"
#include "cuda/decode/attend_decode.h"
#include "cuda/run/match_layer.h"
#include "base/mem.h"
#include "cuda/decode/skinny.h"

struct link { // one matmul
    const struct mm_kernel *k;
    mm_job job;
    size_t x_bytes; // shared memory for the input of one row
    int blocks;     // one row
    bool few[3];    // the kernels for up to 2, 4 and 8 rows fit
    int nth;        // of a norm: writers of the residual stream before it
};
struct decode_layer {
    link qkv, out, gate_up, down;
    attend_job attend;
};
struct decode_program {
    embed_job embed;
    struct decode_layer *layer;
    int n_layer;
    link head;
    bool integers;  // codes times codes: never more than one row
    float (*up)[2]; // of each region of a group: what scales are multiplied by, see unit_halves.cuh
    float2 *cand;
    int n_cand; // a row, as the head's launch leaves them
    int32_t *token;
    result_ring results;
};

// How a vector is handed on: bytes between rows and between units of 256 columns.
struct form {
    enum mm_give give;
    int ga; // columns of a group of a record, 0: halves
    uint8_t *at;
    size_t row, unit;
};

static enum layout first_layout(const cuda_backend *b, int group) {
    return b->plan.group[group].region[0].layout;
}
static bool is_half(enum layout l) { return l == LAYOUT_F16 || l == LAYOUT_BF16; }

// What the matrix wants as its input: slot 0 norm of the residual stream, 1 attention, 2 gated. integers: codes for
// codes (gemv_int8.cuh).
static form form_for(const cuda_backend *b, bool integers, int group, int slot) {
    const enum layout l = first_layout(b, group);
    const int ga = slot == 2 ? 16 : 32;
    const size_t record = ga == 16 ? REC_BYTES_16 : REC_BYTES_32;
    if (integers) return form{GIVE_RECORD, ga, b->work + b->plan.rec[slot], 0, record};
    return form{l == LAYOUT_F16    ? GIVE_HALF
                : l == LAYOUT_BF16 ? GIVE_BF16
                                   : GIVE_CODES,
                0, b->work + b->plan.half[slot], b->plan.half_row_bytes, l == LAYOUT_BF16 ? 1024u : 512u};
}

// Splits the blocks between two regions so that the slower half is fastest.
static int best_split(const mm_job &j, const struct mm_kernel *k, int blocks) {
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

// Shared memory that a block may have on the chip, or on the one that is emulated.
static size_t shared_memory(const cuda_backend *b) {
    return b->c.sm_emulate == 120 ? 99 << 10 : b->prop.sharedMemPerBlockOptin;
}

static int skinny_chip(const cuda_backend *b) { return cuda_only_mma(b) ? 80 : 90; }

// Shared memory of a block for one row.
static size_t block_bytes(const link *l) { return mm_smem(l->k, l->x_bytes); }
// Whether a multiprocessor has room for two blocks; the system takes 1 KB of each.
static bool fit_together(const cuda_backend *b, size_t one, size_t other) {
    return one + other + 2048 <= b->prop.sharedMemPerMultiprocessor;
}
// Kernel, weights and input of a matmul; false when no streaming kernel takes it. next: whose block fetches weights beside
// this one's if both fit; halves take a shorter ring for that (measured, 8B F16: 3,739 us a token, 4,029 where it does
// not fit).
static bool link_make(const cuda_backend *b, const float (*up)[2], link *l, int group, form in,
                      enum mm_epilogue epi, const link *next = NULL) {
    const cuda_group *g = &b->plan.group[group];
    if (g->n_region > 2 || g->scaled) return false;
    memset(l, 0, sizeof *l);
    enum layout l0 = g->region[0].layout, l1 = g->n_region == 2 ? g->region[1].layout : LAYOUT_COUNT;
    l->x_bytes = (size_t)g->region[0].u * in.unit;
    for (int nth = 0;; nth++) {
        l->k = mm_find(l0, l1, in.ga, epi, nth);
        if (!l->k) return false;
        if (block_bytes(l) > shared_memory(b)) continue;
        const size_t own = block_bytes(l), other = next ? block_bytes(next) : epi == EPI_HEAD ? own : 0;
        if (!is_half(l0) || !other || fit_together(b, own, other) || !mm_find(l0, l1, in.ga, epi, nth + 1))
            break;
    }
    for (int i = 0; i < g->n_region; i++) {
        l->job.w[i] = b->weights + g->region[i].offset;
        l->job.steps[i] = g->region[i].rows / (16 * l->k->r);
        l->job.up[i] = up[group][i];
        l->job.down[i] = 0x1p24f / up[group][i];
    }
    few_shape few;
    for (int i = 0; i < 3; i++)
        l->few[i] = l->k->few[i] && few_plan(l->k, 2 << i, g->region[0].u, shared_memory(b), &few);
    if (g->n_region == 2) l->job.split = best_split(l->job, l->k, b->sm_count);
    mm_job &j = l->job;
    j.u = g->region[0].u;
    j.k = g->k;
    j.x = in.at;
    j.x_row = in.row;
    j.x_unit = in.unit;
    j.n_row = &b->t.step->n_row;
    for (int i = 0; i < g->n_member; i++) {
        j.seg[i].region = g->member[i].region;
        j.seg[i].row = g->member[i].base;
        j.seg[i].n = g->member[i].n;
        j.seg[i].col = g->member[i].col;
    }
    j.n_seg = g->n_member;
    j.n_out = g->member[0].n;
    if (g->bias) j.bias = (const float *)(b->work + b->plan.constant + g->bias_offset);
    l->blocks = b->sm_count;
    return in.ga || b->c.list[ROW_DECODE]->max_rows == 1 ||
           skinny_fits(l->k, &j, skinny_chip(b), shared_memory(b));
}

// The residual stream on its way through the links.
struct residual {
    rows x;
    int nth;      // writers so far, the embedding is number 0
    int n_square; // sums of squares of a row
};
// Scales of the rows that the nth writer hands on, and of those that its reader leaves.
static void link_scale(const cuda_backend *b, mm_job *j, int nth) {
    float *scale = (float *)(b->work + b->plan.scale);
    j->scale = scale + (size_t)((nth + 2) % 4 * b->plan.max_decode);
    j->scale_next = scale + (size_t)(nth % 4 * b->plan.max_decode);
    j->square_row = ((size_t)b->plan.max_k + 255) / 256 * 16;
}
// The reader's side of a norm.
static void link_norm(const cuda_backend *b, link *l, const struct op_norm *n, const residual &r) {
    mm_job &j = l->job;
    link_scale(b, &j, r.nth);
    l->nth = r.nth;
    j.square = (const float *)(b->work + b->plan.square);
    j.n_square = r.n_square;
    j.inv_k = 1.f / (float)n->dim;
    j.eps = n->eps;
}
// The writer's side: the residual sum, and its norm for the next matmul, which is the group's. Returns what that takes.
static form link_add(const cuda_backend *b, bool integers, link *l, const struct op_norm *next, int group,
                     residual *r) {
    mm_job &j = l->job;
    const form to = form_for(b, integers, group, 0);
    r->nth++;
    link_scale(b, &j, r->nth);
    j.res = r->x.p;
    j.res_row = r->x.stride;
    j.next_norm = cuda_constant(b, next->w);
    j.square_out = (float *)(b->work + b->plan.square);
    j.give = to.give;
    j.xo = to.at;
    j.xo_row = to.row;
    j.xo_unit = to.unit;
    return to;
}

// Whether the kernels take the layer's sizes.
static bool layer_fits(const cuda_backend *b, const struct layer_ops *o) {
    const struct kv_store *s = &b->c.store[o->attend->store];
    const struct op_attend *a = o->attend;
    if (o->q_rope->rope != o->k_rope->rope || a->store != o->put->store) return false;
    if (o->q_norm && (o->q_norm->dim != s->head_dim_k || o->k_norm->dim != s->head_dim_k)) return false;
    const cuda_group *gu = &b->plan.group[o->gate_up->w->id];
    return gu->paired && !gu->bias && o->out->w->n_member == 1 && o->down->w->n_member == 1 &&
           b->c.n_embd % 32 == 0;
}

enum { HAND_OVER_BYTES = 64 << 20 };
// One row: packets from a link to the next instead of a wait for the whole kernel (slot as in form_for). NULL: not for this
// matrix.
static uint8_t *take_over(const cuda_backend *b, link *to, int slot, int columns, uint32_t layer) {
    const size_t bytes = (size_t)to->job.steps[0] * to->k->r * to->job.u * layout_unit_bytes(to->k->l);
    if (bytes > HAND_OVER_BYTES) return NULL; // measured: a long stream loses more to the polls than it gains
    if (to->job.u < to->k->warps) return NULL; // every warp must see that the kernels before are done
    to->job.take_handoff = b->work + b->plan.packet[slot - 1];
    to->job.seq = &b->t.step->seq;
    to->job.tag = 1 + layer;
    to->job.take_columns = columns;
    return (uint8_t *)to->job.take_handoff;
}
static void hand_over(const cuda_backend *b, link *from, link *to, uint32_t layer) {
    from->job.give_handoff = take_over(b, to, 2, from->job.steps[0] * 8 * from->k->r, layer);
    from->job.seq = &b->t.step->seq;
    from->job.tag = 1 + layer;
}
// q, k and v as floats with a tag, the attention's result as its projection takes it.
static void hand_over_attend(const cuda_backend *b, decode_layer *d, uint32_t layer) {
    attend_job &a = d->attend;
    mm_job &q = d->qkv.job;
    if (!attend_takes_handoff(a)) return;
    int columns = 0;
    for (int i = 0; i < q.n_seg; i++)
        if (q.seg[i].col + q.seg[i].n > columns) columns = q.seg[i].col + q.seg[i].n;
    if ((size_t)columns * sizeof(uint2) > b->plan.handoff_bytes) return;
    a.give_handoff = take_over(b, &d->out, 1, a.n_head * a.kv.dv, layer);
    if (!a.give_handoff) return;
    a.tag = q.tag = 1 + layer;
    q.seq = &b->t.step->seq;
    q.give_handoff = b->work + b->plan.packets;
    a.take_handoff = (const uint2 *)q.give_handoff;
}

static bool build_layer(cuda_backend *b, struct decode_program *p, struct decode_layer *d,
                        const struct layer_ops *o, const struct op_norm *next, int next_group, uint32_t layer,
                        residual *r) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const bool ints = p->integers;
    const float(*up)[2] = p->up;
    int qkv = o->qkv->w->id, out = o->out->w->id, gu = o->gate_up->w->id, down = o->down->w->id;
    if (!link_make(b, up, &d->qkv, qkv, form_for(b, ints, qkv, 0), EPI_STORE)) return false;
    link_norm(b, &d->qkv, o->norm, *r);
    rows y = cuda_rows(b, l, o->qkv->out);
    d->qkv.job.y = y.p;
    d->qkv.job.y_row = y.stride;

    attend_job &a = d->attend;
    memset(&a, 0, sizeof a);
    form to = form_for(b, ints, out, 1);
    a.t = b->t;
    a.kv = cuda_store(b, o->attend->store);
    a.qkv = y.p;
    a.qkv_row = y.stride;
    a.q_col = o->attend->q.col;
    a.k_col = o->put->k.col;
    a.v_col = o->put->v.col;
    a.n_head = o->attend->n_head;
    const float log2e = 1.4426950408889634f;
    a.softcap = o->attend->softcap * log2e;
    a.scale = o->attend->softcap > 0 ? o->attend->scale / o->attend->softcap : o->attend->scale * log2e;
    a.window = o->attend->window;
    a.sinks = cuda_constant(b, o->attend->sinks);
    if (o->q_norm) {
        a.q_norm = cuda_constant(b, o->q_norm->w);
        a.k_norm = cuda_constant(b, o->k_norm->w);
        a.eps = o->q_norm->eps;
    }
    a.rope = cuda_rope_table(b, o->q_rope->rope);
    a.n_rot = o->q_rope->rope->n_rot;
    a.neox = o->q_rope->rope->kind == ROPE_NEOX;
    a.part = (float *)(b->work + b->plan.part);
    a.max_split = b->plan.max_split;
    a.arrived = (int *)(b->work + b->plan.counter);
    a.give = to.give;
    a.xo = to.at;
    a.xo_row = to.row;
    a.xo_unit = to.unit;
    if (!attend_plan(&a, shared_memory(b))) return false;

    if (!link_make(b, up, &d->out, out, to, EPI_ADD)) return false;
    form normed = link_add(b, ints, &d->out, o->ffn_norm, gu, r), gated = form_for(b, ints, down, 2);
    if (!link_make(b, up, &d->down, down, gated, EPI_ADD)) return false;
    if (!link_make(b, up, &d->gate_up, gu, normed, EPI_GLU, &d->down)) return false;
    link_norm(b, &d->gate_up, o->ffn_norm, *r);
    d->gate_up.job.act = o->glu->act;
    d->gate_up.job.give = gated.give;
    d->gate_up.job.xo = gated.at;
    d->gate_up.job.xo_row = gated.row;
    d->gate_up.job.xo_unit = gated.unit;
    link_add(b, ints, &d->down, next, next_group, r);
    hand_over(b, &d->gate_up, &d->down, layer);
    hand_over_attend(b, d, layer);
    return true;
}

// Whether there are kernels that multiply codes by codes for all matrices.
static bool all_codes(const cuda_backend *b) {
    for (int g = 0; g < b->plan.n_group; g++)
        for (int i = 0; i < b->plan.group[g].n_region; i++) {
            const enum layout l = b->plan.group[g].region[i].layout;
            if (l == LAYOUT_F32 || is_half(l)) return false;
        }
    return true;
}
// What the scales of each region are multiplied by.
static enum infer_status find_scales(cuda_backend *b, float (*up)[2]) {
    unsigned *most = (unsigned *)(b->work + b->plan.stage), *found = (unsigned *)up;
    const size_t n = (size_t)b->plan.n_group * 2;
    CU(cudaMemsetAsync(most, 0, n * sizeof *most, b->stream));
    for (int g = 0; g < b->plan.n_group; g++)
        for (int i = 0; i < b->plan.group[g].n_region && i < 2; i++) {
            const cuda_region *r = &b->plan.group[g].region[i];
            if (r->layout == LAYOUT_F32 || is_half(r->layout)) continue;
            CU(scale_range(r->layout, b->weights + r->offset, (size_t)(r->rows / UNIT_ROWS) * (size_t)r->u,
                           most + g * 2 + i, b->stream));
        }
    CU(cudaMemcpyAsync(found, most, n * sizeof *most, cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    for (size_t i = 0; i < n; i++) {
        float v, *to = &up[0][0] + i;
        memcpy(&v, found + i, sizeof v);
        *to = v > 0 ? exp2f(floorf(log2f(65504.f / v))) : 1.f;
    }
    return INFER_OK;
}

static enum infer_status build(cuda_backend *b, struct decode_program *p, struct layer_ops *ops,
                               int n_layer_max, bool *fits) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    cursor c = {l, 0};
    *fits = false;
    const struct op *embed = take_op(&c, OP_EMBED);
    if (!embed) return INFER_OK;
    struct view x = embed->embed.out;
    int n = 0;
    while (n < n_layer_max && c.i < l->n_op && l->op[c.i].kind == OP_NORM) {
        if (!match_layer(&c, x, &ops[n]) || !layer_fits(b, &ops[n])) return INFER_OK;
        n++;
    }
    const struct op *r = take_op(&c, OP_ROWS), *norm = take_op(&c, OP_NORM), *head = take_op(&c, OP_MATMUL),
                    *select = take_op(&c, OP_SELECT);
    if (!n || !select || !view_same(r->rows.x, x) || !plain_norm(norm, r->rows.out, x.width) ||
        !view_same(head->matmul.x, norm->norm.out) || b->n_rope > 4 || l->max_rows > 1024)
        return INFER_OK;
    residual res = {cuda_rows(b, l, x), 0, b->c.n_embd / 16};
    int head_group = head->matmul.w->id;

    form first = form_for(b, p->integers, ops[0].qkv->w->id, 0);
    embed_job &e = p->embed;
    e.t = b->t;
    e.ring = cuda_decode_blob(b, 0, &e.ring_row);
    e.next = b->next_decode;
    p->results.host = cuda_decode_result(b, 0, &p->results.row);
    p->results.next = b->next_decode;
    e.w = cuda_matrix(b, b->plan.embedding, 0);
    e.scale = embed->embed.scale * embed->embed.w->factor;
    e.res = res.x.p;
    e.res_row = res.x.stride;
    e.next_norm = cuda_constant(b, ops[0].norm->w);
    e.square = (float *)(b->work + b->plan.square);
    e.square_row = ((size_t)b->plan.max_k + 255) / 256 * 16;
    e.give = first.give;
    e.xo = first.at;
    e.xo_row = first.row;
    e.xo_unit = first.unit;
    e.scale_at = (float *)(b->work + b->plan.scale);
    e.scale_row = b->plan.max_decode;
    e.n_rope = b->n_rope;
    for (int i = 0; i < b->n_rope; i++) {
        e.rope[i].inv_freq = cuda_constant(b, b->rope[i]->inv_freq);
        e.rope[i].half = b->rope[i]->n_rot / 2;
        e.rope[i].mscale = b->rope[i]->mscale;
        e.rope[i].table = cuda_rope_table(b, b->rope[i]);
    }
    for (int i = 0; i < n; i++)
        if (!build_layer(b, p, &p->layer[i], &ops[i], i + 1 < n ? ops[i + 1].norm : &norm->norm,
                         i + 1 < n ? ops[i + 1].qkv->w->id : head_group, (uint32_t)i, &res))
            return INFER_OK;
    p->layer[0].qkv.job.first = true;
    p->n_layer = n;
    if (!link_make(b, p->up, &p->head, head_group, form_for(b, p->integers, head_group, 0), EPI_HEAD) ||
        b->plan.group[head_group].n_region != 1)
        return INFER_OK;
    link_norm(b, &p->head, &norm->norm, res);
    mm_job &h = p->head.job;
    h.rowmap = b->t.out_row;
    h.n_row = &b->t.step->n_out;
    rows logits = cuda_rows(b, l, select->select.logits);
    h.y = cuda_logits_copy(b);
    h.y_row = (size_t)b->c.n_vocab;
    if (!h.y) {
        h.y = logits.p;
        h.y_row = logits.stride;
    }
    p->cand = h.cand = (float2 *)(b->work + b->plan.cand);
    p->token = cuda_tokens(b);
    if (fit_together(b, block_bytes(&p->head), block_bytes(&p->head))) p->head.blocks *= 2;
    *fits = true;
    return INFER_OK;
}

enum infer_status decode_build(struct decode_program **out, cuda_backend *b) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    struct decode_program *p;
    struct layer_ops *ops = NULL;
    int n_layer = 0;
    bool fits = false;
    *out = NULL;
    if (b->prop.major < 9) return INFER_OK; // bulk copies
    for (int i = 0; i < l->n_op; i++) n_layer += l->op[i].kind == OP_ATTEND;
    TRY(mem_new(&p, sizeof *p, "a decode program"));
    enum infer_status st = mem_new(&p->layer, (size_t)(n_layer + 1) * sizeof *p->layer, "a decode program");
    if (st == INFER_OK) st = mem_new(&ops, (size_t)(n_layer + 1) * sizeof *ops, "a decode program");
    if (st == INFER_OK)
        st = mem_new(&p->up, (size_t)(b->plan.n_group + 1) * sizeof *p->up, "a decode program");
    if (st == INFER_OK) st = find_scales(b, p->up);
    p->integers = st == INFER_OK && l->max_rows == 1 && all_codes(b);
    if (p->integers) st = build(b, p, ops, n_layer, &fits);
    if (st == INFER_OK && !fits) {
        p->integers = false;
        st = build(b, p, ops, n_layer, &fits);
    }
    mem_free(ops);
    cudaError_t e = mm_prepare();
    if (e == cudaSuccess) e = skinny_prepare();
    if (e == cudaSuccess) e = attend_prepare();
    if (st == INFER_OK && e != cudaSuccess) st = cuda_error(e, "cudaFuncSetAttribute");
    if (st != INFER_OK || !fits) {
        decode_free(p);
        if (st == INFER_OK)
            log_line(LOG_NOTE, "cuda: no fused program takes this model; decode runs op by op");
        return st;
    }
    *out = p;
    return INFER_OK;
}

void decode_free(struct decode_program *p) {
    if (!p) return;
    mem_free(p->up);
    mem_free(p->layer);
    mem_free(p);
}

// ---- running
static enum infer_status run_one(struct decode_program *p, const link *l, bool beside, cudaStream_t s) {
    mm_job j = l->job;
    if (!beside) {
        j.give_handoff = NULL;
        j.take_handoff = NULL;
    }
    j.x_bytes = l->x_bytes;
    j.n_cand = l->blocks * l->k->warps;
    if (j.cand) p->n_cand = j.n_cand;
    CU(launch_overlapped(l->k->run[j.give_handoff || j.take_handoff], l->blocks, l->k->warps * 32,
                         mm_smem(l->k, j.x_bytes), true, s, j));
    return INFER_OK;
}
// Many rows of halves. The head works on all rows of the step and leaves those that are wanted.
static enum infer_status run_half(const cuda_backend *b, struct decode_program *p, const link *l, int rows,
                                  cudaStream_t s) {
    skinny_job w = {};
    w.j = l->job;
    w.j.give_handoff = NULL;
    w.epilogue = l->k->epilogue;
    w.rms = (uint2 *)(b->work + b->plan.scale) + 2 * b->plan.max_decode;
    w.seq = &b->t.step->seq;
    w.tag = 1 + (uint32_t)l->nth;
    w.part = (float4 *)(b->work + b->plan.stage);
    w.count = (int *)(b->work + b->plan.wide_count);
    if (!skinny_plan(&w, l->k, rows, skinny_chip(b), b->sm_count, shared_memory(b), b->plan.stage_bytes))
        return cuda_error(cudaErrorInvalidConfiguration, "skinny_plan");
    if (w.j.cand) p->n_cand = w.j.n_cand;
    CU(skinny_launch(&w, b->sm_count, s));
    return INFER_OK;
}
// Outputs of a step of that many rows at most.
static int step_outs(const cuda_backend *b, int rows) {
    const int most = b->c.list[ROW_DECODE]->max_out;
    return rows < most ? rows : most;
}
// Which of the kernels for few rows takes a step; -1: none.
static int few_kernel(const link *l, int rows) {
    const int i = rows <= 2 ? 0 : rows <= 4 ? 1 : 2;
    return rows > 1 && rows <= 8 && l->few[i] ? i : -1;
}
static enum infer_status run_few(const cuda_backend *b, struct decode_program *p, const link *l, int i,
                                 cudaStream_t s) {
    const int t = 2 << i, tiles = few_tiles(l->k->r, l->k->epilogue), blocks = b->sm_count;
    mm_job j = l->job;
    const size_t smem = few_plan(l->k, t, j.u, shared_memory(b), &j.few);
    const int groups = j.few.groups;
    j.few.rows = (int16_t)b->c.list[ROW_DECODE]->max_rows;
    j.give_handoff = NULL;
    j.take_handoff = NULL;
    for (int r = 0; r < 2; r++) j.steps[r] = j.steps[r] * l->k->r / tiles;
    if (l->k->l2 != LAYOUT_COUNT) j.split = best_split(j, l->k, blocks);
    j.n_cand = blocks * groups * (l->k->warps / t);
    if (j.cand) p->n_cand = j.n_cand;
    CU(launch_overlapped(l->k->few[i], blocks, groups * l->k->warps * 32, smem, true, s, j));
    return INFER_OK;
}
static enum infer_status run_link(const cuda_backend *b, struct decode_program *p, const link *l, int rows,
                                  bool beside, cudaStream_t s) {
    const int few = few_kernel(l, rows);
    return rows == 1  ? run_one(p, l, beside, s)
           : few >= 0 ? run_few(b, p, l, few, s)
                      : run_half(b, p, l, rows, s);
}

enum {
    PART_EMBED = 1,
    PART_QKV = 2,
    PART_ATTEND = 4,
    PART_OUT = 8,
    PART_GATE_UP = 16,
    PART_DOWN = 32,
    PART_HEAD = 64,
    PART_SELECT = 128,
    PART_PUT = 256
};
// How the input of each link's reader lies in a step of that many rows.
template <class J> static void place(J *giver, const link *taker, int rows) {
    giver->xo_pitch = rows > 1 && few_kernel(taker, rows) < 0 ? half_pitch(rows) : 0;
}
static void place_inputs(struct decode_program *p, int rows) {
    place(&p->embed, &p->layer[0].qkv, rows);
    for (int i = 0; i < p->n_layer; i++) {
        struct decode_layer *d = &p->layer[i];
        place(&d->attend, &d->out, rows);
        place(&d->out.job, &d->gate_up, rows);
        place(&d->gate_up.job, &d->down, rows);
        place(&d->down.job, i + 1 < p->n_layer ? &d[1].qkv : &p->head, rows);
    }
}
static enum infer_status run_parts(cuda_backend *b, struct decode_program *p, int rows, unsigned keep,
                                   cudaStream_t s) {
    const unsigned links = PART_QKV | PART_ATTEND | PART_OUT | PART_GATE_UP | PART_DOWN;
    bool beside = rows == 1 && (keep & links) == links && !(keep & PART_PUT);
    place_inputs(p, rows);
    if (keep & PART_EMBED) CU(embed_launch(p->embed, rows, s));
    for (int i = 0; i < p->n_layer; i++) {
        struct decode_layer *d = &p->layer[i];
        if (keep & PART_QKV) TRY(run_link(b, p, &d->qkv, rows, beside, s));
        attend_job a = d->attend;
        a.put = !(keep & PART_PUT);
        a.wait = i == 0;
        if (!beside) {
            a.take_handoff = NULL;
            a.give_handoff = NULL;
        }
        if (keep & PART_PUT) CU(attend_put_launch(a, rows, true, s));
        if (keep & PART_ATTEND) CU(attend_launch(a, rows, b->sm_count, true, s));
        if (keep & PART_OUT) TRY(run_link(b, p, &d->out, rows, beside, s));
        if (keep & PART_GATE_UP) TRY(run_link(b, p, &d->gate_up, rows, beside, s));
        if (keep & PART_DOWN) TRY(run_link(b, p, &d->down, rows, beside, s));
    }
    if (keep & PART_HEAD) TRY(run_link(b, p, &p->head, rows, beside, s));
    if (keep & PART_SELECT)
        CU(select_launch(b->t, p->cand, p->n_cand, (size_t)p->n_cand, p->token, p->results,
                         step_outs(b, rows), s));
    return INFER_OK;
}
enum infer_status decode_run(cuda_backend *b, struct decode_program *p, int rows, bool shared,
                             cudaStream_t s) {
    return run_parts(b, p, rows, shared ? ~0u : ~(unsigned)PART_PUT, s);
}

// ---- measuring
// Microseconds of a replay of the program with the parts of keep, for rows rows of the step that ran last.
static enum infer_status time_parts(cuda_backend *b, struct decode_program *p, int rows, unsigned keep,
                                    float *us) {
    cudaGraph_t g;
    cudaGraphExec_t ge;
    cudaEvent_t t0, t1;
    CU(cudaEventCreate(&t0));
    CU(cudaEventCreate(&t1));
    CU(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    enum infer_status st = run_parts(b, p, rows, keep, b->stream);
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

enum infer_status decode_profile(struct backend *base, int rows,
                                 void (*line)(const char *name, float alone, float without, int n)) {
    cuda_backend *b = (cuda_backend *)base;
    static const char *const names[] = {"embed", "qkv", "attend", "out", "gate_up", "down", "head", "select"};
    if (!b->decode) return err_set(INFER_E_UNSUPPORTED, "cuda: decode is not fused");
    float all, alone, without;
    CU(cudaStreamSynchronize(b->stream));
    TRY(time_parts(b, b->decode, rows, 255, &all));
    line("all", all, 0, 1);
    for (int i = 0; i < 8; i++) {
        TRY(time_parts(b, b->decode, rows, 1u << i, &alone));
        TRY(time_parts(b, b->decode, rows, 255 & ~(1u << i), &without));
        line(names[i], alone, all - without, i >= 1 && i <= 5 ? b->decode->n_layer : 1);
    }
    return INFER_OK;
}
