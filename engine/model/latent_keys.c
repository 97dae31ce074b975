/* Sizes of multi-head latent attention. Files since 2025 have the sizes of the one key head that is kept in key_length and value_length and
 * those of a head in key_length_mla and value_length_mla; earlier ones have those of a head in the former. */
#include "model/model_impl.h"

#include <math.h>

struct latent {
    int rank, q_rank, key, value, n_rot;
    bool absorbed; /* the file's sizes are of the one key head */
};

static enum infer_status read_sizes(const struct model *m, struct latent *s) {
    char key[128];
    int kept_k, kept_v;
    s->absorbed = tensorfile_meta(m->file, model_key(m, key, sizeof key, "attention.key_length_mla")) != NULL;
    TRY(model_read_int(m, "attention.kv_lora_rank", 1, MODEL_MAX_HEAD_DIM, -1, &s->rank));
    TRY(model_read_int(m, "attention.q_lora_rank", 0, 1 << 20, 0, &s->q_rank));
    TRY(model_read_int(m, "rope.dimension_count", 2, MODEL_MAX_HEAD_DIM, -1, &s->n_rot));
    TRY(model_read_int(m, "attention.key_length", 1, MODEL_MAX_HEAD_DIM, -1, &kept_k));
    TRY(model_read_int(m, "attention.value_length", 1, MODEL_MAX_HEAD_DIM, -1, &kept_v));
    const int plain = m->n_embd / (m->layer[0].attn.n_head ? m->layer[0].attn.n_head : 1);
    if (m->arch->mixer.by_row && s->absorbed && kept_v == plain) kept_v = s->rank; /* of Kimi Linear */
    TRY(model_read_int(m, "attention.key_length_mla", 1, MODEL_MAX_HEAD_DIM, kept_k, &s->key));
    TRY(model_read_int(m, "attention.value_length_mla", 1, MODEL_MAX_HEAD_DIM, kept_v, &s->value));
    if (s->n_rot % 2 || s->n_rot >= s->key || s->rank + s->n_rot > MODEL_MAX_HEAD_DIM)
        return err_set(
            INFER_E_INPUT,
            "%s: a latent of %d numbers, heads of %d, %d of them rotated: must be even, fewer than a "
            "head's, and with the latent at most %d",
            m->file->path, s->rank, s->key, s->n_rot, MODEL_MAX_HEAD_DIM);
    if (s->absorbed && (kept_k != s->rank + s->n_rot || kept_v != s->rank))
        return err_set(
            INFER_E_INPUT,
            "%s: attention.key_length %d and value_length %d are not those of a latent of %d numbers and "
            "%d rotated ones",
            m->file->path, kept_k, kept_v, s->rank, s->n_rot);
    return INFER_OK;
}

enum infer_status model_read_latent(struct model *m) {
    struct latent s;
    TRY(read_sizes(m, &s));
    TRY(model_read_float(m, "attention.latent_norm_rms_epsilon", 0, 1, m->eps, &m->latent_eps));
    if (m->attn_scale == 0) m->attn_scale = 1 / sqrtf((float)s.key);
    m->rope[0].n_rot = m->rope[1].n_rot = s.n_rot;
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        if (l->mixer.kind != MIX_ATTENTION) continue;
        int want = s.absorbed ? 1 : l->attn.n_head;
        if (l->attn.n_kv_head != want)
            return err_set(INFER_E_INPUT, "%s: layer %d has %d kv heads, latent attention has %d",
                           m->file->path, i, l->attn.n_kv_head, want);
        l->attn.n_kv_head = 1;
        l->attn.head_dim_k = s.rank + s.n_rot;
        l->attn.head_dim_v = s.rank;
        l->mla.n_nope = s.key - s.n_rot;
        l->mla.n_value = s.value;
        l->mla.q_rank = s.q_rank;
    }
    return m->arch->attn.index_rope ? model_read_index(m) : INFER_OK;
}
