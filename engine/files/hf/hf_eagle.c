/* Folders of heads that draft for another model (EAGLE-3). config.json is a Llama of one layer with keys of its own beside, as SafeAILab, SGLang and
 * vLLM have it, or around it, as speculators does.
 * sources: SafeAILab/EAGLE (cnets), SGLang and vLLM (llama_eagle3; of vLLM also algos of speculators), llama.cpp (the conversion of llama) */
#include "files/hf/hf_config.h"

#include <limits.h>
#include <string.h>

/* A class that says it, or a vocabulary beside the model's. */
static bool is_head(const json_t *root) {
    const json_t *vocab = json_object_get(root, "draft_vocab_size");
    const char *kind = json_string_value(json_object_get(root, "speculators_model_type")),
               *class = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    return (kind && strcmp(kind, "eagle3") == 0) || (class && strstr(class, "Eagle3")) ||
           (vocab && !json_is_null(vocab));
}

/* The layer's keys in the place of the whole. */
static void part_layer(json_t *root) {
    json_t *layer = json_object_get(root, "transformer_layer_config");
    if (!json_is_object(layer)) return;
    json_incref(layer);
    json_object_del(root, "transformer_layer_config");
    json_t *class = json_object_get(root, "architectures");
    json_incref(class);
    json_object_update(root, layer);
    if (class) json_object_set(root, "architectures", class);
    json_decref(class);
    json_decref(layer);
}

/* Mathematics that is not here. */
static enum infer_status check_off(const struct config *c) {
    static const char *const off[] = {"norm_before_fc", "norm_output", "fc_norm", "parallel_drafting"};
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    if (!type || strcmp(type, "llama") != 0)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: a head that drafts (EAGLE-3) with a layer of '%.40s'; of Llama's "
                       "layers they are supported",
                       c->path, type ? type : "?");
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        const json_t *v = json_object_get(c->root, off[i]);
        if (v && !json_is_null(v) && !json_is_false(v))
            return err_set(INFER_E_UNSUPPORTED, "%s: '%s' is on, which is not supported", c->path, off[i]);
        json_object_del(c->root, off[i]);
    }
    return INFER_OK;
}

/* Which layers are read: in front of those of the key on top, behind those of eagle_config's. */
static enum infer_status put_taps(const struct config *c) {
    static const char name[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *inner = json_object_get(json_object_get(c->root, "eagle_config"), name),
                 *list = inner && !json_is_null(inner) ? inner : json_object_get(c->root, name), *v;
    uint32_t at[16];
    size_t i;
    if (!list || json_is_null(list)) return INFER_OK;
    if (!json_array_size(list) || json_array_size(list) > sizeof at / sizeof *at)
        return config_wrong(c, name, "a list of layers");
    json_array_foreach((json_t *)list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 65536)
            return config_wrong(c, name, "a list of layers");
        at[i] = (uint32_t)json_integer_value(v) + (list == inner);
    }
    hf_put_u32s(c->keys, "eagle3", "extract_layers", at, i);
    return INFER_OK;
}

static enum infer_status put_own(const struct config *c, bool speculator) {
    const json_t *eagle = json_object_get(c->root, "eagle_config"),
                 *use = json_object_get(eagle, "use_aux_hidden_state"),
                 *width = json_object_get(c->root, "target_hidden_size");
    bool norm;
    if (use && json_is_false(use))
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'use_aux_hidden_state' is false: a head that reads no layers", c->path);
    TRY(put_taps(c));
    TRY(config_bool(c, "norm_before_residual", json_object_get(c->root, "norm_before_residual"), speculator,
                    &norm));
    hf_put_bool(c->keys, "eagle3", "norm_before_residual", norm);
    if (!width || json_is_null(width)) return INFER_OK;
    if (!json_is_integer(width) || json_integer_value(width) < 1 || json_integer_value(width) > INT_MAX)
        return config_wrong(c, "target_hidden_size", "a number above 0");
    hf_put_u32(c->keys, "eagle3", "target_hidden_size", (uint32_t)json_integer_value(width));
    return INFER_OK;
}

enum infer_status config_head(struct config *c, bool *head) {
    static const char *const own[] = {
        "draft_vocab_size",        "eagle_config",           "eagle_aux_hidden_state_layer_ids",
        "norm_before_residual",    "target_hidden_size",     "target_model_type",
        "speculators_config",      "speculators_model_type", "speculators_version",
        "has_no_defaults_at_init", "embed_requires_grad",    "num_aux_hidden_states"};
    *head = is_head(c->root);
    if (!*head) return INFER_OK;
    const bool speculator = json_object_get(c->root, "speculators_model_type") != NULL;
    part_layer(c->root);
    TRY(check_off(c));
    TRY(put_own(c, speculator));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) json_object_del(c->root, own[i]);
    json_object_set_new(c->root, "tie_word_embeddings", json_false()); /* what is missing is the target's */
    return INFER_OK;
}

enum infer_status hf_target_ids(struct tensorfile *f, const struct tensor *t) {
    const bool is_64 = t->raw && strcmp(t->raw, "I64") == 0;
    if (!is_64 && !(t->raw && strcmp(t->raw, "I32") == 0))
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s is %s; I64 and I32 are supported", f->path,
                       t->name, t->raw ? t->raw : quant_info(t->type)->name);
    const size_t n = t->bytes / (is_64 ? 8 : 4);
    int64_t *id = arena_alloc(&f->arena, n * sizeof *id);
    if (!id) return err_set(INFER_E_MEMORY, "%s: out of memory for %zu tokens", f->path, n);
    for (size_t i = 0; i < n; i++) {
        const int64_t more = is_64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
        if (more < -INT_MAX || more > INT_MAX)
            return err_set(INFER_E_INPUT, "%s: d2t[%zu] is %lld", f->path, i, (long long)more);
        id[i] = (int64_t)i + more;
    }
    f->target_id = id;
    f->n_target_id = n;
    return INFER_OK;
}
