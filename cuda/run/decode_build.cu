// From the links of the decode list (links.h) to jobs of kernels: which kernel, where its input lies, whom it hands its result.
#include "cuda/run/decode_program_impl.h"
#include "base/mem.h"
#include "seam/op_list.h"

// ---- forms
struct act_form { // bytes between rows and between units of 256 columns
    enum mm_give give;
    int ga; // columns of a group of a record, 0: halves
    uint8_t *at;
    size_t row, unit;
};
static act_form form_at(const cuda_backend *b, enum link_form f, enum act_slot slot) {
    uint8_t *half = b->work + b->plan.half[slot], *record = b->work + b->plan.rec[slot];
    const size_t row = b->plan.half_row_bytes;
    switch (f) {
    case FORM_INT8_16:
        return act_form{GIVE_RECORD, 16, record, 0, REC_BYTES_16};
    case FORM_INT8_32:
        return act_form{GIVE_RECORD, 32, record, 0, REC_BYTES_32};
    case FORM_BF16:
        return act_form{GIVE_BF16, 0, half, row, 1024};
    case FORM_CODES:
        return act_form{GIVE_CODES, 0, half, row, 512};
    default:
        return act_form{GIVE_HALF, 0, half, row, 512};
    }
}
template <class J> static void give_to(J *j, const act_form &to) {
    j->give = to.give;
    j->xo = to.at;
    j->xo_row = to.row;
    j->xo_unit = to.unit;
}

// ---- kernels of matmuls
int decode_best_split(const mm_job &j, const struct mm_kernel *k, int blocks) {
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
static enum mm_epilogue epilogue_of(enum link_kind k) {
    return k == LINK_GATED                        ? EPI_GLU
           : k == LINK_HEAD                       ? EPI_HEAD
           : k == LINK_RESIDUAL || k == LINK_POST ? EPI_ADD
                                                  : EPI_STORE;
}
// Shared memory of a block for one row.
static size_t block_bytes(const matmul_link *l) { return mm_smem(l->k, l->x_bytes); }
// Whether a multiprocessor has room for two blocks; the system takes 1 KB of each.
static bool fit_together(const cuda_backend *b, size_t one, size_t other) {
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
        if (block_bytes(l) > decode_shared_memory(b)) continue;
        const size_t own = block_bytes(l), other = next ? block_bytes(next) : epi == EPI_HEAD ? own : 0;
        if (!is_half(l0) || !other || fit_together(b, own, other) || !mm_find(l0, l1, ga, epi, nth + 1))
            return true;
    }
}
// n regions of a group, from first on.
static void place_weights(const cuda_backend *b, const float (*up)[2], mm_job *j, const struct mm_kernel *k,
                          int group, int first, int n) {
    const cuda_group *g = &b->plan.group[group];
    for (int i = 0; i < n; i++) {
        const cuda_region *r = &g->region[first + i];
        j->w[i] = b->weights + r->offset;
        j->steps[i] = r->rows / (16 * k->r);
        j->up[i] = up[group][first + i];
        j->down[i] = 0x1p24f / up[group][first + i];
    }
    if (n == 2) j->split = decode_best_split(*j, k, b->sm_count);
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
    const act_form in = form_at(b, form, k->slot);
    memset(l, 0, sizeof *l);
    l->x_bytes = (size_t)g->region[0].u * in.unit;
    if (!find_kernel(b, l, g->region + first, n, in.ga, epilogue_of(k->kind), next)) return false;
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
static bool make_matmul(const cuda_backend *b, const float (*up)[2], matmul_link *l, matmul_link *other,
                        const struct cuda_link *k, enum link_form form, const matmul_link *next) {
    const int n = b->plan.group[b->c.list[ROW_DECODE]->op[k->matmul].matmul.w->id].n_region;
    other->k = NULL;
    if (n > (k->kind == LINK_HEAD ? 1 : 2)) return false;
    if (make_regions(b, up, l, k, form, next, 0, n)) return true;
    return n == 2 && k->kind == LINK_MATMUL && make_regions(b, up, l, k, form, next, 0, 1) &&
           make_regions(b, up, other, k, form, next, 1, 1);
}

// ---- attention
static bool make_attend(const cuda_backend *b, attend_job *a, const struct cuda_link *k,
                        enum link_form form) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct attend_ops o = link_attend_ops(l, k);
    const int buf = o.attend->q.buf;
    const rows qkv = cuda_rows(b, l, view{buf, 0, l->buf[buf].width});
    memset(a, 0, sizeof *a);
    a->t = b->t;
    a->kv = cuda_store(b, o.attend->store);
    a->qkv = qkv.p;
    a->qkv_row = qkv.stride;
    a->q_col = o.attend->q.col;
    a->k_col = o.put->k.col;
    a->v_col = attend_value(&o).col;
    a->n_head = o.attend->n_head;
    const float log2e = 1.4426950408889634f;
    a->softcap = o.attend->softcap * log2e;
    a->scale = o.attend->softcap > 0 ? o.attend->scale / o.attend->softcap : o.attend->scale * log2e;
    a->window = o.attend->window;
    a->sinks = cuda_constant(b, o.attend->sinks);
    if (o.q_norm) {
        a->q_norm = cuda_constant(b, o.q_norm->w);
        a->k_norm = cuda_constant(b, o.k_norm->w);
        a->eps = o.q_norm->eps;
    }
    if (o.q_rope) {
        a->rope = cuda_rope_table(b, o.q_rope->rope);
        a->n_rot = o.q_rope->rope->n_rot;
        a->neox = o.q_rope->rope->kind == ROPE_NEOX;
    }
    a->v_norm = o.v_norm != NULL;
    a->late = o.late;
    a->temp_beta = o.attend->temp_beta;
    a->temp_len = o.attend->temp_len;
    a->temp_offset = o.attend->temp_offset;
    a->part = (float *)(b->work + b->plan.part);
    a->max_split = b->plan.max_split;
    a->arrived = (int *)(b->work + b->plan.counter);
    give_to(a, form_at(b, form, ACT_ATTENDED));
    return attend_plan(a, decode_shared_memory(b));
}

// ---- the residual stream on its way through the links
struct stream {
    int nth; // of those that handed it on last: their scales lie in four buffers in turn
};
// Scales of the rows that the nth hands on, and of those that its reader leaves.
static void set_scale(const cuda_backend *b, mm_job *j, int nth) {
    float *scale = (float *)(b->work + b->plan.scale);
    j->scale = scale + (size_t)((nth + 2) % 4 * b->plan.max_decode);
    j->scale_next = scale + (size_t)((nth + 4) % 4 * b->plan.max_decode);
    j->square_row = ((size_t)b->plan.max_k + 255) / 256 * 16;
}
// Rows of the step that a link works on.
static const int *row_count(const cuda_backend *b, const decode_link *d) {
    return d->out_rows ? &b->t.step->n_out : &b->t.step->n_row;
}
// The norm that a link begins with; NULL: none.
static const struct op_norm *norm_of(const cuda_backend *b, const decode_link *d) {
    return d->is.norm < 0 ? NULL : &b->c.list[ROW_DECODE]->op[d->is.norm].norm;
}
// The reader's side: its rows, and its norm.
static void read_rows(const cuda_backend *b, decode_link *d, const stream &r) {
    const struct op_norm *n = norm_of(b, d);
    mm_job &j = d->mm.job;
    j.n_row = row_count(b, d);
    set_scale(b, &j, r.nth); // read without a norm, too
    if (!n) return;
    d->mm.nth = r.nth;
    j.square = (const float *)(b->work + b->plan.square);
    j.n_square = n->dim / 16;
    j.inv_k = 1.f / (float)n->dim;
    j.eps = n->eps;
}
// Rows in front of a matmul become its input; of a norm these are the stream, handed on once more.
static void convert_input(const cuda_backend *b, decode_link *d, stream *r) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct op_norm *n = norm_of(b, d);
    act_rows_job *a = &d->input;
    mm_job of_scale = {};
    d->from_rows = true;
    a->x = cuda_rows(b, l, link_reads(l, &d->is));
    a->n_row = row_count(b, d);
    give_to(a, form_at(b, d->is.wants, d->is.slot));
    if (d->is.before >= 0) d->front = cuda_front(b, &l->op[d->is.before]);
    if (!n) return;
    r->nth++;
    set_scale(b, &of_scale, r->nth);
    a->norm = cuda_constant(b, n->w);
    a->scale = of_scale.scale;
    a->square = (float *)(b->work + b->plan.square);
    a->square_row = of_scale.square_row;
}
// The form in which the writers of the stream leave what nobody takes, and norm weights for that: any floats.
static act_form idle_form(const cuda_backend *b, bool int8) {
    return form_at(b, int8 ? FORM_INT8_32 : FORM_HALVES, ACT_NORMED);
}
static const float *next_norm(const cuda_backend *b, const decode_link *d) {
    return d->is.gives == FORM_ROWS ? (const float *)(b->work + b->plan.part)
                                    : cuda_constant(b, norm_of(b, d + 1)->w);
}
static act_form given_form(const cuda_backend *b, const decode_link *d, bool int8) {
    return d->is.gives == FORM_ROWS ? idle_form(b, int8) : form_at(b, d->is.gives, d[1].is.slot);
}

// ---- links
static void build_embed(const cuda_backend *b, struct decode_program *p, decode_link *d, bool int8,
                        stream *r) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct op_embed *o = &l->op[d->is.first].embed;
    const rows x = cuda_rows(b, l, o->out);
    embed_job &e = d->embed;
    memset(&e, 0, sizeof e);
    e.t = b->t;
    e.ring = cuda_decode_blob(b, 0, &e.ring_row);
    e.next = b->next_decode;
    e.w = cuda_matrix(b, b->plan.embedding, 0);
    e.scale = embed_scale(b, b->plan.embedding, o);
    e.res = x.p;
    e.res_row = x.stride;
    e.next_norm = next_norm(b, d);
    e.square = (float *)(b->work + b->plan.square);
    e.square_row = ((size_t)b->plan.max_k + 255) / 256 * 16;
    give_to(&e, given_form(b, d, int8));
    r->nth += d->is.gives != FORM_ROWS;
    e.scale_at = (float *)(b->work + b->plan.scale);
    e.scale_row = b->plan.max_decode;
    e.n_rope = b->n_rope;
    for (int i = 0; i < b->n_rope; i++) {
        e.rope[i].inv_freq = cuda_constant(b, b->rope[i]->inv_freq);
        e.rope[i].half = b->rope[i]->n_rot / 2;
        e.rope[i].mscale = b->rope[i]->mscale;
        e.rope[i].table = cuda_rope_table(b, b->rope[i]);
    }
}
// A result that is wanted as rows is given as bfloat16 in two parts, and made rows behind the kernel.
template <class J>
static void give_or_make_rows(const cuda_backend *b, decode_link *d, J *j, enum act_slot slot) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    d->to_rows = d->is.gives == FORM_ROWS;
    give_to(j, form_at(b, d->to_rows ? FORM_BF16 : d->is.gives, slot));
    if (!d->to_rows) return;
    d->output.x = cuda_rows(b, l, link_writes(l, &d->is));
    d->output.n_row = row_count(b, d);
    d->output.xo = j->xo;
    d->output.xo_row = j->xo_row;
}
static void build_attend(const cuda_backend *b, decode_link *d, bool first) {
    const bool as_rows = d->is.gives == FORM_ROWS;
    (void)make_attend(b, &d->attend, &d->is, as_rows ? FORM_BF16 : d->is.gives);
    give_or_make_rows(b, d, &d->attend, ACT_ATTENDED);
    d->attend.wait = first;
}
static void build_delta(const cuda_backend *b, decode_link *d, bool first) {
    delta_make(b, &d->is, &d->delta);
    give_or_make_rows(b, d, &d->delta, ACT_GATED);
    d->delta.wait = first;
}
// The writer's side: the residual sum, and its norm for the next matmul.
static void build_residual(const cuda_backend *b, decode_link *d, bool int8, stream *r) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const rows x = cuda_rows(b, l, link_writes(l, &d->is));
    mm_job &j = d->mm.job;
    r->nth += d->is.gives != FORM_ROWS;
    set_scale(b, &j, r->nth);
    j.res = x.p;
    j.res_row = x.stride;
    j.next_norm = next_norm(b, d);
    j.square_out = (float *)(b->work + b->plan.square);
    give_to(&j, given_form(b, d, int8));
}
// The product on its own, on zeros, then what comes between it and the stream.
static void build_post(const cuda_backend *b, decode_link *d, bool int8, stream *r) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct post_ops o = link_post_ops(l, &b->plan, &d->is);
    const struct op_norm *next = d->is.gives == FORM_ROWS ? NULL : norm_of(b, d + 1);
    mm_job &j = d->mm.job;
    post_job &p = d->post;
    memset(&p, 0, sizeof p);
    set_scale(b, &j, r->nth);
    p.give.x = cuda_rows(b, l, link_writes(l, &d->is));
    j.res = p.y = (float *)(b->work + b->plan.post);
    j.res_row = (size_t)p.give.x.width;
    j.next_norm = (const float *)(b->work + b->plan.part); // any floats: nobody takes this
    j.square_out = (float *)(b->work + b->plan.post_square);
    p.squares = j.square_out;
    give_to(&j, idle_form(b, int8));
    p.normed = o.norm != NULL;
    if (o.norm) p.norm = cuda_constant(b, o.norm->w), p.eps = o.norm->eps;
    p.factor = o.factor;
    p.scale = o.scale;
    p.gives = d->is.gives != FORM_ROWS;
    p.give.n_row = row_count(b, d);
    p.give.square_row = j.square_row;
    give_to(&p.give, given_form(b, d, int8));
    if (!next) return;
    mm_job of_scale = {};
    set_scale(b, &of_scale, ++r->nth);
    p.give.norm = cuda_constant(b, next->w);
    p.give.scale = of_scale.scale;
    p.give.square = (float *)(b->work + b->plan.square);
}
static void build_batch(const cuda_backend *b, const float (*up)[2], decode_link *d, stream *r) {
    mm_job of_scale = {};
    batch_link &e = d->batch;
    (void)batch_make(b, up, &d->is, &e);
    if (d->is.gives == FORM_ROWS) return;
    r->nth++;
    set_scale(b, &of_scale, r->nth);
    e.mix.next.norm = next_norm(b, d);
    e.mix.next.scale = of_scale.scale;
    e.mix.next.square = (float *)(b->work + b->plan.square);
    e.mix.next.square_row = of_scale.square_row;
    give_to(&e.mix.next, given_form(b, d, false));
}
static void build_mix(const cuda_backend *b, decode_link *d, bool int8, stream *r) {
    mm_job of_scale = {};
    act_rows_job &next = d->mix.next;
    mix_make(b, &d->is, &d->mix);
    if (d->is.gives == FORM_ROWS) return;
    r->nth++;
    set_scale(b, &of_scale, r->nth);
    next.norm = next_norm(b, d);
    next.scale = of_scale.scale;
    next.square = (float *)(b->work + b->plan.square);
    next.square_row = of_scale.square_row;
    give_to(&next, given_form(b, d, int8));
}
static void build_experts(const cuda_backend *b, decode_link *d, bool int8, stream *r) {
    experts_one_job &j = d->experts.job;
    mm_job of_scale = {};
    (void)experts_one_make(b, &d->is, &d->experts);
    if (j.out_kind != EXPERTS_ADD) return;
    r->nth += d->is.gives != FORM_ROWS;
    set_scale(b, &of_scale, r->nth);
    j.scale = of_scale.scale;
    j.next_norm = next_norm(b, d);
    j.square_out = (float *)(b->work + b->plan.square);
    give_to(&j, given_form(b, d, int8));
}
static void build_gated(const cuda_backend *b, decode_link *d) {
    d->mm.job.act = b->c.list[ROW_DECODE]->op[d->is.first + d->is.n_op - 1].glu.act;
    give_or_make_rows(b, d, &d->mm.job, ACT_GATED);
}
static void build_store(const cuda_backend *b, decode_link *d) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const rows y = cuda_rows(b, l, link_writes(l, &d->is));
    d->mm.job.y = y.p;
    d->mm.job.y_row = y.stride;
    if (d->other.k) { // of the same rows
        mm_job &j = d->other.job;
        const mm_job own = j;
        j = d->mm.job;
        memcpy(j.w, own.w, sizeof j.w);
        memcpy(j.steps, own.steps, sizeof j.steps);
        memcpy(j.up, own.up, sizeof j.up);
        memcpy(j.down, own.down, sizeof j.down);
        memcpy(j.seg, own.seg, sizeof j.seg);
        j.n_seg = own.n_seg;
        d->other.nth = d->mm.nth;
    }
    d->scaled = y;
    d->factor = b->plan.group[l->op[d->is.matmul].matmul.w->id].member[0].factor;
}
static void build_head(const cuda_backend *b, struct decode_program *p, decode_link *d) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const rows logits = cuda_rows(b, l, l->op[d->is.matmul].matmul.out);
    mm_job &h = d->mm.job;
    h.rowmap = b->t.out_row;
    h.n_row = &b->t.step->n_out;
    h.y = logits.p;
    h.y_row = logits.stride;
    p->cand = h.cand = (float2 *)(b->work + b->plan.cand);
    if (fit_together(b, block_bytes(&d->mm), block_bytes(&d->mm))) d->mm.blocks *= 2;
}

// ---- packets
enum { HAND_OVER_BYTES = 64 << 20, MOST_TAGS = 4095 };
// One row: packets from a link to the next instead of a wait for the whole kernel. NULL: not for this matrix.
static uint8_t *take_over(const cuda_backend *b, decode_link *to, int columns, uint32_t tag) {
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
static void hand_over_gated(const cuda_backend *b, decode_link *from, uint32_t tag) {
    mm_job &j = from->mm.job;
    if (!from[1].is.in.packets) return;
    j.give_handoff = take_over(b, from + 1, j.steps[0] * 8 * from->mm.k->r, tag);
    j.seq = &b->t.step->seq;
    j.tag = tag;
}
// q, k and v as floats with a tag, the attention's result as its projection takes it.
static void hand_over_attend(const cuda_backend *b, decode_link *d, uint32_t tag) {
    attend_job &a = d->attend;
    if (!d->is.in.packets || !d[1].is.in.packets || d[-1].other.k || !attend_takes_handoff(a)) return;
    mm_job &q = d[-1].mm.job;
    int columns = 0;
    for (int i = 0; i < q.n_seg; i++)
        if (q.seg[i].col + q.seg[i].n > columns) columns = q.seg[i].col + q.seg[i].n;
    if ((size_t)columns * sizeof(uint2) > b->plan.handoff_bytes) return;
    a.give_handoff = take_over(b, d + 1, a.n_head * a.kv.dv, tag);
    if (!a.give_handoff) return;
    a.tag = q.tag = tag;
    q.seq = &b->t.step->seq;
    q.give_handoff = b->work + b->plan.packets;
    a.take_handoff = (const uint2 *)q.give_handoff;
}

// ---- the program
struct builder {
    cuda_backend *b;
    const float (*up)[2];
    bool refused; // a link whose operations fit had no kernel
};
static bool has_kernel(void *user, const struct cuda_link *k, enum link_form in, enum link_form out) {
    struct builder *u = (struct builder *)user;
    matmul_link m, other;
    attend_job a;
    experts_link e;
    batch_link many;
    latent_link latent;
    if (k->kind == LINK_LATENT) return latent_link_make(u->b, k, &latent);
    if (k->kind == LINK_EXPERTS && u->b->c.list[ROW_DECODE]->max_rows > 1)
        return batch_make(u->b, u->up, k, &many);
    if (k->kind == LINK_EXPERTS)
        return u->b->c.list[ROW_DECODE]->n_op < MOST_TAGS && experts_one_make(u->b, k, &e);
    if (k->kind == LINK_DELTA || k->kind == LINK_MIX) return true;
    const bool has = k->kind == LINK_EMBED    ? u->b->n_rope <= 4
                     : k->kind == LINK_ATTEND ? make_attend(u->b, &a, k, out)
                                              : make_matmul(u->b, u->up, &m, &other, k, in, NULL);
    u->refused |= !has;
    return has;
}
static bool is_matmul(const decode_link *d) { return d->is.matmul >= 0; }

// Links of the list; false where that is no program: nothing to stream, or nobody fetches the step or leaves its tokens.
static bool find_links(cuda_backend *b, struct decode_program *p, bool int8, struct cuda_link *link) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct route_case route = cuda_route_case(b);
    struct builder u = {b, p->up, false};
    const struct link_case c = {l, &b->plan, b->c.store, &route, int8, has_kernel, &u};
    int n_matmul = 0, n_attend = 0;
    p->n_link = p->settled = links_make(&c, link);
    if (!p->n_link || (int8 && u.refused) || link[0].kind != LINK_EMBED ||
        l->op[l->n_op - 1].kind != OP_SELECT || l->max_rows > 1024)
        return false;
    memset(p->link, 0, (size_t)l->n_op * sizeof *p->link);
    for (int i = 0; i < p->n_link; i++) {
        decode_link *d = &p->link[i];
        const struct view out = link_writes(l, &link[i]);
        d->is = link[i];
        d->name = link_name(l, &d->is);
        d->out_rows = d->is.kind != LINK_HEAD && out.buf >= 0 && cuda_out_rows(l, out);
        n_matmul += is_matmul(d);
        const bool looks = d->is.kind == LINK_ATTEND || d->is.kind == LINK_LATENT ||
                           d->is.kind == LINK_DELTA; // at the step, before it waits
        n_attend += looks;
        if (n_attend == 2 && looks) p->settled = i;
    }
    return n_matmul > 0;
}

static void build_link(cuda_backend *b, struct decode_program *p, decode_link *d, bool int8, bool *first,
                       stream *r) {
    if (is_matmul(d)) {
        if (d->is.in.form == FORM_ROWS) convert_input(b, d, r);
        read_rows(b, d, *r);
    }
    switch (d->is.kind) {
    case LINK_EMBED:
        build_embed(b, p, d, int8, r);
        break;
    case LINK_ATTEND:
        build_attend(b, d, *first);
        *first = false;
        break;
    case LINK_DELTA:
        build_delta(b, d, *first);
        *first = false;
        break;
    case LINK_LATENT:
        (void)latent_link_make(b, &d->is, &d->latent);
        if (d->is.gives != FORM_ROWS) give_to(&d->latent.values.give, form_at(b, d->is.gives, d[1].is.slot));
        break;
    case LINK_RESIDUAL:
        build_residual(b, d, int8, r);
        break;
    case LINK_MIX:
        build_mix(b, d, int8, r);
        break;
    case LINK_POST:
        build_post(b, d, int8, r);
        break;
    case LINK_GATED:
        build_gated(b, d);
        break;
    case LINK_MATMUL:
        build_store(b, d);
        break;
    case LINK_HEAD:
        build_head(b, p, d);
        break;
    case LINK_EXPERTS:
        if (b->c.list[ROW_DECODE]->max_rows > 1)
            build_batch(b, p->up, d, r);
        else
            build_experts(b, d, int8, r);
        break;
    case LINK_PLAIN:
    case LINK_PAIRS:
    case LINK_PAIRS_MIX:
    case LINK_KIND_COUNT:
        break;
    }
}
static bool build(cuda_backend *b, struct decode_program *p, bool int8, struct cuda_link *link) {
    stream r = {-1};
    bool first = true;
    if (!find_links(b, p, int8, link)) return false;
    for (int i = p->n_link; i-- > 0;) { // from the end: a gate looks at the kernel behind it
        decode_link *d = &p->link[i];
        const matmul_link *next =
            d->is.kind == LINK_GATED && d->is.gives != FORM_ROWS ? &p->link[i + 1].mm : NULL;
        if (is_matmul(d) && !make_matmul(b, p->up, &d->mm, &d->other, &d->is, d->is.wants, next))
            return false;
    }
    for (int i = 0; i < p->n_link; i++) build_link(b, p, &p->link[i], int8, &first, &r);
    for (int i = 1; i + 1 < p->n_link && i < MOST_TAGS; i++)
        if (p->link[i].is.kind == LINK_GATED)
            hand_over_gated(b, &p->link[i], 1 + (uint32_t)i);
        else if (p->link[i].is.kind == LINK_ATTEND)
            hand_over_attend(b, &p->link[i], 1 + (uint32_t)i);
        else if (p->link[i].is.kind == LINK_EXPERTS && b->c.list[ROW_DECODE]->max_rows == 1)
            p->link[i].experts.job.tag = 1 + (uint32_t)i;
    if (p->link[1].is.kind == LINK_MATMUL) p->link[1].mm.job.first = true;
    for (int i = 0; int8 && i < p->n_link; i++)
        if (is_matmul(&p->link[i]) && i < MOST_TAGS) decode_even(b, &p->link[i], i);
    return true;
}

// Whether there are kernels that multiply codes by codes for all matrices.
static bool all_codes(const cuda_backend *b) {
    for (int g = 0; g < b->plan.n_group; g++)
        for (int i = 0; i < b->plan.group[g].n_region && !b->plan.group[g].apart; i++) {
            if (b->plan.group[g].n == 1) continue; // a gate, which no kernel of codes reads
            const enum layout l = b->plan.group[g].region[i].layout;
            if (layout_kind(l) != KIND_CODES) return false;
        }
    return true;
}
// What the scales of each region are multiplied by.
static enum infer_status find_scales(cuda_backend *b, float (*up)[2]) {
    unsigned *most = (unsigned *)(b->work + b->plan.stage), *found = (unsigned *)up;
    const size_t n = (size_t)b->plan.n_group * 2;
    CU(cudaMemsetAsync(most, 0, n * sizeof *most, b->stream));
    const bool batch = b->c.list[ROW_DECODE]->max_rows > 1; // whose experts need them, too
    for (int g = 0; g < b->plan.n_group; g++)
        for (int i = 0; i < b->plan.group[g].n_region && i < 2 && (batch || !b->plan.group[g].apart); i++) {
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
// What runs op by op, for the log.
static void tell(const cuda_backend *b, const struct decode_program *p) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    const struct op *first = NULL;
    int n = 0;
    for (int i = 0; p && i < p->n_link; i++)
        if (p->link[i].is.kind == LINK_PLAIN && !n++) first = &l->op[p->link[i].is.first];
    if (!p)
        log_line(LOG_NOTE, "cuda: no fused kernel takes this model; decode runs op by op");
    else if (n)
        log_line(LOG_NOTE, "cuda: %d of %d operations of decode run op by op (%s of layer %d first)", n,
                 l->n_op, first->name, first->layer);
}

enum infer_status decode_build(struct decode_program **out, cuda_backend *b) {
    const struct op_list *l = b->c.list[ROW_DECODE];
    struct decode_program *p;
    struct cuda_link *link = NULL;
    bool fits = false;
    *out = NULL;
    if (b->prop.major < 9) return INFER_OK; // bulk copies
    TRY(mem_new(&p, sizeof *p, "a decode program"));
    enum infer_status st = mem_new(&p->link, (size_t)l->n_op * sizeof *p->link, "a decode program");
    if (st == INFER_OK) st = mem_new(&link, (size_t)l->n_op * sizeof *link, "a decode program");
    if (st == INFER_OK)
        st = mem_new(&p->up, (size_t)(b->plan.n_group + 1) * sizeof *p->up, "a decode program");
    if (st == INFER_OK) st = find_scales(b, p->up);
    if (st == INFER_OK &&
        cudaMemsetAsync(b->work + b->plan.post, 0, b->plan.post_bytes, b->stream) != cudaSuccess)
        st = cuda_error(cudaGetLastError(), "cudaMemsetAsync");
    if (st == INFER_OK)
        fits = (l->max_rows == 1 && all_codes(b) && build(b, p, true, link)) || build(b, p, false, link);
    mem_free(link);
    cudaError_t e = mm_prepare();
    if (e == cudaSuccess) e = even_prepare();
    if (e == cudaSuccess) e = skinny_prepare();
    if (e == cudaSuccess) e = attend_prepare();
    if (e == cudaSuccess) e = experts_one_prepare();
    if (e == cudaSuccess) e = batch_prepare();
    if (e == cudaSuccess) e = latent_prepare();
    if (e == cudaSuccess) e = latent_heads_prepare();
    if (st == INFER_OK && e != cudaSuccess) st = cuda_error(e, "cudaFuncSetAttribute");
    if (st != INFER_OK || !fits) {
        decode_free(p);
        if (st == INFER_OK) tell(b, NULL);
        return st;
    }
    tell(b, p);
    *out = p;
    return INFER_OK;
}

void decode_free(struct decode_program *p) {
    if (!p) return;
    mem_free(p->up);
    mem_free(p->link);
    mem_free(p);
}
