/* config.json -> the keys of GGUF: layers that are no attention, and what those with a state are. */
#include "files/hf/hf_config.h"

#include <string.h>

/* ---- which layers are what ---- */

/* What lists and patterns call a kind of layer. */
static const struct {
    const char *names;
    char letter;
    enum layer_kind kind;
} kinds[] = {{"full_attention|attention|sliding_attention", '*', LAYER_ATTENTION},
             {"linear_attention|mamba|conv", 'M', LAYER_STATE},
             {"mlp", '-', LAYER_DENSE},
             {"moe", 'E', LAYER_SPARSE}};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* The list of names in c->kind. */
static enum infer_status read_names(struct config *c, enum hf_key key) {
    const json_t *list = get_layers(c, key, "a list with a name for each layer");
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        int k = 0;
        while (name && k < N_KIND && !key_names(kinds[k].names, name, strlen(name))) k++;
        bool conv = name && strcmp(name, "conv") == 0;
        if (!name || k == N_KIND ||
            (kinds[k].kind == LAYER_STATE && conv != (c->out->table->mixer.kind == MIX_CONV)))
            return err_set(INFER_E_UNSUPPORTED, "%s: '%s' says '%.32s', which is not supported here", c->path,
                           key_name(c, key), name ? name : "?");
        c->kind[i] = (uint8_t)kinds[k].kind;
    }
    return c->status;
}

/* The same as letters. source: configuration_nemotron_h of transformers */
static enum infer_status read_pattern(struct config *c) {
    const char *pattern = json_string_value(get_json(c, K_LAYER_LETTERS));
    if (!pattern) return key_wrong(c, K_LAYER_LETTERS, "letters");
    if (strlen(pattern) != c->n_layer) return key_wrong(c, K_LAYER_LETTERS, "a letter for each layer");
    for (uint32_t i = 0; i < c->n_layer; i++) {
        int k = 0;
        while (k < N_KIND && kinds[k].letter != pattern[i]) k++;
        if (k == N_KIND) return key_wrong(c, K_LAYER_LETTERS, "letters M, *, - and E");
        c->kind[i] = (uint8_t)kinds[k].kind;
    }
    return INFER_OK;
}

/* Those that attend by their numbers. */
static enum infer_status read_numbers(struct config *c) {
    const json_t *list = get_json(c, K_FULL_LAYERS);
    size_t i;
    json_t *v;
    uint32_t layer;
    if (!json_is_array(list)) return key_wrong(c, K_FULL_LAYERS, "a list of layers");
    json_array_foreach(list, i, v) {
        TRY(config_u32(c, "full_attn_idxs", v, -1, &layer));
        if (layer >= c->n_layer) return key_wrong(c, K_FULL_LAYERS, "a list of layers");
        c->kind[layer] = LAYER_ATTENTION;
    }
    return INFER_OK;
}

enum infer_status config_kinds(struct config *c) {
    const struct arch *a = c->out->table;
    if (!(c->kind = get_room(c, c->n_layer))) return c->status;
    memset(c->kind, a->mixer.where == MIXER_NO_KEYS ? LAYER_STATE : LAYER_ATTENTION, c->n_layer);
    if (a->mixer.where != MIXER_NO_KEYS) return INFER_OK;
    if (get_json(c, K_BLOCK_TYPES)) return read_names(c, K_BLOCK_TYPES);
    if (get_json(c, K_LAYER_TYPES)) return read_names(c, K_LAYER_TYPES);
    if (get_json(c, K_LAYER_LETTERS)) return read_pattern(c);
    if (get_json(c, K_FULL_LAYERS)) return read_numbers(c);
    return a->slot[SLOT_ATTN_Q] == SLOT_ABSENT ? INFER_OK : key_wrong(c, K_LAYER_TYPES, "there");
}

void config_bamba(json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type")),
               *dim = json_string_value(json_object_get(root, "mamba_d_head"));
    const json_int_t heads = json_integer_value(json_object_get(root, "mamba_n_heads")),
                     inner = json_integer_value(json_object_get(root, "hidden_size")) *
                             json_integer_value(json_object_get(root, "mamba_expand"));
    if (!type || strcmp(type, "bamba") != 0) return;
    if (dim && strcmp(dim, "auto") == 0 && heads > 0)
        json_object_set_new(root, "mamba_d_head", json_integer(inner / heads));
    if (!json_object_get(root, "attn_rotary_emb") && !json_object_get(root, "rope_parameters"))
        json_object_set_new(root, "partial_rotary_factor", json_real(0.5));
    json_object_set_new(root, "position_embedding_type", json_string("rope"));
    json_object_set_new(root, "num_local_experts", json_integer(0));
    json_object_set(root, "shared_intermediate_size", json_object_get(root, "intermediate_size"));
}

bool config_has(const struct config *c, enum layer_kind kind) {
    for (uint32_t i = 0; i < c->n_layer; i++)
        if (c->kind[i] == kind) return true;
    return false;
}

bool config_sparse(const json_t *root) {
    if (json_integer_value(json_object_get(root, "moe_every_n_layers")) > 0) return true;
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
static enum infer_status adjusted(struct config *c, uint32_t *ff) {
    const bool adjusts = get_flag(c, K_FF_ADJUSTS);
    const double times = (double)get_f32(c, K_FF_FACTOR);
    const uint64_t multiple = get_u32(c, K_FF_MULTIPLE);
    if (c->status || !adjusts) return c->status;
    *ff = (uint32_t)(2 * (uint64_t)*ff / 3);
    if (json_is_null(json_object_get(c->root, "block_ffn_dim_multiplier"))) return INFER_OK;
    if (times * *ff > 1 << 30) return key_wrong(c, K_FF_FACTOR, "in range");
    const uint64_t n = ((uint64_t)(times * *ff) + multiple - 1) / multiple * multiple;
    *ff = (uint32_t)n;
    return n > 1 << 30 ? key_wrong(c, K_FF_MULTIPLE, "in range") : INFER_OK;
}

enum infer_status config_width(struct config *c, uint32_t ff) {
    bool some = false;
    if (key_reads(c, K_FF_ADJUSTS)) TRY(adjusted(c, &ff));
    if (config_reads(c, "shared_intermediate_size") && !get_u32(c, K_N_EXPERT)) ff = get_u32(c, K_SHARED_FF);
    if (!c->out->table->mixer.alone) {
        put_u32(c, "feed_forward_length", ff);
        return c->status;
    }
    uint32_t *each = get_room(c, sizeof *each * (size_t)c->n_layer);
    TRY(c->status);
    for (uint32_t i = 0; i < c->n_layer; i++) {
        each[i] = c->kind[i] == LAYER_DENSE || c->kind[i] == LAYER_SPARSE ? ff : 0;
        some |= c->kind[i] != LAYER_STATE;
    }
    if (some)
        put_u32s(c, "feed_forward_length", each);
    else
        put_u32(c, "feed_forward_length", 0);
    return INFER_OK;
}

/* ---- states ---- */

/* Steps are not clamped: [0, infinity]. Nor are those of Nemotron-H by time_step_min, which is of the first weights: its own code, published
 * with the weights, clamps to time_step_limit alone, as do the kernels that it was trained with, vLLM and llama.cpp. transformers 5.0 to
 * 5.24 has (time_step_min, infinity) there, on the processor alone at first, which came over from Zamba2; with the published 30B-A3B that is
 * a divergence of 0.034 from its own code, 0.003 without. source: modeling_nemotron_h of both; huggingface/transformers pull request 48989 */
static enum infer_status check_limit(struct config *c) {
    const json_t *v = get_json(c, K_STEP_LIMIT), *end = json_array_get(v, 1);
    const char *word = json_string_value(json_object_get(end, "__float__"));
    if (!v) return INFER_OK;
    bool open = (word && strcmp(word, "Infinity") == 0) || json_number_value(end) > 1e300;
    if (json_array_size(v) == 2 && json_is_number(json_array_get(v, 0)) &&
        json_number_value(json_array_get(v, 0)) == 0 && open)
        return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED,
                   "%s: 'time_step_limit' is not [0, Infinity], which alone is supported", c->path);
}

/* expand and d_ssm say again how wide all heads are together; Nemotron-H does not read expand. */
static enum infer_status check_inner(struct config *c, uint32_t inner) {
    const uint32_t embd = get_u32(c, K_EMBD), expand = get_u32(c, K_SSM_EXPAND);
    if (config_reads(c, "mamba_num_heads")) return c->status;
    const uint32_t told = get_u32_or(c, K_SSM_INNER, (int64_t)(uint32_t)(embd * expand));
    return told == inner ? c->status
                         : key_wrong(c, key_reads(c, K_SSM_INNER) ? K_SSM_INNER : K_SSM_EXPAND,
                                     "what its heads are wide together");
}

enum infer_status config_state(struct config *c) {
    struct hf_config *out = c->out;
    if (out->table->mixer.kind == MIX_CONV) put_u32(c, "shortconv.l_cache", get_u32(c, K_CONV_TAPS));
    if (out->table->mixer.kind != MIX_SSM && out->table->mixer.kind != MIX_BOTH) return c->status;
    const uint32_t taps = get_u32(c, K_SSM_TAPS), state = get_u32(c, K_SSM_STATE),
                   groups = get_u32(c, K_SSM_GROUPS), heads = get_u32(c, K_SSM_HEADS);
    const uint32_t dim = config_reads(c, "state_size") ? get_u32(c, K_HEAD_DIM) : get_u32(c, K_SSM_HEAD_DIM);
    TRY(c->status);
    TRY(check_limit(c));
    if (heads % groups) return key_wrong(c, K_SSM_HEADS, "a multiple of the groups");
    if (!dim || dim > 1 << 16) return key_wrong(c, K_HEAD_DIM, "in range");
    TRY(check_inner(c, heads * dim));
    out->n_state_group = (int)groups;
    const int inner = (int)(heads * dim), shared = (int)(groups * state);
    memcpy(out->state_part, (int[]){inner, inner, shared, shared, (int)heads}, sizeof out->state_part);
    const bool norm = get_flag(c, K_SSM_NORM), before = get_flag(c, K_SSM_NORM_FIRST);
    if (norm && before) /* Falcon-H1: a norm behind the gate, or none */
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'mamba_norm_before_gate' is true, which is not supported (false is)", c->path);
    put_u32(c, "ssm.conv_kernel", taps);
    put_u32(c, "ssm.state_size", state);
    put_u32(c, "ssm.group_count", groups);
    put_u32(c, "ssm.time_step_rank", heads);
    put_u32(c, "ssm.inner_size", heads * dim);
    return c->status;
}
