#include "cuda/run/chosen_ops.h"
#include "cuda/plain/attend_chosen.h"
#include "cuda/plain/indexer.h"
#include "cuda/plain/ngram_rows.h"
#include "cuda/plan/index_plan.h"
#include "seam/op_list.h"

// As many rows at a time as the workspace has room for scores of.
enum infer_status cuda_index_op(cuda_backend *b, const struct op_list *l, const struct op_index *o, int n,
                                op_queue s) {
    const struct kv_store *st = &b->c.store[o->store];
    const int at_once = index_rows(&b->c, o, n);
    index_job j = {};
    j.q = cuda_rows(b, l, o->q);
    j.w = o->w.buf < 0 ? rows{} : cuda_rows(b, l, o->w);
    j.chosen = cuda_rows(b, l, o->chosen);
    j.kv = cuda_store(b, o->store);
    j.n_head = o->n_head;
    j.turn = kv_turn_of(st, false);
    j.every = kv_every(st);
    j.n_top = o->by.n_top;
    j.block = choice_block(&o->by);
    j.n_local = o->by.n_local;
    j.room = choice_room(&o->by);
    j.whole = o->by.whole;
    j.ends = o->by.ends;
    j.by_head = o->by.by_head;
    j.score = (float *)(b->work + b->plan.kv_v[b->c.n_store]);
    j.n_pos = index_positions(&b->c, o);
    for (j.row0 = 0; j.row0 < n; j.row0 += at_once) {
        j.n_row = n - j.row0 < at_once ? n - j.row0 : at_once;
        CU(op_index_run(b->t, j, b->sm_count, s));
    }
    return INFER_OK;
}

enum infer_status cuda_attend_chosen_op(cuda_backend *b, const struct op_list *l, const struct op_attend *o,
                                        int n, op_queue s) {
    const struct kv_store *st = &b->c.store[o->store];
    attend_chosen_job j = {};
    j.kv = cuda_store(b, o->store);
    j.in_k = st->v_in_k;
    j.dv = st->head_dim_v;
    j.turn_k = kv_turn_of(st, false);
    j.turn_v = kv_turn_of(st, true);
    j.q = cuda_rows(b, l, o->q);
    j.out = cuda_rows(b, l, o->out);
    j.chosen = cuda_rows(b, l, o->chosen);
    j.room = choice_room(&o->by);
    j.by_head = o->by.by_head;
    j.n_head = o->n_head;
    j.scale = o->scale;
    j.softcap = o->softcap;
    j.sinks = cuda_constant(b, o->sinks);
    CU(op_attend_chosen_run(b->t, j, n, s));
    return INFER_OK;
}

enum infer_status cuda_ngram_op(cuda_backend *b, const struct op_list *l, const struct op_ngram *o, int n,
                                op_queue s) {
    const int group = config_table_group(&b->c, o->w);
    const cuda_member *m = &b->plan.group[group].member[0];
    ngram_job j = {};
    j.out = cuda_rows(b, l, o->out);
    j.w = cuda_matrix(b, group, 0);
    j.step = m->step;
    j.scale = m->folded > 0 ? o->w->factor / m->folded : o->w->factor;
    j.state = cuda_state(b, o->state, 0);
    j.n_elem = (size_t)b->c.state[o->state].n_elem;
    j.size = o->by->size;
    j.n_head = o->by->n_head;
    j.end = o->by->end;
    j.given = o->by->given;
    j.mult = (const int64_t *)cuda_constant(b, o->by->mult);
    j.rows = (const int64_t *)cuda_constant(b, o->by->rows);
    j.first = (const int64_t *)cuda_constant(b, o->by->first);
    j.input = b->in.at;
    CU(op_ngram_run(b->t, j, n, s));
    return INFER_OK;
}
