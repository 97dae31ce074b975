/* config.json -> the keys of GGUF: sizes, heads, windows, and what else is one number. */
#include "arch/arch.h"
#include "files/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY_LAYERS = 1 << 16 };

static enum infer_status read_u32(const struct config *c, const char *names, int64_t fallback,
                                  uint32_t *out) {
    const char *found;
    const json_t *v = config_any(c, names, &found);
    char first[64];
    size_t n = strcspn(names, "|");
    memcpy(first, names, n);
    first[n] = 0;
    return config_u32(c, found ? found : first, v, fallback, out);
}
static enum infer_status read_bool(const struct config *c, const char *key, bool fallback, bool *out) {
    return config_bool(c, key, json_object_get(c->root, key), fallback, out);
}

/* ---- attention windows ---- */

/* c->windowed by layer_types; *n: how many are; *listed: the key is there. */
static enum infer_status read_layer_types(const struct config *c, uint32_t *n, bool *listed) {
    const json_t *list = json_object_get(c->root, "layer_types");
    const char *windowed = c->out->table->attn.chunked ? "chunked_attention" : "sliding_attention";
    size_t i;
    json_t *v;
    *listed = list && !json_is_null(list);
    if (!*listed) return INFER_OK;
    if (!json_is_array(list) || json_array_size(list) != c->n_layer)
        return config_wrong(c, "layer_types", "a list with a name for each layer");
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        if (!name) return config_wrong(c, "layer_types", "a list of names");
        if (c->mixed && (c->mixed[i] = strcmp(name, "linear_attention") == 0)) continue;
        *n += c->windowed[i] = strcmp(name, windowed) == 0;
        if (!c->windowed[i] && strcmp(name, "full_attention") != 0)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: 'layer_types' says '%.32s'; full_attention and %s are known", c->path, name,
                           windowed);
    }
    return INFER_OK;
}

/* Where no list says which: Qwen's from max_window_layers on, all but each so many-th, or all. */
static enum infer_status usual_windows(const struct config *c, uint32_t first) {
    const struct arch *a = c->out->table;
    uint32_t period = (uint32_t)arch_default(a, "attention.sliding_window_pattern", 0);
    if (config_reads(c, "sliding_window_pattern"))
        TRY(read_u32(c, "sliding_window_pattern|_sliding_window_pattern", period, &period));
    for (uint32_t i = 0; i < c->n_layer; i++)
        c->windowed[i] = a->hf.window_by_layer ? i >= first : period ? (i + 1) % period != 0 : true;
    return INFER_OK;
}

/* Which layers rotate q and k, where a list or an interval says so; an empty list says nothing. */
static enum infer_status read_rotated(const struct config *c, uint8_t *rotated) {
    const json_t *list = json_object_get(c->root, "no_rope_layers"), *v;
    uint32_t period = 4, on;
    TRY(read_u32(c, "no_rope_layer_interval", 4, &period));
    if (json_array_size(list) ? json_array_size(list) != c->n_layer
                              : list && !json_is_array(list) && !json_is_null(list))
        return config_wrong(c, "no_rope_layers", "a list with a number for each layer");
    for (uint32_t i = 0; i < c->n_layer; i++) {
        v = json_array_get(list, i);
        TRY(config_u32(c, "no_rope_layers", v, period && (i + 1) % period == 0 ? 0 : 1, &on));
        rotated[i] = on != 0;
    }
    return INFER_OK;
}
static enum infer_status put_rotated(const struct config *c) {
    uint8_t *rotated = arena_alloc(c->keys->arena, (size_t)c->n_layer + 1);
    if (!rotated) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    if (!config_reads(c, "no_rope_layers")) return INFER_OK;
    TRY(read_rotated(c, rotated));
    hf_put_bools(c->keys, c->out->arch, "rope.layers", rotated, c->n_layer);
    return INFER_OK;
}

/* Llama 4: layers that rotate see their chunk, unless layer_types says which do; null: all see everything.
 * source: configuration_llama4 of transformers */
static enum infer_status read_chunks(struct config *c) {
    const json_t *v = json_object_get(c->root, "attention_chunk_size");
    uint32_t size = 0, n = 0, other = 0;
    bool listed;
    if (v)
        TRY(config_u32(c, "attention_chunk_size", v, 0, &size));
    else
        size = (uint32_t)arch_default(c->out->table, "attention.sliding_window", 0);
    TRY(read_u32(c, "sliding_window", 0, &other));
    if (other)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'sliding_window' beside chunks of attention", c->path);
    TRY(read_layer_types(c, &n, &listed));
    if (n && !size)
        return err_set(INFER_E_INPUT,
                       "%s: 'layer_types' has chunked_attention, but 'attention_chunk_size' is 0 or null",
                       c->path);
    if (!listed) TRY(read_rotated(c, c->windowed));
    for (uint32_t i = n = 0; i < c->n_layer; i++) n += c->windowed[i] = c->windowed[i] && size;
    hf_put_u32(c->keys, c->out->arch, "attention.sliding_window", n ? size : 0);
    if (n) hf_put_bools(c->keys, c->out->arch, "attention.sliding_window_pattern", c->windowed, c->n_layer);
    return INFER_OK;
}

/* Where other mixers than attention may be. */
static enum infer_status open_mixed(struct config *c) {
    const json_t *list = json_object_get(c->root, "layer_types");
    if (c->out->table->mixer.kind != MIX_DELTA || !list || json_is_null(list)) return INFER_OK;
    c->mixed = arena_alloc(c->keys->arena, (size_t)c->n_layer + 1);
    return c->mixed ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory: keys of a model");
}

/* Mistral has its window in every layer. Qwen has it in those from max_window_layers on, or as layer_types says, once
 * use_sliding_window is true. source: configuration_mistral, configuration_qwen2, configuration_qwen3 of transformers */
enum infer_status config_windows(struct config *c) {
    const struct arch *a = c->out->table;
    uint32_t window = 0, first = 0, n = 0;
    bool used, listed, differs = false;
    const json_t *blocks = json_object_get(c->root, "layers_block_type"); /* may stand alone */
    TRY(read_u32(c, "num_hidden_layers|n_layer", blocks ? (int64_t)json_array_size(blocks) : -1,
                 &c->n_layer));
    TRY(read_u32(c, "sliding_window", 0, &window));
    TRY(read_u32(c, "max_window_layers", 0, &first));
    TRY(read_bool(c, "use_sliding_window", !a->hf.window_by_layer, &used));
    if (c->n_layer > MANY_LAYERS) return config_wrong(c, "num_hidden_layers", "in range");
    c->windowed = arena_alloc(c->keys->arena, (size_t)c->n_layer + 1);
    if (!c->windowed) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    TRY(config_kinds(c));
    if (a->mixer.where == MIXER_NO_KEYS)
        return window ? err_set(INFER_E_UNSUPPORTED, "%s: 'sliding_window' is not supported here", c->path)
                      : INFER_OK;
    TRY(open_mixed(c));
    if (a->attn.chunked) return read_chunks(c);
    TRY(read_layer_types(c, &n, &listed));
    if (n && !(window && used))
        return err_set(INFER_E_INPUT,
                       "%s: 'layer_types' has sliding_attention, but no 'sliding_window' is in use", c->path);
    if (!listed && window && used) TRY(usual_windows(c, first));
    n = 0;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        if (!window || !used) c->windowed[i] = false;
        n += c->windowed[i];
    }
    if (!n) return INFER_OK;
    hf_put_u32(c->keys, c->out->arch, "attention.sliding_window", window);
    differs = n < c->n_layer || arch_default(a, "attention.sliding_window_pattern", 0) != 0;
    if (differs)
        hf_put_bools(c->keys, c->out->arch, "attention.sliding_window_pattern", c->windowed, c->n_layer);
    return INFER_OK;
}

/* ---- heads ---- */

/* Of each layer. */
struct layer_heads {
    uint32_t *kv, *dim;
};

/* {"5": {"head_dim": 512, "num_key_value_heads": 4}}. source: configuration_gemma4 of transformers */
static enum infer_status read_layer_config(const struct config *c, const struct layer_heads *h) {
    const char *key, *name;
    json_t *layer, *v, *all = json_object_get(c->root, "per_layer_config");
    if (!config_reads(c, "per_layer_config")) return INFER_OK;
    json_object_foreach(all, key, layer) {
        char *end;
        long il = strtol(key, &end, 10);
        if (end == key || *end || il < 0 || il >= (long)c->n_layer)
            return config_wrong(c, "per_layer_config", "by the numbers of layers");
        json_object_foreach(layer, name, v) {
            if (strcmp(name, "head_dim") == 0)
                TRY(config_u32(c, name, v, -1, &h->dim[il]));
            else if (strcmp(name, "num_key_value_heads") == 0)
                TRY(config_u32(c, name, v, -1, &h->kv[il]));
            else
                return err_set(INFER_E_UNSUPPORTED,
                               "%s: 'per_layer_config' has '%.40s', which is not supported", c->path, name);
        }
    }
    return INFER_OK;
}

/* Full layers may have heads of their own. */
static enum infer_status read_layer_heads(const struct config *c, uint32_t kv, uint32_t dim,
                                          struct layer_heads *h) {
    uint32_t full_kv = kv, full_dim = dim;
    h->kv = arena_alloc(c->keys->arena, 2 * sizeof *h->kv * (size_t)(c->n_layer + 1));
    if (!h->kv) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    h->dim = h->kv + c->n_layer;
    if (config_reads(c, "global_head_dim")) {
        TRY(read_u32(c, "global_head_dim", dim, &full_dim));
        TRY(read_u32(c, "num_global_key_value_heads", kv, &full_kv));
    }
    for (uint32_t i = 0; i < c->n_layer; i++) {
        h->kv[i] = c->windowed[i] ? kv : full_kv;
        h->dim[i] = c->windowed[i] ? dim : full_dim;
        if (c->kind[i] != LAYER_ATTENTION) h->kv[i] = 0;
    }
    return read_layer_config(c, h);
}

static enum infer_status read_kv_heads(const struct config *c, uint32_t heads, uint32_t *kv) {
    bool several = true, one = true;
    TRY(read_u32(c, "num_key_value_heads|num_kv_heads", heads, kv));
    if (!config_reads(c, "new_decoder_architecture")) return INFER_OK;
    TRY(read_bool(c, "new_decoder_architecture", false,
                  &several)); /* Falcon: else one key head, or as many as queries */
    TRY(read_bool(c, "multi_query", true, &one));
    if (!several) *kv = one ? 1 : heads;
    return INFER_OK;
}

/* A model without attention. */
static enum infer_status no_heads(const struct config *c, uint32_t dim[2]) {
    dim[0] = dim[1] = 2;
    hf_put_u32(c->keys, c->out->arch, "attention.head_count", 0);
    return INFER_OK;
}

static enum infer_status read_heads(const struct config *c, uint32_t dim[2]) {
    const char *arch = c->out->arch;
    uint32_t embd = 0, heads = 0, kv = 0, usual = 0;
    struct layer_heads h = {0};
    if (!config_has(c, LAYER_ATTENTION)) return no_heads(c, dim);
    TRY(read_u32(c, "hidden_size|n_embd", -1, &embd));
    TRY(read_u32(c, "num_attention_heads|n_head", -1, &heads));
    TRY(read_kv_heads(c, heads, &kv));
    TRY(read_u32(c, "head_dim|attention_head_dim", heads ? embd / heads : 0, &usual));
    if (!heads || !usual || usual > 1 << 16)
        return config_wrong(c, usual ? "num_attention_heads" : "head_dim", "in range");
    TRY(read_layer_heads(c, kv, usual, &h));
    bool same_kv = true, windows = false;
    dim[0] = dim[1] = 0;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        uint32_t *d = &dim[c->windowed[i]];
        same_kv &= h.kv[i] == h.kv[0];
        windows |= c->windowed[i];
        if (*d && *d != h.dim[i])
            return err_set(INFER_E_UNSUPPORTED, "%s: head sizes differ among layers of one kind", c->path);
        *d = h.dim[i];
    }
    if (!dim[0]) dim[0] = usual;
    if (!windows) dim[1] = dim[0];
    c->out->n_head = (int)heads;
    c->out->n_kv_head = (int)kv;
    c->out->head_dim = (int)dim[0];
    hf_put_u32(c->keys, arch, "attention.head_count", heads);
    if (same_kv)
        hf_put_u32(c->keys, arch, "attention.head_count_kv", c->n_layer ? h.kv[0] : kv);
    else
        hf_put_u32s(c->keys, arch, "attention.head_count_kv", h.kv, c->n_layer);
    hf_put_u32(c->keys, arch, "attention.key_length", dim[0]);
    hf_put_u32(c->keys, arch, "attention.value_length", dim[0]);
    if (dim[1] != dim[0]) {
        hf_put_u32(c->keys, arch, "attention.key_length_swa", dim[1]);
        hf_put_u32(c->keys, arch, "attention.value_length_swa", dim[1]);
    }
    return INFER_OK;
}

/* ---- what is one number ---- */

/* Keys that some architectures have (arch.h: hf_keys), and what GGUF calls them. */
static enum infer_status read_scalars(const struct config *c) {
    enum { AS_IS, ROOT, FLAG };
    static const struct {
        const char *key, *name;
        int as;
    } row[] = {{"attn_logit_softcapping", "attn_logit_softcapping", AS_IS},
               {"final_logit_softcapping", "final_logit_softcapping", AS_IS},
               {"query_pre_attn_scalar", "attention.scale", ROOT},
               {"attention_multiplier", "attention.scale", AS_IS},
               {"embedding_multiplier", "embedding_scale", AS_IS},
               {"residual_multiplier", "residual_scale", AS_IS},
               {"swiglu_limit", "swiglu_limit", AS_IS},
               {"swiglu_alpha", "swiglu_alpha", AS_IS},
               {"logits_scaling", "logit_scale", AS_IS},
               {"logit_scale", "logit_scale", AS_IS},
               {"use_parallel_residual", "use_parallel_residual", FLAG},
               {"parallel_attn", "use_parallel_residual", FLAG}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const json_t *v = json_object_get(c->root, row[i].key);
        float x;
        bool flag;
        bool in_rows = config_reads(c, "ssm_multipliers"); /* hf_factors.c */
        if (!config_reads(c, row[i].key) || !v || in_rows) continue;
        if (json_is_null(v)) { /* off, also where a file without the key has it on */
            if (arch_default(c->out->table, row[i].name, 0) != 0)
                hf_put_f32(c->keys, c->out->arch, row[i].name, 0);
            continue;
        }
        if (row[i].as == FLAG) {
            TRY(config_bool(c, row[i].key, v, false, &flag));
            hf_put_bool(c->keys, c->out->arch, row[i].name, flag);
            continue;
        }
        TRY(config_f32(c, row[i].key, v, NAN, &x));
        if (!(x > 0)) return config_wrong(c, row[i].key, "above 0");
        hf_put_f32(c->keys, c->out->arch, row[i].name, row[i].as == ROOT ? 1 / sqrtf(x) : x);
    }
    return INFER_OK;
}

/* "rope", or nothing rotates. source: configuration_granitemoehybrid of transformers */
static enum infer_status read_position(const struct config *c) {
    static const char key[] = "position_embedding_type";
    const json_t *v = json_object_get(c->root, key);
    const char *name = json_string_value(v);
    if (!config_reads(c, key)) return INFER_OK;
    if (v && !json_is_null(v) && !(name && key_names("rope|nope", name, strlen(name))))
        return config_wrong(c, key, "'rope' or 'nope'");
    hf_put_bool(c->keys, c->out->arch, "rope.scaling.finetuned", name && strcmp(name, "rope") == 0);
    return INFER_OK;
}

/* How queries grow with the position; the first key is a truth, or a number as in old files. */
static enum infer_status read_temperature(const struct config *c) {
    static const char key[] = "attn_temperature_tuning";
    const json_t *v = json_object_get(c->root, key);
    const struct arch *a = c->out->table;
    bool on = json_integer_value(v) != 0;
    float scale;
    uint32_t length;
    if (!config_reads(c, key)) return INFER_OK;
    if (!json_is_integer(v)) TRY(config_bool(c, key, v, true, &on));
    TRY(config_f32(c, "attn_scale", json_object_get(c->root, "attn_scale"),
                   (float)arch_default(a, "attention.temperature_scale", 0), &scale));
    TRY(read_u32(c, "floor_scale", (int64_t)arch_default(a, "attention.temperature_length", 0), &length));
    hf_put_f32(c->keys, c->out->arch, "attention.temperature_scale", on ? scale : 0);
    hf_put_u32(c->keys, c->out->arch, "attention.temperature_length", length);
    return INFER_OK;
}

static enum infer_status read_eps(const struct config *c) {
    const bool layer = c->out->table->norm == NORM_LAYER;
    const char *found, *names = layer ? "layer_norm_eps|layer_norm_epsilon|norm_epsilon|norm_eps"
                                : config_reads(c, "layer_norm_epsilon") ? "layer_norm_epsilon"
                                : config_reads(c, "norm_eps")           ? "norm_eps"
                                                                        : "rms_norm_eps";
    const json_t *v = config_any(c, names, &found);
    float eps;
    TRY(config_f32(c, found ? found : layer ? "layer_norm_eps" : names, v, NAN, &eps));
    hf_put_f32(c->keys, c->out->arch,
               layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", eps);
    const char *known = c->out->table->keys, other[] = "attention.layer_norm_epsilon";
    if (!layer && known && key_names(known, other, sizeof other - 1)) /* llama.cpp asks for both */
        hf_put_f32(c->keys, c->out->arch, other, eps);
    return INFER_OK;
}

/* true, false, or -1 where none of the keys is there. */
static enum infer_status read_told(const struct config *c, const char *keys, struct hf_told *out) {
    const char *found;
    const json_t *v = config_any(c, keys, &found);
    bool says = false;
    if (v) TRY(config_bool(c, found, v, false, &says));
    *out = (struct hf_told){.says = v ? says : -1};
    snprintf(out->key, sizeof out->key, "%.*s", (int)(found ? strlen(found) : strcspn(keys, "|")),
             found ? found : keys);
    return INFER_OK;
}

/* Which tensors some keys say to be there. Biases that no key speaks of: as the architecture must (Qwen2), else none. */
static enum infer_status read_tensors_told(const struct config *c) {
    struct hf_config *out = c->out;
    const unsigned char *slot = out->table->slot;
    const bool states = out->table->mixer.kind == MIX_CONV || out->table->mixer.kind == MIX_SSM ||
                        out->table->mixer.kind == MIX_BOTH;
    out->out_bias.says = out->qk_norm.says = out->in_bias.says = out->conv_bias.says = -1;
    out->choice_bias.says = out->ssm_norm.says = out->ffn_bias.says = -1;
    if (config_reads(c, "mlp_bias")) TRY(read_told(c, "mlp_bias", &out->ffn_bias));
    if (config_reads(c, "use_expert_bias")) TRY(read_told(c, "use_expert_bias", &out->choice_bias));
    if (states) {
        const char *in = config_reads(c, "use_bias") ? "use_bias" : "conv_bias|mamba_proj_bias";
        TRY(read_told(c, in, &out->in_bias));
        TRY(read_told(c, "mamba_conv_bias|use_conv_bias|conv_bias", &out->conv_bias));
        if (config_reads(c, "mamba_rms_norm")) TRY(read_told(c, "mamba_rms_norm", &out->ssm_norm));
    }
    TRY(read_told(c, states ? "attention_bias" : "attention_bias|qkv_bias|use_qkv_bias|use_bias|bias",
                  &out->bias));
    if (out->bias.says < 0 && slot[SLOT_ATTN_QKV] == SLOT_ABSENT)
        out->bias.says = slot[SLOT_ATTN_Q_BIAS] == SLOT_MUST;
    if (config_reads(c, "attention_out_bias"))
        TRY(read_told(c, "attention_out_bias", &out->out_bias));
    else if (slot[SLOT_ATTN_OUTPUT_BIAS] == SLOT_MAY && !config_reads(c, "use_qkv_bias"))
        out->out_bias = out->bias;  /* Llama has one key for both */
    if (out->table->attn.qk_unit) { /* without weights: a key alone says it */
        bool on;
        TRY(read_bool(c, "use_qk_norm", true, &on));
        hf_put_bool(c->keys, out->arch, "attention.qk_norm", on);
        return INFER_OK;
    }
    return read_told(c, "qk_layernorm|use_qk_norm|qk_norm", &out->qk_norm);
}

/* Inputs of the layers' own; layers at the end without keys and values, whose feed-forward part may be twice as wide.
 * source: modeling_gemma4 of transformers */
static enum infer_status read_sharing(const struct config *c, uint32_t ff) {
    const char *arch = c->out->arch;
    uint32_t input, shared, *width = arena_alloc(c->keys->arena, sizeof *width * ((size_t)c->n_layer + 1));
    bool twice;
    if (!config_reads(c, "num_kv_shared_layers")) return INFER_OK;
    if (!width) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    TRY(read_u32(c, "hidden_size_per_layer_input", 0, &input));
    TRY(read_u32(c, "num_kv_shared_layers", 0, &shared));
    TRY(read_bool(c, "use_double_wide_mlp", false, &twice));
    if (shared > c->n_layer) return config_wrong(c, "num_kv_shared_layers", "at most the number of layers");
    hf_put_u32(c->keys, arch, "embedding_length_per_layer_input", input);
    if (shared) hf_put_u32(c->keys, arch, "attention.shared_kv_layers", shared);
    for (uint32_t i = 0; i < c->n_layer; i++) width[i] = twice && i >= c->n_layer - shared ? 2 * ff : ff;
    if (twice && shared)
        hf_put_u32s(c->keys, arch, "feed_forward_length", width, c->n_layer);
    else
        hf_put_u32(c->keys, arch, "feed_forward_length", ff);
    return INFER_OK;
}

enum infer_status config_sizes(struct config *c, uint32_t dim[2]) {
    static const struct {
        const char *keys, *name;
    } plain[] = {{"hidden_size|n_embd", "embedding_length"},
                 {"block_ff_dim|intermediate_size|n_inner|ffn_hidden_size", "feed_forward_length"},
                 {"max_position_embeddings|n_positions", "context_length"},
                 {"vocab_size", "vocab_size"}};
    struct hf_config *out = c->out;
    const struct arch *a = out->table;
    uint32_t v = 0, embd = 0;
    if (config_reads(c, "num_nextn_predict_layers"))
        TRY(read_u32(c, "num_nextn_predict_layers", 0, &out->n_draft));
    if (out->n_draft > MANY_LAYERS) return config_wrong(c, "num_nextn_predict_layers", "in range");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        bool ungated = i == 1 && !a->slot[SLOT_FFN_GATE] && !a->slot[SLOT_FFN_GATE_UP];
        int64_t usual = ungated ? 4 * (int64_t)embd : -1;
        if (i == 2 && !config_has(c, LAYER_ATTENTION)) usual = 1 << 20; /* states have no end */
        if (i == 1 && a->mixer.kind == MIX_DELTA &&
            json_is_integer(json_object_get(c->root, "moe_intermediate_size")))
            usual = 0; /* no dense layer */
        TRY(read_u32(c, plain[i].keys, usual, &v));
        if (i == 1 && !v) continue;
        if (i == 0) out->n_embd = embd = v;
        if (i == 1) out->n_ff_expert = v; /* unless another key says so */
        if (i == 1 && config_reads(c, "intermediate_size_mlp"))
            TRY(read_u32(c, "intermediate_size_mlp", -1, &v)); /* of dense layers */
        if (i == 1 && config_reads(c, "num_kv_shared_layers"))
            TRY(read_sharing(c, v));
        else if (i == 1)
            TRY(config_width(c, &v));
        else
            hf_put_u32(c->keys, out->arch, plain[i].name, v);
    }
    out->n_vocab = v;
    out->n_layer = c->n_layer;
    TRY(a->attn.latent ? config_latent(c, dim) : read_heads(c, dim));
    if (a->attn.latent) dim[1] = dim[0];
    TRY(read_eps(c));
    TRY(read_scalars(c));
    TRY(put_rotated(c));
    TRY(read_position(c));
    TRY(read_temperature(c));
    TRY(read_bool(c, "tie_word_embeddings", a->hf.tied, &out->tied));
    if (config_reads(c, "tie_embedding")) TRY(read_bool(c, "tie_embedding", out->tied, &out->tied));
    return read_tensors_told(c);
}
