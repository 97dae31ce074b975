#include "cuda/plan/mla_plan.h"

bool mla_has(const struct kv_store *s, const struct op_attend *o, size_t shared_bytes) {
    return s->v_in_k && s->n_kv_head == 1 && s->head_dim_k == LATENT_K && s->head_dim_v == LATENT_V &&
           o->softcap <= 0 && !o->window && !o->sinks && !o->entries && !o->by.n_top &&
           shared_bytes >= (size_t)220 << 10;
}
int mla_pairs(int n_head) { return n_head > 32 ? 64 : 32; }
int mla_splits(int max_rows, int n_head) {
    const int blocks = max_rows * ((n_head + mla_pairs(n_head) - 1) / mla_pairs(n_head)),
              n = 2 * LATENT_SPLIT / blocks;
    return n < 2 ? 2 : n > LATENT_SPLIT ? LATENT_SPLIT : n;
}
size_t mla_part_bytes(const struct op_list *l, const struct kv_store *store) {
    size_t most = 0;
    for (int i = 0; l && i < l->n_op; i++) {
        const struct op_attend *o = &l->op[i].attend;
        if (l->op[i].kind != OP_ATTEND || o->store < 0 || !mla_has(&store[o->store], o, SIZE_MAX)) continue;
        const size_t n = (size_t)l->max_rows * (size_t)mla_splits(l->max_rows, o->n_head) *
                         (size_t)o->n_head * (LATENT_V + 2) * sizeof(float);
        most = n > most ? n : most;
    }
    return most;
}
