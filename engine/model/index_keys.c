/* What chooses the positions of attention: its sizes, and which layers have one of their own. */
#include "model/model_impl.h"

/* own[n_layer]: 1, 0: a layer takes the choice of the one before. Files of GLM-5.2 from before the key are told by their context. source:
 * llama.cpp's glm-dsa, config.json of GLM-5.2 */
static enum infer_status read_own(struct model *m, uint32_t *own) {
    enum { LONG = 1 << 20, SHARED_FROM = 3, EACH = 4 };
    static const char name[] = "attention.indexer.types";
    char key[128];
    const bool told = tensorfile_meta(m->file, model_key(m, key, sizeof key, name));
    if (!m->arch->keys || !key_names(m->arch->keys, name, sizeof name - 1)) {
        for (int i = 0; i < m->n_layer; i++) own[i] = 1;
        return INFER_OK;
    }
    TRY(model_read_layers(m, name, 0, 1, 1, own));
    for (int i = SHARED_FROM; !told && m->n_ctx_train >= LONG && i < m->n_layer; i++)
        own[i] = (i - SHARED_FROM + 1) % EACH == 0;
    if (!own[0]) return err_set(INFER_E_INPUT, "%s: %s: layer 0 has no layer before it", m->file->path, key);
    return INFER_OK;
}

enum infer_status model_read_index(struct model *m) {
    enum { MOST_TOP = 1 << 24, MOST_HEADS = 1024 }; /* positions are float32 */
    int n_head, dim, top;
    TRY(model_read_int(m, "attention.indexer.head_count", 1, MOST_HEADS, -1, &n_head));
    TRY(model_read_int(m, "attention.indexer.key_length", m->rope[0].n_rot, MODEL_MAX_HEAD_DIM, -1, &dim));
    TRY(model_read_int(m, "attention.indexer.top_k", 1, MOST_TOP, -1, &top));
    if (m->n_ctx_train > MOST_TOP || !m->layer[0].mla.q_rank)
        return err_set(INFER_E_UNSUPPORTED, "%s: positions are chosen by a latent of queries, of %d at most",
                       m->file->path, MOST_TOP);
    uint32_t *own = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *own);
    if (!own) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    TRY(read_own(m, own));
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        l->index.by.n_top = top;
        l->index.head_dim = dim;
        if (own[i]) l->index.n_head = n_head;
        if (!own[i]) m->whole = true;
    }
    return INFER_OK;
}
