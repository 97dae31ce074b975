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
