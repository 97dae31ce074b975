/* config.json -> the keys of GGUF. */
#include "models/registry.h"
#include "files/hf_config.h"
#include "files/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

void hf_put(struct hf_keys *k, const struct meta *m) {
    if (k->status) return;
    if (k->n == k->room) {
        size_t room = k->room ? 2 * k->room : 64;
        struct meta *grown = arena_alloc(k->arena, room * sizeof *grown);
        if (!grown) {
            k->status = err_set(INFER_E_MEMORY, "out of memory: keys of a model");
            return;
        }
        if (k->n) memcpy(grown, k->meta, k->n * sizeof *grown);
        k->meta = grown;
        k->room = room;
    }
    k->meta[k->n++] = *m;
}

/* "arch.name" or "name" with n bytes of value; an array is one of bools. */
static void put_value(struct hf_keys *k, const char *arch, const char *name, enum meta_type type,
                      const void *value, size_t n) {
    char key[160];
    int len = snprintf(key, sizeof key, "%s%s%s", arch ? arch : "", arch ? "." : "", name);
    char *copy = arena_strndup(k->arena, key, (size_t)len), *raw = arena_strndup(k->arena, value, n);
    struct str *s = arena_alloc(k->arena, sizeof *s);
    if (!copy || !raw || !s) {
        if (!k->status) k->status = err_set(INFER_E_MEMORY, "out of memory: keys of a model");
        return;
    }
    *s = (struct str){raw, n};
    hf_put(k, &(struct meta){.key = {copy, (size_t)len},
                             .type = type,
                             .elem = type == META_ARRAY ? META_BOOL : type,
                             .n = type == META_ARRAY ? n : 1,
                             .raw = type == META_STRING ? NULL : (unsigned char *)raw,
                             .strings = type == META_STRING ? s : NULL});
}
void hf_put_u32(struct hf_keys *k, const char *arch, const char *name, uint32_t value) {
    put_value(k, arch, name, META_U32, &value, sizeof value);
}
void hf_put_f32(struct hf_keys *k, const char *arch, const char *name, float value) {
    put_value(k, arch, name, META_F32, &value, sizeof value);
}
void hf_put_bool(struct hf_keys *k, const char *arch, const char *name, bool value) {
    put_value(k, arch, name, META_BOOL, &(uint8_t){value}, 1);
}
void hf_put_bools(struct hf_keys *k, const char *arch, const char *name, const uint8_t *value, size_t n) {
    put_value(k, arch, name, META_ARRAY, value, n);
}
void hf_put_str(struct hf_keys *k, const char *arch, const char *name, const char *value, size_t len) {
    put_value(k, arch, name, META_STRING, value, len);
}

/* ---- reading ---- */

enum infer_status config_wrong(const struct config *c, const char *key, const char *want) {
    return err_set(INFER_E_INPUT, "%s: '%s' is not %s", c->path, key, want);
}

enum infer_status config_u32(const struct config *c, const char *key, const json_t *v, int64_t fallback,
                             uint32_t *out) {
    if (!v || json_is_null(v)) {
        if (fallback < 0) return err_set(INFER_E_INPUT, "%s: '%s' is missing", c->path, key);
        *out = (uint32_t)fallback;
        return INFER_OK;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        return config_wrong(c, key, "an integer from 0 to 4294967295");
    *out = (uint32_t)json_integer_value(v);
    return INFER_OK;
}

enum infer_status config_f32(const struct config *c, const char *key, const json_t *v, float fallback,
                             float *out) {
    *out = fallback;
    if (!v || json_is_null(v))
        return isnan(fallback) ? err_set(INFER_E_INPUT, "%s: '%s' is missing", c->path, key) : INFER_OK;
    double d = json_number_value(v);
    if (!json_is_number(v) || !isfinite(d) || fabs(d) > 3e38) return config_wrong(c, key, "a number");
    *out = (float)d;
    return INFER_OK;
}

enum infer_status config_bool(const struct config *c, const char *key, const json_t *v, bool fallback,
                              bool *out) {
    *out = v && json_is_true(v);
    if (!v || json_is_null(v)) *out = fallback;
    return !v || json_is_null(v) || json_is_boolean(v) ? INFER_OK : config_wrong(c, key, "true or false");
}

static enum infer_status root_u32(const struct config *c, const char *key, int64_t fallback, uint32_t *out) {
    return config_u32(c, key, json_object_get(c->root, key), fallback, out);
}
static enum infer_status root_bool(const struct config *c, const char *key, bool fallback, bool *out) {
    return config_bool(c, key, json_object_get(c->root, key), fallback, out);
}

/* ---- every key is known ---- */

/* Whether a value is one of a row's neutral ones; null always is. */
static bool is_neutral(const struct key_row *row, const json_t *v) {
    struct key_value value = {.is_number = json_is_number(v), .number = json_number_value(v), .text = "?"};
    if (json_is_null(v)) return true;
    if (json_is_boolean(v)) value.text = json_is_true(v) ? "true" : "false";
    if (json_is_string(v)) value.text = json_string_value(v);
    if (json_is_array(v) || json_is_object(v))
        value.text = json_array_size(v) + json_object_size(v) ? "?" : "empty";
    value.len = strlen(value.text);
    return key_is_one_of(row->words, &value);
}

static enum infer_status check_keys(const struct config *c) {
    const char *key;
    json_t *v;
    json_object_foreach(c->root, key, v) {
        const struct key_row *row = key_find(KEYS_CONFIG, key);
        if (!row && !json_is_null(v)) TRY(key_unknown(c->ignore, c->path, key));
        if (!row || row->use != KEY_OFF || is_neutral(row, v)) continue;
        char text[40];
        size_t n = json_dumpb(v, text, sizeof text, JSON_COMPACT | JSON_ENCODE_ANY);
        return err_set(INFER_E_UNSUPPORTED, "%s: '%s' is %.*s%s, which is not supported (%s is)", c->path,
                       key, (int)(n < sizeof text ? n : sizeof text), text, n > sizeof text ? ".." : "",
                       row->words);
    }
    return INFER_OK;
}

/* ---- architecture ---- */

/* The classes under 'architectures' compute what this architecture does, with its head. */
static enum infer_status check_classes(const struct config *c) {
    const struct arch_hf *first = c->out->table->hf;
    const json_t *list = json_object_get(c->root, "architectures");
    size_t i;
    json_t *v;
    if (!list || json_is_null(list)) return INFER_OK;
    if (!json_is_array(list)) return config_wrong(c, "architectures", "a list of names");
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        bool known = false;
        if (!name) return config_wrong(c, "architectures", "a list of names");
        for (const struct arch_hf *hf = first; hf->model_type; hf++) known |= strcmp(hf->class, name) == 0;
        if (!known)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: 'architectures' says %.64s, which is no language model of this kind (%s is): "
                           "its head or its code is another",
                           c->path, name, first->class);
    }
    return INFER_OK;
}

static enum infer_status check_weights(const struct config *c) {
    const json_t *quant = json_object_get(c->root, "quantization_config");
    const json_t *act = json_object_get(c->root, "hidden_act");
    const char *name = json_string_value(act);
    if (quant && !json_is_null(quant) && !(json_is_object(quant) && !json_object_size(quant))) {
        const char *method = json_string_value(json_object_get(quant, "quant_method"));
        if (!method) method = json_string_value(quant);
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'quantization_config': weights quantised by '%.32s' are not supported (F32, F16, "
                       "BF16)",
                       c->path, method ? method : "?");
    }
    if (!act || json_is_null(act)) return INFER_OK;
    if (!name) return config_wrong(c, "hidden_act", "a name");
    if (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'hidden_act' is '%.32s'; silu is supported", c->path, name);
    return INFER_OK;
}

static enum infer_status read_arch(const struct config *c, bool vocab_only) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    if (!type) return config_wrong(c, "model_type", "there");
    const struct arch *a = arch_find_hf(type);
    c->out->table = a;
    if (!a && !vocab_only) return arch_unsupported(c->path, type, strlen(type));
    const char *arch = a ? a->name : type;
    if (strlen(arch) >= sizeof c->out->arch)
        return config_wrong(c, "model_type", "a name of fewer than 64 bytes");
    strcpy(c->out->arch, arch);
    hf_put_str(c->keys, NULL, "general.architecture", arch, strlen(arch));
    return a && !vocab_only ? check_classes(c) : INFER_OK;
}

/* ---- attention windows ---- */

enum { MANY_LAYERS = 1 << 16 };

/* windowed[i]: layer i is of sliding_attention; *n: how many are; *listed: the key is there. */
static enum infer_status read_layer_types(const struct config *c, uint32_t n_layer, uint8_t *windowed,
                                          uint32_t *n, bool *listed) {
    const json_t *list = json_object_get(c->root, "layer_types");
    size_t i;
    json_t *v;
    *listed = list && !json_is_null(list);
    if (!*listed) return INFER_OK;
    if (!json_is_array(list) || json_array_size(list) != n_layer)
        return config_wrong(c, "layer_types", "a list with a name for each layer");
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(v);
        if (!name) return config_wrong(c, "layer_types", "a list of names");
        *n += windowed[i] = strcmp(name, "sliding_attention") == 0;
        if (!windowed[i] && strcmp(name, "full_attention") != 0)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: 'layer_types' says '%.32s'; full_attention and sliding_attention are known",
                           c->path, name);
    }
    return INFER_OK;
}

/* Mistral has its window in every layer. Qwen has it in those from max_window_layers on, or as layer_types says, once
 * use_sliding_window is true. source: configuration_mistral, configuration_qwen2, configuration_qwen3 of transformers */
static enum infer_status read_window(const struct config *c) {
    uint32_t window = 0, first = 0, n_layer = 0, n = 0;
    bool by_layer = c->out->table->window_by_layer, used, listed;
    TRY(root_u32(c, "sliding_window", 0, &window));
    TRY(root_u32(c, "max_window_layers", 0, &first));
    TRY(root_u32(c, "num_hidden_layers", -1, &n_layer));
    TRY(root_bool(c, "use_sliding_window", !by_layer, &used));
    if (n_layer > MANY_LAYERS) return INFER_OK; /* refused where sizes are checked */
    uint8_t *windowed = arena_alloc(c->keys->arena, (size_t)n_layer + 1);
    if (!windowed) return err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    TRY(read_layer_types(c, n_layer, windowed, &n, &listed));
    if (n && !(window && used))
        return err_set(INFER_E_INPUT,
                       "%s: 'layer_types' has sliding_attention, but no 'sliding_window' is in use", c->path);
    n = 0;
    for (uint32_t i = 0; i < n_layer; i++) {
        if (!by_layer || !listed) windowed[i] = !by_layer || i >= first;
        n += windowed[i];
    }
    if (!window || !used || !n) return INFER_OK;
    hf_put_u32(c->keys, c->out->arch, "attention.sliding_window", window);
    if (n < n_layer)
        hf_put_bools(c->keys, c->out->arch, "attention.sliding_window_pattern", windowed, n_layer);
    return INFER_OK;
}

/* ---- sizes ---- */

static enum infer_status read_heads(const struct config *c, uint32_t *dim) {
    const char *arch = c->out->arch;
    uint32_t embd = 0, heads = 0, kv = 0;
    TRY(root_u32(c, "hidden_size", -1, &embd));
    TRY(root_u32(c, "num_attention_heads", -1, &heads));
    TRY(root_u32(c, "num_key_value_heads", heads, &kv));
    TRY(root_u32(c, "head_dim", heads ? embd / heads : 0, dim));
    if (!heads || !*dim || *dim > 1 << 16)
        return config_wrong(c, *dim ? "num_attention_heads" : "head_dim", "in range");
    hf_put_u32(c->keys, arch, "attention.head_count", heads);
    hf_put_u32(c->keys, arch, "attention.head_count_kv", kv);
    hf_put_u32(c->keys, arch, "attention.key_length", *dim);
    hf_put_u32(c->keys, arch, "attention.value_length", *dim);
    return INFER_OK;
}

static enum infer_status read_sizes(const struct config *c, uint32_t *dim) {
    static const struct {
        const char *key, *name;
    } plain[] = {{"num_hidden_layers", "block_count"},
                 {"hidden_size", "embedding_length"},
                 {"intermediate_size", "feed_forward_length"},
                 {"max_position_embeddings", "context_length"},
                 {"vocab_size", "vocab_size"}};
    struct hf_config *out = c->out;
    uint32_t v = 0;
    float eps;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        TRY(root_u32(c, plain[i].key, -1, &v));
        hf_put_u32(c->keys, out->arch, plain[i].name, v);
    }
    out->n_vocab = v;
    TRY(read_heads(c, dim));
    TRY(config_f32(c, "rms_norm_eps", json_object_get(c->root, "rms_norm_eps"), NAN, &eps));
    hf_put_f32(c->keys, out->arch, "attention.layer_norm_rms_epsilon", eps);
    TRY(root_bool(c, "tie_word_embeddings", false, &out->tied));
    bool always = out->table->slot[SLOT_ATTN_Q_BIAS] == SLOT_MUST; /* Qwen2 does not say so */
    return root_bool(c, "attention_bias", always, &out->attention_bias);
}

enum infer_status hf_config(struct hf_config *out, struct hf_keys *keys, const char *path, const char *json,
                            size_t n, const struct tensorfile_options *options) {
    struct config c = {path, NULL, out, keys, &options->ignore};
    uint32_t dim = 0;
    bool whole = !options->vocab_only;
    *out = (struct hf_config){0};
    TRY(json_read(&c.root, path, json, n, JSON_REJECT_DUPLICATES));
    enum infer_status s = read_arch(&c, options->vocab_only);
    if (!s && whole) s = check_weights(&c);
    if (!s && whole) s = check_keys(&c);
    if (!s && out->table) s = read_sizes(&c, &dim);
    if (!s && out->table) s = read_window(&c);
    if (!s && out->table) s = config_rope(&c, dim);
    json_decref(c.root);
    return s ? s : keys->status;
}

/* ---- what config.json says of the tensors ---- */

static enum infer_status check_bias(const struct hf_config *c, const struct tensorfile *f) {
    static const char *const part[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
    char name[64], path[64];
    bool first = tensorfile_find(f, "blk.0.attn_q.bias") != NULL;
    bool all = c->table->slot[SLOT_ATTN_OUTPUT_BIAS] == SLOT_MAY;
    if (first != c->attention_bias)
        return err_set(INFER_E_INPUT, "%s: 'attention_bias' of config.json is %s, but the biases are %sthere",
                       f->path, c->attention_bias ? "true" : "false", first ? "" : "not ");
    for (int il = 0; all && first; il++) {
        snprintf(path, sizeof path, "blk.%d.attn_q.weight", il);
        if (!tensorfile_find(f, path)) break;
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.bias", il, part[i]);
            if (!tensorfile_find(f, name))
                return err_set(INFER_E_INPUT, "%s: tensor %s is missing ('attention_bias' is true)", f->path,
                               name);
        }
    }
    return INFER_OK;
}

enum infer_status hf_config_check(const struct hf_config *c, const struct tensorfile *f,
                                  const struct tensor *second_head) {
    const struct tensor *embd = tensorfile_find(f, "token_embd.weight"),
                        *head = tensorfile_find(f, "output.weight");
    if (!embd) return INFER_OK; /* said when the model is bound */
    if (embd->shape[2] != c->n_vocab)
        return err_set(INFER_E_INPUT, "%s: 'vocab_size' of config.json is %u, the embedding has %lld rows",
                       f->path, c->n_vocab, (long long)embd->shape[2]);
    if (!c->tied && !head)
        return err_set(INFER_E_INPUT,
                       "%s: lm_head.weight is missing and 'tie_word_embeddings' of config.json is not true: "
                       "a model without its head",
                       f->path);
    if (second_head && (second_head->type != embd->type || second_head->bytes != embd->bytes ||
                        memcmp(second_head->data, embd->data, embd->bytes) != 0))
        return err_set(INFER_E_INPUT,
                       "%s: lm_head.weight differs from the embedding, but 'tie_word_embeddings' of "
                       "config.json is true",
                       f->path);
    return check_bias(c, f);
}
