/* What chooses runs of positions for attention: its sizes, and which layers have it. */
#include "model/model_impl.h"

enum { MOST_HEADS = 1024, MOST_RUNS = 1 << 16, LONGEST_RUN = 1 << 12, MOST_CTX = 1 << 24 };

/* Layers that choose: as a list says, or those with experts. source: llama.cpp's minimax-m3 */
static enum infer_status read_layers(const struct model *m, uint32_t *chooses) {
    static const char name[] = "attention.indexer.layers";
    char key[128];
    if (tensorfile_meta(m->file, model_key(m, key, sizeof key, name)))
        return model_read_layers(m, name, 0, 1, 1, chooses);
    for (int i = 0; i < m->n_layer; i++) chooses[i] = m->layer[i].moe.n_expert != 0;
    return INFER_OK;
}

enum infer_status model_read_index_runs(struct model *m) {
    struct choice by = {.by_head = true};
    int n_head, dim;
    TRY(model_read_int(m, "attention.indexer.head_count", 1, MOST_HEADS, -1, &n_head));
    TRY(model_read_int(m, "attention.indexer.key_length", m->rope[0].n_rot, MODEL_MAX_HEAD_DIM, -1, &dim));
    TRY(model_read_int(m, "attention.indexer.block_size", 2, LONGEST_RUN, -1, &by.block));
    TRY(model_read_int(m, "attention.indexer.top_k", 1, MOST_RUNS, -1, &by.n_top));
    TRY(model_read_int(m, "attention.indexer.local_blocks", 1, by.n_top, -1, &by.n_local));
    uint32_t *chooses = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *chooses);
    if (!chooses) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    if (m->n_ctx_train > MOST_CTX)
        return err_set(INFER_E_UNSUPPORTED, "%s: positions are chosen of %d at most", m->file->path,
                       MOST_CTX);
    TRY(read_layers(m, chooses));
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        if (!chooses[i]) continue;
        if (l->attn.n_kv_head != n_head)
            return err_set(
                INFER_E_UNSUPPORTED,
                "%s: %d heads choose positions for %d key heads of layer %d: one for each is known",
                m->file->path, n_head, l->attn.n_kv_head, i);
        l->index.by = by;
        l->index.head_dim = dim;
        l->index.n_head = n_head;
    }
    return INFER_OK;
}
