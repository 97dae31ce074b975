/* No key of config.json is passed over, in any folder of tests/golden/hf that runs: each is changed, deep down too, and the logits
 * change, or the folder is refused with a message, or the key stands among those that mean nothing to the mathematics. The same with
 * the keys of the GGUF file that convert makes of the folder.
 * usage: test_hf_keys [PATTERN]    the folders whose names match */
#define LOGITS_TOKENS 70 /* beyond the windows and the original contexts of the folders */
#define LOGITS_CTX    160
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "files/model_keys.h"
#include "tests/lib/folder.h"
#include "tests/lib/hf_folders.h"
#include "tests/lib/gguf_copy.h"
#include "tests/lib/logits_of.h"
#include "tools/file/quantize.h"
#include <jansson.h>
#include <math.h>
#include <unistd.h>

/* Keys that change nothing in the folder of that name, or in all ("*"). */
static const struct {
    const char *folder, *keys, *why;
} idle[] = {
    {"*", "vision_config|audio_config|architectures", "of images and sound; of names, by test_keys"},
    {"*", "use_sliding_window|max_window_layers|sliding_window_pattern|_sliding_window_pattern",
     "layer_types says it"},
    {"*", "no_rope_layer_interval", "no_rope_layers says it"},
    {"llama4", "interleave_moe_layer_step", "moe_layers says it"},
    {"llama4-image", "tie_word_embeddings", "the outer one counts"},
    {"llama4-image", "intermediate_size_mlp", "no layer is dense"},
    {"*", "vocab_size_per_layer_input|max_position_embeddings", "of longer contexts than the test has"},
    {"gemma3-image*", "tie_word_embeddings", "the outer one counts"},
    {"gemma4-image", "tie_word_embeddings", "the outer one counts"},
    {"gemma4_unified", "tie_word_embeddings", "the outer one counts"},
    {"gemma4_unified", "use_double_wide_mlp", "no layer shares its keys"},
    {"gemma4-e4b", "tie_word_embeddings", "the outer one counts"},
    {"mistral3*", "tie_word_embeddings", "the outer one counts"},
    {"minimax_m3-image", "tie_word_embeddings", "the outer one counts"},
    {"qwen3_vl*", "tie_word_embeddings", "the outer one counts"},
    {"phi3", "original_max_position_embeddings", "of scaling, which this folder has not"},
    {"hunyuan_v1_*", "beta_fast|beta_slow|factor|mscale|mscale_all_dim", "'dynamic' reads alpha alone"},
    {"falcon*", "num_ln_in_parallel_attn", "the tensors say it"},
    {"falcon*", "multi_query|num_kv_heads", "new_decoder_architecture decides which of the two counts"},
    {"glm4_moe-draft", "topk_group", "there is one group"},
    {"minimax_m3-image", "n_shared_experts", "shared_intermediate_size says the width"},
    {"*", "num_nextn_predict_layers", "layers that draft are not read"},
    {"deepseek_v2-lite", "n_group|topk_group", "the method has no groups"},
    {"kimi_k2", "beta_slow", "the ends of the ramp are whole dims, one beside the other"},
    {"mistral4", "intermediate_size", "no layer is dense"},
    {"qwen2_moe*", "sliding_window", "use_sliding_window is false"},
    {"qwen2_moe-stacked", "intermediate_size", "no layer is dense"},
    {"qwen3_moe-stacked", "intermediate_size", "no layer is dense"},
    {"gemma4", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"gemma4-image", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"gemma4-values", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"gemma4-e*", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"gemma4", "use_double_wide_mlp", "no layer shares its keys"},
    {"gemma4-image", "use_double_wide_mlp", "no layer shares its keys"},
    {"gemma4-values", "use_double_wide_mlp", "no layer shares its keys"},
    {"gemma4-moe", "use_double_wide_mlp", "no layer shares its keys"},
    {"lfm2", "block_ffn_dim_multiplier|block_multiple_of", "block_auto_adjust_ff_dim is false"},
    {"lfm2-bias", "block_auto_adjust_ff_dim", "the rule makes 48 of 48"},
    {"lfm2*", "full_attn_idxs", "layer_types says it"},
    {"granitemoehybrid", "rope_theta", "nothing rotates"},
    {"laguna*", "num_attention_heads", "num_attention_heads_per_layer says it"},
    {"laguna-element", "intermediate_size|sliding_window", "no layer is dense, or has a window"},
    {"kimi_linear", "head_dim|rope_theta", "other keys say what a head has; nothing rotates"},
    {"kimi_linear-low", "head_dim|intermediate_size", "other keys say what a head has; no layer is dense"},
    {"step3p7-image", "intermediate_size", "no layer is dense"},
    {"step3p7-image", "num_sliding_attention_heads", "per_layer_config says it"},
    {"granitemoehybrid-dense", "intermediate_size|num_experts_per_tok", "there are no experts"},
    {"nemotron_h-moe", "intermediate_size|n_shared_experts",
     "no layer is dense; the width of the shared part says it"},
    {"falcon_h1*", "mamba_expand", "mamba_d_ssm says it"},
    {"falcon_h1", "mamba_norm_before_gate", "there is no norm"},
    {"nemotron_h*", "expand", "the heads say it"},
    {"nemotron_h*", "rms_norm_eps", "layer_norm_epsilon says it"},
    {"nemotron_h",
     "n_routed_experts|n_shared_experts|moe_intermediate_size|moe_shared_expert_intermediate_size|"
     "moe_latent_size|num_experts_per_tok|norm_topk_prob|n_group|topk_group|routed_scaling_factor",
     "no layer has experts"},
    {"dots1", "layer_types|sliding_window", "the window is wider than the test's texts"},
    {"exaone_moe", "first_k_dense_replace", "mlp_layer_types says it"},
    {"deepseek_v4*", "intermediate_size", "no layer is dense"},
    {"deepseek_v4", "compress_rope_theta|partial_rotary_factor|qk_rope_head_dim", "rope_parameters says it"},
    {"deepseek_v4-p*", "rope_theta", "every layer has entries, which turn by compress_rope_theta"},
    {"glm_moe_dsa", "first_k_dense_replace", "mlp_layer_types says it"},
    {"deepseek_v32", "first_k_dense_replace", "mlp_layer_types says it"},
    {"gpt_oss-mxfp4", "modules_to_not_convert", "the tensors say it"},
    {"packed-gptq*", "desc_act|sym|damp_percent|static_groups|true_sequential",
     "the tensors say it; of how they were made"},
    {"packed-awq", "zero_point|modules_to_not_convert", "the tensors say it"},
    {"packed-auto-round*", "autoround_version|iters|block_name_to_quantize|sym",
     "of how they were made; the tensors say it"},
    {"packed-auto-round", "group_size", "the tensors say it, where modules differ"},
    {"packed-bnb-*",
     "_load_in_4bit|_load_in_8bit|load_in_4bit|load_in_8bit|bnb_4bit_quant_type|bnb_4bit_use_double_quant|"
     "bnb_4bit_compute_dtype|bnb_4bit_quant_storage|llm_int8_threshold|llm_int8_skip_modules|"
     "llm_int8_enable_fp32_cpu_offload|llm_int8_has_fp16_weight",
     "the tensors say it; of other programs' arithmetic"},
    {"packed-ct-*",
     "ignore|kv_cache_scheme|quantization_status|targets|input_activations|output_activations|type|strategy|"
     "symmetric|"
     "dynamic|observer|actorder",
     "the tensors say it; of activations; of how they were made"},
    {"packed-ct-int8", "num_bits", "of words"},
    {"packed-ct-fp8", "num_bits", "of words"},
    {"packed-ct-nvfp4*", "num_bits|group_size", "of words"},
    {"packed-ct-mx*", "num_bits|group_size", "of words"},
    {"packed-ct-*", "format", "the tensors say it"},
    {"packed-fp8-*", "activation_scheme|weight_block_size|scale_fmt", "of activations; the tensors say it"},
    {"deepseek_v4-packed", "activation_scheme|weight_block_size|scale_fmt|expert_dtype|fmt",
     "of activations; the tensors say it"},
    {"packed-modelopt-*", "ignore|name|version|group_size|quant_algo", "the tensors say it"},
    {"qwen3_vl_moe", "intermediate_size", "no layer is dense"},
    {"phi3-long", "short_factor", "the context is a long one"},
    {"phi3-partial", "short_factor", "the context is a long one"},
    {"phi3-short", "long_factor", "the context is a short one"},
    {"llama-longrope", "short_factor", "the context is a long one"},
    {"qwen3-bias", "short_factor", "the context is a long one"},
    {"llama-dynamic", "factor", "the context is no longer than the training's"},
    {"qwen2_vl", "tie_word_embeddings", "the outer one counts"},
    {"qwen2_5_vl", "tie_word_embeddings", "the outer one counts"},
    {"glm4v", "tie_word_embeddings", "the outer one counts"},
    {"glm4v", "mrope_section", "positions of texts are one number"},
    {"qwen2_vl", "mrope_section", "positions of texts are one number"},
    {"qwen2_5_vl", "mrope_section", "positions of texts are one number"},
    {"qwen3_vl*", "mrope_section|mrope_interleaved", "positions of texts are one number"},
    {"qwen3_5*", "mrope_section|mrope_interleaved", "positions of texts are one number"},
    {"qwen3_5_moe*", "intermediate_size", "no layer is dense"},
    {"qwen4_exp*", "intermediate_size", "no layer is dense"},
    {"qwen4_exp*", "mrope_section|mrope_interleaved", "positions of texts are one number"},
    {"qwen4_exp-*", "tie_word_embeddings", "the outer one counts"},
    {"qwen4_exp-fp8",
     "act_per_tensor|weight_per_tensor|modules_to_convert|modules_to_not_convert|activation_scheme",
     "the tensors say it"},
    {"qwen3_5-image", "tie_word_embeddings", "the outer one counts"},
    {"qwen3_5_moe-image", "tie_word_embeddings", "the outer one counts"},
    {"gemma4*", "attention_k_eq_v", "the tensors say it"},
    {"gpt2*", "summary_activation|summary_first_dropout|summary_proj_to_labels|summary_type|summary_use_proj",
     "another head"},
    {"gpt2*", "n_ctx", "n_positions counts"},
    {"bailing_moe", "intermediate_size", "no layer is dense"},
    {"afmoe", "global_attn_every_n_layers", "layer_types says it"},
    {"cohere2_moe-rms", "norm_topk_prob", "a softmax over the chosen adds up to 1"},
    {"granite_swa", "rope_theta", "layer_rope_theta says it"},
    {"*", "embedding_dropout|residual_dropout|hidden_dropout|eod_token_id|attention_dropout",
     "of training, of the tokenizer"},
};

struct walk {
    const char *name;
    struct folder d;
    json_t *root;
    struct result base;
    int n;
};

static bool matches(const char *pattern, const char *name) {
    size_t n = strcspn(pattern, "*");
    return pattern[n] ? strncmp(pattern, name, n) == 0 : strcmp(pattern, name) == 0;
}
/* Known to change nothing: here, or in models/keys.def. */
static bool is_idle(const struct walk *w, const char *key) {
    const struct key_row *row = key_find(KEYS_CONFIG, key);
    if (row && row->use == KEY_HARMLESS) return true;
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (matches(idle[i].folder, w->name) && key_names(idle[i].keys, key, strlen(key))) return true;
    return false;
}

/* Value i to try in the place of v; NULL: no more. */
static json_t *other_value(const json_t *v, int i) {
    double x = json_number_value(v);
    json_t *copy;
    if (json_is_integer(v) && i < 4)
        return json_integer(
            (json_int_t[]){5, (json_int_t)x + 1, 2 * (json_int_t)x + 8, x > 0 ? (json_int_t)x - 1 : 0}[i]);
    if (json_is_real(v) && i < 2) return json_real(i ? 3 * x + 1 : 0.6 * x + 0.01);
    if (json_is_boolean(v) && i < 1) return json_boolean(!json_is_true(v));
    if (json_is_string(v) && i < 1) return json_string("other");
    if (json_is_null(v) && i < 2) return i ? json_true() : json_integer(3);
    if (!json_is_array(v) || i > 1 || !json_array_size(v)) return NULL;
    copy = json_copy((json_t *)v); /* another first element, or last one */
    size_t at = i ? json_array_size(v) - 1 : 0;
    const json_t *was = json_array_get(v, at);
    const char *kind = json_string_value(was);
    json_array_set_new(
        copy, at,
        kind ? json_string(strcmp(kind, "full_attention") ? "full_attention" : "sliding_attention")
        : json_is_real(was) ? json_real(json_real_value(was) + 0.5)
                            : json_integer(!json_integer_value(was)));
    return copy;
}

static void try_config(struct walk *w, struct result *r) {
    char path[256];
    assert_int_equal(json_dump_file(w->root, folder_file(&w->d, path, "config.json"), 0), 0);
    compute(w->d.path, r);
    w->n++;
}

/* What is no number, or none that could be meant, is refused by the key's name, whoever reads it; what is of training alone may be anything. */
static void refuse_absurd(struct walk *w, json_t *object, const char *key, json_t *was) {
    const struct key_row *row = key_find(KEYS_CONFIG, key);
    const bool trains = (row && row->use == KEY_HARMLESS) || strstr(key, "dropout");
    if (!json_is_real(was) || strncmp(w->name, "packed-", 7) == 0) return;
    if (trains && strncmp(key, "time_step_", 10) != 0) return;
    for (int i = 0; i < 3; i++) {
        struct result r;
        json_object_set_new(
            object, key, i == 2 ? json_real(-1e30) : json_pack("{s:s}", "__float__", i ? "Infinity" : "NaN"));
        try_config(w, &r);
        if (!refused(&r) || !strstr(r.why, key))
            fail_msg("%s: '%s' may be %s: status %d: %s", w->name, key,
                     i == 2 ? "-1e30"
                     : i    ? "Infinity"
                            : "NaN",
                     r.status, r.why);
    }
    json_object_set(object, key, was);
}

static void change_key(struct walk *w, json_t *object, const char *key, json_t *was) {
    bool noticed = json_is_object(was) || (json_is_array(was) && !json_array_size(was));
    json_t *v;
    for (int i = 0; !noticed && (v = other_value(was, i)); i++) {
        struct result r;
        json_object_set_new(object, key, v);
        try_config(w, &r);
        if (r.status && r.status != INFER_E_INPUT && r.status != INFER_E_UNSUPPORTED)
            fail_msg("%s: '%s': status %d: %s", w->name, key, r.status, r.why);
        noticed = !same(&r, &w->base);
    }
    json_object_set(object, key, was);
    if (!noticed && !is_idle(w, key)) fail_msg("%s: '%s' is passed over", w->name, key);
}

static void walk_object(struct walk *w, json_t *object) {
    json_t *keys = json_object(), *v;
    const char *key;
    json_object_update(keys, object); /* the walk changes the object itself */
    json_object_foreach(keys, key, v) {
        change_key(w, object, key, v);
        refuse_absurd(w, object, key, v);
        if (json_is_object(v) && !is_idle(w, key)) walk_object(w, v);
    }
    json_decref(keys);
}

/* One of the files of w->name's folder, where it has it. */
static void link_file(struct walk *w, const char *name) {
    char from[512], to[256], file[128];
    snprintf(file, sizeof file, "golden/hf/%s/%s", w->name, name);
    char *whole = realpath(test_path(from, sizeof from, file), NULL);
    if (whole) assert_int_equal(symlink(whole, folder_file(&w->d, to, name)), 0);
    free(whole);
}

/* The folder of w->name, its weights linked, and what it computes. */
static void walk_open(struct walk *w) {
    char from[512], file[128];
    json_error_t e;
    folder_make(&w->d);
    link_file(w, "model.safetensors");
    link_file(w, "hf_quant_config.json");
    snprintf(file, sizeof file, "golden/hf/%s/config.json", w->name);
    w->root = json_load_file(test_path(from, sizeof from, file), 0, &e);
    if (!w->root) fail_msg("%s: %s", from, e.text);
    try_config(w, &w->base);
    if (w->base.status) fail_msg("%s: %s", w->name, w->base.why);
}
static void walk_close(struct walk *w) {
    json_decref(w->root);
    folder_remove(&w->d);
}

static void every_key_counts(void **state) {
    struct walk w = {.name = *state};
    walk_open(&w);
    json_t *packed = json_object_get(w.root, "quantization_config");
    if (strncmp(w.name, "packed-", 7) != 0) packed = NULL; /* else its other keys are llama's */
    walk_object(&w, packed ? packed : w.root);
    assert_in_range(w.n, packed ? 2 : 20, 1000);
    walk_close(&w);
}

/* ---- the keys of GGUF ---- */

/* Keys in the architecture's namespace that change nothing. */
static bool is_idle_gguf(const struct walk *w, const char *key) {
    static const struct {
        const char *folder, *keys, *why;
    } none[] = {
        {"*", "vocab_size", "the rows of the embedding are the number"},
        {"*", "attention.value_length_swa|rope.dimension_count_swa|rope.freq_base_swa",
         "of layers with windows, where some are"},
        {"nemotron_h-moe", "expert_shared_count", "expert_shared_feed_forward_length says it"},
        {"granitemoehybrid", "rope.freq_base", "nothing rotates"},
        {"laguna-element", "feed_forward_length", "no layer is dense"},
        {"kimi_linear-low", "feed_forward_length", "no layer is dense"},
        {"step3p7-image", "feed_forward_length", "no layer is dense"},
        {"olmo_hybrid", "rope.freq_base", "nothing rotates"},
        {"ernie4_5_moe", "expert_shared_count", "expert_shared_feed_forward_length says it"},
        {"minimax_m3-image", "expert_shared_count", "expert_shared_feed_forward_length says it"},
        {"gpt_oss*", "feed_forward_length", "no layer is dense"},
        {"deepseek_v4*", "feed_forward_length", "no layer is dense"},
        {"deepseek_v4*", "swiglu_limit", "swiglu_clamp_exp and swiglu_clamp_shexp say it"},
        {"deepseek_v4-p*", "rope.freq_base", "every layer has entries, which turn by another base"},
        {"glm4_moe-draft", "expert_group_used_count", "there is one group"},
        {"granitemoe*", "feed_forward_length", "no layer is dense"},
        {"llama4-image", "feed_forward_length", "no layer is dense"},
        {"hunyuan_v1_moe", "feed_forward_length", "no layer is dense"},
        {"minimax_m2*", "feed_forward_length", "no layer is dense"},
        {"qwen2_moe-stacked", "feed_forward_length", "no layer is dense"},
        {"qwen3_moe-stacked", "feed_forward_length", "no layer is dense"},
        {"qwen3_vl_moe", "feed_forward_length", "no layer is dense"},
        {"mistral4", "feed_forward_length", "no layer is dense"},
        {"bailing_moe", "feed_forward_length", "no layer is dense"},
        {"cohere2_moe-rms", "feed_forward_length|expert_weights_norm",
         "no layer is dense; a softmax over the chosen"},
        {"phimoe", "feed_forward_length", "no layer is dense"},
        {"olmoe", "feed_forward_length", "no layer is dense"},
        {"solar_open", "feed_forward_length", "no layer is dense"},
        {"glm4v", "rope.dimension_sections", "positions of texts are one number"},
        {"qwen2_vl", "rope.dimension_sections", "positions of texts are one number"},
        {"qwen2_5_vl", "rope.dimension_sections", "positions of texts are one number"},
        {"qwen3_vl*", "rope.dimension_sections", "positions of texts are one number"},
        {"qwen3_vl*", "n_deepstack_layers", "texts have nothing for later layers"},
        {"gemma4*", "attention.causal_images", "of texts no row sees what follows it"},
        {"qwen3_5*", "rope.dimension_sections", "positions of texts are one number"},
        {"qwen3_5_moe*", "feed_forward_length", "no layer is dense"},
        {"qwen4_exp*", "feed_forward_length", "no layer is dense"},
        {"qwen4_exp*", "rope.dimension_sections", "positions of texts are one number"},
    };
    const struct key_row *row = key_find(KEYS_GGUF, key);
    if (row && row->use == KEY_HARMLESS) return true;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (matches(none[i].folder, w->name) && key_names(none[i].keys, key, strlen(key))) return true;
    return false;
}

/* Other bytes for a number or the first or last of an array; false: no more. */
static bool other_bytes(const struct meta *m, int i, unsigned char *raw, size_t n) {
    enum meta_type type = m->type == META_ARRAY ? m->elem : m->type;
    if (type == META_STRING || i > 3 || (m->type == META_ARRAY && type != META_F32 && i > 1)) return false;
    size_t size = type == META_BOOL ? 1 : 4;
    uint64_t at = m->type == META_ARRAY && i ? m->n - 1 : 0;
    memcpy(raw, m->raw, n);
    double x = meta_elem_f64(m, at);
    if (type == META_BOOL) {
        raw[at] = !raw[at];
        return i < 2;
    }
    if (type == META_F32) {
        float v = (float)(double[]){0.6 * x + 0.01, 3 * x + 1, x - 0.5, 0}[i];
        memcpy(raw + at * size, &v, size);
        return i < 3;
    }
    uint32_t v = (uint32_t[]){(uint32_t)x + 1, x > 0 ? (uint32_t)x - 1 : 2, 8 * (uint32_t)x + 8, 5}[i];
    memcpy(raw + at * size, &v, size);
    return true;
}

/* The file f with the value of key number k; raw NULL: the text "other". */
static void write_changed(const struct tensorfile *f, size_t k, const unsigned char *raw, const char *to) {
    struct gguf_writer *w;
    static const char other[] = "other";
    struct str text = {other, sizeof other - 1};
    assert_ok(gguf_writer_open(&w, to));
    for (size_t i = 0; i < f->n_meta; i++) {
        struct meta m = f->meta[i];
        if (i == k && raw) m.raw = raw;
        if (i == k && !raw) m.strings = &text;
        gguf_writer_meta(w, &m);
    }
    gguf_copy_tensors(w, f);
}

/* The same of the file: NaN, infinity and -1e30 in the place of the last number. */
static void refuse_absurd_meta(struct walk *w, const struct tensorfile *f, size_t k, const char *name) {
    const struct meta *m = &f->meta[k];
    const bool list = m->type == META_ARRAY;
    const float absurd[] = {NAN, INFINITY, -1e30f};
    char path[256];
    unsigned char raw[4096];
    if ((list ? m->elem : m->type) != META_F32) return;
    assert_in_range(4 * m->n, 4, sizeof raw);
    for (int i = 0; i < 3; i++, w->n++) {
        struct result r;
        memcpy(raw, m->raw, 4 * m->n);
        memcpy(raw + 4 * (m->n - 1), &absurd[i], 4);
        write_changed(f, k, raw, folder_file(&w->d, path, "changed.gguf"));
        compute(path, &r);
        if (!refused(&r) || !strstr(r.why, name))
            fail_msg("%s: %s may be %g: status %d: %s", w->name, name, (double)absurd[i], r.status, r.why);
    }
}

static void change_meta(struct walk *w, const struct tensorfile *f, size_t k, const char *name) {
    const struct meta *m = &f->meta[k];
    char path[256];
    unsigned char raw[4096];
    size_t n = (m->type == META_ARRAY ? m->n : 1) *
               ((m->type == META_ARRAY ? m->elem : m->type) == META_BOOL ? 1 : 4);
    bool noticed = false, text = m->type == META_STRING;
    assert_in_range(n, 1, sizeof raw);
    for (int i = 0; !noticed && (text ? i < 1 : other_bytes(m, i, raw, n)); i++, w->n++) {
        struct result r;
        write_changed(f, k, text ? NULL : raw, folder_file(&w->d, path, "changed.gguf"));
        compute(path, &r);
        if (r.status && r.status != INFER_E_INPUT && r.status != INFER_E_UNSUPPORTED)
            fail_msg("%s: %s: status %d: %s", w->name, name, r.status, r.why);
        noticed = !same(&r, &w->base);
    }
    if (!noticed && !is_idle_gguf(w, name)) fail_msg("%s: key %s of GGUF is passed over", w->name, name);
}

static void every_key_of_gguf_counts(void **state) {
    struct walk w = {.name = *state};
    struct quantize_report report;
    struct tensorfile *f;
    char from[512], path[256], file[128], name[128];
    folder_make(&w.d);
    snprintf(file, sizeof file, "golden/hf/%s", w.name);
    folder_file(&w.d, path, "plain.gguf");
    assert_ok(quantize_file(
        &(struct quantize_options){.in = test_path(from, sizeof from, file), .out = path, .type = "f32"},
        &report));
    compute(path, &w.base);
    if (w.base.status) fail_msg("%s: %s", w.name, w.base.why);
    assert_ok(tensorfile_open(&f, path, NULL));
    struct str arch;
    assert_ok(meta_str(f, "general.architecture", &arch, NULL));
    for (size_t k = 0; k < f->n_meta; k++) {
        const struct str key = f->meta[k].key;
        bool own =
            key.len > arch.len && memcmp(key.data, arch.data, arch.len) == 0 && key.data[arch.len] == '.';
        size_t from = own ? arch.len + 1 : 0;
        if (!own && !(key.len > 6 && memcmp(key.data, "xielu.", 6) == 0))
            continue; /* which has none in front */
        snprintf(name, sizeof name, "%.*s", (int)(key.len - from), key.data + from);
        change_meta(&w, f, k, name);
        refuse_absurd_meta(&w, f, k, name);
    }
    assert_in_range(w.n, 10, 1000);
    tensorfile_close(f);
    folder_remove(&w.d);
}

/* null says that there is no cap, also where files without the key have one. */
static void null_is_off(void **state) {
    (void)state;
    struct walk w = {.name = "gemma2"};
    struct result capped, uncapped;
    walk_open(&w);
    json_object_set_new(w.root, "attn_logit_softcapping", json_null());
    try_config(&w, &uncapped);
    json_object_set_new(w.root, "attn_logit_softcapping", json_real(1e5));
    try_config(&w, &capped); /* so high that it does nothing */
    assert_int_equal(uncapped.status, INFER_OK);
    for (int i = 0; i < capped.n_vocab; i++)
        assert_true(fabsf(capped.logits[i] - uncapped.logits[i]) < 1e-4f);
    assert_false(same(&uncapped, &w.base));
    walk_close(&w);
}

/* The first Falcons of two norms say their key heads by n_head_kv, without a word of the new architecture. */
static void old_key_heads_count(void **state) {
    (void)state;
    struct walk w = {.name = "falcon-new"};
    struct result r;
    walk_open(&w);
    json_object_set(w.root, "n_head_kv", json_object_get(w.root, "num_kv_heads"));
    json_object_del(w.root, "num_kv_heads");
    json_object_del(w.root, "new_decoder_architecture");
    try_config(&w, &r);
    if (!same(&r, &w.base)) fail_msg("n_head_kv: %s", r.why);
    walk_close(&w);
}

/* Python writes Infinity, which JSON has not; another limit of steps is refused. */
static void infinity_is_read(void **state) {
    (void)state;
    struct walk w = {.name = "mamba2"};
    struct result r;
    char path[256];
    walk_open(&w);
    json_object_del(w.root, "time_step_limit");
    char *text = json_dumps(w.root, JSON_COMPACT);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(folder_file(&w.d, path, "config.json"), "w");
        assert_non_null(f);
        fprintf(f, "{\"a note: \\\" Infinity\": null, \"time_step_limit\": [0.0, %s], %s",
                i ? "9.5" : "Infinity", text + 1);
        fclose(f);
        compute(w.d.path, &r);
        if (i) assert_int_equal(r.status, INFER_E_UNSUPPORTED);
        if (!i && !same(&r, &w.base)) fail_msg("with Infinity: %s", r.why);
    }
    free(text);
    walk_close(&w);
}

/* The file at from with the key for layers that draft, and what it computes. */
static void compute_drafting(const char *from, const char *arch, uint32_t n, const char *to,
                             struct result *r) {
    struct tensorfile *f;
    struct gguf_writer *w;
    char key[64];
    snprintf(key, sizeof key, "%s.nextn_predict_layers", arch);
    assert_ok(tensorfile_open(&f, from, NULL));
    assert_ok(gguf_writer_open(&w, to));
    for (size_t i = 0; i < f->n_meta; i++) gguf_writer_meta(w, &f->meta[i]);
    gguf_writer_u32(w, key, n);
    gguf_copy_tensors(w, f);
    tensorfile_close(f);
    compute(to, r);
}
static void convert(const struct walk *w, const char *to) {
    struct quantize_report report;
    assert_ok(quantize_file(&(struct quantize_options){.in = w->d.path, .out = to, .type = "f32"}, &report));
}
/* The last layers are left out where config.json or the file says that they draft tokens; without the word they are an error of a
 * folder, which counts the others alone. */
static void layers_that_draft_are_left_out(void **state) {
    static const char *const all[][2] = {{"glm4_moe", "glm4moe"}, {"deepseek_v3", "deepseek2"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct walk w = {.name = all[i][0]};
        struct result left, more, file;
        char whole[256], fewer[256], drafting[256];
        walk_open(&w);
        const int n = (int)json_integer_value(json_object_get(w.root, "num_hidden_layers"));
        convert(&w, folder_file(&w.d, whole, "whole.gguf"));
        json_object_set_new(w.root, "num_hidden_layers", json_integer(n - 1));
        json_object_set_new(w.root, "num_nextn_predict_layers", json_integer(0));
        try_config(&w, &more);
        assert_int_equal(more.status, INFER_E_UNSUPPORTED);
        json_object_set_new(w.root, "num_nextn_predict_layers", json_integer(1));
        try_config(&w, &left);
        if (left.status) fail_msg("%s", left.why);
        assert_false(same(&left, &w.base));
        convert(&w, folder_file(&w.d, fewer, "fewer.gguf"));
        compute(fewer, &left);
        folder_file(&w.d, drafting, "drafting.gguf");
        compute_drafting(whole, all[i][1], 1, drafting, &file);
        if (!same(&file, &left)) fail_msg("%s: a layer that drafts counts: %s", w.name, file.why);
        compute_drafting(whole, all[i][1], (uint32_t)n, drafting, &file);
        assert_int_equal(file.status, INFER_E_INPUT); /* none left */
        walk_close(&w);
    }
}

/* The tensors of f in the shapes that llama.cpp's converter gives some of them; which: room for as many. */
static struct tensor *llama_shapes(const struct tensorfile *f) {
    struct tensor *t = malloc(f->n_tensor * sizeof *t);
    memcpy(t, f->tensor, f->n_tensor * sizeof *t);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const bool taps = strstr(t[i].name, "ssm_conv1d_") != NULL; /* [1][channels][1][taps] */
        if (taps) t[i].shape[1] = t[i].shape[2], t[i].shape[2] = 1;
        if (taps || strstr(t[i].name, ".ssm_a")) t[i].n_dim = 4; /* [1][1][heads][1] */
    }
    return t;
}
/* The file with the keys that the converter writes and this program does not, or otherwise. source: its classes for these models */
static void write_llama_form(const struct tensorfile *f, const char *to) {
    static const char *const left_out[] = {"step35.rope.dimension_count_swa"};
    struct gguf_writer *w;
    struct tensorfile shaped = *f;
    uint32_t embd = 0, heads = 0;
    assert_ok(gguf_writer_open(&w, to));
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct meta *m = &f->meta[i];
        if (str_is(m->key, "kimi-linear.embedding_length")) embd = (uint32_t)meta_elem_f64(m, 0);
        if (str_is(m->key, "kimi-linear.attention.head_count")) heads = (uint32_t)meta_elem_f64(m, 0);
    }
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct meta *m = &f->meta[i];
        const bool value = str_is(m->key, "kimi-linear.attention.value_length");
        if (value) gguf_writer_u32(w, "kimi-linear.attention.value_length", embd / heads);
        if (!value && !str_is(m->key, left_out[0])) gguf_writer_meta(w, m);
    }
    if (heads) gguf_writer_f32(w, "kimi-linear.rope.freq_base", 10000);
    if (!heads) gguf_writer_u32(w, "step35.moe_every_n_layers", 1);
    shaped.tensor = llama_shapes(f);
    gguf_copy_tensors(w, &shaped);
    free(shaped.tensor);
}
static void forms_of_llama_cpp_are_read(void **state) {
    static const char *const names[] = {"kimi_linear", "kimi_linear-low", "step3p5"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct walk w = {.name = names[i]};
        struct tensorfile *f;
        struct result own, theirs;
        char plain[256], form[256];
        walk_open(&w);
        convert(&w, folder_file(&w.d, plain, "plain.gguf"));
        compute(plain, &own);
        assert_ok(tensorfile_open(&f, plain, NULL));
        write_llama_form(f, folder_file(&w.d, form, "form.gguf"));
        tensorfile_close(f);
        compute(form, &theirs);
        if (own.status || theirs.status || !same(&own, &theirs))
            fail_msg("%s: %s%s", w.name, own.why, theirs.why);
        walk_close(&w);
    }
}

int main(int argc, char **argv) {
    static char gguf_name[HF_FOLDERS_MAX][64];
    static struct CMUnitTest tests[2 * HF_FOLDERS_MAX + 5];
    static const char *models[HF_FOLDERS_MAX];
    const int n_model = hf_folders(models);
    int n = 0;
    for (int i = 0; i < n_model; i += EVERY(3)) {
        void *name = (void *)(uintptr_t)models[i];
        snprintf(gguf_name[i], sizeof gguf_name[i], "%s as GGUF", models[i]);
        tests[n++] = (struct CMUnitTest){models[i], every_key_counts, NULL, NULL, name};
        if (strncmp(models[i], "packed-", 7) == 0) continue;
        tests[n++] = (struct CMUnitTest){gguf_name[i], every_key_of_gguf_counts, NULL, NULL, name};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(null_is_off);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(old_key_heads_count);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(layers_that_draft_are_left_out);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(infinity_is_read);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(forms_of_llama_cpp_are_read);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("folders", tests, (size_t)n, NULL, NULL);
}
