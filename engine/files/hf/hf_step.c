/* config.json of Step 3.5, whose published form has lists by layer where transformers has kinds of layers, of Laguna, and of Gemma 3n. */
#include "files/hf/hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lists have the layers that draft, too: without them. */
static void cut_lists(json_t *root, size_t n, size_t drafts) {
    static const char *const lists[] = {"layer_types",   "mlp_layer_types",      "rope_theta",
                                        "swiglu_limits", "swiglu_limits_shared", "partial_rotary_factors"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = json_object_get(root, lists[i]);
        while (drafts && json_array_size(list) > n && json_array_size(list) <= n + drafts)
            json_array_remove(list, json_array_size(list) - 1);
    }
}

/* "3,4,5": names of all layers. */
static void name_sparse(json_t *root, size_t n) {
    const json_t *told = json_object_get(root, "moe_layers_enum");
    if (!json_is_string(told) || json_object_get(root, "mlp_layer_types")) return;
    json_t *names = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(names, json_string("dense"));
    for (const char *at = json_string_value(told); *at;) {
        char *end;
        const long il = strtol(at, &end, 10);
        if (end == at || il < 0) { /* something else: the key is refused */
            json_decref(names);
            return;
        }
        if ((size_t)il < n) json_array_set_new(names, (size_t)il, json_string("sparse"));
        at = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') break;
    }
    json_object_set_new(root, "mlp_layer_types", names);
    json_object_del(root, "moe_layers_enum");
}

/* Heads of layers with a window; what else differs there is left to be refused. */
static void name_heads(json_t *root) {
    static const char *const same[][2] = {{"num_attention_groups", "num_attention_groups"},
                                          {"head_dim", "head_dim"},
                                          {"true_head_dim", "head_dim"}};
    json_t *other = json_object_get(root, "attention_other_setting"),
           *heads = json_object_get(other, "num_attention_heads");
    const char *type = json_string_value(json_object_get(other, "attention_type"));
    if (!heads || (type && strcmp(type, "sliding_attention") != 0)) return;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const json_t *v = json_object_get(other, same[i][0]);
        if (v && !json_equal(v, json_object_get(root, same[i][1]))) return;
    }
    json_object_set(root, "num_sliding_attention_heads", heads);
    json_object_del(root, "attention_other_setting");
}

/* The entry of the first layer of a kind, of a list, or the number that stands for all. */
static json_t *entry(json_t *v, const json_t *types, const char *kind) {
    size_t i;
    json_t *type;
    if (!json_is_array(v)) return v;
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (name && strcmp(name, kind) == 0) return json_array_get(v, i);
    }
    return NULL;
}
/* Every entry is that of its kind. */
static bool by_kinds(json_t *v, const json_t *types) {
    for (size_t i = 0; json_is_array(v) && i < json_array_size(types); i++) {
        const char *kind = json_string_value(json_array_get(types, i));
        if (!kind || !json_equal(json_array_get(v, i), entry(v, types, kind))) return false;
    }
    return true;
}
/* Bases and rotated parts by layer, and a scaling of layers without a window. */
static void name_rotation(json_t *root) {
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    json_t *theta = json_object_get(root, "rope_theta"),
           *part = json_object_get(root, "partial_rotary_factors"),
           *types = json_object_get(root, "layer_types"), *scaling = json_object_get(root, "rope_scaling"),
           *only = json_object_get(root, "yarn_only_types");
    const char *of = json_string_value(json_array_get(only, 0));
    if (json_object_get(root, "rope_parameters") || !(json_is_array(theta) || part)) return;
    if (!by_kinds(theta, types) || !by_kinds(part, types)) return;
    if (json_is_object(scaling) && (!of || json_array_size(only) != 1 || strcmp(of, kinds[0]) != 0)) return;
    json_t *rope = json_object();
    for (int i = 0; i < 2; i++) {
        json_t *own = i == 0 && json_is_object(scaling) ? json_deep_copy(scaling) : json_object();
        json_t *base = entry(theta, types, kinds[i]), *rotated = entry(part, types, kinds[i]);
        if (!json_object_size(own)) json_object_set_new(own, "rope_type", json_string("default"));
        if (base) json_object_set(own, "rope_theta", base);
        if (rotated) json_object_set(own, "partial_rotary_factor", rotated);
        json_object_set_new(rope, kinds[i], own);
    }
    json_object_set_new(root, "rope_parameters", rope);
    json_object_del(root, "rope_theta");
    json_object_del(root, "partial_rotary_factors");
    json_object_del(root, "rope_scaling");
    json_object_del(root, "yarn_only_types");
}

void config_step(json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const json_int_t n = json_integer_value(json_object_get(root, "num_hidden_layers")),
                     drafts = json_integer_value(json_object_get(root, "num_nextn_predict_layers"));
    if (!type || strcmp(type, "step3p5") != 0 || n < 1 || n > 65536 || drafts < 0 || drafts > 65536) return;
    cut_lists(root, (size_t)n, (size_t)drafts);
    name_sparse(root, (size_t)n);
    name_heads(root);
    name_rotation(root);
}

/* What Laguna's class has where keys are absent, and a length of rotation that stands among the kinds of layers. */
void config_laguna(json_t *root) {
    static const char original[] = "original_max_position_embeddings";
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const json_int_t n = json_integer_value(json_object_get(root, "num_hidden_layers"));
    json_t *rope = json_object_get(root, "rope_parameters"), *full = json_object_get(rope, "full_attention"),
           *length = json_object_get(rope, original);
    if (!type || strcmp(type, "laguna") != 0 || n < 1 || n > 65536) return;
    const bool types = json_is_array(json_object_get(root, "layer_types")),
               parts = json_is_array(json_object_get(root, "mlp_layer_types"));
    json_t *all = json_array(), *sparse = json_array();
    for (json_int_t i = 0; i < n; i++) {
        json_array_append_new(all, json_string("full_attention"));
        json_array_append_new(sparse, json_string(i ? "sparse" : "dense"));
    }
    if (!types) json_object_set(root, "layer_types", all);
    if (!parts) json_object_set(root, "mlp_layer_types", sparse);
    json_decref(all), json_decref(sparse);
    if (full && length) {
        if (!json_object_get(full, original)) json_object_set(full, original, length);
        json_object_del(rope, original);
    }
}

/* A limit of every layer; null and 0: none. */
static enum infer_status put_limits(struct config *c, enum hf_key key, const char *name) {
    const json_t *list = get_layers(c, key, "a list with a limit for each layer");
    float *limit = get_room(c, sizeof *limit * ((size_t)c->n_layer + 1));
    size_t i;
    json_t *v;
    TRY(c->status);
    if (!list) return INFER_OK;
    json_array_foreach(list, i, v) TRY(config_f32(c, "swiglu_limits_of_layers", v, 0, &limit[i]));
    hf_put_f32s(c->keys, c->out->arch, name, limit, c->n_layer);
    return INFER_OK;
}
/* x where the standard normal distribution is p. */
static double quantile(double p) {
    double low = -10, high = 10;
    for (int i = 0; i < 80; i++) {
        const double x = (low + high) / 2;
        if (erfc(-x / sqrt(2)) / 2 < p)
            low = x;
        else
            high = x;
    }
    return (low + high) / 2;
}
/* Gemma 3n: the part of the gates of every layer that is left out, as deviations above their mean; one number: of all layers. */
enum infer_status config_streams(struct config *c) {
    const json_t *told = get_json(c, K_SPARSITY);
    const uint32_t n = key_reads(c, K_STREAMS) ? get_u32(c, K_STREAMS) : 0;
    float *scale = get_room(c, sizeof *scale * ((size_t)c->n_layer + 1)), part;
    TRY(c->status);
    if (!n) return INFER_OK;
    put_u32(c, "altup.num_inputs", n);
    if (json_is_array(told) && json_array_size(told) != c->n_layer)
        return key_wrong(c, K_SPARSITY, "a list with a number for each layer");
    if (!told) return INFER_OK;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        const json_t *v = json_is_array(told) ? json_array_get(told, i) : told;
        TRY(config_f32(c, "activation_sparsity_of_layers", v, 0, &part));
        scale[i] = part > 0 ? (float)quantile((double)part) : -INFINITY;
    }
    hf_put_f32s(c->keys, c->out->arch, "activation_sparsity_scale", scale, c->n_layer);
    return INFER_OK;
}
/* A width for each layer, all alike, as one number. */
void config_gemma3n(json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    json_t *list = json_object_get(root, "intermediate_size"), *first = json_array_get(list, 0), *v;
    size_t i;
    if (!type || strcmp(type, "gemma3n_text") != 0 || !first ||
        json_array_size(list) != (size_t)json_integer_value(json_object_get(root, "num_hidden_layers")))
        return;
    json_array_foreach(list, i, v) if (!json_equal(v, first)) return;
    json_object_set(root, "intermediate_size", json_incref(first));
    json_decref(first);
}

enum infer_status config_limits(struct config *c) {
    TRY(config_streams(c));
    if (!key_reads(c, K_SWIGLU_LIMITS)) return INFER_OK;
    TRY(put_limits(c, K_SWIGLU_LIMITS, "swiglu_clamp_exp"));
    return put_limits(c, K_SWIGLU_LIMITS_SHARED, "swiglu_clamp_shexp");
}
