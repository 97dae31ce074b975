/* LINK_ENCODE: attention without a store, and the rotations in front of it. */
#include "cuda/links/link_encode.h"
#include "cuda/plan/encode_plan.h"
#include "cuda/plan/link_type.h"

struct encode_ops link_encode_ops(const struct op_list *l, const struct cuda_link *k) {
    struct encode_ops e = {.n_turn = (k->n_op - 1) / 2, .attend = &l->op[link_last(k)].attend};
    for (int i = 0; i < e.n_turn; i++) {
        e.q[i] = &l->op[k->first + i].rope;
        e.k[i] = &l->op[k->first + e.n_turn + i].rope;
    }
    return e;
}

/* Columns of every head of x, so many dims each, from the same column on as
 * those of y's heads. */
static bool turns_fit(const struct op_rope *q, const struct op_rope *k, const struct op_attend *o, int dim) {
    const int at = q->x.col - o->q.col;
    return q->rope == k->rope && !q->back && !k->back && q->x.buf == o->q.buf && k->x.buf == o->k.buf &&
           at >= 0 && at + q->rope->n_rot <= dim && k->x.col - o->k.col == at && q->n_head == o->n_head &&
           k->n_head == o->n_kv_head && q->head_dim == dim && k->head_dim == dim;
}

/* Heads that the kernels have, which see all rows, not those of their slot alone (windows); what is rotated on the way is not read later. */
static bool is_encode(const struct link_case *c, struct cuda_link *k) {
    const struct op_list *l = c->list;
    const struct encode_ops e = link_encode_ops(l, k);
    const struct op_attend *o = e.attend;
    if (o->store >= 0 || !o->both || o->ask || o->softcap > 0 || o->sinks || k->n_op % 2 == 0) return false;
    const int dim = o->q.width / o->n_head;
    if (o->k.width != o->n_kv_head * dim || o->v.width != o->k.width || o->out.width != o->q.width)
        return false;
    for (int i = 0; i < e.n_turn; i++)
        if (!turns_fit(e.q[i], e.k[i], o, dim)) return false;
    if (e.n_turn && (l->buf[o->q.buf].last != link_last(k) || l->buf[o->k.buf].last != link_last(k)))
        return false;
    return dim % 2 == 0 && link_route(c->route, LINK_ENCODE, ROW_PROMPT, dim);
}

static size_t room(const struct op_list *l, const struct op *op, int n_slot) {
    const struct op_attend *o = &op->attend;
    (void)n_slot;
    if (op->kind != OP_ATTEND || o->store >= 0) return 0;
    const int dim = o->q.width / o->n_head;
    return dim > ENCODE_DIM ? 0 : encode_room_of(l->max_rows, o->n_head, o->n_kv_head, dim).bytes;
}

const struct link_type link_encode = {
    .classes = LINK_PROMPT,
    .pattern = {PATTERN(OPT(1, OP_ROPE), OPT(1, OP_ROPE), OPT(2, OP_ROPE), OPT(2, OP_ROPE), OP_ATTEND)},
    .fits = is_encode,
    .gives = link_gives_result,
    .room = room,
    .routes =
        LINK_ROUTES({ROW_PROMPT, OP_ATTEND, 128, 90, 99, false, "encode_pack_kernel, encode_wgmma_kernel"},
                    {ROW_PROMPT, OP_ATTEND, 128, 80, 129, true, "encode_pack_kernel, encode_mma_kernel"})};
