/* Keys of attention to entries of runs of positions, of streams that are mixed, and of layers whose experts ids are told. */
#include "model/model_impl.h"

#include <math.h>

/* What chooses entries, in layers where these are over two runs. source: llama.cpp's deepseek4, whose runs of 4 are such */
static enum infer_status read_index(struct model *m) {
    enum { MOST_TOP = 1 << 24, MOST_HEADS = 1024 }; /* positions are float32 */
    int n_head, dim, top;
    TRY(model_read_int(m, "attention.indexer.head_count", 1, MOST_HEADS, -1, &n_head));
    TRY(model_read_int(m, "attention.indexer.key_length", m->rope[0].n_rot, MODEL_MAX_HEAD_DIM, -1, &dim));
    TRY(model_read_int(m, "attention.indexer.top_k", 1, MOST_TOP, -1, &top));
    if (m->n_ctx_train > MOST_TOP)
        return err_set(INFER_E_UNSUPPORTED, "%s: entries are chosen of %d positions at most", m->file->path,
                       MOST_TOP);
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        l->index.by = (struct choice){.block = l->entry.every, .ends = l->entry.every > 0};
        if (!l->entry.twice) continue;
        l->index.by.n_top = top;
        l->index.n_head = n_head;
        l->index.head_dim = dim;
    }
    return INFER_OK;
}

static enum infer_status read_streams(struct model *m) {
    TRY(model_read_int(m, "hyper_connection.count", 2, STREAMS_MAX, -1, &m->n_stream));
    TRY(model_read_int(m, "hyper_connection.sinkhorn_iterations", 1, 1000, -1, &m->hyper.n_round));
    TRY(model_read_float(m, "hyper_connection.epsilon", 0, 1, NAN, &m->hyper.eps));
    TRY(model_read_int(m, "attention.output_group_count", 1, m->layer[0].attn.n_head, -1, &m->hyper.n_group));
    TRY(model_read_int(m, "attention.output_lora_rank", 1, 1 << 20, -1, &m->hyper.rank));
    m->whole = true;
    return INFER_OK;
}

static enum infer_status check_layer(const struct model *m, int i) {
    const struct layer *l = &m->layer[i];
    const int groups = m->hyper.n_group;
    if (l->attn.n_kv_head != 1 || l->attn.head_dim_k != l->attn.head_dim_v || !l->attn.window ||
        l->attn.n_head % groups)
        return err_set(
            INFER_E_UNSUPPORTED,
            "%s: layer %d has %d keys of %d numbers, values of %d, a window of %d and %d heads in %d "
            "groups: one key that is the value, a window, and whole groups are known",
            m->file->path, i, l->attn.n_kv_head, l->attn.head_dim_k, l->attn.head_dim_v, l->attn.window,
            l->attn.n_head, groups);
    return l->entry.every == 1
               ? err_set(INFER_E_UNSUPPORTED, "%s: layer %d has entries of one position", m->file->path, i)
               : INFER_OK;
}

enum infer_status model_read_entries(struct model *m) {
    enum { LONGEST_RUN = 1 << 12, TWICE = 4 };
    int q_rank, told;
    uint32_t *every = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *every);
    if (!every) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    TRY(model_read_int(m, "attention.q_lora_rank", 1, 1 << 20, -1, &q_rank));
    TRY(model_read_int(m, "hash_layer_count", 0, m->n_layer, 0, &told));
    TRY(model_read_layers(m, "attention.compress_ratios", 0, LONGEST_RUN, -1, every));
    TRY(read_streams(m));
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        l->mla.q_rank = q_rank;
        l->mla.n_nope = l->attn.head_dim_k - m->rope[0].n_rot;
        l->entry.every = (int)every[i];
        l->entry.twice = every[i] == TWICE;
        l->moe.is_told = i < told;
        TRY(check_layer(m, i));
    }
    return read_index(m);
}
