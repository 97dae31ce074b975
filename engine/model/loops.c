/* Layers that are computed more than once, with the same weights and a store of their own each time. */
#include "model/bind.h"

enum { MAX_LAYER = 1024 };

enum infer_status model_read_loops(struct model *m) {
    static const char loops[] = "num_loops";
    char key[128];
    bool there;
    m->n_loop = 1;
    if (!m->arch->keys || !key_names(m->arch->keys, loops, sizeof loops - 1)) return INFER_OK;
    TRY(model_read_int(m, loops, 1, MAX_LAYER / m->n_layer, 1, &m->n_loop));
    m->whole = m->n_loop > 1;
    return meta_bool(m->file, model_key(m, key, sizeof key, "skip_loop_final_norm"), &m->loop_bare, &there);
}

void bind_loop_bytes(struct model *m, const struct model *before) {
    const uint64_t again = (uint64_t)m->n_loop - 1;
    m->prompt_bytes += again * (m->prompt_bytes - before->prompt_bytes);
    m->token_bytes += again * (m->token_bytes - before->token_bytes);
    m->n_param_token += again * (m->n_param_token - before->n_param_token);
}

enum infer_status bind_loops(struct binder *b) {
    struct model *m = b->m;
    const int once = m->n_layer, n = once * m->n_loop;
    if (m->n_loop == 1) return INFER_OK;
    struct layer *all = arena_alloc(&m->arena, (size_t)n * sizeof *all);
    if (!all) return err_set(INFER_E_MEMORY, "out of memory for %d layers", n);
    for (int i = 0; i < n; i++) {
        all[i] = m->layer[i % once];
        if (i < once) continue;
        all[i].attn.store = m->n_store++;
        m->store[all[i].attn.store] = m->store[all[i % once].attn.store];
    }
    for (int i = once - 1; i < n - 1 && !m->loop_bare; i += once) all[i].ffn_sum_norm = m->output_norm;
    for (int i = 0; i < m->n_group; i++) { /* of layers: those of the first time */
        const char *at = (const char *)m->group[i], *from = (const char *)m->layer;
        if (at >= from && at < from + (size_t)once * sizeof *all)
            m->group[i] = (const struct weight_group *)(const void *)((char *)all + (at - from));
    }
    m->layer = all;
    m->n_layer = n;
    return INFER_OK;
}
