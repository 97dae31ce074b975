// Attention by a latent, from operations to jobs: what prompt and decode rows share.
#include "cuda/run/decode_mla.h"
#include "cuda/plain/kv_low_ops.h"
#include "cuda/run/halves.h"
#include "seam/op_list.h"

bool mla_make(const cuda_backend *b, const struct op_list *l, const struct op_attend *o, mla_job *j) {
    const struct kv_store *st = &b->c.store[o->store];
    if (b->c.no_fuse || b->prop.major < 9 || !mla_has(st, o, cuda_route_case(b).shared_bytes)) return false;
    const rows q = cuda_rows(b, l, o->q), out = cuda_rows(b, l, o->out);
    memset(j, 0, sizeof *j);
    j->t = b->t;
    j->kv = cuda_store(b, o->store);
    j->q = q.p;
    j->q_row = q.stride;
    j->out = out.p;
    j->out_row = out.stride;
    j->n_head = o->n_head;
    j->scale = o->scale;
    j->temp_beta = o->temp_beta;
    j->temp_len = o->temp_len;
    j->temp_offset = o->temp_offset;
    if (l->cls != ROW_DECODE) return true;
    j->max_split = mla_splits(l->max_rows, o->n_head);
    j->weight = (float2 *)(b->work + b->plan.part);
    j->part = (float *)(j->weight + (size_t)l->max_rows * (size_t)j->max_split * (size_t)o->n_head);
    return true;
}
cudaError_t mla_decode_run(const mla_job &j, int n, bool overlap, cudaStream_t s) {
    const rows q = {(float *)j.q, j.q_row, j.n_head * LATENT_K},
               out = {j.out, j.out_row, j.n_head * LATENT_V};
    const bool turned = kv_turned(j.kv.type);
    cudaError_t e = turned ? kv_turn_rows_run(j.t, q, LATENT_TURN, n, overlap, s) : cudaSuccess;
    if (e == cudaSuccess) e = mla_decode_launch(j, n, overlap, s);
    if (e == cudaSuccess && turned) e = kv_turn_rows_run(j.t, out, LATENT_TURN, n, overlap, s);
    return e;
}
cudaError_t mla_prompt_run(const cuda_backend *b, const struct op_attend *o, mla_job j, int n,
                           cudaStream_t s) {
    if (j.kv.type != KV_F16) {
        const kv_halves_job h = cuda_halves(b, o);
        const cudaError_t e = kv_halves_launch(h, s);
        if (e != cudaSuccess) return e;
        j.kv.k = h.k;
        j.kv.type = KV_F16;
    }
    return mla_prompt_launch(j, n, s);
}
stack_job mla_stack(const cuda_backend *b, const struct op_list *l, const struct op_heads *o) {
    const int id = o->w->id;
    return stack_job{cuda_matrix(b, id, 0),     b->plan.group[id].member[0].step,
                     b->plan.group[id].n_stack, op_heads_rest(o),
                     cuda_rows(b, l, o->x),     cuda_rows(b, l, o->out)};
}

bool mla_heads_take(const cuda_backend *b, const struct op_heads *o, const stack_job &j) {
    return !b->c.no_fuse && b->prop.major >= 9 && mla_heads_has(&b->plan.group[o->w->id], j.rest) &&
           (size_t)j.x.p % 16 == 0;
}
