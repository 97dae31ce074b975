/* config.json -> the keys of GGUF: sizes, heads, windows, and what else is one number. */
#include "files/hf/hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- attention windows ---- */

/* c->windowed by layer_types; *n: how many are. */
static enum infer_status read_layer_types(struct config *c, uint32_t *n) {
    const json_t *list = get_layers(c, K_LAYER_TYPES, "a list with a name for each layer");
    const char *windowed = c->out->table->attn.chunked ? "chunked_attention" : "sliding_attention",
               *usual = c->out->table->attn.index_rope ? "indexed_attention" : "full_attention";
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        if (!name) return key_wrong(c, K_LAYER_TYPES, "a list of names");
        if (c->mixed && (c->mixed[i] = strcmp(name, "linear_attention") == 0)) continue;
        *n += c->windowed[i] = strcmp(name, windowed) == 0;
        if (!c->windowed[i] && strcmp(name, usual) != 0)
            return err_set(INFER_E_UNSUPPORTED, "%s: 'layer_types' says '%.32s'; %s and %s are known",
                           c->path, name, usual, windowed);
    }
    return c->status;
}

/* Where no list says which: all but the first of each four, Qwen's from max_window_layers on, all but each so many-th, or all. */
static void usual_windows(struct config *c, uint32_t first) {
    const struct arch *a = c->out->table;
    const uint32_t period = get_u32(c, K_WINDOW_PERIOD),
                   lead = a->hf.windows_behind_dense ? get_u32(c, K_FIRST_DENSE) : 0,
                   next = a->attn.full_first ? 0 : 1;
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    const bool fourth = a->hf.full_first && type && key_names(a->hf.full_first, type, strlen(type));
    for (uint32_t i = 0; i < c->n_layer; i++)
        c->windowed[i] = fourth                  ? i % 4 != 0
                         : a->hf.window_by_layer ? i >= first
                         : period                ? i >= lead && (i - lead + next) % period != 0
                                                 : true;
}

/* Which layers rotate q and k, where a list or an interval says so; an empty list says nothing. */
static enum infer_status read_rotated(struct config *c, uint8_t *rotated) {
    const json_t *list = get_json(c, K_ROTATED);
    const uint32_t period = get_u32(c, K_ROTATED_PERIOD);
    uint32_t on;
    if (list && (!json_is_array(list) || (json_array_size(list) && json_array_size(list) != c->n_layer)))
        return key_wrong(c, K_ROTATED, "a list with a number for each layer");
    for (uint32_t i = 0; i < c->n_layer; i++) {
        TRY(config_u32(c, "no_rope_layers", json_array_get(list, i), period && (i + 1) % period == 0 ? 0 : 1,
                       &on));
        rotated[i] = on != 0;
    }
    return c->status;
}
static enum infer_status put_rotated(struct config *c) {
    if (!key_reads(c, K_ROTATED)) return INFER_OK;
    uint8_t *rotated = get_room(c, c->n_layer);
    TRY(rotated ? read_rotated(c, rotated) : c->status);
    put_bools(c, "rope.layers", rotated);
    return INFER_OK;
}

/* Llama 4: layers that rotate see their chunk, unless layer_types says which do; null: all see everything.
 * source: configuration_llama4 of transformers */
static enum infer_status read_chunks(struct config *c, uint32_t window) {
    const bool null = json_is_null(json_object_get(c->root, "attention_chunk_size"));
    const uint32_t size = null ? 0 : get_u32(c, K_CHUNK);
    uint32_t n = 0;
    if (window)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'sliding_window' beside chunks of attention", c->path);
    TRY(read_layer_types(c, &n));
    if (n && !size)
        return err_set(INFER_E_INPUT,
                       "%s: 'layer_types' has chunked_attention, but 'attention_chunk_size' is 0 or null",
                       c->path);
    if (!get_json(c, K_LAYER_TYPES)) TRY(read_rotated(c, c->windowed));
    for (uint32_t i = n = 0; i < c->n_layer; i++) n += c->windowed[i] = c->windowed[i] && size;
    put_u32(c, "attention.sliding_window", n ? size : 0);
    if (n) put_bools(c, "attention.sliding_window_pattern", c->windowed);
    return INFER_OK;
}

/* Where some layers have no attention: the window of those that layer_types says. */
static enum infer_status mixed_windows(struct config *c, uint32_t window) {
    const json_t *list = get_json(c, K_LAYER_TYPES);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        n += c->windowed[i] = name && strcmp(name, "sliding_attention") == 0;
    }
    if (!n && !window) return c->status;
    if (!n) return err_set(INFER_E_UNSUPPORTED, "%s: 'sliding_window' is not supported here", c->path);
    if (!window)
        return err_set(INFER_E_INPUT, "%s: 'layer_types' has sliding_attention, but no 'sliding_window'",
                       c->path);
    put_u32(c, "attention.sliding_window", window);
    put_bools(c, "attention.sliding_window_pattern", c->windowed);
    return c->status;
}

/* Mistral has its window in every layer. Qwen has it in those from max_window_layers on, or as layer_types says, once
 * use_sliding_window is true. source: configuration_mistral, configuration_qwen2, configuration_qwen3 of transformers */
enum infer_status config_windows(struct config *c) {
    const struct arch *a = c->out->table;
    const json_t *blocks = get_json(c, K_BLOCK_TYPES); /* may stand alone */
    c->n_layer = get_u32_or(c, K_N_LAYER, blocks ? (int64_t)json_array_size(blocks) : -1);
    const uint32_t before = get_u32(c, K_WINDOW_BEFORE);
    uint32_t window = before ? before + 1 : get_u32(c, K_WINDOW), first = get_u32(c, K_WINDOW_FROM), n = 0;
    const bool used = get_flag_or(c, K_USE_WINDOW, !a->hf.window_by_layer);
    TRY(c->status);
    if (!(c->windowed = get_room(c, c->n_layer))) return c->status;
    TRY(config_kinds(c));
    if (a->mixer.where == MIXER_NO_KEYS) return mixed_windows(c, window);
    const bool listed = get_json(c, K_LAYER_TYPES);
    if (a->mixer.kind == MIX_DELTA && listed && !(c->mixed = get_room(c, c->n_layer))) return c->status;
    if (a->attn.chunked) return read_chunks(c, window);
    TRY(read_layer_types(c, &n));
    if (n && !(window && used))
        return err_set(INFER_E_INPUT,
                       "%s: 'layer_types' has sliding_attention, but no 'sliding_window' is in use", c->path);
    const json_t *flags = get_layers(c, K_WINDOWED, "a list with 0 or 1 for each layer");
    if (!listed && window && used) usual_windows(c, first);
    for (uint32_t i = 0; flags && !listed && i < c->n_layer; i++)
        c->windowed[i] = json_integer_value(json_array_get(flags, i)) != 0;
    for (uint32_t i = n = 0; i < c->n_layer; i++) n += c->windowed[i] &= window && used;
    if (!n) return c->status;
    put_u32(c, "attention.sliding_window", window);
    if (n < c->n_layer || arch_default(a, "attention.sliding_window_pattern", 0) != 0)
        put_bools(c, "attention.sliding_window_pattern", c->windowed);
    return c->status;
}

/* ---- heads ---- */

/* Of each layer. */
struct layer_heads {
    uint32_t *kv, *dim, *q;
};

/* {"5": {"head_dim": 512, "num_key_value_heads": 4}}. source: configuration_gemma4 of transformers */
static enum infer_status read_layer_config(struct config *c, const struct layer_heads *h) {
    const char *key, *name;
    json_t *layer, *v;
    json_object_foreach((json_t *)get_json(c, K_LAYER_HEADS), key, layer) {
        char *end;
        long il = strtol(key, &end, 10);
        if (end == key || *end || il < 0 || il >= (long)c->n_layer)
            return key_wrong(c, K_LAYER_HEADS, "by the numbers of layers");
        json_object_foreach(layer, name, v) {
            if (strcmp(name, "head_dim") == 0)
                TRY(config_u32(c, name, v, -1, &h->dim[il]));
            else if (strcmp(name, "num_key_value_heads") == 0)
                TRY(config_u32(c, name, v, -1, &h->kv[il]));
            else if (strcmp(name, "num_attention_heads") == 0 && key_reads(c, K_WINDOWED_HEADS))
                TRY(config_u32(c, name, v, -1, &h->q[il]));
            else
                return err_set(INFER_E_UNSUPPORTED,
                               "%s: 'per_layer_config' has '%.40s', which is not supported", c->path, name);
        }
    }
    return c->status;
}

/* [48, 64, ..]: heads of queries. source: configuration_laguna of transformers */
static enum infer_status read_heads_by_layer(struct config *c, const struct layer_heads *h) {
    const json_t *list = get_layers(c, K_HEADS_BY_LAYER, "a list with a number for each layer"), *v;
    size_t i;
    json_array_foreach(list, i, v) TRY(config_u32(c, key_name(c, K_HEADS_BY_LAYER), v, -1, &h->q[i]));
    return c->status;
}

/* Full layers may have heads of their own. */
static enum infer_status read_layer_heads(struct config *c, uint32_t heads, uint32_t kv, uint32_t dim,
                                          struct layer_heads *h) {
    const bool apart = key_reads(c, K_FULL_HEAD_DIM);
    const uint32_t full_dim = apart ? get_u32_or(c, K_FULL_HEAD_DIM, dim) : dim,
                   full_kv = apart ? get_u32_or(c, K_FULL_KV_HEADS, kv) : kv;
    const uint32_t windowed_kv =
        key_reads(c, K_WINDOWED_KV_HEADS) ? get_u32_or(c, K_WINDOWED_KV_HEADS, 2 * (int64_t)kv) : kv;
    const uint32_t windowed_q =
        key_reads(c, K_WINDOWED_HEADS) ? get_u32_or(c, K_WINDOWED_HEADS, heads) : heads;
    h->kv = get_room(c, 3 * sizeof *h->kv * (size_t)c->n_layer);
    TRY(c->status);
    h->dim = h->kv + c->n_layer, h->q = h->dim + c->n_layer;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        h->kv[i] = c->windowed[i] ? windowed_kv : full_kv;
        h->q[i] = c->windowed[i] ? windowed_q : heads;
        h->dim[i] = c->windowed[i] ? dim : full_dim;
        if (c->kind[i] != LAYER_ATTENTION) h->kv[i] = 0;
    }
    TRY(read_heads_by_layer(c, h));
    return read_layer_config(c, h);
}

/* Falcon's first: as many as it says, as those of queries, or one. */
static uint32_t read_kv_heads(struct config *c, uint32_t heads) {
    const uint32_t kv = get_u32_or(c, K_KV_HEADS, heads), old = get_u32(c, K_KV_HEADS_OLD);
    const bool several = get_flag_or(c, K_NEW_DECODER, !key_reads(c, K_NEW_DECODER)),
               one = get_flag(c, K_MULTI_QUERY);
    return old ? old : several ? kv : one ? 1 : heads;
}

static enum infer_status read_heads(struct config *c, uint32_t dim[2]) {
    struct layer_heads h = {0};
    bool same_kv = true, same_q = true, windows = false;
    dim[0] = dim[1] = 2;
    if (!config_has(c, LAYER_ATTENTION)) { /* a model without attention */
        put_u32(c, "attention.head_count", 0);
        return INFER_OK;
    }
    const uint32_t embd = get_u32(c, K_EMBD), heads = get_u32(c, K_HEADS), kv = read_kv_heads(c, heads),
                   usual = get_u32_or(c, K_HEAD_DIM, heads ? embd / heads : 0);
    TRY(c->status);
    if (!heads || !usual || usual > 1 << 16) return key_wrong(c, usual ? K_HEADS : K_HEAD_DIM, "in range");
    TRY(read_layer_heads(c, heads, kv, usual, &h));
    dim[0] = dim[1] = 0;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        uint32_t *d = &dim[c->windowed[i]];
        same_kv &= h.kv[i] == h.kv[0];
        same_q &= h.q[i] == h.q[0];
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
    if (same_q)
        put_u32(c, "attention.head_count", c->n_layer ? h.q[0] : heads);
    else
        put_u32s(c, "attention.head_count", h.q);
    if (same_kv)
        put_u32(c, "attention.head_count_kv", c->n_layer ? h.kv[0] : kv);
    else
        put_u32s(c, "attention.head_count_kv", h.kv);
    put_u32(c, "attention.key_length", dim[0]);
    put_u32(c, "attention.value_length",
            key_reads(c, K_VALUE_DIM) ? get_u32_or(c, K_VALUE_DIM, dim[0]) : dim[0]);
    if (dim[1] != dim[0]) {
        put_u32(c, "attention.key_length_swa", dim[1]);
        put_u32(c, "attention.value_length_swa", dim[1]);
    }
    return INFER_OK;
}

/* ---- what is one number ---- */

/* "rope", or nothing rotates. source: configuration_granitemoehybrid of transformers */
static enum infer_status read_position(struct config *c) {
    const json_t *v = get_json(c, K_POSITION);
    const char *name = json_string_value(v);
    if (!key_reads(c, K_POSITION)) return INFER_OK;
    if (c->out->table->encoder.on) return INFER_OK; /* hf_encoder.c */
    if (v && !(name && key_names("rope|nope", name, strlen(name))))
        return key_wrong(c, K_POSITION, "'rope' or 'nope'");
    put_bool(c, "rope.scaling.finetuned", name && strcmp(name, "rope") == 0);
    return INFER_OK;
}

/* How queries grow with the position; the first key is a truth, or a number as in old files. */
static void read_temperature(struct config *c) {
    if (!key_reads(c, K_TEMPERATURE)) return;
    const json_t *v = get_json(c, K_TEMPERATURE);
    const bool on = json_is_integer(v) ? json_integer_value(v) != 0 : get_flag_or(c, K_TEMPERATURE, true);
    const float scale = get_f32(c, K_TEMPERATURE_SCALE);
    put_f32(c, "attention.temperature_scale", on ? scale : 0);
    put_u32(c, "attention.temperature_length", get_u32(c, K_TEMPERATURE_LENGTH));
}

static void put_eps(struct config *c) {
    static const char of_layer[] = "attention.layer_norm_epsilon", rms[] = "attention.layer_norm_rms_epsilon";
    const struct arch *a = c->out->table;
    const bool own = key_reads(c, K_EPS_OWN) && (get_json(c, K_EPS_OWN) || !get_json(c, K_EPS));
    const float eps = get_f32(c, own ? K_EPS_OWN : K_EPS);
    const bool layer = a->norm == NORM_LAYER && !a->norm_key_rms && !(a->norm_either && get_json(c, K_EPS));
    put_f32(c, layer ? of_layer : rms, layer || !a->norm_either ? eps : get_f32(c, K_EPS));
    if (a->norm != NORM_LAYER && a->keys && key_names(a->keys, of_layer, strlen(of_layer)))
        put_f32(c, of_layer, eps); /* llama.cpp asks for both */
}

/* Which tensors some keys say to be there. Biases that no key speaks of: as the architecture must (Qwen2), else none. */
static void read_tensors_told(struct config *c) {
    struct hf_config *out = c->out;
    const unsigned char *slot = out->table->slot;
    const enum mixer kind = out->table->mixer.kind;
    const bool states = kind == MIX_CONV || kind == MIX_SSM || kind == MIX_BOTH;
    const struct hf_told none = {.says = -1};
    out->ffn_bias = get_told(c, K_FFN_BIAS);
    out->ffn_out_bias = get_told(c, K_FFN_OUT_BIAS);
    out->choice_bias = get_told(c, K_CHOICE_BIAS);
    out->head_bias = get_told(c, K_HEAD_BIAS);
    out->ssm_norm = get_told(c, K_SSM_NORM);
    out->in_bias = states ? get_told(c, K_STATE_BIAS) : none;
    out->conv_bias = states ? get_told(c, K_CONV_BIAS) : none;
    out->bias = get_told(c, states ? K_ATTN_BIAS : K_BIAS);
    out->out_bias = get_told(c, K_OUT_BIAS);
    out->qk_norm = none;
    if (out->bias.says < 0 && slot[SLOT_ATTN_QKV] == SLOT_ABSENT)
        out->bias.says = slot[SLOT_ATTN_Q_BIAS] == SLOT_MUST;
    if (slot[SLOT_ATTN_OUTPUT_BIAS] == SLOT_MAY && !key_reads(c, K_OUT_BIAS) &&
        !config_reads(c, "use_qkv_bias"))
        out->out_bias = out->bias; /* Llama has one key for both */
    if (out->table->attn.qk_unit)  /* without weights: a key alone says it */
        put_bool(c, "attention.qk_norm", get_flag(c, K_QK_NORM));
    else
        out->qk_norm = get_told(c, K_QK_NORM);
}

/* Inputs of the layers' own; layers at the end without keys and values, whose feed-forward part may be twice as wide.
 * source: modeling_gemma4 of transformers */
static enum infer_status read_sharing(struct config *c, uint32_t ff) {
    const uint32_t input = get_u32(c, K_LAYER_INPUT), shared = get_u32(c, K_SHARED_LAYERS);
    const bool twice = get_flag(c, K_DOUBLE_WIDE);
    uint32_t *width = get_room(c, sizeof *width * (size_t)c->n_layer);
    TRY(c->status);
    if (shared > c->n_layer) return key_wrong(c, K_SHARED_LAYERS, "at most the number of layers");
    put_u32(c, "embedding_length_per_layer_input", input);
    if (shared) put_u32(c, "attention.shared_kv_layers", shared);
    for (uint32_t i = 0; i < c->n_layer; i++) width[i] = twice && i >= c->n_layer - shared ? 2 * ff : ff;
    if (twice && shared)
        put_u32s(c, "feed_forward_length", width);
    else
        put_u32(c, "feed_forward_length", ff);
    return INFER_OK;
}

/* Without a gate it may be left out; it need not be there where no layer is dense. */
static enum infer_status read_width(struct config *c) {
    const struct arch *a = c->out->table;
    const bool gated = a->slot[SLOT_FFN_GATE] || a->slot[SLOT_FFN_GATE_UP];
    const json_t *of_experts = get_json(c, K_EXPERT_FF);
    const bool sparse = a->mixer.kind == MIX_DELTA && json_is_integer(of_experts);
    const int64_t usual = sparse ? 0
                          : json_is_integer(of_experts)
                              ? json_integer_value(of_experts) /* no layer is dense */
                          : gated ? -1
                                  : 4 * (int64_t)c->out->n_embd;
    uint32_t ff = get_u32_or(c, K_FF, usual);
    if (c->status || !ff) return c->status;
    c->out->n_ff_expert = ff; /* unless another key says so */
    if (key_reads(c, K_FF_DENSE)) ff = get_u32_or(c, K_FF_DENSE, ff);
    return key_reads(c, K_SHARED_LAYERS) ? read_sharing(c, ff) : config_width(c, ff);
}

enum infer_status config_sizes(struct config *c, uint32_t dim[2]) {
    struct hf_config *out = c->out;
    const struct arch *a = out->table;
    out->n_layer = c->n_layer;
    out->n_draft = get_u32(c, K_N_DRAFT);
    out->n_embd = get_u32(c, K_EMBD);
    out->n_vocab = get_u32(c, K_VOCAB);
    put_u32(c, "embedding_length", (uint32_t)out->n_embd);
    put_u32(c, "vocab_size", out->n_vocab);
    TRY(read_width(c)); /* states have no end */
    const uint32_t ctx = get_u32_or(c, K_CTX, config_has(c, LAYER_ATTENTION) ? -1 : 1 << 20);
    if (a->encoder.on) TRY(config_encoder(c, ctx));
    put_u32(c, "context_length", ctx - out->n_pad);
    TRY(a->attn.latent ? config_latent(c, dim) : read_heads(c, dim));
    if (a->attn.latent) dim[1] = dim[0];
    if (a->attn.index_runs) TRY(config_index_runs(c));
    put_eps(c);
    if (!key_reads(c, K_SSM_FACTORS)) put_keys(c, K_SOFTCAP, K_PARALLEL); /* else hf_factors.c */
    TRY(put_rotated(c));
    TRY(read_position(c));
    read_temperature(c);
    if (key_reads(c, K_DEPTH_FACTOR)) { /* MiniCPM's, by the number of layers and by the width */
        put_f32(c, "residual_scale", get_f32(c, K_DEPTH_FACTOR) / sqrtf((float)c->n_layer));
        put_f32(c, "logit_scale", (float)out->n_embd / (float)get_u32(c, K_WIDTH_BASE));
    }
    if (key_reads(c, K_Q_FACTOR)) out->q_norm = get_f32(c, K_Q_FACTOR);
    if (key_reads(c, K_MUP) && !get_flag(c, K_MUP)) /* what the table multiplies embeddings by */
        put_f32(c, "embedding_scale", 1 / sqrtf((float)out->n_embd));
    out->tied = a->encoder.on || get_flag_or(c, K_TIED, a->hf.tied); /* encoders have no head of tokens */
    if (out->body && !out->tied) put_bool(c, "no_head", true);
    out->tied |= out->body;
    read_tensors_told(c);
    return c->status;
}
