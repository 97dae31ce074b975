/* config.json -> the keys of GGUF: mixtures of experts. */
#include "arch/arch.h"
#include "files/hf_config.h"

#include <stdio.h>
#include <string.h>

/* Keys that some architectures have (arch.h: hf_keys), and what GGUF calls them; the first that is there of names with '|' between. */
enum as { AS_NUMBER, AS_FACTOR, AS_FLAG };
static const struct {
    const char *keys, *name;
    enum as as;
} row[] = {
    {"num_experts|num_local_experts|n_routed_experts|moe_num_experts", "expert_count", AS_NUMBER},
    {"num_experts_per_tok|experts_per_token|moe_topk|moe_k|top_k_experts", "expert_used_count", AS_NUMBER},
    {"moe_intermediate_size", "expert_feed_forward_length", AS_NUMBER},
    {"n_shared_experts|num_shared_experts|num_shared_expert|moe_num_shared_experts", "expert_shared_count",
     AS_NUMBER},
    {"shared_expert_intermediate_size|shared_intermediate_size|moe_shared_expert_intermediate_size",
     "expert_shared_feed_forward_length", AS_NUMBER},
    {"moe_latent_size", "moe_latent_size", AS_NUMBER},
    {"n_group", "expert_group_count", AS_NUMBER},
    {"topk_group", "expert_group_used_count", AS_NUMBER},
    {"routed_scaling_factor", "expert_weights_scale", AS_FACTOR},
    {"norm_topk_prob", "expert_weights_norm", AS_FLAG}};

static enum infer_status put_key(const struct config *c, const char *key, const char *name, enum as as,
                                 const json_t *v) {
    uint32_t n;
    float x;
    bool flag;
    if (as == AS_NUMBER) {
        TRY(config_u32(c, key, v, -1, &n));
        bool ff = strcmp(name, "expert_feed_forward_length") == 0; /* put below, whatever its key */
        if (ff) c->out->n_ff_expert = n;
        if (!ff) hf_put_u32(c->keys, c->out->arch, name, n);
        if (strcmp(name, "expert_count") == 0) c->out->n_expert = n;
    } else if (as == AS_FACTOR) {
        TRY(config_f32(c, key, v, 1, &x));
        if (!(x > 0)) return config_wrong(c, key, "above 0");
        hf_put_f32(c->keys, c->out->arch, name, x);
    } else {
        flag = json_integer_value(v) != 0; /* of a table's defaults */
        if (!json_is_integer(v)) TRY(config_bool(c, key, v, false, &flag));
        hf_put_bool(c->keys, c->out->arch, name, flag);
    }
    return INFER_OK;
}

/* The number that a list has for every layer (Hunyuan); *v otherwise as it is. */
static enum infer_status same_everywhere(const struct config *c, const char *key, const json_t **v) {
    const json_t *first = json_array_get(*v, 0), *one;
    size_t i;
    if (!json_is_array(*v)) return INFER_OK;
    if (json_array_size(*v) != c->n_layer) return config_wrong(c, key, "a number, or one for each layer");
    json_array_foreach(*v, i, one) if (!json_equal(one, first)) return err_set(
        INFER_E_UNSUPPORTED, "%s: '%s' differs among layers, which is not supported", c->path, key);
    *v = first;
    return INFER_OK;
}

/* What the first of a row's keys says; another of them that is there says the same. */
static enum infer_status put_row(const struct config *c, const char *keys, const char *name, enum as as,
                                 bool groups) {
    char key[64], first[64] = "";
    const json_t *said = NULL;
    for (const char *p = keys; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(p, "|"), p);
        const json_t *v = json_object_get(c->root, key);
        if (!config_reads(c, key) || !v || json_is_null(v)) continue;
        if (!groups && key_names("n_group|topk_group", key, strlen(key))) continue;
        TRY(same_everywhere(c, key, &v));
        if (said && !json_equal(said, v))
            return err_set(INFER_E_INPUT, "%s: '%s' and '%s' differ", c->path, first, key);
        if (said) continue;
        TRY(put_key(c, key, name, as, v));
        said = v;
        memcpy(first, key, sizeof first);
    }
    return INFER_OK;
}

/* The number of a key that the architecture has; otherwise fallback. */
static enum infer_status read_number(const struct config *c, const char *key, uint32_t fallback,
                                     uint32_t *out) {
    *out = fallback;
    return config_reads(c, key) ? config_u32(c, key, json_object_get(c->root, key), fallback, out) : INFER_OK;
}

/* K-EXAONE's form of mlp_layer_types. */
static enum infer_status read_truths(const struct config *c, uint8_t *sparse) {
    static const char key[] = "is_moe_layer";
    const json_t *list = json_object_get(c->root, key), *v;
    size_t i;
    bool is;
    if (!config_reads(c, key) || !list || json_is_null(list)) return INFER_OK;
    if (!json_is_array(list) || json_array_size(list) != c->n_layer)
        return config_wrong(c, key, "a list with a truth for each layer");
    json_array_foreach(list, i, v) {
        TRY(config_bool(c, key, v, false, &is));
        sparse[i] = is;
    }
    return INFER_OK;
}

/* sparse[n_layer] by lists of layers. */
static enum infer_status read_lists(const struct config *c, uint8_t *sparse) {
    const json_t *dense = json_object_get(c->root, "mlp_only_layers"),
                 *only = json_object_get(c->root, "moe_layers"),
                 *types = json_object_get(c->root, "mlp_layer_types"), *v;
    size_t i;
    uint32_t layer;
    if (config_reads(c, "mlp_only_layers")) json_array_foreach(dense, i, v) {
            TRY(config_u32(c, "mlp_only_layers", v, -1, &layer));
            if (layer < c->n_layer) sparse[layer] = 0;
        }
    if (config_reads(c, "moe_layers") && only && !json_is_null(only)) {
        if (!json_is_array(only)) return config_wrong(c, "moe_layers", "a list of layers");
        memset(sparse, 0, c->n_layer);
        json_array_foreach(only, i, v) {
            TRY(config_u32(c, "moe_layers", v, -1, &layer));
            if (layer < c->n_layer) sparse[layer] = 1;
        }
    }
    if (!config_reads(c, "mlp_layer_types") || !types || json_is_null(types)) return read_truths(c, sparse);
    if (!json_is_array(types) || json_array_size(types) != c->n_layer)
        return config_wrong(c, "mlp_layer_types", "a list with a name for each layer");
    json_array_foreach(types, i, v) {
        const char *name = json_string_value(v);
        if (!name || (strcmp(name, "dense") != 0 && strcmp(name, "sparse") != 0))
            return config_wrong(c, "mlp_layer_types", "a list of 'dense' and 'sparse'");
        sparse[i] = *name == 's';
    }
    return INFER_OK;
}

/* Each so many-th layer where that says it, else the list of layers. */
static enum infer_status put_interleave(const struct config *c, const uint8_t *sparse) {
    uint32_t step = 1;
    bool all = true;
    while (step <= c->n_layer && !sparse[step - 1]) step++;
    for (uint32_t i = 0; i < c->n_layer; i++) all &= sparse[i] == ((i + 1) % step == 0);
    hf_put_u32(c->keys, c->out->arch, "interleave_moe_layer_step", all ? step : 1);
    if (!all) hf_put_bools(c->keys, c->out->arch, "expert_layers", sparse, c->n_layer);
    return INFER_OK;
}

/* Which layers have experts: from the first on, each so many-th, but those that a list excepts.
 * sources: configuration_qwen2_moe, configuration_glm4_moe, modeling_ernie4_5_moe of transformers */
static enum infer_status read_layers(const struct config *c) {
    uint32_t step, dense, first, end, each;
    uint8_t *sparse = arena_alloc(c->keys->arena, (size_t)c->n_layer + 1);
    bool all = true;
    if (!sparse) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    const json_t *last = json_object_get(c->root, "moe_layer_end_index");
    const char *dense_key = config_reads(c, "num_dense_layers") ? "num_dense_layers"
                            : json_object_get(c->root, "first_last_k_dense_replace")
                                ? "first_last_k_dense_replace"
                                : "first_k_dense_replace";
    TRY(read_number(c, dense_key, 0, &dense));
    TRY(read_number(c, "moe_layer_start_index", 0, &first));
    end = UINT32_MAX; /* -1: the last one */
    if (json_integer_value(last) != -1) TRY(read_number(c, "moe_layer_end_index", UINT32_MAX, &end));
    TRY(read_number(c, "moe_layer_interval", 1, &each));
    const char *every = "decoder_sparse_step";
    if (config_reads(c, "interleave_moe_layer_step")) every = "interleave_moe_layer_step";
    TRY(read_number(c, every, 1, &step));
    if (!step || !each) return config_wrong(c, step ? "moe_layer_interval" : every, "above 0");
    for (uint32_t i = 0; i < c->n_layer; i++)
        sparse[i] =
            c->kind[i] == LAYER_SPARSE || (!c->out->table->mixer.alone && (i + 1) % step == 0 && i >= dense &&
                                           (i + 1) % each == 0 && i >= first && i <= end);
    TRY(read_lists(c, sparse));
    if (config_reads(c, "interleave_moe_layer_step")) return put_interleave(c, sparse);
    uint32_t leading = 0;
    while (leading < c->n_layer && !sparse[leading]) leading++;
    for (uint32_t i = leading; i < c->n_layer; i++) all &= sparse[i];
    if (c->out->table->mixer.alone) { /* all that are no mixers, unless a list says which */
        if (config_has(c, LAYER_DENSE))
            hf_put_bools(c->keys, c->out->arch, "expert_layers", sparse, c->n_layer);
        return INFER_OK;
    }
    if (each == 1 && config_reads(c, "moe_layer_interval"))
        hf_put_u32(c->keys, c->out->arch, "interleave_moe_layer_step", 1);
    if (all && leading)
        hf_put_u32(c->keys, c->out->arch, "leading_dense_block_count", leading);
    else if (!all)
        hf_put_bools(c->keys, c->out->arch, "expert_layers", sparse, c->n_layer);
    return INFER_OK;
}

/* Widths that config.json leaves to other keys, and that GGUF has. */
static enum infer_status put_widths(const struct config *c) {
    static const char ff[] = "expert_feed_forward_length", shared_ff[] = "expert_shared_feed_forward_length";
    const char *known = c->out->table->keys;
    uint32_t shared, width = (uint32_t)c->out->n_ff_expert;
    if (c->out->n_expert && known && key_names(known, ff, sizeof ff - 1))
        hf_put_u32(c->keys, c->out->arch, ff, width);
    TRY(read_number(c, "moe_num_shared_experts", 0, &shared));
    if (shared && shared < 1024) hf_put_u32(c->keys, c->out->arch, shared_ff, shared * width);
    return INFER_OK;
}

/* How the scores are made: by the table, or by the family of a table that has several; a key may say the same. */
static enum infer_status read_scores(const struct config *c, enum route_act *out) {
    const json_t *said = json_object_get(c->root, "scoring_func");
    const char *type = json_string_value(json_object_get(c->root, "model_type")),
               *sigmoid = c->out->table->hf.sigmoid;
    *out = sigmoid && key_names(sigmoid, type, strlen(type)) ? ROUTE_SIGMOID : c->out->table->moe.act;
    const char *name = *out == ROUTE_SIGMOID ? "sigmoid" : "softmax";
    if (!config_reads(c, "scoring_func") || !said || json_is_null(said)) return INFER_OK;
    if (json_is_string(said) && strcmp(json_string_value(said), name) == 0) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: 'scoring_func' is not '%s', as a model of this kind has it",
                   c->path, name);
}

/* Whether only experts of the best groups are chosen. DeepSeek V2 has a key for it, whose other values and whose weights over their sum
 * are computed differently by different programs; V3 always has groups. source: modeling_deepseek_v2 of transformers */
static enum infer_status read_method(const struct config *c, enum route_act scores, bool *groups) {
    const json_t *said = json_object_get(c->root, "topk_method");
    const char *want = scores == ROUTE_SIGMOID ? "noaux_tc" : "greedy|group_limited_greedy";
    bool norm = false;
    *groups = true;
    if (!config_reads(c, "topk_method")) return INFER_OK;
    const char *name = json_string_value(said);
    if (said && !json_is_null(said) && !(name && key_names(want, name, strlen(name))))
        return err_set(INFER_E_UNSUPPORTED, "%s: 'topk_method' is not %s, as a model of this kind has it",
                       c->path, want);
    if (scores == ROUTE_SIGMOID) return INFER_OK;
    *groups = name && strcmp(name, "group_limited_greedy") == 0;
    TRY(config_bool(c, "norm_topk_prob", json_object_get(c->root, "norm_topk_prob"), false, &norm));
    return norm ? err_set(INFER_E_UNSUPPORTED,
                          "%s: 'norm_topk_prob' is true, which is not supported here (false is)", c->path)
                : INFER_OK;
}

enum infer_status config_experts(const struct config *c) {
    bool on = true, groups;
    enum route_act scores;
    uint32_t local;
    if (!c->out->table->slot[SLOT_FFN_ROUTER]) return INFER_OK;
    TRY(read_number(c, "num_local_experts", 1, &local));
    if (!local && c->out->table->mixer.where == MIXER_NO_KEYS) return INFER_OK; /* Granite's dense ones */
    TRY(read_scores(c, &scores));
    TRY(read_method(c, scores, &groups));
    if (config_reads(c, "enable_moe_block"))
        TRY(config_bool(c, "enable_moe_block", json_object_get(c->root, "enable_moe_block"), false, &on));
    if (!on) return INFER_OK;
    if (config_reads(c, "enable_moe_block") && json_is_null(json_object_get(c->root, "num_experts")))
        return config_wrong(c, "num_experts", "there, as 'enable_moe_block' needs");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        TRY(put_row(c, row[i].keys, row[i].name, row[i].as, groups));
    TRY(put_widths(c));
    if (scores == ROUTE_SIGMOID || c->out->table->attn.latent)
        hf_put_u32(c->keys, c->out->arch, "expert_gating_func", scores == ROUTE_SIGMOID ? 2 : 1);
    return read_layers(c);
}
