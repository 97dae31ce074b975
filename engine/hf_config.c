/* config.json -> the keys of GGUF. */
#include "hf.h"
#include "json.h"

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

/* "arch.name" or "name" with n bytes of value. */
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
                             .elem = type,
                             .n = 1,
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
void hf_put_str(struct hf_keys *k, const char *arch, const char *name, const char *value, size_t len) {
    put_value(k, arch, name, META_STRING, value, len);
}

/* ---- reading ---- */

struct config {
    const char *path;
    json_t *root;
    struct hf_config *out;
    struct hf_keys *keys;
};

static enum infer_status wrong(const struct config *c, const char *key, const char *want) {
    return err_set(INFER_E_INPUT, "%s: '%s' is not %s", c->path, key, want);
}

/* An integer from 0 to 2^32 - 1; absent or null: fallback, which is -1 for a key that must be there. */
static enum infer_status get_u32(const struct config *c, const json_t *o, const char *key, int64_t fallback,
                                 uint32_t *out) {
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        if (fallback < 0) return err_set(INFER_E_INPUT, "%s: '%s' is missing", c->path, key);
        *out = (uint32_t)fallback;
        return INFER_OK;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        return wrong(c, key, "an integer from 0 to 4294967295");
    *out = (uint32_t)json_integer_value(v);
    return INFER_OK;
}

static enum infer_status get_f32(const struct config *c, const json_t *o, const char *key, float fallback,
                                 float *out) {
    const json_t *v = json_object_get(o, key);
    *out = fallback;
    if (!v || json_is_null(v)) return INFER_OK;
    double d = json_number_value(v);
    if (!json_is_number(v) || !isfinite(d) || fabs(d) > 3e38) return wrong(c, key, "a number");
    *out = (float)d;
    return INFER_OK;
}

static bool get_bool(const json_t *o, const char *key, bool fallback) {
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

/* ---- architecture ---- */

static enum infer_status read_arch(const struct config *c) {
    static const struct {
        const char *model_type, *arch;
    } known[] = {{"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"}};
    const char *type = json_string_value(json_object_get(c->root, "model_type")), *arch = type;
    if (!type) return wrong(c, "model_type", "there");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i].model_type) == 0) arch = known[i].arch;
    if (strlen(arch) >= sizeof c->out->arch) return wrong(c, "model_type", "a name of fewer than 64 bytes");
    strcpy(c->out->arch, arch);
    hf_put_str(c->keys, NULL, "general.architecture", arch, strlen(arch));
    const json_t *quant = json_object_get(c->root, "quantization_config");
    if (json_is_object(quant)) {
        const char *method = json_string_value(json_object_get(quant, "quant_method"));
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: weights quantised by '%.32s' are not supported (F32, F16, BF16)", c->path,
                       method ? method : "?");
    }
    const char *act = json_string_value(json_object_get(c->root, "hidden_act"));
    if (act && strcmp(act, "silu") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'hidden_act' is '%.32s'; silu is supported", c->path, act);
    return INFER_OK;
}

/* The trained length, or the attention window where that is less: within it every position is seen. */
static enum infer_status read_context(const struct config *c) {
    uint32_t length = 0, window = 0;
    TRY(get_u32(c, c->root, "max_position_embeddings", -1, &length));
    TRY(get_u32(c, c->root, "sliding_window", 0, &window));
    if (window && window < length && get_bool(c->root, "use_sliding_window", true)) length = window;
    hf_put_u32(c->keys, c->out->arch, "context_length", length);
    return INFER_OK;
}

static enum infer_status read_sizes(const struct config *c) {
    static const struct {
        const char *key, *name;
    } plain[] = {{"num_hidden_layers", "block_count"},
                 {"hidden_size", "embedding_length"},
                 {"intermediate_size", "feed_forward_length"},
                 {"vocab_size", "vocab_size"}};
    const char *arch = c->out->arch;
    uint32_t v = 0, embd = 0, heads = 0, kv = 0, dim = 0;
    float eps, part;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        TRY(get_u32(c, c->root, plain[i].key, -1, &v));
        hf_put_u32(c->keys, arch, plain[i].name, v);
    }
    TRY(get_u32(c, c->root, "hidden_size", -1, &embd));
    TRY(get_u32(c, c->root, "num_attention_heads", -1, &heads));
    TRY(get_u32(c, c->root, "num_key_value_heads", heads, &kv));
    TRY(get_u32(c, c->root, "head_dim", heads ? embd / heads : 0, &dim));
    if (!heads || !dim || dim > 1 << 16)
        return wrong(c, dim ? "num_attention_heads" : "head_dim", "in range");
    hf_put_u32(c->keys, arch, "attention.head_count", heads);
    hf_put_u32(c->keys, arch, "attention.head_count_kv", kv);
    hf_put_u32(c->keys, arch, "attention.key_length", dim);
    hf_put_u32(c->keys, arch, "attention.value_length", dim);
    TRY(get_f32(c, c->root, "rms_norm_eps", 1e-6f, &eps));
    hf_put_f32(c->keys, arch, "attention.layer_norm_rms_epsilon", eps);
    TRY(get_f32(c, c->root, "partial_rotary_factor", 1, &part));
    if (!(part > 0 && part <= 1)) return wrong(c, "partial_rotary_factor", "above 0 and at most 1");
    c->out->n_rot = (int)((float)dim * part);
    hf_put_u32(c->keys, arch, "rope.dimension_count", (uint32_t)c->out->n_rot);
    c->out->tied = get_bool(c->root, "tie_word_embeddings", false);
    return read_context(c);
}

/* ---- rope ---- */

/* Llama 3's scaling: frequencies whose wavelength is beyond original / low_freq_factor are divided by factor, those below
 * original / high_freq_factor are kept, between them the divisor's inverse is mixed linearly in original / wavelength.
 * source: Dubey et al. 2024 (arXiv 2407.21783) and the rope_scaling entry of its config.json. */
static enum infer_status llama3_divisors(const struct config *c, const json_t *scaling, float theta,
                                         float factor) {
    float low = 0, high = 0;
    uint32_t original = 0;
    TRY(get_f32(c, scaling, "low_freq_factor", 1, &low));
    TRY(get_f32(c, scaling, "high_freq_factor", 4, &high));
    TRY(get_u32(c, scaling, "original_max_position_embeddings", 8192, &original));
    if (!(low > 0 && high > low) || !original) return wrong(c, "rope_scaling", "complete (llama3)");
    int half = c->out->n_rot / 2;
    float *d = arena_alloc(c->keys->arena, (size_t)half * sizeof *d);
    if (!d) return err_set(INFER_E_MEMORY, "out of memory: %d divisors", half);
    for (int i = 0; i < half; i++) {
        double turns =
            original * pow(theta, -2.0 * i / c->out->n_rot) / (2 * M_PI); /* original / wavelength */
        double mix = fmin(1, fmax(0, (turns - (double)low) / ((double)high - (double)low)));
        d[i] = (float)(1 / ((1 - mix) / (double)factor + mix));
    }
    c->out->rope_divisor = d;
    return INFER_OK;
}

static enum infer_status read_yarn(const struct config *c, const json_t *scaling, float factor) {
    const char *arch = c->out->arch;
    uint32_t original = 0;
    float fast = 0, slow = 0, whole = 0;
    TRY(get_u32(c, scaling, "original_max_position_embeddings", 0, &original));
    TRY(get_f32(c, scaling, "beta_fast", 32, &fast));
    TRY(get_f32(c, scaling, "beta_slow", 1, &slow));
    TRY(get_f32(c, scaling, "attention_factor", 0, &whole));
    if (original) hf_put_u32(c->keys, arch, "rope.scaling.original_context_length", original);
    hf_put_f32(c->keys, arch, "rope.scaling.yarn_beta_fast", fast);
    hf_put_f32(c->keys, arch, "rope.scaling.yarn_beta_slow", slow);
    /* GGUF's factor multiplies 1 + 0.1 ln(factor), this one stands for the product */
    if (whole > 0) hf_put_f32(c->keys, arch, "rope.scaling.attn_factor", whole / (1 + 0.1f * logf(factor)));
    return INFER_OK;
}

static enum infer_status read_rope(const struct config *c) {
    const char *arch = c->out->arch;
    const json_t *parameters = json_object_get(c->root, "rope_parameters"); /* since transformers 5 */
    const json_t *scaling = json_object_get(c->root, "rope_scaling");
    if (!json_is_object(scaling)) scaling = parameters;
    float theta = 0, factor = 0;
    TRY(get_f32(c, json_is_object(parameters) ? parameters : c->root, "rope_theta", 10000, &theta));
    hf_put_f32(c->keys, arch, "rope.freq_base", theta);
    if (strcmp(arch, "llama") == 0) hf_put_bool(c->keys, arch, "rope.neox", true);
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type) type = json_string_value(json_object_get(scaling, "type"));
    if (!type || strcmp(type, "default") == 0) return INFER_OK;
    TRY(get_f32(c, scaling, "factor", 1, &factor));
    if (!(factor > 0)) return wrong(c, "factor", "above 0");
    if (strcmp(type, "llama3") == 0) return llama3_divisors(c, scaling, theta, factor);
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: rope scaling '%.32s' is not supported (linear, llama3, yarn)", c->path, type);
    hf_put_str(c->keys, arch, "rope.scaling.type", type, strlen(type));
    hf_put_f32(c->keys, arch, "rope.scaling.factor", factor);
    return strcmp(type, "yarn") == 0 ? read_yarn(c, scaling, factor) : INFER_OK;
}

enum infer_status hf_config(struct hf_config *out, struct hf_keys *keys, const char *path, const char *json,
                            size_t n) {
    struct config c = {path, NULL, out, keys};
    *out = (struct hf_config){0};
    TRY(json_read(&c.root, path, json, n, JSON_REJECT_DUPLICATES));
    enum infer_status s = read_arch(&c);
    if (!s) s = read_sizes(&c);
    if (!s) s = read_rope(&c);
    json_decref(c.root);
    return s ? s : keys->status;
}
