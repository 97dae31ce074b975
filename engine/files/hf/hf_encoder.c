/* config.json of encoders: what they have beside sizes and heads. */
#include "files/hf/hf_config.h"
#include "files/hf/hf_ops.h"

#include <stdio.h>
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

bool config_rotary(const json_t *root) {
    const char *word = json_string_value(json_object_get(root, "position_embedding_type"));
    return word && strcmp(word, "rotary") == 0;
}

/* Adapters of tasks, by their names. source: xlm-roberta-flash-implementation's modeling_lora */
static enum infer_status read_tasks(struct config *c) {
    struct hf_config *out = c->out;
    const json_t *list = get_json(c, K_TASKS), *v;
    char names[256] = "";
    size_t i, len = 0;
    out->task_alpha = get_f32(c, K_TASK_ALPHA);
    if (list && !json_is_array(list)) return key_wrong(c, K_TASKS, "a list of names");
    out->n_task = (int)json_array_size(list);
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        if (!name) return key_wrong(c, K_TASKS, "a list of names");
        if (c->task && strcmp(name, c->task) == 0) out->task = (int)i;
        if (len < sizeof names)
            len += (size_t)snprintf(names + len, sizeof names - len, "%s%.60s", i ? ", " : "", name);
    }
    if (c->task && out->task < 0 && out->n_task)
        return err_set(INFER_E_INPUT, "%s: .task is '%.60s'; there are: %s", c->path, c->task, names);
    if (out->n_task && !c->task)
        log_line(LOG_WARN, "%s: no adapter is added to the matrices; there are (.task): %s", c->path, names);
    return c->status;
}

enum infer_status config_encoder(struct config *c, uint32_t ctx) {
    struct hf_config *out = c->out;
    const char *positions = out->table->encoder.alibi             ? "alibi"
                            : config_reads(c, "lora_adaptations") ? "rotary"
                                                                  : "absolute";
    TRY(check_word(c, K_POSITION, positions, positions));
    TRY(read_tasks(c));
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
