/* No key of config.json is passed over: each is changed, and either the logits change, or the folder is refused, or the key
 * stands in the list of those that mean nothing to the mathematics, here and in models/keys.def. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/logits_of.h"
#include "tests/lib/published.h"
#include "files/model_keys.h"
#include "tools/file/quantize.h"
#include <jansson.h>
#include <math.h>

/* ---- folders: weights that fit a config ---- */

struct weights {
    json_t *header;
    float *data;
    size_t n, room;
    uint32_t seed;
};

static void add(struct weights *w, const char *name, int layer, int64_t rows, int64_t cols) {
    char full[128];
    size_t n = (size_t)(rows * cols), first = w->n;
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    for (; w->n < first + n; w->n++) {
        if (w->n == w->room) w->data = realloc(w->data, (w->room = 2 * w->room + 4096) * sizeof(float));
        w->seed = w->seed * 1664525u + 1013904223u;
        w->data[w->n] = (float)(w->seed >> 8) * 0x1p-23f - 1;
    }
    json_t *shape = rows > 1 ? json_pack("[I, I]", rows, cols) : json_pack("[I]", cols);
    json_object_set_new(w->header, full,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                  (json_int_t)(4 * first), (json_int_t)(4 * w->n)));
}

static json_int_t number(const json_t *config, const char *key, json_int_t absent) {
    const json_t *v = json_object_get(config, key);
    return json_is_integer(v) ? json_integer_value(v) : absent;
}

static void put_weights(const struct folder *d, const json_t *config) {
    struct weights w = {.header = json_object(), .seed = 7};
    const char *type = json_string_value(json_object_get(config, "model_type"));
    int64_t embd = number(config, "hidden_size", 0), heads = number(config, "num_attention_heads", 0);
    int64_t dim = number(config, "head_dim", embd / heads), ff = number(config, "intermediate_size", 0);
    int64_t kv = number(config, "num_key_value_heads", heads) * dim, q = heads * dim;
    int64_t vocab = number(config, "vocab_size", 0);
    bool out_bias = json_is_true(json_object_get(config, "attention_bias"));
    bool bias = out_bias || strcmp(type, "qwen2") == 0;
    add(&w, "model.embed_tokens.weight", -1, vocab, embd);
    for (int il = 0; il < number(config, "num_hidden_layers", 0); il++) {
        add(&w, "input_layernorm.weight", il, 1, embd);
        add(&w, "self_attn.q_proj.weight", il, q, embd);
        add(&w, "self_attn.k_proj.weight", il, kv, embd);
        add(&w, "self_attn.v_proj.weight", il, kv, embd);
        add(&w, "self_attn.o_proj.weight", il, embd, q);
        if (bias) add(&w, "self_attn.q_proj.bias", il, 1, q);
        if (bias) add(&w, "self_attn.k_proj.bias", il, 1, kv);
        if (bias) add(&w, "self_attn.v_proj.bias", il, 1, kv);
        if (out_bias) add(&w, "self_attn.o_proj.bias", il, 1, embd);
        if (strcmp(type, "qwen3") == 0) add(&w, "self_attn.q_norm.weight", il, 1, dim);
        if (strcmp(type, "qwen3") == 0) add(&w, "self_attn.k_norm.weight", il, 1, dim);
        add(&w, "post_attention_layernorm.weight", il, 1, embd);
        add(&w, "mlp.gate_proj.weight", il, ff, embd);
        add(&w, "mlp.up_proj.weight", il, ff, embd);
        add(&w, "mlp.down_proj.weight", il, embd, ff);
    }
    add(&w, "model.norm.weight", -1, 1, embd);
    if (!json_is_true(json_object_get(config, "tie_word_embeddings")))
        add(&w, "lm_head.weight", -1, vocab, embd);
    char path[256];
    size_t len = json_dumpb(w.header, NULL, 0, JSON_COMPACT);
    char *text = malloc(len);
    json_dumpb(w.header, text, len, JSON_COMPACT);
    FILE *f = fopen(folder_file(d, path, "model.safetensors"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&len, 8, 1, f) + fwrite(text, 1, len, f) + fwrite(w.data, 4, w.n, f),
                     1 + len + w.n);
    assert_int_equal(fclose(f), 0);
    free(text);
    free(w.data);
    json_decref(w.header);
}

static void compute_config(const struct folder *d, const json_t *config, struct result *r) {
    char path[256];
    assert_int_equal(json_dump_file(config, folder_file(d, path, "config.json"), 0), 0);
    compute(d->path, r);
}

/* ---- every key of a published model ---- */

/* Known to change nothing. */
static const char harmless[] =
    "_attn_implementation_autoset|_name_or_path|attention_dropout|bos_token_id|dtype|eos_token_id|"
    "initializer_range|"
    "max_sequence_length|pad_token_id|pretraining_tp|torch_dtype|transformers.js_config|transformers_version|"
    "unsloth_fixed|unsloth_version|use_cache";
/* Without use_sliding_window these say nothing; windows has the cases where they do. */
static const char idle[] = "sliding_window|max_window_layers|use_sliding_window";

static json_t *read_text(const char *text) {
    char json[4096];
    json_error_t e;
    snprintf(json, sizeof json, "%s", text);
    for (char *p = json; *p; p++)
        if (*p == '\'') *p = '"';
    json_t *root = json_loads(json, 0, &e);
    if (!root) fail_msg("%s: %s", e.text, json);
    return root;
}

/* Another value of the same type, number i; NULL: no more. */
static json_t *other_value(const json_t *v, int i) {
    double x = json_number_value(v);
    if (json_is_number(v) && i < 3) {
        const double values[] = {5, 1.5 * x + (x < 1e-3 ? 1e-3 : 1), 100 * x + 100};
        return json_is_integer(v) ? json_integer((json_int_t)values[i]) : json_real(values[i]);
    }
    if (json_is_number(v) || i > 0) return NULL;
    if (json_is_boolean(v)) return json_boolean(!json_is_true(v));
    if (json_is_string(v)) return json_string("other");
    return json_is_array(v) ? json_pack("[s, s]", "other", "other") : NULL;
}

struct walk {
    const struct folder *d;
    json_t *root;
    struct result base;
    bool windows; /* use_sliding_window is not there */
    int n;
};

/* Changes object[key] in turn to other values of its type, and to values of other types. */
static void change_key(struct walk *w, json_t *object, const char *key, json_t *was) {
    bool none = key_names(harmless, key, strlen(key)), noticed = json_is_object(was) || json_is_null(was);
    bool ids = strcmp(key, "eos_token_id") == 0; /* of another type: the tokenizer's reader refuses it */
    bool may_idle = !w->windows && key_names(idle, key, strlen(key));
    json_t *v;
    for (int i = 0; (v = other_value(was, i)); i++, w->n++) {
        struct result r;
        json_object_set_new(object, key, v);
        compute_config(w->d, w->root, &r);
        if (none && !same(&r, &w->base) && !(ids && refused(&r)))
            fail_msg("'%s' is not harmless: %s", key, r.why);
        if (r.status && !refused(&r)) fail_msg("'%s': status %d: %s", key, r.status, r.why);
        noticed |= !same(&r, &w->base);
    }
    if (!noticed && !none && !may_idle) fail_msg("'%s' is passed over", key);
    const json_t *const types[] = {json_string("x"), json_pack("[i]", 7), json_integer(7)};
    for (int i = 0; i < 3; i++, w->n++) {
        struct result r;
        if (json_typeof(types[i]) == json_typeof(was) || (json_is_real(was) && i == 2)) continue;
        json_object_set(object, key, (json_t *)types[i]);
        compute_config(w->d, w->root, &r);
        bool idle_number = i == 2 && json_is_null(was) && (may_idle || !strcmp(key, "sliding_window"));
        if (none && !same(&r, &w->base) && !(ids && refused(&r)))
            fail_msg("'%s' is not harmless: %s", key, r.why);
        if (!none && !idle_number && !refused(&r))
            fail_msg("'%s' of another JSON type (%d) is taken", key, json_typeof(types[i]));
        if (refused(&r) && !strstr(r.why, key)) fail_msg("'%s' is not named in: %s", key, r.why);
    }
    for (int i = 0; i < 3; i++) json_decref((json_t *)types[i]);
    json_object_set(object, key, was);
}

static void walk_object(struct walk *w, json_t *object) {
    json_t *keys = json_object(), *v;
    const char *key;
    json_object_update(keys, object); /* the walk changes the object itself */
    json_object_foreach(keys, key, v) {
        change_key(w, object, key, v);
        if (json_is_object(v) && !key_names(harmless, key, strlen(key))) walk_object(w, v);
    }
    json_decref(keys);
}

static void every_key_of_config_counts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct folder d;
        struct walk w = {.d = &d, .root = read_text(published[i])};
        folder_make(&d);
        put_weights(&d, w.root);
        compute_config(&d, w.root, &w.base);
        if (w.base.status) fail_msg("published model %zu: %s", i, w.base.why);
        w.windows = !json_object_get(w.root, "use_sliding_window");
        walk_object(&w, w.root);
        assert_in_range(w.n, 60, 1000);
        json_object_del(w.root, "rms_norm_eps");
        struct result r;
        compute_config(&d, w.root, &r);
        if (r.status != INFER_E_INPUT || !strstr(r.why, "'rms_norm_eps' is missing")) fail_msg("%s", r.why);
        json_decref(w.root);
        folder_remove(&d);
    }
}

/* ---- keys that a published config does not have ---- */

enum effect { SAME, CHANGED, BAD, UNSUPPORTED };

static const char llama[] =
    "{'architectures': ['LlamaForCausalLM'], 'hidden_act': 'silu', 'max_position_embeddings': 4096, "
    "'model_type': "
    "'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, 'tie_word_embeddings': false, " SIZES
    "'use_cache': true}";
static const char qwen[] =
    "{'architectures': ['Qwen2ForCausalLM'], 'hidden_act': 'silu', 'max_position_embeddings': 4096, "
    "'model_type': "
    "'qwen2', 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, 'tie_word_embeddings': false, " SIZES
    "'use_cache': true}";
#define YARN "'rope_scaling': {'type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 1024"

static const struct {
    const char *base, *keys;
    enum effect effect;
    const char *says;
} added[] = {
    {llama, "'is_causal': false", UNSUPPORTED, "'is_causal' is false"},
    {llama, "'is_causal': true", SAME, NULL},
    {llama, "'use_bidirectional_attention': true", UNSUPPORTED, "'use_bidirectional_attention'"},
    {llama, "'attn_logit_softcapping': 50.0", UNSUPPORTED, "'attn_logit_softcapping' is 50.0"},
    {llama, "'final_logit_softcapping': 30", UNSUPPORTED, "'final_logit_softcapping'"},
    {llama, "'final_logit_softcapping': 0.0, 'attn_logit_softcapping': null", SAME, NULL},
    {llama, "'residual_multiplier': 0.22", UNSUPPORTED, "'residual_multiplier'"},
    {llama, "'residual_multiplier': 1.0, 'embedding_multiplier': 1, 'logits_scaling': 1.0", SAME, NULL},
    {llama, "'attention_multiplier': 0.0078125", UNSUPPORTED, "'attention_multiplier'"},
    {llama, "'clip_qkv': 8.0", UNSUPPORTED, "'clip_qkv'"},
    {llama, "'clip_qkv': null, 'query_pre_attn_scalar': null", SAME, NULL},
    {llama, "'quantization_config': {'quant_method': 'gptq', 'bits': 4}", BAD, "no tensor is quantised"},
    {llama, "'quantization_config': {'quant_method': 'gptq', 'bits': 3}", UNSUPPORTED,
     "'bits' of quantization_config"},
    {llama, "'quantization_config': {'quant_method': 'exl2'}", UNSUPPORTED,
     "'exl2' are not supported; take a GGUF file"},
    {llama, "'quantization_config': {'quant_method': 'awq', 'bits': 4, 'oddity': 1}", UNSUPPORTED,
     "'quantization_config.oddity'"},
    {llama, "'quantization_config': {'quant_method': 'awq', 'bits': 4, 'version': 'gemv'}", UNSUPPORTED,
     "'version'"},
    {llama, "'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [64, 64]}", UNSUPPORTED,
     "'weight_block_size' of quantization_config is not [128, 128]"},
    {llama, "'quantization_config': 'awq'", UNSUPPORTED, "'awq'"},
    {llama, "'quantization_config': ['awq']", UNSUPPORTED, "'quantization_config'"},
    {llama, "'quantization_config': null", SAME, NULL},
    {llama, "'quantization': {'group_size': 64, 'bits': 4}", UNSUPPORTED, "'quantization'"},
    {llama, "'architectures': ['LlamaForSequenceClassification']", UNSUPPORTED,
     "LlamaForSequenceClassification"},
    {llama, "'architectures': ['LlamaForTokenClassification']", UNSUPPORTED, "LlamaForTokenClassification"},
    {llama, "'architectures': ['LlamaModel']", UNSUPPORTED, "names a class without a head"},
    {llama, "'architectures': ['LlamaForCausalLMEagle3']", UNSUPPORTED, "drafts for another model"},
    {llama, "'architectures': ['LlamaForCausalLM', 'Qwen2ForCausalLM']", UNSUPPORTED, "Qwen2ForCausalLM"},
    {llama, "'architectures': 'LlamaForCausalLM'", BAD, "'architectures'"},
    {llama, "'architectures': null", SAME, NULL},
    {llama, "'architectures': ['MistralForCausalLM']", SAME, NULL},
    {llama, "'auto_map': {'AutoModelForCausalLM': 'own.Model'}", UNSUPPORTED, "'auto_map'"},
    {llama, "'hidden_act': 'gelu'", UNSUPPORTED, "'gelu'"},
    {llama, "'tie_word_embeddings': true", BAD, "differs from the embedding"},
    {llama, "'attention_bias': true", BAD, "'attention_bias'"},
    {qwen, "'attention_bias': false", BAD, "'attention_bias'"},
    {llama, "'num_local_experts': 8", BAD, "expert_used_count"},
    {llama, "'num_local_experts': 8, 'num_experts_per_tok': 2", BAD, "ffn_gate_inp.weight is missing"},
    {llama, "'num_local_experts': 2, 'num_experts_per_tok': 3", BAD, "expert_used_count is 3"},
    {qwen, "'num_local_experts': 8", UNSUPPORTED, "'num_local_experts'"},
    {llama, "'temperature': 0.6, 'top_p': 0.9, 'id2label': {'0': 'a'}, 'gradient_checkpointing': false", SAME,
     NULL},
    {llama, "'a_new_scale': 2", UNSUPPORTED, ".ignore_keys 'a_new_scale'"},
    {llama, "'a_new_scale': null", SAME, NULL},
    {llama, "'rms_norm_eps': 1.5", BAD, "'rms_norm_eps' is 1.5, must be 0 to 1"},
    {llama, "'rms_norm_eps': -1e-5", BAD, "'rms_norm_eps' is -1e-05"},
    {llama, "'rope_theta': 0.5", BAD, "'rope_theta' is 0.5, must be 1 to 1e+12"},
    {llama, "'rope_scaling': {'type': 'linear', 'factor': 1e7}", BAD, "'factor' is 1e+07"},
    {llama, YARN ", 'beta_fast': -32}", BAD, "'beta_fast' is -32"},
    {llama, YARN ", 'attention_factor': -1}", BAD, "'attention_factor' is -1"},
    /* rope: one parameter, three places */
    {llama, "'rope_parameters': {'rope_theta': 500000.0}", BAD, "'rope_theta' has two values"},
    {llama, "'rope_parameters': {'rope_theta': 10000, 'rope_type': 'default'}", SAME, NULL},
    {llama, "'rope_theta': null, 'rope_parameters': {'rope_theta': 500000.0}", CHANGED, NULL},
    {llama, "'rope_theta': 500000.0, 'rope_parameters': {'rope_type': 'default'}", CHANGED, NULL},
    {llama, "'partial_rotary_factor': 0.5", CHANGED, NULL},
    {llama, "'rope_parameters': {'partial_rotary_factor': 0.5}", CHANGED, NULL},
    {llama, "'partial_rotary_factor': 2", BAD, "'partial_rotary_factor'"},
    {llama, "'rope_scaling': 'linear'", BAD, "'rope_scaling' is not an object"},
    {llama, "'rope_scaling': [2.0]", BAD, "'rope_scaling' is not an object"},
    {llama, "'rope_scaling': false", BAD, "'rope_scaling' is not an object"},
    {llama, "'rope_scaling': {'rope_type': 'default'}", SAME, NULL},
    {llama, "'rope_scaling': {'rope_type': 'dynamic', 'factor': 2}", SAME, NULL},
    {llama, "'rope_scaling': {'rope_type': 'dynamic', 'factor': 0.5}", BAD, "'factor' is not at least 1"},
    {llama, "'rope_scaling': {'rope_type': 'dynamic'}", BAD, "'factor' is missing"},
    {llama, "'rope_scaling': {'rope_type': 'dynamic', 'factor': 2, 'alpha': 8}", UNSUPPORTED, "'alpha'"},
    {llama, "'max_position_embeddings': 16, 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2}",
     UNSUPPORTED, "beyond 16 positions is computed as it comes in, in no one way; give .ctx 16"},
    {llama, "'max_position_embeddings': 16, 'rope_scaling': null", CHANGED, NULL}, /* the length alone */
    {llama, "'auto_map': {'AutoModelForCausalLM': 'modeling_own.LlamaForCausalLM'}", SAME, NULL},
    {llama, "'auto_map': {'AutoConfig': 'own.Config'}", SAME, NULL},
    {llama, "'auto_map': {'AutoModel': 'own.Model'}", UNSUPPORTED, "'auto_map'"},
    {llama, "'auto_map': 'own.Model'", UNSUPPORTED, "'auto_map'"},
    {llama, "'use_bidirectional_attention': 'all'", UNSUPPORTED, "'use_bidirectional_attention'"},
    {llama, "'qkv_bias': false, 'use_qk_norm': false, 'mlp_bias': false, 'attn_type_list': [1, 1]", SAME,
     NULL},
    {llama, "'attn_type_list': [1, 0]", UNSUPPORTED, "'attn_type_list'"},
    {llama, "'use_qk_norm': true", BAD, "'use_qk_norm' of config.json is true"},
    {llama, "'mlp_bias': true", BAD, "'mlp_bias' of config.json is true"},
    {llama, "'quantization_config': {'producer': {'name': 'modelopt'}, 'quantization': {'quant_algo': null}}",
     SAME, NULL},
    {llama,
     "'quantization_config': {'producer': {'name': 'modelopt'}, 'quantization': {'quant_algo': 'NVFP4'}}",
     BAD, "no tensor is quantised"},
    {llama, "'quantization_config': {'quantization': {'quant_algo': 'W4A8_AWQ'}}", UNSUPPORTED,
     "'quant_algo'"},
    {llama, "'quantization_config': {'quantization': {'quant_algo': 'NVFP4'}, 'oddity': 1}", UNSUPPORTED,
     "'quantization_config.oddity'"},
    {llama, "'rope_scaling': {'rope_type': 3, 'factor': 2}", BAD, "'rope_type'"},
    {llama, "'rope_scaling': {'rope_type': 'linear', 'type': 'yarn', 'factor': 2}", BAD, "differ"},
    {llama, "'rope_scaling': {'type': 'linear', 'factor': 2}", CHANGED, NULL},
    {llama, "'rope_scaling': {'type': 'linear'}", BAD, "'factor' is missing"},
    {llama, "'rope_scaling': {'type': 'linear', 'factor': 0}", BAD, "'factor'"},
    {llama, "'rope_scaling': {'factor': 2}", UNSUPPORTED, "'default' does not read 'factor'"},
    {llama, "'rope_scaling': {'type': 'linear', 'factor': 2, 'beta_fast': 16}", UNSUPPORTED, "'beta_fast'"},
    {llama, "'rope_scaling': {'type': 'linear', 'factor': 2, 'alpha': 16}", UNSUPPORTED, "'alpha'"},
    {llama, "'rope_parameters': {'full_attention': {'rope_theta': 5}}", UNSUPPORTED, "by kinds of layers"},
    {llama, "'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 4}", BAD,
     "'high_freq_factor'"},
    {llama, YARN "}", CHANGED, NULL},
    {llama, YARN ", 'mscale': 0.707}", UNSUPPORTED, "'mscale'"},
    {llama, YARN ", 'mscale_all_dim': 0.707}", UNSUPPORTED, "'mscale_all_dim'"},
    {llama, YARN ", 'attention_factor': 1.2, 'mscale': 2, 'mscale_all_dim': 1}", UNSUPPORTED, "exclude"},
    {llama, YARN ", 'attention_factor': 1.2, 'attn_factor': 2}", UNSUPPORTED, "exclude"},
    {llama, YARN ", 'truncate': 1}", BAD, "'truncate' is not true or false"},
    /* windows: the context of the test is longer than 8 */
    {llama, "'sliding_window': 8", CHANGED, NULL},
    {llama, "'sliding_window': 8, 'use_sliding_window': false", SAME, NULL},
    {llama, "'sliding_window': 32", SAME, NULL},
    {llama, "'model_type': 'mistral', 'sliding_window': 8", CHANGED, NULL},
    {llama, "'layer_types': ['full_attention', 'full_attention']", SAME, NULL},
    {llama, "'layer_types': ['full_attention']", BAD, "'layer_types'"},
    {llama, "'layer_types': ['full_attention', 'chunked_attention']", UNSUPPORTED, "'chunked_attention'"},
    {llama, "'layer_types': ['full_attention', 'sliding_attention']", BAD, "no 'sliding_window'"},
    {qwen, "'sliding_window': 8", SAME, NULL},
    {qwen, "'sliding_window': 8, 'use_sliding_window': true", CHANGED, NULL},
    {qwen, "'sliding_window': 8, 'use_sliding_window': true, 'max_window_layers': 1", CHANGED, NULL},
    {qwen, "'sliding_window': 8, 'use_sliding_window': true, 'max_window_layers': 2", SAME, NULL},
    {qwen,
     "'sliding_window': 8, 'use_sliding_window': true, 'max_window_layers': 2, 'layer_types': "
     "['sliding_attention', 'full_attention']",
     CHANGED, NULL},
    {qwen,
     "'sliding_window': 8, 'use_sliding_window': true, 'layer_types': ['full_attention', 'full_attention']",
     SAME, NULL},
    {qwen, "'layer_types': ['full_attention', 'sliding_attention'], 'sliding_window': 8", BAD,
     "'layer_types'"},
};

static json_t *with_keys(const char *base, const char *keys) {
    char text[1024];
    json_t *root = read_text(base), *more;
    snprintf(text, sizeof text, "{%s}", keys);
    more = read_text(text);
    json_object_update(root, more);
    json_decref(more);
    return root;
}

static void added_keys_count(void **state) {
    (void)state;
    const char *last = NULL;
    struct folder d;
    struct result base, r;
    folder_make(&d);
    for (size_t i = 0; i < sizeof added / sizeof *added; i++) {
        json_t *root = read_text(added[i].base);
        if (added[i].base != last) {
            put_weights(&d, root);
            compute_config(&d, root, &base);
            if (base.status) fail_msg("%s", base.why);
        }
        last = added[i].base;
        json_decref(root);
        root = with_keys(added[i].base, added[i].keys);
        compute_config(&d, root, &r);
        json_decref(root);
        enum effect e = r.status == INFER_E_INPUT         ? BAD
                        : r.status == INFER_E_UNSUPPORTED ? UNSUPPORTED
                        : same(&r, &base)                 ? SAME
                                                          : CHANGED;
        if (e != added[i].effect || (added[i].says && !strstr(r.why, added[i].says)))
            fail_msg("%s: effect %d, not %d, or not '%s' in: %s", added[i].keys, e, added[i].effect,
                     added[i].says ? added[i].says : "", r.why);
    }
    folder_remove(&d);
}

/* Two ways to say the same, and what differs from both: attention_factor = mscale(4, 2) / mscale(4, 1). */
static void yarn_has_its_magnitude(void **state) {
    (void)state;
    static const char *const keys[] = {YARN "}", YARN ", 'mscale': 1, 'mscale_all_dim': 0}",
                                       YARN ", 'mscale': 2, 'mscale_all_dim': 1}",
                                       YARN ", 'attention_factor': 1.1217512}", YARN ", 'truncate': false}"};
    struct result r[5];
    struct folder d;
    folder_make(&d);
    for (int i = 0; i < 5; i++) {
        json_t *root = with_keys(llama, keys[i]);
        put_weights(&d, root);
        compute_config(&d, root, &r[i]);
        if (r[i].status) fail_msg("%s", r[i].why);
        json_decref(root);
    }
    assert_true(same(&r[0], &r[1]));
    float worst = 0;
    for (int i = 0; i < r[2].n_vocab; i++) worst = fmaxf(worst, fabsf(r[2].logits[i] - r[3].logits[i]));
    assert_true(worst < 1e-4f);
    assert_false(same(&r[0], &r[2]));
    assert_false(same(&r[0], &r[4]));
    folder_remove(&d);
}

/* What config.json says goes along when the folder becomes a GGUF file. */
static void converted_folders_compute_the_same(void **state) {
    (void)state;
    static const char *const more[] = {YARN ", 'mscale': 2, 'mscale_all_dim': 1, 'truncate': false}",
                                       "'partial_rotary_factor': 0.5", "'sliding_window': 8"};
    enum { N_PUBLISHED = sizeof published / sizeof *published };
    for (size_t i = 0; i < N_PUBLISHED + sizeof more / sizeof *more; i++) {
        struct folder d;
        struct result folder, file;
        struct quantize_report report;
        char out[256];
        json_t *root = i < N_PUBLISHED ? read_text(published[i]) : with_keys(llama, more[i - N_PUBLISHED]);
        folder_make(&d);
        put_weights(&d, root);
        compute_config(&d, root, &folder);
        json_decref(root);
        assert_ok(quantize_file(
            &(struct quantize_options){.in = d.path, .out = folder_file(&d, out, "out.gguf"), .type = "f32"},
            &report));
        compute(out, &file);
        if (file.status != folder.status || file.n_ctx_train != folder.n_ctx_train)
            fail_msg("%zu: status %d, not %d: %s", i, file.status, folder.status, file.why);
        for (int k = 0; !file.status && k < file.n_vocab; k++)
            if (!(fabsf(file.logits[k] - folder.logits[k]) < 1e-4f * fmaxf(1, fabsf(folder.logits[k]))))
                fail_msg("%zu: logit %d is %g, not %g", i, k, (double)file.logits[k],
                         (double)folder.logits[k]);
        folder_remove(&d);
    }
}

static void a_folder_has_its_head(void **state) {
    (void)state;
    struct folder d;
    struct result r;
    folder_make(&d);
    json_t *root = with_keys(llama, "'tie_word_embeddings': true");
    put_weights(&d, root); /* no lm_head */
    compute_config(&d, root, &r);
    if (r.status) fail_msg("%s", r.why);
    json_object_set_new(root, "tie_word_embeddings", json_false());
    compute_config(&d, root, &r);
    if (r.status != INFER_E_INPUT || !strstr(r.why, "lm_head.weight is missing")) fail_msg("%s", r.why);
    json_object_del(root, "tie_word_embeddings"); /* false is what it means */
    compute_config(&d, root, &r);
    if (r.status != INFER_E_INPUT || !strstr(r.why, "lm_head.weight is missing")) fail_msg("%s", r.why);
    json_decref(root);
    folder_remove(&d);
}

/* ---- contexts ---- */

static void count_line(void *user, enum log_level level, const char *line) {
    if (level == LOG_WARN && strstr(line, "trained for")) ++*(int *)user;
}

/* A context beyond the trained length is said once; a window limits none. */
static void contexts_have_limits(void **state) {
    (void)state;
    static const struct {
        int window, trained, ctx, n_ctx, said;
    } cases[] = {
        {0, 40, 0, 40, 0},   {0, 40, 40, 40, 0},  {0, 40, 41, 41, 1},  {16, 40, 0, 40, 0},
        {16, 40, 17, 17, 0}, {16, 40, -1, 40, 0}, {64, 40, 50, 50, 1}, {64, 40, 65, 65, 1},
    };
    struct folder d;
    char path[256];
    folder_make(&d);
    json_t *root = read_text(llama);
    put_weights(&d, root);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_model *m;
        struct infer_engine *e;
        struct infer_engine_info info;
        int said = 0;
        json_object_set_new(root, "sliding_window", json_integer(cases[i].window));
        json_object_set_new(root, "max_position_embeddings", json_integer(cases[i].trained));
        assert_int_equal(json_dump_file(root, folder_file(&d, path, "config.json"), 0), 0);
        assert_ok(infer_model_open(&m, d.path, NULL));
        log_set(count_line, &said);
        assert_ok(infer_engine_create(
            &e, m, &(struct infer_engine_options){.device = "ref", .ctx = cases[i].ctx, .threads = 1}));
        log_set(NULL, NULL);
        infer_engine_info(e, &info);
        assert_int_equal(info.n_ctx, cases[i].n_ctx);
        assert_int_equal(said, cases[i].said);
        infer_engine_free(e);
        infer_model_close(m);
    }
    json_decref(root);
    folder_remove(&d);
}

/* ---- the way on ---- */

static void count_ignored(void *user, enum log_level level, const char *line) {
    if (level == LOG_WARN && strstr(line, "'a_new_scale' is ignored")) ++*(int *)user;
}

static void unknown_keys_can_be_ignored(void **state) {
    (void)state;
    static const char *const names[] = {"other", "a_new_scale"};
    struct folder d;
    struct infer_model *m;
    char path[256];
    int said = 0;
    folder_make(&d);
    json_t *root = with_keys(llama, "'a_new_scale': 2");
    put_weights(&d, root);
    assert_int_equal(json_dump_file(root, folder_file(&d, path, "config.json"), 0), 0);
    json_decref(root);
    assert_int_equal(
        infer_model_open(&m, d.path, &(struct infer_model_options){.ignore_keys = names, .n_ignore_key = 1}),
        INFER_E_UNSUPPORTED);
    log_set(count_ignored, &said);
    assert_ok(
        infer_model_open(&m, d.path, &(struct infer_model_options){.ignore_keys = names, .n_ignore_key = 2}));
    log_set(NULL, NULL);
    assert_int_equal(said, 1);
    infer_model_close(m);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_config_counts),
        cmocka_unit_test(added_keys_count),
        cmocka_unit_test(converted_folders_compute_the_same),
        cmocka_unit_test(yarn_has_its_magnitude),
        cmocka_unit_test(a_folder_has_its_head),
        cmocka_unit_test(contexts_have_limits),
        cmocka_unit_test(unknown_keys_can_be_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
