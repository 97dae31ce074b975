/* Keys of attention to runs of positions by the mean of their keys, of streams that are read by gates, and of what runs of tokens read of a table.
 * source: llama.cpp's qwen4exp for the keys of its files */
#include "model/model_impl.h"

#include <limits.h>

enum { MOST_HEADS = 1024, MOST_TOP = 1 << 24 /* positions are float32 */ };

static enum infer_status read_choice(struct model *m, const uint32_t *every) {
    int n_head, dim, top;
    TRY(model_read_int(m, "attention.indexer.head_count", 1, MOST_HEADS, -1, &n_head));
    TRY(model_read_int(m, "attention.indexer.key_length", m->rope[0].n_rot, MODEL_MAX_HEAD_DIM, -1, &dim));
    TRY(model_read_int(m, "attention.indexer.top_k", 1, MOST_TOP, -1, &top));
    if (m->n_ctx_train > MOST_TOP)
        return err_set(INFER_E_UNSUPPORTED, "%s: positions are chosen of %d at most", m->file->path,
                       MOST_TOP);
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        const int n = (int)every[i];
        if (l->mixer.kind != MIX_ATTENTION) continue;
        if (n < 2 || top % n)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: layer %d attends to %d positions in runs of %d: whole runs of 2 at least are "
                           "known",
                           m->file->path, i, top, n);
        l->index.by = (struct choice){.n_top = top / n, .block = n, .whole = true};
        l->index.n_head = n_head;
        l->index.head_dim = dim;
    }
    return INFER_OK;
}

/* n whole numbers of a list, each from least on. */
static enum infer_status read_numbers(struct model *m, const char *name, int n, int64_t least,
                                      const int64_t **out) {
    char key[128];
    const struct meta *list;
    TRY(meta_array(m->file, model_key(m, key, sizeof key, name), META_KIND_INT, (size_t)n, &list, NULL));
    int64_t *v = arena_alloc(&m->arena, (size_t)n * sizeof *v);
    if (!v) return err_set(INFER_E_MEMORY, "out of memory for %s", key);
    for (int i = 0; i < n; i++) {
        v[i] = meta_elem_i64(list, (size_t)i);
        if (v[i] < least)
            return err_set(INFER_E_INPUT, "%s: %s has the number %lld", m->file->path, key, (long long)v[i]);
    }
    *out = v;
    return INFER_OK;
}

/* The layer that reads the table; *there: there is one. */
static enum infer_status read_layer(struct model *m, bool *there) {
    char key[128];
    const struct meta *list;
    TRY(meta_array(m->file, model_key(m, key, sizeof key, "ple.layers"), META_KIND_INT, META_ANY_LENGTH,
                   &list, there));
    m->ngram_layer = -1;
    *there = *there && list->n;
    if (!*there) return INFER_OK;
    const int64_t at = meta_elem_i64(list, 0);
    if (list->n > 1)
        return err_set(INFER_E_UNSUPPORTED, "%s: %s names %llu layers; one is known", m->file->path, key,
                       (unsigned long long)list->n);
    if (at < 0 || at >= m->n_layer)
        return err_set(INFER_E_INPUT, "%s: %s names layer %lld of %d", m->file->path, key, (long long)at,
                       m->n_layer);
    m->ngram_layer = (int)at;
    m->layer[at].ngram.on = true;
    return INFER_OK;
}

static enum infer_status read_ngrams(struct model *m) {
    struct ngram *by = &m->ngram;
    int each;
    bool there;
    TRY(read_layer(m, &there));
    if (!there) return INFER_OK;
    TRY(model_read_int(m, "ple.ngram_size", 2, NGRAM_SIZE_MAX, -1, &by->size));
    TRY(model_read_int(m, "ple.heads_per_ngram", 1, NGRAM_HEADS_MAX / (by->size - 1), -1, &each));
    TRY(model_read_int(m, "ple.conv_kernel", 2, (CONV_MAX - 1) / by->size + 1, -1, &m->ngram_taps));
    TRY(model_read_int(m, "ple.eos_token_id", 0, m->n_vocab - 1, -1, &by->end));
    TRY(model_read_int(m, "ple.image_token_id", 0, m->n_vocab - 1, by->end, &by->given));
    TRY(model_read_int(m, "embedding_length_per_layer_input", 1, 1 << 20, -1, &m->n_ngram));
    by->n_head = (by->size - 1) * each;
    TRY(read_numbers(m, "ple.layer_multipliers", by->size, 1, &by->mult));
    TRY(read_numbers(m, "ple.head_vocab_sizes", by->n_head, 1, &by->rows));
    TRY(read_numbers(m, "ple.head_offsets", by->n_head, 0, &by->first));
    for (int i = 0; i < by->size; i++)
        if (by->mult[i] > INT64_MAX / m->n_vocab)
            return err_set(INFER_E_INPUT, "%s: ple.layer_multipliers has the number %lld, too large",
                           m->file->path, (long long)by->mult[i]);
    return INFER_OK;
}

enum infer_status model_read_gates(struct model *m) {
    uint32_t *every = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *every);
    if (!every) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    TRY(model_read_int(m, "hyper_connection.count", 2, STREAMS_MAX, -1, &m->n_stream));
    TRY(model_read_int(m, "hyper_connection.low_rank", 1, 1 << 20, -1, &m->stream_low));
    TRY(model_read_layers(m, "attention.compress_ratios", 0, CONV_MAX, -1, every));
    TRY(read_choice(m, every));
    m->whole = true;
    return read_ngrams(m);
}
