/* config.json -> the keys of GGUF: layers that are no attention, and what those with a state are. */
#include "arch/arch.h"
#include "files/hf_config.h"

#include <stdio.h>
#include <string.h>

/* ---- which layers are what ---- */

/* What lists and patterns call a kind of layer. */
static const struct {
    const char *names;
    char letter;
    enum layer_kind kind;
} kinds[] = {{"full_attention|attention", '*', LAYER_ATTENTION},
             {"linear_attention|mamba|conv", 'M', LAYER_STATE},
             {"mlp", '-', LAYER_DENSE},
             {"moe", 'E', LAYER_SPARSE}};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* The list of names in c->kind. */
static enum infer_status read_names(const struct config *c, const char *key, const json_t *list) {
    size_t i;
    json_t *v;
    if (!json_is_array(list) || json_array_size(list) != c->n_layer)
        return config_wrong(c, key, "a list with a name for each layer");
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        int k = 0;
        while (name && k < N_KIND && !key_names(kinds[k].names, name, strlen(name))) k++;
        bool conv = name && strcmp(name, "conv") == 0;
        if (!name || k == N_KIND ||
            (kinds[k].kind == LAYER_STATE && conv != (c->out->table->mixer.kind == MIX_CONV)))
            return err_set(INFER_E_UNSUPPORTED, "%s: '%s' says '%.32s', which is not supported here", c->path,
                           key, name ? name : "?");
        c->kind[i] = (uint8_t)kinds[k].kind;
    }
    return INFER_OK;
}

/* The same as letters. source: configuration_nemotron_h of transformers */
static enum infer_status read_pattern(const struct config *c, const char *pattern) {
    if (strlen(pattern) != c->n_layer)
        return config_wrong(c, "hybrid_override_pattern", "a letter for each layer");
    for (uint32_t i = 0; i < c->n_layer; i++) {
        int k = 0;
        while (k < N_KIND && kinds[k].letter != pattern[i]) k++;
        if (k == N_KIND) return config_wrong(c, "hybrid_override_pattern", "letters M, *, - and E");
        c->kind[i] = (uint8_t)kinds[k].kind;
    }
    return INFER_OK;
}

/* Those that attend by their numbers. */
static enum infer_status read_numbers(const struct config *c, const json_t *list) {
    size_t i;
    json_t *v;
    uint32_t layer;
    if (!json_is_array(list)) return config_wrong(c, "full_attn_idxs", "a list of layers");
    json_array_foreach(list, i, v) {
        TRY(config_u32(c, "full_attn_idxs", v, -1, &layer));
        if (layer >= c->n_layer) return config_wrong(c, "full_attn_idxs", "a list of layers");
        c->kind[layer] = LAYER_ATTENTION;
    }
    return INFER_OK;
}

enum infer_status config_kinds(struct config *c) {
    const char *found;
    const json_t *v;
    c->kind = arena_alloc(c->keys->arena, (size_t)c->n_layer + 1);
    if (!c->kind) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    memset(c->kind, LAYER_ATTENTION, c->n_layer);
    if (c->out->table->mixer.where != MIXER_NO_KEYS) return INFER_OK;
    memset(c->kind, LAYER_STATE, c->n_layer);
    if ((v = config_any(c, "layers_block_type|layer_types", &found))) return read_names(c, found, v);
    if ((v = config_any(c, "hybrid_override_pattern", &found)))
        return json_is_string(v) ? read_pattern(c, json_string_value(v)) : config_wrong(c, found, "letters");
    if ((v = config_any(c, "full_attn_idxs", &found))) return read_numbers(c, v);
    bool all = c->out->table->slot[SLOT_ATTN_Q] == SLOT_ABSENT;
    return all ? INFER_OK : config_wrong(c, "layer_types", "there");
}

bool config_has(const struct config *c, enum layer_kind kind) {
    for (uint32_t i = 0; i < c->n_layer; i++)
        if (c->kind[i] == kind) return true;
    return false;
}

bool config_sparse(const json_t *root) {
    const char *pattern = json_string_value(json_object_get(root, "hybrid_override_pattern"));
    const json_t *list = json_object_get(root, "layers_block_type"), *v;
    size_t i;
    if (pattern && !json_is_array(list)) return strchr(pattern, 'E') != NULL;
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        if (name && strcmp(name, "moe") == 0) return true;
    }
    return false;
}

/* ---- widths of feed-forward parts ---- */

/* LFM2 makes the width of a number of its own. source: configuration_lfm2, modeling_lfm2 of transformers */
static enum infer_status adjusted(const struct config *c, uint32_t *ff) {
    const json_t *multiplier = json_object_get(c->root, "block_ffn_dim_multiplier");
    bool adjusts;
    float times;
    uint32_t multiple;
    TRY(config_bool(c, "block_auto_adjust_ff_dim", json_object_get(c->root, "block_auto_adjust_ff_dim"), true,
                    &adjusts));
    TRY(config_f32(c, "block_ffn_dim_multiplier", multiplier, 1, &times));
    TRY(config_u32(c, "block_multiple_of", json_object_get(c->root, "block_multiple_of"), 256, &multiple));
    if (!adjusts) return INFER_OK;
    *ff = (uint32_t)(2 * (uint64_t)*ff / 3);
    if (multiplier && json_is_null(multiplier)) return INFER_OK;
    double wide = (double)times * *ff;
    if (!(times > 0) || !multiple || wide > 1 << 30)
        return config_wrong(c, multiple ? "block_ffn_dim_multiplier" : "block_multiple_of", "above 0");
    uint64_t n = ((uint64_t)wide + multiple - 1) / multiple * multiple;
    *ff = (uint32_t)n;
    return n > 1 << 30 ? config_wrong(c, "block_multiple_of", "in range") : INFER_OK;
}

enum infer_status config_width(const struct config *c, uint32_t *ff) {
    const struct arch *a = c->out->table;
    const char *shared = "shared_intermediate_size";
    uint32_t experts = 0;
    if (config_reads(c, "block_auto_adjust_ff_dim")) TRY(adjusted(c, ff));
    if (config_reads(c, "num_local_experts") && config_reads(c, shared)) {
        TRY(config_u32(c, "num_local_experts", json_object_get(c->root, "num_local_experts"), 0, &experts));
        if (!experts) TRY(config_u32(c, shared, json_object_get(c->root, shared), -1, ff));
    }
    if (!a->mixer.alone) {
        hf_put_u32(c->keys, c->out->arch, "feed_forward_length", *ff);
        return INFER_OK;
    }
    uint32_t *each = arena_alloc(c->keys->arena, sizeof *each * ((size_t)c->n_layer + 1));
    if (!each) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    for (uint32_t i = 0; i < c->n_layer; i++)
        each[i] = c->kind[i] == LAYER_DENSE || c->kind[i] == LAYER_SPARSE ? *ff : 0;
    if (config_has(c, LAYER_ATTENTION) || config_has(c, LAYER_DENSE) || config_has(c, LAYER_SPARSE))
        hf_put_u32s(c->keys, c->out->arch, "feed_forward_length", each, c->n_layer);
    else
        hf_put_u32(c->keys, c->out->arch, "feed_forward_length", 0);
    return INFER_OK;
}

/* ---- states ---- */

/* The first of the keys that the architecture has; absent: fallback. */
static enum infer_status read_size(const struct config *c, const char *names, int64_t fallback,
                                   uint32_t *out) {
    char key[64];
    const char *found;
    const json_t *v = config_any(c, names, &found);
    snprintf(key, sizeof key, "%.*s", (int)strcspn(names, "|"), names);
    return config_u32(c, found ? found : key, v, fallback, out);
}

/* Steps are not clamped: [0, infinity]. Nor are those of Nemotron-H by time_step_min, which is of the first weights: its own code, published
 * with the weights, clamps to time_step_limit alone, as do the kernels that it was trained with, vLLM and llama.cpp. transformers 5.0 to
 * 5.24 has (time_step_min, infinity) there, on the processor alone at first, which came over from Zamba2; with the published 30B-A3B that is
 * a divergence of 0.034 from its own code, 0.003 without. source: modeling_nemotron_h of both; huggingface/transformers pull request 48989 */
static enum infer_status check_limit(const struct config *c) {
    const json_t *v = json_object_get(c->root, "time_step_limit"), *end = json_array_get(v, 1);
    const char *word = json_string_value(json_object_get(end, "__float__"));
    if (!v || json_is_null(v)) return INFER_OK;
    bool open = (word && strcmp(word, "Infinity") == 0) || json_number_value(end) > 1e300;
    if (json_array_size(v) == 2 && json_is_number(json_array_get(v, 0)) &&
        json_number_value(json_array_get(v, 0)) == 0 && open)
        return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED,
                   "%s: 'time_step_limit' is not [0, Infinity], which alone is supported", c->path);
}

/* expand and d_ssm say again how wide all heads are together; Nemotron-H does not read expand. */
static enum infer_status check_inner(const struct config *c, uint64_t inner) {
    uint32_t embd, expand, told;
    TRY(read_size(c, "hidden_size", -1, &embd));
    TRY(read_size(c, "mamba_expand|expand", 2, &expand));
    if (c->out->table->mixer.alone && config_reads(c, "mamba_num_heads")) return INFER_OK;
    TRY(read_size(c, "mamba_d_ssm", (int64_t)embd * expand, &told));
    return told == inner ? INFER_OK
                         : config_wrong(c, config_reads(c, "mamba_d_ssm") ? "mamba_d_ssm" : "expand",
                                        "what its heads are wide together");
}

/* Falcon-H1: a norm behind the gate, or none. */
static enum infer_status check_norm(const struct config *c) {
    bool norm, before;
    if (!config_reads(c, "mamba_rms_norm")) return INFER_OK;
    TRY(config_bool(c, "mamba_rms_norm", json_object_get(c->root, "mamba_rms_norm"), false, &norm));
    TRY(config_bool(c, "mamba_norm_before_gate", json_object_get(c->root, "mamba_norm_before_gate"), true,
                    &before));
    return norm && before
               ? err_set(INFER_E_UNSUPPORTED,
                         "%s: 'mamba_norm_before_gate' is true, which is not supported (false is)", c->path)
               : INFER_OK;
}

enum infer_status config_state(const struct config *c) {
    const struct arch *a = c->out->table;
    uint32_t taps, state, groups, heads, dim;
    if (a->mixer.kind == MIX_CONV) {
        TRY(read_size(c, "conv_L_cache", 3, &taps));
        hf_put_u32(c->keys, c->out->arch, "shortconv.l_cache", taps);
        return INFER_OK;
    }
    if (a->mixer.kind != MIX_SSM && a->mixer.kind != MIX_BOTH) return INFER_OK;
    const bool short_names = config_reads(c, "state_size"); /* Mamba-2's own */
    TRY(read_size(c, "mamba_d_conv|conv_kernel", 4, &taps));
    TRY(read_size(c, "mamba_d_state|ssm_state_size|state_size", -1, &state));
    TRY(read_size(c, "mamba_n_groups|n_groups", 1, &groups));
    TRY(read_size(c, short_names ? "num_heads" : "mamba_n_heads|mamba_num_heads", -1, &heads));
    TRY(read_size(c, short_names ? "head_dim" : "mamba_d_head|mamba_head_dim", -1, &dim));
    TRY(check_limit(c));
    if (!heads || heads > 1 << 16 || !dim || dim > 1 << 16 || !groups || heads % groups)
        return config_wrong(c, short_names ? "num_heads" : "mamba_n_heads", "a multiple of the groups");
    TRY(check_inner(c, (uint64_t)heads * dim));
    c->out->n_state_group = (int)groups;
    if (state > 1 << 16) return config_wrong(c, "mamba_d_state", "in range");
    const int inner = (int)(heads * dim), shared = (int)(groups * state);
    memcpy(c->out->state_part, (int[]){inner, inner, shared, shared, (int)heads}, sizeof c->out->state_part);
    TRY(check_norm(c));
    hf_put_u32(c->keys, c->out->arch, "ssm.conv_kernel", taps);
    hf_put_u32(c->keys, c->out->arch, "ssm.state_size", state);
    hf_put_u32(c->keys, c->out->arch, "ssm.group_count", groups);
    hf_put_u32(c->keys, c->out->arch, "ssm.time_step_rank", heads);
    hf_put_u32(c->keys, c->out->arch, "ssm.inner_size", heads * dim);
    return INFER_OK;
}
