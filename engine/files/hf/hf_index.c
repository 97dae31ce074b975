/* config.json -> the keys of GGUF: what chooses the positions that attention looks at. */
#include "files/hf/hf_config.h"

#include <string.h>

/* A layer's name, or its letter in a text, as 1: it chooses by itself, 0: it takes the choice of the layer before; -1: neither. */
static int own_of(const char *name, bool letter) {
    if (letter ? *name == 'F' : strcmp(name, "full") == 0) return 1;
    return (letter ? *name == 'S' : strcmp(name, "shared") == 0) ? 0 : -1;
}

/* By a list of names, a text with a letter for each layer, or from a layer on each so many-th. source: configuration_glm_moe_dsa of
 * transformers */
static enum infer_status read_own(struct config *c, uint8_t *own) {
    const enum hf_key key = get_json(c, K_INDEX_TYPES) ? K_INDEX_TYPES : K_INDEX_PATTERN;
    const json_t *list = get_json(c, key);
    const uint32_t each = get_u32(c, K_INDEX_EACH), offset = get_u32(c, K_INDEX_OFFSET);
    const char *letters = json_string_value(list);
    TRY(c->status);
    if (list && !(letters ? strlen(letters) == c->n_layer
                          : json_is_array(list) && json_array_size(list) == c->n_layer))
        return key_wrong(c, key, "a list with a name for each layer");
    for (uint32_t i = 0; i < c->n_layer; i++) {
        const uint32_t behind = i + 1 > offset ? i + 1 - offset : 0;
        const char *name = letters ? letters + i : json_string_value(json_array_get(list, i));
        const int told = list && name ? own_of(name, letters != NULL)
                         : list       ? -1
                                      : behind % (each ? each : 1) == 0;
        if (told < 0) return key_wrong(c, key, "a list of 'full' and 'shared'");
        own[i] = (uint8_t)told;
    }
    return own[0] ? INFER_OK : key_wrong(c, key, "such that the first layer chooses by itself");
}

enum infer_status config_index(struct config *c) {
    const bool neighbours = c->out->table->attn.index_rope == ROPE_INTERLEAVED;
    uint8_t *own = get_room(c, c->n_layer);
    put_u32(c, "attention.indexer.head_count", get_u32(c, K_INDEX_HEADS));
    put_u32(c, "attention.indexer.key_length", get_u32(c, K_INDEX_DIM));
    put_u32(c, "attention.indexer.top_k", get_u32(c, K_INDEX_TOP));
    if (get_flag_or(c, K_INDEX_INTERLEAVED, neighbours) != neighbours)
        return key_wrong(c, K_INDEX_INTERLEAVED, neighbours ? "true" : "false");
    TRY(c->status);
    if (!key_reads(c, K_INDEX_TYPES)) return INFER_OK;
    TRY(read_own(c, own));
    put_bools(c, "attention.indexer.types", own);
    return c->status;
}

/* ---- runs of positions ---- */

enum infer_status config_index_runs(struct config *c) {
    const json_t *list = get_layers(c, K_INDEX_LAYERS, "a list with 0 or 1 for each layer");
    uint8_t *chooses = get_room(c, c->n_layer);
    TRY(put_keys(c, K_INDEX_HEADS, K_INDEX_DIM));
    TRY(put_keys(c, K_INDEX_TOP_RUNS, K_INDEX_LOCAL));
    TRY(c->status);
    for (uint32_t i = 0; i < c->n_layer; i++) chooses[i] = json_integer_value(json_array_get(list, i)) != 0;
    put_bools(c, "attention.indexer.layers", chooses);
    return c->status;
}

/* Flags of layers out of a list of names, or of numbers. */
static json_t *flags_of(const json_t *list, const char *name) {
    json_t *out = json_array(), *v;
    size_t i;
    json_array_foreach(list, i, v) {
        const char *is = json_string_value(v);
        json_array_append_new(out, json_integer(is ? strcmp(is, name) == 0 : json_integer_value(v) != 0));
    }
    return out;
}

/* MiniMax M3's published keys, which stand in an object of their own, as transformers 5 has them; one that asks for what is not here stays.
 * source: configuration_minimax_m3_vl of transformers */
void config_minimax(json_t *root) {
    static const struct {
        const char *published, *name;
    } same[] = {{"sparse_num_index_heads", "index_n_heads"},
                {"sparse_index_dim", "index_head_dim"},
                {"sparse_topk_blocks", "index_topk_blocks"},
                {"sparse_block_size", "index_block_size"},
                {"sparse_local_block", "index_local_blocks"}};
    const char *type = json_string_value(json_object_get(root, "model_type"));
    json_t *sparse = json_object_get(root, "sparse_attention_config"),
           *types = json_object_get(root, "layer_types"),
           *which = json_object_get(sparse, "sparse_attention_freq");
    if (!type || (strcmp(type, "minimax_m3") != 0 && strcmp(type, "minimax_m3_vl_text") != 0)) return;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *v = json_object_get(sparse, same[i].published);
        if (v) json_object_set(root, same[i].name, v);
    }
    if (json_is_array(types) || json_is_array(which)) {
        json_t *list = json_is_array(types) ? types : which;
        json_object_set_new(root, "index_layers", flags_of(list, "minimax_m3_sparse"));
        json_object_del(root, "layer_types");
    }
    const char *score = json_string_value(json_object_get(sparse, "sparse_score_type"));
    const json_t *on = json_object_get(sparse, "use_sparse_attention"),
                 *no_value = json_object_get(sparse, "sparse_disable_index_value");
    const bool first = json_integer_value(json_object_get(sparse, "sparse_init_block")) != 0,
               other = score && strcmp(score, "max") != 0;
    const bool values = no_value && !json_equal(no_value, which);
    if (!first && !other && !values && !json_is_false(on)) json_object_del(root, "sparse_attention_config");
}
