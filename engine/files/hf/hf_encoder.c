/* config.json of encoders: what they have beside sizes and heads. */
#include "files/hf/hf_config.h"
#include "files/hf/hf_ops.h"

#include <string.h>

/* RoBERTa counts positions from behind the padding's on. source: HF modeling_roberta */
static uint32_t padding(struct config *c) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    return type && strstr(type, "roberta") ? get_u32(c, K_PAD) + 1 : 0;
}

/* A head that scores is what the class is named after. */
static bool scores(const struct config *c) {
    const char *class = json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0));
    return class && strstr(class, "ForSequenceClassification");
}

/* known: "a|b", what a key that is read may say. */
static enum infer_status check_word(struct config *c, enum hf_key key, const char *absent,
                                    const char *known) {
    const char *told = json_string_value(get_json(c, key)), *word = told ? told : absent;
    if (!key_reads(c, key) || key_names(known, word, strlen(word))) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: '%s' is '%.40s'; %s is known", c->path, key_name(c, key), word,
                   known);
}

enum infer_status config_encoder(struct config *c, uint32_t ctx) {
    struct hf_config *out = c->out;
    TRY(check_word(c, K_POSITION, "absolute", out->table->encoder.alibi ? "alibi" : "absolute"));
    TRY(check_word(c, K_FF_KIND, "original", "original|geglu"));
    if (get_flag(c, K_DECODER)) return err_set(INFER_E_UNSUPPORTED, "%s: 'is_decoder' is true", c->path);
    out->n_pad = padding(c);
    out->n_type = key_reads(c, K_TYPES) ? get_u32(c, K_TYPES) : 0;
    out->scores = scores(c);
    const char *pooling = json_string_value(get_json(c, K_SCORES_OF));
    out->mean = pooling && strcmp(pooling, "mean") == 0;
    if (pooling && !out->mean && strcmp(pooling, "cls") != 0) return key_wrong(c, K_SCORES_OF, "cls or mean");
    TRY(c->status);
    if (out->n_pad >= ctx) return key_wrong(c, K_PAD, "less than 'max_position_embeddings'");
    out->n_ctx = ctx - out->n_pad;
    put_bool(c, "attention.causal", false);
    if (key_reads(c, K_BUCKETS)) put_u32(c, "attention.relative_buckets_count", get_u32(c, K_BUCKETS));
    return c->status;
}

enum infer_status hf_positions(struct tensor *out, const struct hf_make *m) {
    const int64_t n = m->config->n_pad;
    const size_t row = m->from->bytes / (size_t)(m->from->shape[2] > 0 ? m->from->shape[2] : 1);
    if (m->from->n_dim != 2 || m->from->shape[2] <= n)
        return err_set(INFER_E_INPUT, "%s: tensor %.100s has no rows behind those of padding", m->path,
                       m->from->name);
    out->shape[2] -= n;
    out->bytes -= (size_t)n * row;
    out->data = (const char *)out->data + (size_t)n * row;
    return INFER_OK;
}
