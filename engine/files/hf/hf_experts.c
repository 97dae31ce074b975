/* config.json -> the keys of GGUF: mixtures of experts. */
#include "files/hf/hf_config.h"

#include <math.h>
#include <string.h>

/* sparse[n_layer] by lists of layers: the numbers of those that are (value 1) or are not. */
static enum infer_status read_numbers(struct config *c, enum hf_key key, uint8_t value, uint8_t *sparse) {
    const json_t *list = get_json(c, key), *v;
    size_t i;
    uint32_t layer;
    if (list && !json_is_array(list)) return key_wrong(c, key, "a list of layers");
    if (list && value) memset(sparse, 0, c->n_layer);
    json_array_foreach(list, i, v) {
        TRY(config_u32(c, key_name(c, key), v, -1, &layer));
        if (layer < c->n_layer) sparse[layer] = value;
    }
    return c->status;
}

/* Names or, as K-EXAONE has it, truths of all layers. */
static enum infer_status read_lists(struct config *c, uint8_t *sparse) {
    size_t i;
    json_t *v;
    TRY(read_numbers(c, K_DENSE_LIST, 0, sparse));
    TRY(read_numbers(c, K_SPARSE_LIST, 1, sparse));
    const json_t *names = get_layers(c, K_SPARSE_NAMES, "a list with a name for each layer"),
                 *truths = names ? NULL : get_layers(c, K_SPARSE_FLAGS, "a list with a truth for each layer");
    json_array_foreach(names, i, v) {
        const char *name = json_string_value(v);
        if (!name || (strcmp(name, "dense") != 0 && strcmp(name, "sparse") != 0))
            return key_wrong(c, K_SPARSE_NAMES, "a list of 'dense' and 'sparse'");
        sparse[i] = *name == 's';
    }
    json_array_foreach(truths, i, v) {
        if (!json_is_boolean(v) && !json_is_integer(v))
            return key_wrong(c, K_SPARSE_FLAGS, "a list of true and false");
        sparse[i] = json_is_true(v) || json_integer_value(v);
    }
    return c->status;
}

/* Each so many-th layer where that says it, else the list of layers. */
static void put_interleave(const struct config *c, const uint8_t *sparse) {
    uint32_t step = 1;
    bool all = true;
    while (step <= c->n_layer && !sparse[step - 1]) step++;
    for (uint32_t i = 0; i < c->n_layer; i++) all &= sparse[i] == ((i + 1) % step == 0);
    put_u32(c, "interleave_moe_layer_step", all ? step : 1);
    if (!all) put_bools(c, "expert_layers", sparse);
}

/* Which layers have experts: from the first on, each so many-th, but those that a list excepts.
 * sources: configuration_qwen2_moe, configuration_glm4_moe, modeling_ernie4_5_moe of transformers */
static enum infer_status read_layers(struct config *c) {
    if (key_reads(c, K_SPARSE_SECOND)) { /* the second of each so many, as Nomic's have it */
        put_u32(c, "moe_every_n_layers", get_u32(c, K_SPARSE_SECOND));
        return c->status;
    }
    const bool alone = c->out->table->mixer.alone, last = json_integer_value(get_json(c, K_SPARSE_TO)) == -1;
    const uint32_t dense = get_u32(c, K_FIRST_DENSE), first = get_u32(c, K_SPARSE_FROM),
                   end = last ? UINT32_MAX : get_u32_or(c, K_SPARSE_TO, UINT32_MAX),
                   each = get_u32(c, K_SPARSE_EACH);
    const bool interleaves = key_reads(c, K_SPARSE_INTERLEAVE);
    const uint32_t step = get_u32(c, interleaves ? K_SPARSE_INTERLEAVE : K_SPARSE_STEP);
    uint8_t *sparse = get_room(c, c->n_layer);
    TRY(c->status);
    for (uint32_t i = 0; i < c->n_layer; i++)
        sparse[i] = c->kind[i] == LAYER_SPARSE || (!alone && (i + 1) % step == 0 && i >= dense &&
                                                   (i + 1) % each == 0 && i >= first && i <= end);
    TRY(read_lists(c, sparse));
    if (interleaves) {
        put_interleave(c, sparse);
        return INFER_OK;
    }
    bool all = true;
    uint32_t leading = 0;
    while (leading < c->n_layer && !sparse[leading]) leading++;
    for (uint32_t i = leading; i < c->n_layer; i++) all &= sparse[i];
    if (alone) { /* all that are no mixers, unless a list says which */
        if (config_has(c, LAYER_DENSE)) put_bools(c, "expert_layers", sparse);
        return INFER_OK;
    }
    if (each == 1 && key_reads(c, K_SPARSE_EACH)) put_u32(c, "interleave_moe_layer_step", 1);
    if (all && leading)
        put_u32(c, "leading_dense_block_count", leading);
    else if (!all)
        put_bools(c, "expert_layers", sparse);
    return INFER_OK;
}

/* Widths that config.json leaves to other keys, and that GGUF has. */
static void put_widths(struct config *c) {
    static const char ff[] = "expert_feed_forward_length";
    struct hf_config *out = c->out;
    const char *known = out->table->keys;
    if (get_json(c, K_EXPERT_FF)) out->n_ff_expert = get_u32(c, K_EXPERT_FF);
    if (out->n_expert && known && key_names(known, ff, sizeof ff - 1))
        put_u32(c, ff, (uint32_t)out->n_ff_expert);
    const uint32_t shared = config_reads(c, "moe_num_shared_experts") ? get_u32(c, K_N_SHARED) : 0;
    if (shared && shared < 1024)
        put_u32(c, "expert_shared_feed_forward_length", shared * (uint32_t)out->n_ff_expert);
}

/* How the scores are made: by the table, or by the family of a table that has several; a key may say the same. */
static enum infer_status read_scores(struct config *c, enum route_act *out) {
    const json_t *said = get_json(c, K_SCORES);
    const char *type = json_string_value(json_object_get(c->root, "model_type")),
               *sigmoid = c->out->table->hf.sigmoid;
    *out = sigmoid && key_names(sigmoid, type, strlen(type)) ? ROUTE_SIGMOID : c->out->table->moe.act;
    const char *name = *out == ROUTE_SIGMOID ? "sigmoid"
                       : *out == ROUTE_ROOT  ? "sqrtsoftplus"
                                             : "softmax",
               *own;
    if (key_reads(c, K_SELECTION)) { /* Command's, a softmax over the chosen unless it says otherwise */
        said = get_json(c, K_SELECTION);
        own = said ? json_string_value(said) : "softmax";
        if (!own || !key_names("softmax|sigmoid", own, strlen(own)))
            return key_wrong(c, K_SELECTION, "'softmax' or 'sigmoid'");
        *out = *own == 's' && own[1] == 'o' ? ROUTE_CHOSEN : ROUTE_SIGMOID;
        return INFER_OK;
    }
    if (!said || (json_is_string(said) && strcmp(json_string_value(said), name) == 0)) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: 'scoring_func' is not '%s', as a model of this kind has it",
                   c->path, name);
}

/* Whether only experts of the best groups are chosen. DeepSeek V2 has a key for it, whose other values and whose weights over their sum
 * are computed differently by different programs; V3 always has groups. source: modeling_deepseek_v2 of transformers */
static enum infer_status read_method(struct config *c, enum route_act scores, bool *groups) {
    const json_t *said = get_json(c, K_METHOD);
    const char *want = scores == ROUTE_SIGMOID ? "noaux_tc" : "greedy|group_limited_greedy";
    *groups = true;
    if (!key_reads(c, K_METHOD)) return INFER_OK;
    const char *name = json_string_value(said);
    if (said && !(name && key_names(want, name, strlen(name))))
        return err_set(INFER_E_UNSUPPORTED, "%s: 'topk_method' is not %s, as a model of this kind has it",
                       c->path, want);
    if (scores == ROUTE_SIGMOID) return INFER_OK;
    *groups = name && strcmp(name, "group_limited_greedy") == 0;
    return get_flag(c, K_WEIGHTS_NORM)
               ? err_set(INFER_E_UNSUPPORTED,
                         "%s: 'norm_topk_prob' is true, which is not supported here (false is)", c->path)
               : c->status;
}

enum infer_status config_experts(struct config *c) {
    const struct arch *a = c->out->table;
    bool groups;
    enum route_act scores;
    if (!a->slot[SLOT_FFN_ROUTER]) return INFER_OK;
    if (config_reads(c, "num_local_experts") && a->mixer.where == MIXER_NO_KEYS &&
        !get_u32_or(c, K_N_EXPERT, 1))
        return c->status; /* Granite's dense ones */
    const json_t *noise = json_object_get(c->root, "router_jitter_noise");
    if (a->moe.act == ROUTE_NEAR && noise && fabs(json_number_value(noise) - (double)a->moe.eps / 2) > 1e-6)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'router_jitter_noise' is not %g, which alone is supported here", c->path,
                       (double)a->moe.eps / 2);
    TRY(read_scores(c, &scores));
    TRY(read_method(c, scores, &groups));
    if (key_reads(c, K_EXPERTS_ON)) {
        if (!get_flag(c, K_EXPERTS_ON)) return c->status;
        if (json_is_null(json_object_get(c->root, "num_experts")))
            return key_wrong(c, K_N_EXPERT, "there, as 'enable_moe_block' needs");
    }
    c->out->n_expert = get_u32(c, K_N_EXPERT);
    put_keys(c, K_N_EXPERT, K_WEIGHTS_NORM);
    if (groups) put_keys(c, K_N_GROUP, K_N_GROUP_USED);
    put_widths(c);
    TRY(c->status);
    if (scores == ROUTE_SIGMOID || a->attn.latent)
        put_u32(c, "expert_gating_func", scores == ROUTE_SIGMOID ? 2 : 1);
    if (key_reads(c, K_SELECTION) && scores == ROUTE_CHOSEN) put_u32(c, "expert_gating_func", 3);
    if (scores == ROUTE_ROOT) put_u32(c, "expert_gating_func", 4);
    return read_layers(c);
}
