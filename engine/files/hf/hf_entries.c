/* config.json -> the keys of GGUF, and a tensor of whole numbers: entries of runs of positions, streams that are mixed, experts of ids. */
#include "files/hf/hf_config.h"
#include "files/hf/hf_ops.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- DeepSeek V4, as transformers 5 writes it and as it is published, in one form --------------------------------- */

enum { RUN_CHOSEN = 4, RUN_ALL = 128 }; /* positions of a run where no key says it */

static bool is(const json_t *v, const char *name) {
    const char *own = json_string_value(v);
    return own && strcmp(own, name) == 0;
}
/* A run's length, by kind of layer or by a key of its own. */
static json_int_t run_of(const json_t *root, const char *kind, const char *key, json_int_t usual) {
    const json_t *by_kind = json_object_get(json_object_get(root, "compress_rates"), kind),
                 *own = json_object_get(root, key);
    return json_is_integer(by_kind) ? json_integer_value(by_kind)
           : json_is_integer(own)   ? json_integer_value(own)
                                    : usual;
}
/* compress_ratios of n layers, by their kinds or as the class has it: two of long runs, then both in turns. What is not known stays, to be
 * refused. */
static void name_runs(json_t *root, json_int_t n) {
    static const char chosen[] = "compressed_sparse_attention", all[] = "heavily_compressed_attention";
    const json_int_t few = run_of(root, chosen, "compress_rate_csa", RUN_CHOSEN),
                     many = run_of(root, all, "compress_rate_hca", RUN_ALL);
    json_t *types = json_object_get(root, "layer_types"), *told = json_object_get(root, "compress_ratios"),
           *runs;
    if (few != RUN_CHOSEN || many == RUN_CHOSEN) return;
    if (!json_is_array(types) && json_is_array(told)) {
        while (json_array_size(told) > (size_t)n) json_array_remove(told, json_array_size(told) - 1);
        return;
    }
    runs = json_array();
    for (json_int_t i = 0; i < n; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        const bool usual = !json_is_array(types),
                   known = usual || is(type, chosen) || is(type, all) || is(type, "sliding_attention");
        const bool some = usual ? i > 1 && i % 2 : is(type, chosen), whole = usual ? !some : is(type, all);
        if (!known) {
            json_decref(runs);
            return;
        }
        json_array_append_new(runs, json_integer(some ? few : whole ? many : 0));
    }
    json_object_set_new(root, "compress_ratios", runs);
    json_object_del(root, "layer_types");
    json_object_del(root, "compress_rates");
    json_object_del(root, "compress_rate_csa");
    json_object_del(root, "compress_rate_hca");
}
/* How many of the first layers have experts by ids. */
static void name_told(json_t *root) {
    json_t *list = json_object_get(root, "mlp_layer_types");
    size_t n = 0;
    while (is(json_array_get(list, n), "hash_moe")) n++;
    for (size_t i = n; i < json_array_size(list); i++)
        if (!is(json_array_get(list, i), "moe")) return;
    if (json_is_array(list)) json_object_set_new(root, "num_hash_layers", json_integer((json_int_t)n));
    if (!json_object_get(root, "num_hash_layers"))
        json_object_set_new(root, "num_hash_layers", json_integer(3));
    json_object_del(root, "mlp_layer_types");
}
/* The rotation of layers with entries as that of layers without a window, which alone is scaled, and only by frequencies. */
static void name_rotation(json_t *root) {
    json_t *given = json_object_get(root, "rope_parameters"), *old = json_object_get(root, "rope_scaling"),
           *theta = json_object_get(root, "rope_theta"), *far = json_object_get(root, "compress_rope_theta");
    json_t *near_of = json_object_get(given, "main"), *far_of = json_object_get(given, "compress");
    const double dim = json_number_value(json_object_get(root, "head_dim")),
                 rot = json_number_value(json_object_get(root, "qk_rope_head_dim")),
                 part = json_number_value(json_object_get(root, "partial_rotary_factor"));
    json_t *scaled = json_is_object(far_of) ? json_deep_copy(far_of)
                     : json_is_object(old)  ? json_deep_copy(old)
                                            : json_object();
    json_t *plain = json_is_object(near_of) ? json_deep_copy(near_of) : json_object();
    const double rotated = rot > 0 && dim > 0 ? rot / dim : part > 0 ? part : 0.125; /* the class's */
    if (!json_object_size(scaled) ||
        !(json_object_get(scaled, "rope_type") || json_object_get(scaled, "type")))
        json_object_set_new(scaled, "rope_type", json_string("default"));
    if (!json_object_get(plain, "rope_type")) json_object_set_new(plain, "rope_type", json_string("default"));
    if (!json_object_get(scaled, "rope_theta"))
        json_object_set_new(scaled, "rope_theta", far ? json_incref(far) : json_real(160000));
    if (!json_object_get(plain, "rope_theta"))
        json_object_set_new(plain, "rope_theta", theta ? json_incref(theta) : json_real(10000));
    if (json_number_value(json_object_get(scaled, "attention_factor")) == 1)
        json_object_del(scaled, "attention_factor");
    json_t *const both[] = {scaled, plain};
    for (int i = 0; i < 2; i++)
        if (!json_object_get(both[i], "partial_rotary_factor"))
            json_object_set_new(both[i], "partial_rotary_factor", json_real(rotated));
    json_t *out = json_object();
    json_object_set_new(out, "full_attention", scaled);
    json_object_set_new(out, "sliding_attention", plain);
    json_object_set_new(root, "rope_parameters", out);
    if (json_number_value(theta) ==
        json_number_value(json_object_get(plain, "rope_theta"))) /* else refused */
        json_object_del(root, "rope_theta");
    json_object_del(root, "rope_scaling");
}

void config_deepseek4(json_t *root) {
    const json_int_t n = json_integer_value(json_object_get(root, "num_hidden_layers"));
    json_t *ff = json_object_get(root, "moe_intermediate_size");
    if (!is(json_object_get(root, "model_type"), "deepseek_v4") || n < 1 || n > 65536) return;
    name_runs(root, n);
    name_told(root);
    name_rotation(root);
    if (ff && !json_object_get(root, "intermediate_size")) json_object_set(root, "intermediate_size", ff);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

enum infer_status config_entries(struct config *c) {
    if (!c->out->table->attn.entries) return INFER_OK;
    const json_t *list = get_layers(c, K_RUNS, "a list with a length for each layer"), *v;
    uint32_t *every = get_room(c, sizeof *every * ((size_t)c->n_layer + 1));
    float *limit = get_room(c, sizeof *limit * ((size_t)c->n_layer + 1));
    const float most = get_f32(c, K_SWIGLU_LIMIT);
    size_t i;
    TRY(c->status);
    if (!list) return key_wrong(c, K_RUNS, "there");
    json_array_foreach(list, i, v) TRY(config_u32(c, "compress_ratios", v, -1, &every[i]));
    for (i = 0; i < c->n_layer; i++) limit[i] = most;
    put_u32s(c, "attention.compress_ratios", every);
    hf_put_f32s(c->keys, c->out->arch, "swiglu_clamp_exp", limit, c->n_layer);
    hf_put_f32s(c->keys, c->out->arch, "swiglu_clamp_shexp", limit, c->n_layer);
    TRY(put_keys(c, K_Q_RANK, K_Q_RANK));
    TRY(put_keys(c, K_INDEX_HEADS, K_INDEX_TOP));
    return put_keys(c, K_OUT_GROUPS, K_TOLD_LAYERS);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* As I32, whatever they are in. */
enum infer_status hf_ids(struct tensor out[2], const struct hf_make *m) {
    const struct tensor *from = m->from;
    const bool is_64 = from->raw && strcmp(from->raw, "I64") == 0;
    struct tensor *t = out;
    if (!is_64 && !(from->raw && strcmp(from->raw, "I32") == 0))
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s is %s; I64 and I32 are supported", m->path,
                       from->name, from->raw ? from->raw : quant_info(from->type)->name);
    const size_t n = from->bytes / (is_64 ? 8 : 4);
    int32_t *id = arena_alloc(m->arena, n * sizeof *id);
    if (!id) return err_set(INFER_E_MEMORY, "%s: out of memory for %.100s", m->path, from->name);
    for (size_t i = 0; i < n; i++) {
        const int64_t v = is_64 ? ((const int64_t *)from->data)[i] : ((const int32_t *)from->data)[i];
        if (v < 0 || v > INT_MAX)
            return err_set(INFER_E_INPUT, "%s: %.100s has the number %lld", m->path, from->name,
                           (long long)v);
        id[i] = (int32_t)v;
    }
    t->raw = "I32";
    t->type = QUANT_F32; /* of as many bytes */
    t->n_dim = 2;
    t->data = id;
    t->bytes = n * sizeof *id;
    return INFER_OK;
}
