// The shape of a list that the fused programs take: embed, layers of attention and gated feed-forward, output.
#pragma once
#include "cuda/run/cuda_impl.h"
#include "seam/op_list.h"

struct cursor {
    const struct op_list *l;
    int i;
};
static inline const struct op *take_op(cursor *c, enum op_kind kind) {
    if (c->i >= c->l->n_op || c->l->op[c->i].kind != kind) return NULL;
    return &c->l->op[c->i++];
}
static inline bool plain_norm(const struct op *o, struct view x, int dim) {
    return o && o->norm.kind == NORM_RMS && o->norm.dim == dim && o->norm.w && !o->norm.bias &&
           view_same(o->norm.x, x);
}

struct layer_ops {
    const struct op_norm *norm, *q_norm, *k_norm, *ffn_norm;
    const struct op_matmul *qkv, *out, *gate_up, *down;
    const struct op_rope *q_rope, *k_rope;
    const struct op_kv_put *put;
    const struct op_attend *attend;
    const struct op_glu *glu;
};
// One layer from the cursor on; false when the ops are others.
static inline bool match_layer(cursor *c, struct view x, struct layer_ops *o) {
    const struct op *p;
    memset(o, 0, sizeof *o);
    if (!plain_norm(p = take_op(c, OP_NORM), x, x.width)) return false;
    o->norm = &p->norm;
    if (!(p = take_op(c, OP_MATMUL)) || !view_same(p->matmul.x, o->norm->out)) return false;
    o->qkv = &p->matmul;
    if ((p = take_op(c, OP_NORM))) {
        o->q_norm = &p->norm;
        if (!(p = take_op(c, OP_NORM))) return false;
        o->k_norm = &p->norm;
        if (o->q_norm->kind != NORM_RMS || o->k_norm->kind != NORM_RMS || o->q_norm->bias ||
            o->k_norm->bias || !o->q_norm->w || !o->k_norm->w || o->q_norm->eps != o->k_norm->eps)
            return false;
    }
    if (!(p = take_op(c, OP_ROPE))) return false;
    o->q_rope = &p->rope;
    if (!(p = take_op(c, OP_ROPE))) return false;
    o->k_rope = &p->rope;
    if (!(p = take_op(c, OP_KV_PUT))) return false;
    o->put = &p->kv_put;
    if (!(p = take_op(c, OP_ATTEND))) return false;
    o->attend = &p->attend;
    if (!(p = take_op(c, OP_MATMUL)) || !view_same(p->matmul.x, o->attend->out)) return false;
    o->out = &p->matmul;
    if (!(p = take_op(c, OP_ADD)) || !view_same(p->add.a, x) || !view_same(p->add.out, x) ||
        !view_same(p->add.b, o->out->out))
        return false;
    if (!plain_norm(p = take_op(c, OP_NORM), x, x.width)) return false;
    o->ffn_norm = &p->norm;
    if (!(p = take_op(c, OP_MATMUL)) || !view_same(p->matmul.x, o->ffn_norm->out)) return false;
    o->gate_up = &p->matmul;
    if (!list_is_gated(c->l, c->i - 1)) return false;
    o->glu = &take_op(c, OP_GLU)->glu;
    if (!(p = take_op(c, OP_MATMUL)) || !view_same(p->matmul.x, o->glu->out)) return false;
    o->down = &p->matmul;
    p = take_op(c, OP_ADD);
    return p && view_same(p->add.a, x) && view_same(p->add.out, x) && view_same(p->add.b, o->down->out);
}
