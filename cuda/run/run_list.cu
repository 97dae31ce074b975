// Operations one by one with the plain kernels: links of a program that no pattern takes, and whole lists where no fused kernel
// takes the model or the chip, or with --no-fuse. Without the latter some ops of a decode list share a kernel, and the kernels overlap.
#include "cuda/plain/attend_both.h"
#include "cuda/plain/attend_rows.h"
#include "cuda/plain/recur.h"
#include "cuda/plain/entries.h"
#include "cuda/plain/experts.h"
#include "cuda/plain/gemv_f32.h"
#include "cuda/plain/kv_low_ops.h"
#include "cuda/plain/kv_runs.h"
#include "cuda/prompt/moe_grouped.h"
#include "cuda/plain/mla.h"
#include "cuda/plain/route_told.h"
#include "cuda/plain/streams.h"
#include "cuda/plain/columns.h"
#include "cuda/run/adapters_run.h"
#include "cuda/run/chosen_ops.h"
#include "cuda/run/cuda_ranks.h"
#include "cuda/run/decode_mla.h"
#include "cuda/run/experts_args.h"
#include "cuda/run/host_rows.h"
#include "cuda/run/behind.h"
#include "seam/op_list.h"

static enum infer_status run_matmul(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                    op_queue s) {
    int id = o->matmul.w->id;
    bool out_rows = cuda_out_rows(l, o->matmul.out);
    rows x = cuda_rows(b, l, o->matmul.x), out = cuda_rows(b, l, o->matmul.out);
    for (int i = 0; i < b->plan.group[id].n_member; i++) {
        if (i && b->plan.group[id].paired && l->cls == ROW_DECODE) break; // done with the first
        rows part = out;
        part.p += b->plan.group[id].member[i].col;
        const dev_matrix w = cuda_matrix(b, id, i);
        if (o->matmul.exact && l->cls == ROW_PROMPT && router_gemm_has(w, x)) {
            CU(router_gemm_launch(w, x, part, out_rows ? &b->t.step->n_out : &b->t.step->n_row, n, s.stream));
            continue;
        }
        CU(op_matmul_run(b->t, w, x, part, n, out_rows, l->cls == ROW_DECODE, s));
    }
    return INFER_OK;
}

static enum infer_status run_conv(cuda_backend *b, const struct op_list *l, const struct op_conv *o, int n,
                                  op_queue s) {
    const conv_job j = {cuda_rows(b, l, o->x),       cuda_rows(b, l, o->out),
                        cuda_constant(b, o->w),      cuda_constant(b, o->bias),
                        cuda_state(b, o->state, 0),  o->K,
                        b->c.state[o->state].n_elem, o->silu};
    CU(op_conv_run(b->t, j, n, s));
    return INFER_OK;
}
static recur_job state_job(const cuda_backend *b, int store) {
    recur_job j = {};
    j.state = cuda_state(b, store, 0);
    j.n_elem = (size_t)b->c.state[store].n_elem;
    return j;
}
static enum infer_status run_delta(cuda_backend *b, const struct op_list *l, const struct op_delta *o, int n,
                                   op_queue s) {
    recur_job j = state_job(b, o->state);
    j.x = cuda_rows(b, l, o->qkv);
    j.out = cuda_rows(b, l, o->out);
    j.gate = cuda_rows(b, l, o->a);
    j.write = cuda_rows(b, l, o->b);
    j.A = cuda_constant(b, o->A);
    j.dt_bias = cuda_constant(b, o->dt_bias);
    j.n_head = o->n_value;
    j.n_group = o->n_key;
    j.rows = o->dk;
    j.cols = o->dv;
    j.tiled = o->tiled;
    j.by_row = op_delta_by_row(o);
    j.beta = op_delta_beta(o);
    CU(op_delta_run(b->t, j, n, s));
    return INFER_OK;
}
static enum infer_status run_ssm(cuda_backend *b, const struct op_list *l, const struct op_ssm *o, int n,
                                 op_queue s) {
    recur_job j = state_job(b, o->state);
    j.x = cuda_rows(b, l, o->xbc);
    j.out = cuda_rows(b, l, o->out);
    j.gate = cuda_rows(b, l, o->dt);
    j.A = cuda_constant(b, o->A);
    j.dt_bias = cuda_constant(b, o->dt_bias);
    j.skip = cuda_constant(b, o->skip);
    j.n_head = o->n_head;
    j.n_group = o->n_group;
    j.rows = o->n_state;
    j.cols = o->head_dim;
    j.lo = o->lo;
    j.hi = o->hi;
    CU(op_ssm_run(b->t, j, n, s));
    return INFER_OK;
}
static enum infer_status run_compress(cuda_backend *b, const struct op_list *l, const struct op_compress *o,
                                      int n, op_queue s) {
    const compress_job j = {cuda_rows(b, l, o->x),
                            cuda_rows(b, l, o->gate),
                            cuda_rows(b, l, o->out),
                            cuda_constant(b, o->bias),
                            cuda_state(b, o->state, 0),
                            (size_t)b->c.state[o->state].n_elem,
                            o->ratio,
                            op_compress_span(o)};
    CU(op_compress_run(b->t, j, n, s));
    return INFER_OK;
}
static enum infer_status run_state(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                   op_queue s) {
    if (o->kind == OP_CONV) return run_conv(b, l, &o->conv, n, s);
    if (o->kind == OP_COMPRESS) return run_compress(b, l, &o->compress, n, s);
    return o->kind == OP_DELTA ? run_delta(b, l, &o->delta, n, s) : run_ssm(b, l, &o->ssm, n, s);
}

static enum infer_status run_kv_put(cuda_backend *b, const struct op_list *l, const struct op_kv_put *o,
                                    int n, op_queue s) {
    const struct kv_store *st = &b->c.store[o->store];
    const dev_kv kv = cuda_store(b, o->store);
    const rows k = cuda_rows(b, l, o->k), v = o->v.buf < 0 ? rows{} : cuda_rows(b, l, o->v);
    if (kv_every(st) > 1) {
        const kv_runs_job j = {kv, st->every, kv_turn_of(st, false), kv_turn_of(st, true)};
        CU(kv_runs_put_run(b->t, j, k, v, n, s));
        return INFER_OK;
    }
    CU(kv_turned(kv.type) ? kv_low_put_run(b->t, kv, kv_turn_of(st, false), kv_turn_of(st, true), k, v, n, s)
                          : op_kv_put_run(b->t, kv, k, v, n, s));
    return INFER_OK;
}
// Attention to a window and to entries.
static enum infer_status run_attend_entries(cuda_backend *b, const struct op_list *l,
                                            const struct op_attend *o, const attend_rule &rule, int n,
                                            op_queue s) {
    const struct kv_store *st = &b->c.store[o->store], *entry = &b->c.store[o->entries - 1];
    attend_entries_job j = {};
    j.kv = cuda_store(b, o->store);
    j.entry = cuda_store(b, o->entries - 1);
    j.every = kv_every(entry);
    j.dv = st->head_dim_v;
    j.turn = kv_turn_of(st, false);
    j.block = o->by.block;
    j.n_top = o->by.n_top;
    j.q = cuda_rows(b, l, o->q);
    j.out = cuda_rows(b, l, o->out);
    if (j.n_top) j.chosen = cuda_rows(b, l, o->chosen);
    j.rule = rule;
    if (!st->v_in_k || !entry->v_in_k || st->n_kv_head != 1 || entry->n_kv_head != 1 ||
        entry->head_dim_k != st->head_dim_k || entry->head_dim_v != st->head_dim_v)
        infer_bug("entries of other sizes than keys");
    CU(op_attend_entries_run(b->t, j, n, s));
    return INFER_OK;
}
static enum infer_status run_attend(cuda_backend *b, const struct op_list *l, const struct op_attend *o,
                                    int n, op_queue s) {
    const rows q = cuda_rows(b, l, o->q), out = cuda_rows(b, l, o->out);
    if (o->store < 0) {
        const attend_rows_job own = {q,
                                     cuda_rows(b, l, o->k),
                                     cuda_rows(b, l, o->v),
                                     out,
                                     o->n_head,
                                     o->n_kv_head,
                                     o->scale,
                                     o->softcap,
                                     cuda_constant(b, o->sinks),
                                     o->both,
                                     o->ask};
        CU(op_attend_rows_run(b->t, own, n, s));
        return INFER_OK;
    }
    if (attends_chosen(o)) return cuda_attend_chosen_op(b, l, o, n, s);
    const struct kv_store *st = &b->c.store[o->store];
    const dev_kv kv = cuda_store(b, o->store);
    const int32_t *until = o->both ? b->until : NULL;
    mla_job j;
    if (until && st->v_in_k)
        return err_set(INFER_E_UNSUPPORTED,
                       "cuda: no kernel for rows of a picture that see each other where keys hold the "
                       "values; the device 'cpu' has one");
    if (mla_make(b, l, o, &j)) {
        CU(l->cls == ROW_DECODE ? mla_decode_run(j, n, s.overlap, s.stream)
                                : mla_prompt_run(b, o, j, n, s.stream));
        return INFER_OK;
    }
    const attend_rule rule = {o->n_head,    o->window,   o->scale,       o->softcap,
                              o->temp_beta, o->temp_len, o->temp_offset, cuda_constant(b, o->sinks),
                              o->chunked};
    if (o->entries) return run_attend_entries(b, l, o, rule, n, s);
    if (st->v_in_k)
        CU(op_attend_mla_run(b->t, kv, st->head_dim_v, q, out, rule, n, s));
    else if (until)
        CU(op_attend_both_run(b->t, kv, q, out, rule, until, n, s));
    else
        CU(op_attend_run(b->t, kv, q, out, rule, n, s));
    return INFER_OK;
}
static enum infer_status run_stack(cuda_backend *b, const struct op_list *l, const struct op_heads *o, int n,
                                   op_queue s) {
    const stack_job j = mla_stack(b, l, o);
    const bool decode = l->cls == ROW_DECODE;
    if (!mla_heads_take(b, o, j))
        CU(op_stack_run(b->t, j, n, decode, s));
    else if (decode)
        CU(mla_heads_launch(b->t, mla_heads_job{j}, n, s.overlap, s.stream));
    else
        CU(mla_heads_prompt(b->t, j, n, s.stream));
    return INFER_OK;
}

// ---- experts
static enum infer_status run_route(cuda_backend *b, const struct op_list *l, const struct op_route *o, int n,
                                   op_queue s) {
    if (o->told || o->router->act == ROUTE_ROOT) {
        const route_told_job j = {cuda_rows(b, l, o->logits),
                                  cuda_rows(b, l, o->choice),
                                  router_of(b, o),
                                  (const int32_t *)cuda_constant(b, o->told),
                                  o->n_told,
                                  cuda_out_rows(l, o->choice)};
        CU(op_route_told_run(b->t, b->in, j, n, s));
        return INFER_OK;
    }
    CU(op_route_run(b->t, cuda_rows(b, l, o->logits), cuda_rows(b, l, o->choice), router_of(b, o), n,
                    cuda_out_rows(l, o->choice), s));
    return INFER_OK;
}
static enum infer_status run_experts(cuda_backend *b, const struct op_list *l, const struct op_experts *o,
                                     int n, op_queue s) {
    const cuda_group *g = &b->plan.group[o->w->id];
    const bool decode = l->cls == ROW_DECODE;
    const rows out = cuda_rows(b, l, o->out);
    experts_job j = {};
    j.n_expert = g->n_stack;
    j.n_used = o->n_used;
    j.first = o->first;
    j.n_all = o->n_all;
    j.x = cuda_rows(b, l, o->x);
    j.choice = cuda_rows(b, l, o->choice);
    j.by_choice = o->by_choice;
    j.weighted = o->weighted;
    j.out_rows = cuda_out_rows(l, o->out);
    j.pair = (int *)(b->work + b->plan.pairs);
    j.tile = (int4 *)(b->work + b->plan.pair_tiles);
    if (!decode) CU(op_experts_order(b->t, j, n, s));
    if (!decode && o->n_all) // what others have
        CU(cudaMemset2DAsync(out.p, out.stride * 4, 0, (size_t)out.width * 4, (size_t)n, s.stream));
    for (int i = 0; i < g->n_member && !(i && g->paired && decode); i++) {
        j.w = cuda_matrix(b, o->w->id, i);
        j.step = g->member[i].step;
        j.out = out;
        j.out.p += (size_t)g->member[i].col * o->n_used;
        CU(op_experts_run(b->t, j, n, decode, s));
    }
    return INFER_OK;
}
static enum infer_status run_mix(cuda_backend *b, const struct op_list *l, const struct op_mix *o, int n,
                                 op_queue s) {
    mix_job j = {};
    mix_args(b, l, o, &j);
    j.out = cuda_rows(b, l, o->out);
    j.out_rows = cuda_out_rows(l, o->out);
    CU(op_mix_run(b->t, j, n, s));
    return INFER_OK;
}

static enum infer_status run_embed(cuda_backend *b, const op_embed &o, rows out, int n, op_queue s) {
    const dev_input in = o.beside ? dev_input{} : b->in;
    const int own = config_table_group(&b->c, o.w), group = own < 0 ? b->plan.embedding : own;
    CU(op_embed_run(b->t, in, o.w ? cuda_matrix(b, group, 0) : dev_matrix{}, out,
                    o.w ? embed_scale(b, group, &o) : 1, n, s));
    return INFER_OK;
}

static enum infer_status run_columns(cuda_backend *b, const struct op_list *l, const struct op_columns *o,
                                     int n, op_queue s) {
    CU(op_columns_run(b->t, cuda_rows(b, l, o->x), cuda_rows(b, l, o->out),
                      (const int32_t *)cuda_constant(b, o->from), n, cuda_out_rows(l, o->out), s));
    return INFER_OK;
}

// Residual streams that are mixed.
static enum infer_status run_balance(cuda_backend *b, const struct op_list *l, struct op_balance o, int n,
                                     op_queue s) {
    o.scale = cuda_constant(b, o.scale);
    o.base = cuda_constant(b, o.base);
    CU(op_balance_run(b->t, cuda_rows(b, l, o.x), cuda_rows(b, l, o.out), o, n, cuda_out_rows(l, o.out), s));
    return INFER_OK;
}
static enum infer_status run_streams(cuda_backend *b, const struct op_list *l, const struct op_streams *o,
                                     int n, op_queue s) {
    const streams_job j = {cuda_rows(b, l, o->x),        cuda_rows(b, l, o->M),   rows_or_none(b, l, o->y),
                           rows_or_none(b, l, o->write), cuda_rows(b, l, o->out), o->n,
                           cuda_out_rows(l, o->out)};
    CU(op_streams_run(b->t, j, n, s));
    return INFER_OK;
}
static enum infer_status run_rope(cuda_backend *b, const struct op_list *l, const struct op_rope *o, int n,
                                  op_queue s) {
    CU((o->back ? op_rope_back_run : op_rope_run)(b->t, cuda_rows(b, l, o->x), o->n_head, o->head_dim,
                                                  o->rope->n_rot, o->rope->kind == ROPE_NEOX,
                                                  cuda_rope_table(b, o->rope), n, s));
    return INFER_OK;
}

// Of towers and what they give.
static enum infer_status run_picture(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                     op_queue s) {
    if (o->kind == OP_INPUT)
        CU(op_input_run(b->t, b->in, o->input.from, cuda_rows(b, l, o->input.out), n, s));
    else
        CU(op_merge_run(b->t, cuda_rows(b, l, o->merge.x), cuda_rows(b, l, o->merge.out), o->merge.n,
                        o->merge.mean, n, s));
    return INFER_OK;
}
static enum infer_status run_norm(cuda_backend *b, const struct op_list *l, const struct op_norm *o, int n,
                                  op_queue s) {
    CU(op_norm_run(b->t, cuda_rows(b, l, o->x), cuda_rows(b, l, o->out), o->kind, o->dim, o->eps,
                   cuda_constant(b, o->w), cuda_constant(b, o->bias), op_norm_weights(o), n,
                   cuda_out_rows(l, o->x), s));
    return INFER_OK;
}
// What the host or other ranks have a part in; adapters; what is chosen.
static enum infer_status run_with_others(cuda_backend *b, const struct op_list *l, const struct op *o, int n,
                                         op_queue s) {
    if (o->kind == OP_REMOTE) return host_rows_run(b, l, o, n, s);
    if (o->kind == OP_LOWRANK) return cuda_adapters_op(b, l, o, n, s);
    if (o->kind == OP_INDEX) return cuda_index_op(b, l, &o->index, n, s);
    if (o->kind == OP_NGRAM) return cuda_ngram_op(b, l, &o->ngram, n, s);
    if (o->kind == OP_REDUCE || o->kind == OP_GATHER) return cuda_ranks_op(b, l, o, n, s);
    infer_bug("operation %d has no kernel", (int)o->kind);
}

static enum infer_status run_op(cuda_backend *b, const struct op_list *l, const struct op *o, int n_row,
                                int n_out, op_queue s) {
    auto at = [&](struct view v) { return v.buf < 0 ? rows{} : cuda_rows(b, l, v); };
    const int n = op_rows_count(l, o, n_row, n_out);
    switch (o->kind) {
    case OP_EMBED:
        return run_embed(b, o->embed, at(o->embed.out), n, s);
    case OP_INPUT:
    case OP_MERGE:
        return run_picture(b, l, o, n, s);
    case OP_NORM:
        return run_norm(b, l, &o->norm, n, s);
    case OP_MATMUL:
        return run_matmul(b, l, o, n, s);
    case OP_ROPE:
        return run_rope(b, l, &o->rope, n, s);
    case OP_KV_PUT:
        return run_kv_put(b, l, &o->kv_put, n, s);
    case OP_ATTEND:
        return run_attend(b, l, &o->attend, n, s);
    case OP_GLU:
        CU(op_glu_run(b->t, at(o->glu.gate), at(o->glu.up), at(o->glu.out), o->glu.act, o->glu.k, n,
                      cuda_out_rows(l, o->glu.gate), s));
        break;
    case OP_ADD:
        CU(op_add_run(b->t, at(o->add.a), at(o->add.b), at(o->add.out), n, cuda_out_rows(l, o->add.a), s));
        break;
    case OP_ROWS:
        CU(op_rows_run(b->t, at(o->rows.x), at(o->rows.out), n, s));
        break;
    case OP_SELECT:
        CU(select_launch(cuda_select(b, l, &o->select), n, s));
        break;
    case OP_CONV:
    case OP_DELTA:
    case OP_SSM:
    case OP_COMPRESS:
        return run_state(b, l, o, n, s);
    case OP_ROUTE:
        return run_route(b, l, &o->route, n, s);
    case OP_EXPERTS:
        return run_experts(b, l, &o->experts, n, s);
    case OP_MIX:
        return run_mix(b, l, &o->mix, n, s);
    case OP_POSITION:
        CU(op_position_run(b->t, at(o->position.x), cuda_constant(b, o->position.table), n, s));
        break;
    case OP_HEADS:
        return run_stack(b, l, &o->heads, n, s);
    case OP_COLUMNS:
        return run_columns(b, l, &o->columns, n, s);
    case OP_BALANCE:
        return run_balance(b, l, o->balance, n, s);
    case OP_STREAMS:
        return run_streams(b, l, &o->streams, n, s);
    default:
        return run_with_others(b, l, o, n, s);
    }
    return INFER_OK;
}

// ---- ops that one kernel does together
// The matrix of F32 at op i, with the add or the glu behind it (before end) where nothing else reads its product. Returns the
// number of ops, 0: the plain kernels.
static int take_floats(const cuda_backend *b, const struct op_list *l, int i, int end, gemv_f32_job *j) {
    if (l->op[i].kind != OP_MATMUL) return 0;
    const struct op_matmul *m = &l->op[i].matmul;
    const cuda_group *g = &b->plan.group[m->w->id];
    if (!op_gemv_f32_take(g, cuda_rows(b, l, m->x))) return 0;
    const float *bias = g->bias ? (const float *)(b->work + b->plan.constant + g->bias_offset) : NULL;
    *j = op_gemv_f32_job(g, b->weights, bias);
    j->t = b->t;
    j->x = cuda_rows(b, l, m->x);
    j->out = cuda_rows(b, l, m->out);
    j->out_rows = cuda_out_rows(l, m->out);
    if (i + 1 == end || !list_hands_over(l, i)) return 1;
    const struct op *o = &l->op[i + 1];
    if (o->kind == OP_ADD && g->n_member == 1 && view_same(o->add.b, m->out) &&
        !list_overlaps(l, o->add.out, m->x)) {
        j->add = cuda_rows(b, l, o->add.a);
        j->out = cuda_rows(b, l, o->add.out);
        return 2;
    }
    if (g->paired && o->glu.act <= ACT_RELU2 && list_is_gated(l, i) && !list_overlaps(l, o->glu.out, m->x)) {
        j->act = o->glu.act;
        j->out = cuda_rows(b, l, o->glu.out);
        return 2;
    }
    return 1;
}
// Rope of q, rope of k and kv_put.
static int take_heads(const cuda_backend *b, const struct op_list *l, int i, int end, heads_job *j) {
    if (i + 3 > end || !list_is_rotated(l, i)) return 0;
    const struct op *q = &l->op[i], *k = q + 1, *put = q + 2;
    if (q->rope.rope != k->rope.rope || q->rope.head_dim != k->rope.head_dim) return 0;
    if (put->kv_put.v.buf < 0 || kv_every(&b->c.store[put->kv_put.store]) > 1) return 0;
    j->q = cuda_rows(b, l, q->rope.x);
    j->k = cuda_rows(b, l, k->rope.x);
    j->v = cuda_rows(b, l, put->kv_put.v);
    j->n_head = q->rope.n_head;
    j->n_kv_head = k->rope.n_head;
    j->head_dim = q->rope.head_dim;
    j->n_rot = q->rope.rope->n_rot;
    j->neox = q->rope.rope->kind == ROPE_NEOX;
    j->table = cuda_rope_table(b, q->rope.rope);
    j->kv = cuda_store(b, put->kv_put.store);
    if (kv_turned(j->kv.type)) return 0;
    return j->kv.n_kv_head == j->n_kv_head && j->kv.dk == j->head_dim ? 3 : 0;
}
// *n_done: ops done, 0: none.
static enum infer_status run_together(cuda_backend *b, const struct op_list *l, int i, int end, int n_row,
                                      int n_out, op_queue s, int *n_done) {
    gemv_f32_job f;
    heads_job h;
    *n_done = 0;
    if (b->c.no_fuse || l->cls != ROW_DECODE) return INFER_OK;
    if ((*n_done = take_floats(b, l, i, end, &f)))
        CU(op_gemv_f32_run(f, f.out_rows ? n_out : n_row, b->sm_count, s));
    else if ((*n_done = take_heads(b, l, i, end, &h)))
        CU(op_heads_run(b->t, h, n_row, s));
    return INFER_OK;
}

// Keys and values are read through L1, and the chain has just written some: such a kernel begins when all in front of it have ended.
static bool reads_store(const struct op *o) {
    return o->kind == OP_INDEX || (o->kind == OP_ATTEND && o->attend.store >= 0);
}

enum infer_status cuda_run_ops(cuda_backend *b, enum row_class cls, int first, int n, int n_row, int n_out,
                               op_queue s) {
    const struct op_list *l = b->c.list[cls];
    int done;
    for (int i = first; i < first + n; i += done) {
        const struct op *o = &l->op[i];
        done = 1;
        if (!op_rows_count(l, o, n_row, n_out)) continue;
        TRY(run_together(b, l, i, first + n, n_row, n_out, s, &done));
        if (!done) {
            TRY(run_op(b, l, o, n_row, n_out, op_queue{s.stream, s.overlap && !reads_store(o)}));
            done = 1;
        }
        TRY(behind_ops(b, l, i, done, s));
    }
    return INFER_OK;
}
enum infer_status cuda_rope_tables(cuda_backend *b, int n_row, op_queue s) {
    for (int i = 0; i < b->n_rope; i++) {
        const struct rope *r = b->rope[i];
        const float *inv_freq = cuda_constant(b, r->inv_freq);
        const int32_t *axis = (const int32_t *)cuda_constant(b, r->axis);
        float2 *table = cuda_rope_table(b, r);
        const rope_runs_job runs = {inv_freq, axis, r->n_rot, r->every, r->mscale, table};
        if (r->every > 1)
            CU(op_rope_runs_run(b->t, b->in, runs, n_row, s));
        else
            CU(op_rope_table_run(b->t, b->in, inv_freq, axis, r->n_rot, r->mscale, table, n_row, s));
    }
    return INFER_OK;
}
enum infer_status cuda_run_list(cuda_backend *b, enum row_class cls, int n_row, int n_out,
                                cudaStream_t stream) {
    const op_queue s = {
        stream,
        false}; // (a program's first link ends before others begin, which is no link here: decode_small.cu)
    TRY(cuda_rope_tables(b, n_row, s));
    return cuda_run_ops(b, cls, 0, b->c.list[cls]->n_op, n_row, n_out, s);
}
