#include "engine_impl.h"
#include "plan/kv_types.h"

/* Store of a kind that layer i keeps; -1: none. */
static int store_of(const struct layer *l, enum infer_kv_kind kind) {
    if (kind == INFER_KV_INDEX) return l->index.n_head ? l->index.store : -1;
    if (kind == INFER_KV_ENTRIES) return l->entry.every ? l->entry.store : -1;
    return l->attn.borrows ? -1 : l->attn.store;
}

static struct infer_kv_layer describe(const struct model *m, int i, enum infer_kv_kind kind) {
    const struct layer *l = &m->layer[i];
    const struct kv_store *s = &m->store[store_of(l, kind)];
    return (struct infer_kv_layer){
        .layer = i,
        .window = kind == INFER_KV_HEADS ? l->attn.window : 0,
        .n_head = s->n_kv_head,
        .dim_k = s->head_dim_k,
        .dim_v = kv_v_dim(s),
        .kind = kind,
        .every = kv_every(s),
        .n_seen = kind == INFER_KV_INDEX ? l->index.by.n_top * choice_block(&l->index.by) : 0};
}

int infer_kv_layers(const struct infer_model *im, struct infer_kv_layer *out, int most) {
    const struct model *m = im->m;
    int n = 0;
    for (int i = 0; i < m->n_layer && !m->encoder; i++)
        for (int kind = 0; kind < INFER_KV_KINDS; kind++) {
            if (store_of(&m->layer[i], (enum infer_kv_kind)kind) < 0) continue;
            if (n < most) out[n] = describe(m, i, (enum infer_kv_kind)kind);
            n++;
        }
    return n;
}

enum infer_status infer_kv_choices_save(const struct infer_model *m, const char *path, double kl,
                                        const char *text, int depth, int counted,
                                        const struct infer_kv_choice *choice, int n) {
    struct kv_choice *own;
    TRY(mem_new(&own, ((size_t)n + 1) * sizeof *own, "choices of cache types"));
    for (int i = 0; i < n; i++) own[i] = (struct kv_choice){choice[i].kl, choice[i].bytes, choice[i].kv_type};
    enum infer_status st = kv_tuned_write(m->m, path, &(struct kv_tuned){kl, depth, counted, text, own, n});
    mem_free(own);
    return st;
}
