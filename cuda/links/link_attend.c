/* LINK_ATTEND: norms and rotation of heads, the cache, attention. */
#include "cuda/links/link_attend.h"
#include "cuda/plan/link_type.h"

struct attend_ops link_attend_ops(const struct op_list *l, const struct cuda_link *k) {
    struct attend_ops a = {0};
    for (int i = k->first; i <= link_last(k); i++) {
        const struct op *o = &l->op[i];
        if (o->kind == OP_NORM && !o->norm.w)
            a.v_norm = &o->norm;
        else if (o->kind == OP_NORM) {
            *(a.q_norm ? &a.k_norm : &a.q_norm) = &o->norm;
            a.late = a.q_rope != NULL;
        } else if (o->kind == OP_ROPE)
            *(a.q_rope ? &a.k_rope : &a.q_rope) = &o->rope;
        else if (o->kind == OP_KV_PUT)
            a.put = &o->kv_put;
        else
            a.attend = &o->attend;
    }
    return a;
}

static bool head_norm_fits(const struct op_norm *n, struct view x, int head_dim) {
    return n->kind == NORM_RMS && !n->bias && n->dim == head_dim && op_norm_weights(n) == n->dim &&
           view_same(n->x, x) && view_same(n->out, x);
}

/* Norms of heads, all of one eps; behind the rotation only where that keeps lengths. */
static bool head_norms_fit(const struct attend_ops *o, struct view q, struct view k,
                           const struct kv_store *s) {
    const struct op_norm *v = o->v_norm;
    if (v && (v->kind != NORM_RMS || v->bias || v->dim != s->head_dim_v || !view_same(v->out, o->put->v) ||
              !o->q_norm || v->eps != o->q_norm->eps))
        return false;
    if (!o->q_norm) return true;
    return o->k_norm && head_norm_fits(o->q_norm, q, s->head_dim_k) &&
           head_norm_fits(o->k_norm, k, s->head_dim_k) && o->q_norm->eps == o->k_norm->eps &&
           (!o->late || o->q_rope->rope->mscale == 1);
}

/* q and k of all heads, rotated alike. */
static bool ropes_fit(const struct attend_ops *o, struct view q, struct view k, const struct kv_store *s) {
    const struct op_rope *rq = o->q_rope, *rk = o->k_rope;
    return !rq || (view_same(rq->x, q) && view_same(rk->x, k) && rq->rope == rk->rope && !rq->back &&
                   !rk->back && rq->n_head == o->attend->n_head && rk->n_head == s->n_kv_head &&
                   rq->head_dim == s->head_dim_k && rk->head_dim == s->head_dim_k);
}

/* q, k and v in one buffer that nothing reads later, and head sizes that the kernels have. */
static bool is_attend(const struct link_case *c, struct cuda_link *k) {
    const struct op_list *l = c->list;
    const struct attend_ops o = link_attend_ops(l, k);
    const struct kv_store *s = &c->store[o.attend->store];
    const struct view q = o.attend->q, key = o.put->k, v = attend_value(&o);
    if (o.attend->store != o.put->store || q.buf != key.buf || q.buf != v.buf ||
        l->buf[q.buf].last != link_last(k) || l->buf[o.put->v.buf].last > link_last(k) ||
        k->n_op != 2 + (o.v_norm != NULL) + 2 * (o.q_norm != NULL) + 2 * (o.q_rope != NULL))
        return false;
    if (s->v_in_k || kv_every(s) > 1 || o.attend->entries) return false;
    if (o.attend->by.n_top) return false; /* positions that are chosen */
    if (o.attend->chunked || !ropes_fit(&o, q, key, s) || !head_norms_fit(&o, q, key, s)) return false;
    /* as bfloat16 or as halves it can be turned into rows */
    const enum link_form least = l->cls == ROW_DECODE ? FORM_BF16 : FORM_HALVES;
    return link_route(c->route, LINK_ATTEND, l->cls, attend_head(s->head_dim_k, s->head_dim_v)) &&
           link_has(c, k, FORM_ROWS, least);
}
/* Of a matmul whose result begins with the queries. */
static bool takes(const struct link_case *c, const struct cuda_link *front, const struct cuda_link *k) {
    const struct view v = link_writes(c->list, front);
    return (front->kind == LINK_MATMUL || front->kind == LINK_LOW) && v.col == 0 &&
           v.buf == link_attend_ops(c->list, k).attend->q.buf;
}
/* Heads above 256 leave parts, which another kernel adds. */
static int kernels(const struct link_case *c, const struct cuda_link *k) {
    const struct kv_store *s = &c->store[link_attend_ops(c->list, k).attend->store];
    return 1 + (s->head_dim_k > 256 || s->head_dim_v > 256);
}

const struct link_type link_attend = {
    .classes = LINK_DECODE | LINK_PROMPT,
    .pattern = {PATTERN(OPT(1, OP_NORM), OP_NORM, OP_NORM, OPT(2, OP_ROPE), OPT(2, OP_ROPE), OP_KV_PUT,
                        OP_ATTEND),
                PATTERN(OP_ROPE, OP_ROPE, OPT(1, OP_NORM), OPT(1, OP_NORM), OP_KV_PUT, OP_ATTEND),
                PATTERN(OP_KV_PUT, OP_ATTEND)},
    .packets = true,
    .fits = is_attend,
    .gives = link_gives_result,
    .takes = takes,
    .kernels = kernels,
    .routes =
        LINK_ROUTES({ROW_PROMPT, OP_ATTEND, 128, 90, 99, false, "prompt_put_kernel, flash_wgmma_kernel"},
                    {ROW_PROMPT, OP_ATTEND, 128, 80, 129, true, "prompt_put_kernel, flash_mma_kernel"},
                    {ROW_PROMPT, OP_ATTEND, 512, 90, 99, false, "prompt_put_kernel, flash_wide_kernel"},
                    {ROW_DECODE, OP_ATTEND, 512, 90, 129, true, "attend_decode_kernel"})};
