// LINK_ATTEND, and what its jobs of decode and prompt rows have in common.
#include "cuda/links/link_attend.h"
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"
#include "cuda/prompt/prompt_both.h"
#include "cuda/run/halves.h"

static rows qkv_of(const cuda_backend *b, const struct op_list *l, const struct attend_ops &o) {
    const int buf = o.attend->q.buf;
    return cuda_rows(b, l, view{buf, 0, l->buf[buf].width});
}
// Cache, columns, norms and rotation.
template <class J>
static void attend_args(const cuda_backend *b, const struct attend_ops &o, rows qkv, J *j) {
    j->t = b->t;
    j->kv = cuda_store(b, o.put->store);
    j->qkv = qkv.p;
    j->q_col = o.attend->q.col;
    j->k_col = o.put->k.col;
    j->v_col = attend_value(&o).col;
    j->n_head = o.attend->n_head;
    if (o.q_rope) {
        j->n_rot = o.q_rope->rope->n_rot;
        j->neox = o.q_rope->rope->kind == ROPE_NEOX;
        j->rope = cuda_rope_table(b, o.q_rope->rope);
    }
    if (!o.q_norm) return;
    j->q_norm = cuda_constant(b, o.q_norm->w);
    j->k_norm = cuda_constant(b, o.k_norm->w);
    j->eps = o.q_norm->eps;
}
// What the kernels of another variant do beside that.
template <class J> static void attend_more_args(const struct attend_ops &o, J *j) {
    j->v_norm = o.v_norm != NULL;
    j->late = o.late;
    j->temp_beta = o.attend->temp_beta;
    j->temp_len = o.attend->temp_len;
    j->temp_offset = o.attend->temp_offset;
}

// ---- decode
static bool attend_make(const cuda_backend *b, attend_job *a, const struct cuda_link *k,
                        enum link_form form) {
    const struct op_list *l = decode_list(b);
    const struct attend_ops o = link_attend_ops(l, k);
    const rows qkv = qkv_of(b, l, o);
    const float log2e = 1.4426950408889634f;
    memset(a, 0, sizeof *a);
    attend_args(b, o, qkv, a);
    attend_more_args(o, a);
    a->qkv_row = qkv.stride;
    a->softcap = o.attend->softcap * log2e;
    a->scale = o.attend->softcap > 0 ? o.attend->scale / o.attend->softcap : o.attend->scale * log2e;
    a->window = o.attend->window;
    a->sinks = cuda_constant(b, o.attend->sinks);
    a->part = (float *)(b->work + b->plan.part);
    a->max_split = b->plan.max_split;
    a->arrived = (int *)(b->work + b->plan.counter);
    give_to(a, decode_form(b, form, ACT_ATTENDED));
    return attend_plan(a, decode_shared_memory(b));
}
static bool has(const decode_maker &m, const struct cuda_link *k, enum link_form, enum link_form out) {
    attend_job a;
    return attend_make(m.b, &a, k, out);
}
static void make(decode_maker &m, decode_link *d) {
    attend_job *a = own<attend_job>(d);
    (void)attend_make(m.b, a, &d->is, d->is.gives == FORM_ROWS ? FORM_BF16 : d->is.gives);
    give_to(a, decode_gives_result(m.b, d, ACT_ATTENDED));
    a->wait = m.first;
    m.first = false;
}
// q, k and v as floats with a tag, the attention's result as its projection takes it.
static void hand_over(const cuda_backend *b, decode_link *d, uint32_t tag) {
    attend_job &a = *own<attend_job>(d);
    if (!d->is.in.packets || !d[1].is.in.packets || d[-1].other.k || !attend_takes_handoff(a)) return;
    gemv_args &q = d[-1].mm.job;
    int columns = 0;
    for (int i = 0; i < q.n_seg; i++)
        if (q.seg[i].col + q.seg[i].n > columns) columns = q.seg[i].col + q.seg[i].n;
    if ((size_t)columns * sizeof(uint2) > b->plan.handoff_bytes) return;
    a.give_handoff = decode_take_over(b, d + 1, a.n_head * a.kv.dv, tag);
    if (!a.give_handoff) return;
    a.tag = q.tag = tag;
    q.seq = &b->t.step->seq;
    q.give_handoff = b->work + b->plan.packets;
    a.take_handoff = (const uint2 *)q.give_handoff;
}
static enum infer_status run(const decode_step &s, const decode_link *d, bool) {
    attend_job a = *own<attend_job>(d);
    a.xo_pitch = decode_output_pitch(d, s.rows);
    a.put = !s.shared;
    if (!s.beside) {
        a.take_handoff = NULL;
        a.give_handoff = NULL;
    }
    if (s.shared) CU(attend_put_launch(a, s.rows, true, s.stream));
    CU(attend_launch(a, s.rows, s.b->sm_count, true, s.stream));
    return INFER_OK;
}
const struct decode_code decode_attend = {true, true, has, make, hand_over, run, attend_prepare};

// ---- prompt
struct prompt_attention {
    prompt_qkv_post_job put;
    kv_halves_job halves; // of caches of another type
    prompt_attend_job attend;
    bool mma;  // by the kernels that every chip has
    bool both; // rows with step.until see up to there
};
static void make_prompt(prompt_program *p, cuda_backend *b, prompt_link *d) {
    const struct op_list *l = b->c.list[ROW_PROMPT];
    const struct attend_ops o = link_attend_ops(l, &d->is);
    const rows qkv = qkv_of(b, l, o);
    const struct kv_store *s = &b->c.store[o.attend->store];
    prompt_attention *e = own<prompt_attention>(d);
    attend_args(b, o, qkv, &e->put.put);
    attend_more_args(o, &e->put);
    e->put.put.stride = qkv.stride;
    const dev_kv kv = e->put.put.kv;
    const bool apart = kv.type != KV_F16;
    if (apart) e->halves = cuda_halves(b, o.attend);
    const prompt_tiles out = prompt_output(b, d, ACT_ATTENDED);
    e->mma = link_route(&p->route, LINK_ATTEND, ROW_PROMPT, attend_head(s->head_dim_k, s->head_dim_v))->mma;
    e->both = o.attend->both;
    prompt_attend_job *a = &e->attend;
    a->q = qkv.p + o.attend->q.col;
    a->q_stride = qkv.stride;
    a->type = KV_F16;
    a->k = apart ? e->halves.k : kv.k;
    a->v = apart ? e->halves.v : kv.v;
    a->pages = kv.pages;
    a->max_pages = kv.max_pages;
    a->n_head = o.attend->n_head;
    a->n_kv_head = s->n_kv_head;
    a->dk = s->head_dim_k;
    a->dv = s->head_dim_v;
    a->window = o.attend->window;
    a->n_row = &b->t.step->n_row;
    a->pos = b->t.pos;
    a->slot = b->t.slot;
    a->scale = o.attend->scale;
    a->softcap = o.attend->softcap;
    a->sinks = cuda_constant(b, o.attend->sinks);
    a->out = out.tiles;
    a->out_order = out.order;
    a->out_k_tiles = out.k_tiles;
}
static enum infer_status run_prompt(const cuda_backend *b, const prompt_program *, const prompt_link *d,
                                    int n, cudaStream_t s) {
    const prompt_attention *e = own<prompt_attention>(d);
    const bool wide = e->attend.dk > 128 || e->attend.dv > 128;
    CU(prompt_qkv_post_wanted(e->put) ? prompt_qkv_post_launch(e->put, n, s)
                                      : prompt_put_launch(e->put.put, n, s));
    const int32_t *until = e->both ? b->until : NULL;
    if (e->halves.k) {
        kv_halves_job h = e->halves;
        h.until = until;
        CU(kv_halves_launch(h, s));
    }
    if (until) {
        prompt_attend_both j;
        (prompt_attend_job &)j = e->attend;
        j.until = until;
        CU(wide ? flash_wide_both_launch(j, n, s) : prompt_attend_both_launch(j, n, e->mma, s));
        return INFER_OK;
    }
    CU(wide ? flash_wide_launch(e->attend, n, s) : prompt_attend_launch(e->attend, n, e->mma, s));
    return INFER_OK;
}
const struct prompt_code prompt_attend = {make_prompt, run_prompt};
