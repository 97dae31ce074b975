/* Heads that draft for another model: which one they are of, what they tap of it, and what their tokens are there. */
#include <limits.h>
#include "model/model_impl.h"

/* The head is of this model: as many numbers of a row, as many tokens. */
static enum infer_status same_sizes(const struct model *m, int width, int vocab) {
    const struct model *of = m->target;
    if (width != of->n_embd)
        return err_set(INFER_E_INPUT, "%s drafts for a model whose rows have %d numbers; those of %s have %d",
                       m->file->path, width, of->file->path, of->n_embd);
    if (vocab != of->n_vocab)
        return err_set(INFER_E_INPUT, "%s drafts for a model with %d tokens; %s has %d", m->file->path, vocab,
                       of->file->path, of->n_vocab);
    return INFER_OK;
}

/* Where the file does not say it: behind the first two layers, half of them, all but the last three. source: EAGLE-3's code */
static enum infer_status read_taps(struct model *m) {
    static const char name[] = "extract_layers";
    const int n_layer = m->target->n_layer;
    uint32_t at[MODEL_TAPS] = {2, (uint32_t)n_layer / 2, (uint32_t)(n_layer > 3 ? n_layer - 3 : 0)};
    char key[128];
    const struct meta *list = tensorfile_meta(m->file, model_key(m, key, sizeof key, name));
    const size_t n = list && list->type == META_ARRAY ? list->n : 3;
    bool present;
    if (n < 1 || n > MODEL_TAPS)
        return err_set(INFER_E_INPUT, "%s: %s has %zu entries, must be 1 to %d", m->file->path, key, n,
                       MODEL_TAPS);
    TRY(meta_u32_array(m->file, key, at, n, &present));
    m->taps = (struct taps){.n = (int)n, .n_embd = m->target->n_embd};
    for (size_t i = 0; i < n; i++) {
        if (at[i] > (uint32_t)n_layer)
            return err_set(INFER_E_INPUT, "%s reads the rows in front of layer %u; %s has %d layers",
                           m->file->path, at[i], m->target->file->path, n_layer);
        m->taps.at[i] = (int)at[i];
    }
    return INFER_OK;
}

static enum infer_status read_ids(struct model *m) {
    const struct tensorfile *f = m->file;
    int32_t *id = arena_alloc(&m->arena, f->n_target_id * sizeof *id);
    uint8_t *seen = arena_alloc(&m->arena, (size_t)m->n_ids);
    if (!id || !seen) return err_set(INFER_E_MEMORY, "out of memory for %zu tokens", f->n_target_id);
    for (size_t i = 0; i < f->n_target_id; i++) {
        if (f->target_id[i] < 0 || f->target_id[i] >= m->n_ids || seen[f->target_id[i]])
            return err_set(INFER_E_INPUT, "%s: d2t says that token %zu is %lld of %d, which %s", f->path, i,
                           (long long)f->target_id[i], m->n_ids,
                           f->target_id[i] < 0 || f->target_id[i] >= m->n_ids ? "is none"
                                                                              : "another one is, too");
        seen[f->target_id[i]] = 1;
        id[i] = (int32_t)f->target_id[i];
    }
    m->target_id = id;
    return INFER_OK;
}

enum infer_status model_read_head(struct model *m) {
    const struct model *of = m->target;
    const struct tensor *out = tensorfile_find(m->file, slot_info[SLOT_OUTPUT].name);
    char key[128];
    bool there;
    int width, vocab;
    if (!of)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s is a head that drafts for another model (%s), and no model itself", m->file->path,
                       m->arch->name);
    if (model_drafts(of) || of->encoder)
        return err_set(INFER_E_UNSUPPORTED, "%s is a head, and %s nothing that it could draft for",
                       m->file->path, of->file->path);
    if (m->n_layer != 1)
        return err_set(INFER_E_UNSUPPORTED, "%s: a head of %d layers; one layer is known", m->file->path,
                       m->n_layer);
    TRY(model_read_int(m, "target_hidden_size", 1, INT_MAX, m->n_embd, &width));
    TRY(model_read_int(m, "vocab_size", 1, INT_MAX, of->n_vocab, &vocab));
    TRY(same_sizes(m, width, vocab));
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "norm_before_residual"), &m->fused_norm, &there));
    TRY(read_taps(m));
    m->n_ids = of->n_vocab;
    if (m->file->n_target_id > (size_t)m->n_ids)
        return err_set(INFER_E_INPUT, "%s: d2t speaks of %zu tokens of %d", m->file->path,
                       m->file->n_target_id, m->n_ids);
    m->n_vocab = m->file->n_target_id ? (int)m->file->n_target_id : m->n_ids;
    if (out && out->shape[2] != m->n_vocab)
        return err_set(INFER_E_INPUT, "%s: output.weight has %lld rows, and d2t speaks of %d tokens",
                       m->file->path, (long long)out->shape[2], m->n_vocab);
    if (!out && m->file->n_target_id)
        return err_set(INFER_E_INPUT, "%s: d2t is there, and output.weight is missing", m->file->path);
    return m->file->n_target_id ? read_ids(m) : INFER_OK;
}
