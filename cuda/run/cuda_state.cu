// Where things lie in the memory of a backend: what its programs ask.
#include "cuda/run/cuda_impl.h"

const float *cuda_constant(const cuda_backend *b, const void *host) {
    if (!host) return NULL;
    for (int i = 0; i < b->n_constant; i++)
        if (b->constant[i].host == host)
            return (const float *)(b->work + b->plan.constant + b->constant[i].offset);
    infer_bug("a constant was not uploaded");
}
dev_kv cuda_store(const cuda_backend *b, int store) {
    const struct kv_store *s = &b->c.store[store];
    const struct kv_group *g = &b->c.kv_group[s->group];
    dev_kv kv = {};
    kv.k = b->kv + b->plan.kv_k[store];
    kv.v = b->kv + b->plan.kv_v[store];
    kv.pages = (const int32_t *)(b->work + b->plan.pages) + b->plan.page_table[s->group];
    kv.max_pages = g->max_pages;
    kv.n_kv_head = s->n_kv_head;
    kv.dk = s->head_dim_k;
    kv.dv = kv_v_dim(s);
    kv.window = g->window;
    kv.type = b->c.kv_type;
    return kv;
}
float *cuda_state(const cuda_backend *b, int store, int slot) {
    return (float *)(b->kv + b->plan.state[store]) + (size_t)slot * (size_t)b->c.state[store].n_elem;
}
dev_matrix cuda_matrix(const cuda_backend *b, int group, int member) {
    const cuda_group *g = &b->plan.group[group];
    const cuda_member *m = &g->member[member];
    const cuda_region *r = &g->region[m->region];
    dev_matrix w = {};
    w.region = b->weights + r->offset;
    w.layout = r->layout;
    w.u = r->u;
    w.base = m->base;
    w.inter = m->inter;
    w.stride = m->stride;
    w.n = m->n;
    w.k = m->k;
    w.factor = m->factor;
    if (g->bias)
        w.bias = (const float *)(b->work + b->plan.constant + g->bias_offset) + (size_t)m->col * g->n_stack;
    return w;
}
float embed_scale(const cuda_backend *b, int group, const op_embed *o) {
    const float folded = b->plan.group[group].member[0].folded;
    return o->scale * (folded > 0 ? o->w->factor / folded : o->w->factor);
}
float2 *cuda_rope_table(const cuda_backend *b, const struct rope *r) {
    for (int i = 0; i < b->n_rope; i++)
        if (b->rope[i] == r)
            return (float2 *)(b->work + b->plan.rope +
                              (size_t)i * (size_t)b->plan.max_rows * (size_t)b->plan.rope_row * 4);
    infer_bug("a rope was not seen at upload");
}
int32_t *cuda_tokens(const cuda_backend *b) { return (int32_t *)b->out; }
select_job cuda_select(const cuda_backend *b, const struct op_list *l, const struct op_select *o) {
    select_job j = {};
    j.t = b->t;
    j.logits = cuda_rows(b, l, o->logits);
    j.n_vocab = o->n_vocab;
    j.parts = (o->n_vocab + SELECT_PART - 1) / SELECT_PART;
    j.found = (uint64_t *)(b->work + b->plan.found);
    j.cut = (uint64_t *)(b->work + b->plan.cut);
    j.best = (uint64_t *)(b->work + b->plan.best);
    j.sums = (float4 *)(b->work + b->plan.sums);
    j.arrived = (int *)(b->work + b->plan.arrived);
    j.token = cuda_tokens(b);
    j.top_offset = b->plan.top_offset;
    if (l->cls == ROW_DECODE && b->decode) {
        j.ring.host = cuda_decode_result(b, 0, &j.ring.row);
        j.ring.next = b->next_decode;
    }
    return j;
}

// rings of the fused program, which reads and writes them itself
uint8_t *cuda_decode_blob(const cuda_backend *b, unsigned i, size_t *row) {
    *row = b->plan.blob_bytes;
    return b->pinned + b->plan.pin_decode_blob + i * *row;
}
uint8_t *cuda_decode_result(const cuda_backend *b, unsigned i, size_t *row) {
    *row = b->plan.host_result_bytes;
    return b->pinned + b->plan.pin_decode_result + i * *row;
}
