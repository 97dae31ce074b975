// A list op by op with the plain kernels: models and chips that no fused program takes, and --no-fuse.
#include "cuda_impl.h"

static enum infer_status run_matmul(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                    cudaStream_t s) {
    int id = o->matmul.w->id;
    bool out_rows = cuda_out_rows(l, o->matmul.out);
    rows x = cuda_rows(b, l, o->matmul.x), out = cuda_rows(b, l, o->matmul.out);
    for (int i = 0; i < b->plan.group[id].n_member; i++) {
        if (i && b->plan.group[id].paired && l->cls == ROW_DECODE) break; // done with the first
        rows part = out;
        part.p += b->plan.group[id].member[i].col;
        CU(op_matmul_run(b->t, cuda_matrix(b, id, i), x, part, n, out_rows, l->cls == ROW_DECODE, s));
    }
    return INFER_OK;
}

static enum infer_status run_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n_row,
                                int n_out, cudaStream_t s) {
    auto at = [&](struct view v) { return cuda_rows(b, l, v); };
    auto count = [&](struct view v) { return cuda_out_rows(l, v) ? n_out : n_row; };
    switch (o->kind) {
    case OP_EMBED:
        CU(op_embed_run(b->t, cuda_matrix(b, b->plan.embedding, 0), at(o->embed.out), o->embed.scale, n_row,
                        s));
        break;
    case OP_NORM:
        CU(op_norm_run(b->t, at(o->norm.x), at(o->norm.out), o->norm.kind == NORM_LAYER, o->norm.dim,
                       o->norm.eps, cuda_constant(b, o->norm.w), cuda_constant(b, o->norm.bias),
                       count(o->norm.x), cuda_out_rows(l, o->norm.x), s));
        break;
    case OP_MATMUL:
        return run_matmul(b, l, o, count(o->matmul.x), s);
    case OP_ROPE:
        CU(op_rope_run(b->t, at(o->rope.x), o->rope.n_head, o->rope.head_dim, o->rope.rope->n_rot,
                       o->rope.rope->kind == ROPE_NEOX, cuda_rope_table(b, o->rope.rope), n_row, s));
        break;
    case OP_KV_PUT:
        CU(op_kv_put_run(b->t, cuda_store(b, o->kv_put.store), at(o->kv_put.k), at(o->kv_put.v), n_row, s));
        break;
    case OP_ATTEND:
        CU(op_attend_run(b->t, cuda_store(b, o->attend.store), at(o->attend.q), at(o->attend.out),
                         o->attend.n_head, o->attend.scale, o->attend.softcap, o->attend.window,
                         cuda_constant(b, o->attend.sinks), n_row, s));
        break;
    case OP_GLU:
        CU(op_glu_run(b->t, at(o->glu.gate), at(o->glu.up), at(o->glu.out), o->glu.act, n_row, s));
        break;
    case OP_ADD:
        CU(op_add_run(b->t, at(o->add.a), at(o->add.b), at(o->add.out), count(o->add.a),
                      cuda_out_rows(l, o->add.a), s));
        break;
    case OP_ROWS:
        CU(op_rows_run(b->t, at(o->rows.x), at(o->rows.out), n_out, s));
        break;
    case OP_SELECT:
        CU(op_select_run(b->t, at(o->select.logits), o->select.n_vocab, (float2 *)(b->work + b->plan.cand),
                         cuda_tokens(b), cuda_logits_copy(b), n_out, s));
        break;
    default:
        infer_bug("operation %d has no kernel", (int)o->kind);
    }
    return INFER_OK;
}

enum infer_status cuda_run_list(cuda_backend *b, enum row_class cls, int n_row, int n_out, cudaStream_t s) {
    const struct op_list *l = b->c.list[cls];
    for (int i = 0; i < b->n_rope; i++)
        CU(op_rope_table_run(b->t, cuda_constant(b, b->rope[i]->inv_freq), b->rope[i]->n_rot,
                             b->rope[i]->mscale, cuda_rope_table(b, b->rope[i]), n_row, s));
    for (int i = 0; i < l->n_op; i++) {
        const struct op *o = &l->op[i];
        bool outs = o->kind == OP_ROWS || o->kind == OP_SELECT ||
                    (o->kind == OP_NORM && cuda_out_rows(l, o->norm.x)) ||
                    (o->kind == OP_MATMUL && cuda_out_rows(l, o->matmul.out)) ||
                    (o->kind == OP_ADD && cuda_out_rows(l, o->add.a));
        if (outs && !n_out) continue;
        TRY(run_op(b, l, o, n_row, n_out, s));
    }
    return INFER_OK;
}
