/* LINK_MLA: multi-head latent attention of decode rows. */
#include "cuda/links/link_mla.h"
#include "cuda/plan/link_type.h"
#include "cuda/plan/mla_plan.h"

struct mla_ops link_mla_ops(const struct op_list *l, const struct cuda_link *k) {
    const struct op *o = &l->op[k->first];
    return (struct mla_ops){&o[2].norm,  &o[3].rope,  &o[0].rope,  &o[4].kv_put,
                            &o[1].heads, &o[6].heads, &o[5].attend};
}

/* Keys that are a normed latent and a rotated rest, of one rotation with queries that absorb their heads' matrices. */
static bool is_mla(const struct link_case *c, struct cuda_link *k) {
    const struct mla_ops o = link_mla_ops(c->list, k);
    const struct op_norm *n = o.norm;
    const struct view key = o.put->k, latent = view_columns(key, 0, n->x.width),
                      rest = view_columns(key, n->x.width, key.width - n->x.width), q = o.keys->x;
    const int nope = o.keys->w->k;
    if (n->kind != NORM_RMS || !n->w || n->bias || n->dim != n->x.width || op_norm_weights(n) != n->dim ||
        !view_same(n->x, latent) || !view_same(n->out, latent) || !view_same(o.k_rope->x, rest) ||
        o.k_rope->rope != o.q_rope->rope || o.k_rope->back || o.q_rope->back || o.k_rope->n_head != 1 ||
        o.k_rope->rope->n_rot != rest.width || o.q_rope->n_head != o.attend->n_head ||
        o.q_rope->head_dim != nope + rest.width ||
        !view_same(o.q_rope->x, view_columns(q, nope, q.width - nope)) || op_heads_rest(o.keys) != rest.width)
        return false;
    const struct kv_store *s = &c->store[o.put->store];
    return o.put->store == o.attend->store && kv_every(s) == 1 && n->dim == s->head_dim_v &&
           c->route->sm >= 90 && mla_has(s, o.attend, c->route->shared_bytes) &&
           op_heads_rest(o.values) == 0 && view_same(o.attend->q, o.keys->out) &&
           view_same(o.values->x, o.attend->out) && c->list->buf[key.buf].last <= link_last(k) &&
           c->list->buf[q.buf].last <= link_last(k) && link_ends(c, k, o.keys->out) &&
           link_ends(c, k, o.attend->out) && link_has(c, k, FORM_ROWS, FORM_ROWS);
}
static unsigned gives(const struct link_case *c, const struct cuda_link *k, bool normed) {
    return link_mla_ops(c->list, k).values->w->n % 32 ? 0 : link_gives_result(c, k, normed);
}
static int kernels(const struct link_case *c, const struct cuda_link *k) {
    const struct kv_store *s = &c->store[link_mla_ops(c->list, k).attend->store];
    return 4 +
           2 * kv_turned(
                   s->k_type); /* queries and the key, attention, the sum of its parts, values; two that turn rows */
}

const struct link_type link_mla = {
    .classes = LINK_DECODE,
    .pattern = {PATTERN(OP_ROPE, OP_HEADS, OP_NORM, OP_ROPE, OP_KV_PUT, OP_ATTEND, OP_HEADS)},
    .fits = is_mla,
    .gives = gives,
    .kernels = kernels,
    .routes = LINK_ROUTES({ROW_DECODE, OP_ATTEND, 576, 90, 99, true,
                           "mla_heads_kernel, mla_decode_kernel, mla_merge_kernel, mla_heads_kernel"})};
