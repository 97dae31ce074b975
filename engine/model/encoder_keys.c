/* Hyper-parameters of models that make vectors and scores of texts. */
#include "model/model_impl.h"

/* Rows of a matrix of the file; without it, otherwise. */
static enum infer_status rows_of(const struct model *m, enum slot slot, int otherwise, int *out) {
    const struct tensor *t = m->arch->slot[slot] ? tensorfile_find(m->file, slot_info[slot].name) : NULL;
    *out = otherwise;
    if (!t) return INFER_OK;
    if (t->shape[2] < 1 || t->shape[2] > 1 << 16)
        return err_set(INFER_E_INPUT, "%s: tensor %s has %lld rows", m->file->path, t->name,
                       (long long)t->shape[2]);
    *out = (int)t->shape[2];
    return INFER_OK;
}

enum infer_status model_read_encoder(struct model *m) {
    bool causal = false, there;
    char key[128];
    int pooling;
    m->n_type = 1;
    m->encoder = m->arch->encoder.on;
    TRY(model_read_int(m, "pooling_type", 0, POOL_COUNT - 1, POOL_NONE, &pooling));
    m->pooling = (enum pooling)pooling;
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "no_head"), &m->no_head, &there));
    TRY(model_read_int(m, "text_length", 0, m->n_ctx_train, 0, &m->n_text));
    if (!m->encoder) return INFER_OK;
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "attention.causal"), &causal, &there));
    if (causal)
        return err_set(INFER_E_UNSUPPORTED, "%s: %s is true: no encoder of this kind is known", m->file->path,
                       key);
    if (m->arch->slot[SLOT_ATTN_DISTANCE])
        TRY(model_read_int(m, "attention.relative_buckets_count", 4, 1 << 16, -1, &m->n_bucket));
    TRY(rows_of(m, SLOT_TOKEN_TYPES, 1, &m->n_type));
    TRY(rows_of(m, SLOT_CLS_OUT, 0, &m->n_label));
    if (m->pooling == POOL_RANK && !m->n_label)
        return err_set(INFER_E_INPUT, "%s: %s says that the model scores, and it has no %s", m->file->path,
                       model_key(m, key, sizeof key, "pooling_type"), slot_info[SLOT_CLS_OUT].name);
    return INFER_OK;
}
