/* quantization_config -> struct hf_packing. */
#include "files/hf/hf_packed.h"
#include "files/json.h"

#include <string.h>

struct reading {
    const json_t *config;
    const char *path, *key;
    struct hf_packing *out;
};

/* ---- keys ---- */

/* Of AutoRound, whatever the method that its folders are packed as. */
#define AUTO_ROUND                                                                                           \
    "|autoround_version|provider|packing_format|data_type|extra_config|quant_block_list|to_quant_block_"     \
    "names|"                                                                                                 \
    "iters|lr|minmax_lr|nsamples|seqlen|train_bs|batch_size|dataset|scale_dtype|low_gpu_mem_usage|"          \
    "low_cpu_mem_usage|enable_quanted_input|enable_minmax_tuning|enable_norm_bias_tuning|enable_alg_ext|"    \
    "gradient_accumulate_steps|amp|model_free|act_bits|act_group_size|act_sym|act_data_type|act_dynamic|"    \
    "super_bits|super_group_size|disable_opt_rtn|not_use_best_mse|dynamic_max_gap"

/* Keys of each method: those that are read, and those that say how the numbers were found or what other programs do with them. */
static const struct {
    const char *name;
    enum hf_method method;
    const char *keys;
} methods[] = {
    {"gptq", HF_GPTQ,
     "bits|group_size|desc_act|act_group_aware|sym|checkpoint_format|pack_dtype|lm_head|dynamic|damp_percent|"
     "static_groups|true_sequential|"
     "model_name_or_path|model_file_base_name|quant_method|is_marlin_format|use_exllama|exllama_config|"
     "meta|version|cache_block_outputs|dataset|tokenizer|disable_exllama|max_input_length|"
     "block_name_to_quantize|module_name_preceding_first_block|batch_size|pad_token_id|use_cuda_fp16|"
     "modules_in_block_to_quantize|model_seqlen|hyb_act|mse|damp_auto_increment|offload_to_disk|format|"
     "method|backend" AUTO_ROUND},
    {"awq", HF_AWQ,
     "bits|group_size|zero_point|version|quant_method|modules_to_not_convert|backend|do_fuse|exllama_config|"
     "fuse_max_seq_len|modules_to_fuse|w_bit|q_group_size|sym|block_name_to_quantize" AUTO_ROUND},
    {"auto-round", HF_GPTQ,
     "quant_method|bits|group_size|sym|backend|block_name_to_quantize|modules_in_block_to_quantize|"
     "modules_to_not_convert|damp_percent|desc_act|static_groups|true_sequential|zero_point|"
     "version" AUTO_ROUND},
    {"fp8", HF_FP8,
     "quant_method|fmt|weight_block_size|activation_scheme|modules_to_not_convert|ignored_layers|"
     "scale_fmt|dequantize|activation_scale_ub|kv_cache_scheme|modules_to_convert|weight_per_tensor|act_per_tensor"},
    {"fbgemm_fp8", HF_FP8, "quant_method|activation_scale_ub|modules_to_not_convert"},
    {"compressed-tensors", HF_COMPRESSED,
     "quant_method|config_groups|format|ignore|kv_cache_scheme|quantization_status|version|"
     "global_compression_ratio|sparsity_config|transform_config|run_compressed"},
    {"bitsandbytes", HF_BITSANDBYTES,
     "quant_method|_load_in_4bit|_load_in_8bit|load_in_4bit|load_in_8bit|bnb_4bit_quant_type|"
     "bnb_4bit_use_double_quant|bnb_4bit_compute_dtype|bnb_4bit_quant_storage|llm_int8_threshold|"
     "llm_int8_skip_modules|llm_int8_enable_fp32_cpu_offload|llm_int8_has_fp16_weight"},
    {"modelopt", HF_MODELOPT,
     "quant_method|quant_algo|producer|config_groups|ignore|exclude_modules|group_size|kv_cache_scheme|"
     "kv_cache_quant_algo|quantization_status|quant_format"},
    {"modelopt_fp4", HF_MODELOPT,
     "quant_method|quant_algo|producer|config_groups|ignore|exclude_modules|"
     "group_size|kv_cache_scheme|kv_cache_quant_algo"},
};

static enum infer_status wrong(const struct reading *r, const char *key, const char *want) {
    return err_set(INFER_E_UNSUPPORTED, "%s: '%s' of quantization_config is not %s", r->path, key, want);
}
static bool is_set(const json_t *v) {
    return v && !json_is_null(v) && !json_is_false(v) &&
           !((json_is_object(v) || json_is_array(v)) && !json_object_size(v) && !json_array_size(v));
}

/* Members whose absence is a default, so that another type would be one without a sign. */
static enum infer_status check_types(const struct reading *r, const json_t *o) {
    static const struct {
        const char *keys, *want;
    } rows[] = {{"desc_act|sym|symmetric|zero_point|is_marlin_format", "true or false"},
                {"bits|w_bit|num_bits|group_size|q_group_size", "an integer"},
                {"checkpoint_format|pack_dtype|fmt|format|strategy|type|packing_format|data_type|quant_algo",
                 "a name"},
                {"weight_block_size|block_structure", "a list"}};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v) for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool fits = i == 0   ? json_is_boolean(v)
                          : i == 1 ? json_is_integer(v)
                          : i == 2 ? json_is_string(v)
                                   : json_is_array(v);
        if (key_names(rows[i].keys, key, strlen(key)) && !json_is_null(v) && !fits)
            return wrong(r, key, rows[i].want);
    }
    return INFER_OK;
}

/* group_size: a number, or nothing. */
static enum infer_status read_group(const struct reading *r, const json_t *v) {
    if (!v || json_is_null(v)) return INFER_OK;
    r->out->group = json_integer_value(v);
    return json_is_integer(v) && (r->out->group > 0 || r->out->group == -1)
               ? INFER_OK
               : wrong(r, "group_size", "a number of columns, or -1");
}

/* Modules of their own: names or patterns of them, with what is another there. Which bits and groups each has is said by its tensors. */
static enum infer_status read_own(const struct reading *r, const char *key) {
    const json_t *own = json_object_get(r->config, key);
    const char *name;
    json_t *module;
    if (!is_set(own)) return INFER_OK;
    if (!json_is_object(own)) return wrong(r, key, "an object of modules");
    json_object_foreach((json_t *)own, name, module) {
        const json_t *bits = json_object_get(module, "bits"), *type = json_object_get(module, "data_type");
        const json_int_t n = bits ? json_integer_value(bits) : r->out->bits;
        TRY(check_types(r, module));
        char said[160];
        snprintf(said, sizeof said, "%s: %.100s: bits", key, name);
        if (n >= 16 || strncmp(name, "-:", 2) == 0) continue;
        if (n != 4 && n != 8) return wrong(r, said, "4, 8 or 16");
        if (is_set(type) && strcmp(json_text_of(module, "data_type"), "int") != 0)
            return wrong(r, said, "of 'data_type' 'int'");
        r->out->by_module = true;
    }
    if (r->out->by_module) r->out->group = 0;
    return INFER_OK;
}

/* ---- methods ---- */

static enum infer_status read_gptq(const struct reading *r) {
    const json_int_t bits = json_integer_value(json_object_get(r->config, "bits"));
    const char *format = json_text_of(r->config, "checkpoint_format"),
               *pack = json_text_of(r->config, "pack_dtype");
    if (bits != 4 && bits != 8)
        return wrong(r, "bits", "4 or 8; take a GGUF file of the model, as Q3_K or Q2_K");
    if (*format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return wrong(r, "checkpoint_format", "'gptq' or 'gptq_v2'");
    if (*pack && strcmp(pack, "int32") != 0) return wrong(r, "pack_dtype", "'int32'");
    if (is_set(json_object_get(r->config, "is_marlin_format")))
        return wrong(r, "is_marlin_format", "false: the tensors are in the order of one kernel");
    r->out->bits = (int)bits;
    r->out->zero_plus = strcmp(format, "gptq_v2") != 0;
    r->out->index = is_set(json_object_get(r->config, "desc_act"));
    TRY(read_group(r, json_object_get(r->config, "group_size")));
    TRY(read_own(r, "extra_config"));
    return read_own(r, "dynamic");
}

static enum infer_status read_awq(const struct reading *r) {
    const json_t *bits = json_object_get(r->config, "bits");
    const char *version = json_text_of(r->config, "version");
    if (!bits) bits = json_object_get(r->config, "w_bit");
    if (json_integer_value(bits) != 4) return wrong(r, "bits", "4");
    if (*version && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return wrong(r, "version", "'gemm': the tensors are in the order of another kernel");
    r->out->bits = 4;
    const json_t *group = json_object_get(r->config, "group_size");
    return read_group(r, group ? group : json_object_get(r->config, "q_group_size"));
}

/* AutoRound packs as others do; its own packing is GPTQ's whose zero points lack nothing. Folders from before 'packing_format' say it by
 * 'backend'. source: inference/backend.py of auto-round */
static enum infer_status read_auto_round(const struct reading *r) {
    static const struct {
        const char *names;
        enum hf_method method;
        int zero_plus;
    } known[] = {
        {"auto|auto_round:auto_gptq|auto_round:gptq|auto_round:gptq:exllamav2|auto_gptq|gptq", HF_GPTQ, 1},
        {"auto_round|auto_round:gptqmodel|auto_round:exllamav2|auto_round:triton|auto_round:tritonv2",
         HF_GPTQ, 0},
        {"auto_round:auto_awq|auto_round:awq|auto_awq|awq", HF_AWQ, 0}};
    const json_t *said = json_object_get(r->config, "packing_format");
    const char *key = is_set(said) ? "packing_format" : "backend",
               *type = json_text_of(r->config, "data_type");
    const char *name = is_set(json_object_get(r->config, key)) ? json_text_of(r->config, key) : "auto";
    const json_int_t bits = json_integer_value(json_object_get(r->config, "bits"));
    size_t i = 0, n = sizeof known / sizeof *known;
    if (*type && strcmp(type, "int") != 0)
        return wrong(r, "data_type",
                     "'int'; export the model as 'llm_compressor' to have it in compressed-tensors");
    while (i < n && !key_names(known[i].names, name, strlen(name))) i++;
    if (i == n)
        return wrong(
            r, key,
            "'auto_round', 'auto_round:auto_gptq' or 'auto_round:auto_awq'; export it as one of them");
    r->out->method = known[i].method;
    r->out->zero_plus = known[i].zero_plus;
    if (bits != 4 && (bits != 8 || known[i].method == HF_AWQ))
        return wrong(r, "bits", "4, or 8 as 'auto_round'; take a GGUF file of the model, as Q3_K or Q2_K");
    r->out->bits = (int)bits;
    TRY(read_group(r, json_object_get(r->config, "group_size")));
    return read_own(r, "extra_config");
}

/* Blocks of 128 x 128, or none. */
static enum infer_status read_fp8(const struct reading *r) {
    const json_t *block = json_object_get(r->config, "weight_block_size");
    const char *fmt = json_text_of(r->config, "fmt");
    if (*fmt && !key_names("e4m3|float8_e4m3fn", fmt, strlen(fmt))) return wrong(r, "fmt", "'e4m3'");
    if (!block || json_is_null(block)) return INFER_OK;
    for (size_t i = 0; i < 2; i++)
        if (json_array_size(block) != 2 || json_integer_value(json_array_get(block, i)) != 128)
            return wrong(r, "weight_block_size", "[128, 128]");
    r->out->scales = HF_SCALES_BLOCKS;
    return INFER_OK;
}

/* mixed: of all groups together, which then say their own. */
static enum infer_status check_format(const struct reading *r, const char *format, bool mixed) {
    static const char known[] = "pack-quantized|int-quantized|float-quantized|naive-quantized|nvfp4-pack-"
                                "quantized|mxfp4-pack-quantized|mxfp8-quantized";
    if (key_names(known, format, strlen(format))) return INFER_OK;
    if (mixed && strcmp(format, "mixed-precision") == 0) return INFER_OK;
    return wrong(
        r, "format",
        "pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, "
        "mxfp8-quantized or mixed-precision; publish the model as one of them");
}

/* What every group of modules says, w the weights of one of them, of which first is one. */
static void read_sides(const struct reading *r, const json_t *w, bool first) {
    static const char *const names[] = {
        [HF_SCALES_ONE] = "tensor", [HF_SCALES_ROWS] = "channel", [HF_SCALES_BLOCKS] = "block"};
    const bool offset = json_is_false(json_object_get(w, "symmetric")),
               index = strcmp(json_text_of(w, "actorder"), "group") == 0;
    enum hf_scales scales = HF_SCALES_BLOCKS;
    while (scales > HF_SCALES_ANY && strcmp(json_text_of(w, "strategy"), names[scales]) != 0) scales--;
    const char type = *json_text_of(w, "type");
    r->out->type = first || r->out->type == type ? type : 0;
    r->out->offset = offset && (first || r->out->offset);
    r->out->index = index && (first || r->out->index);
    if (first || r->out->scales == scales)
        r->out->scales = scales;
    else
        r->out->scales = HF_SCALES_ANY;
}

/* Of each group of modules: which codes its weights are. */
static enum infer_status read_groups(const struct reading *r) {
    const json_t *groups = json_object_get(r->config, "config_groups");
    const char *name;
    json_t *group;
    json_object_foreach((json_t *)groups, name, group) {
        const json_t *w = json_object_get(group, "weights");
        const json_int_t bits = json_integer_value(json_object_get(w, "num_bits"));
        const char *actorder = json_text_of(w, "actorder");
        if (!is_set(w)) return wrong(r, "config_groups", "one with 'weights'");
        TRY(check_types(r, group));
        TRY(check_types(r, w));
        if (bits != 4 && bits != 8) return wrong(r, "num_bits", "4 or 8");
        if (*actorder && strcmp(actorder, "weight") != 0 && strcmp(actorder, "static") != 0 &&
            strcmp(actorder, "group") != 0)
            return wrong(r, "actorder", "'weight', 'static' or 'group'");
        read_sides(r, w, !r->out->bits);
        if (r->out->bits && r->out->bits != bits) r->out->by_module = true;
        r->out->bits = (int)bits;
        if (is_set(json_object_get(w, "block_structure"))) {
            const json_t *block = json_object_get(w, "block_structure");
            if (json_integer_value(json_array_get(block, 0)) != 128 ||
                json_integer_value(json_array_get(block, 1)) != 128)
                return wrong(r, "block_structure", "[128, 128]");
        }
        TRY(read_group(r, json_object_get(w, "group_size")));
        if (is_set(json_object_get(group, "format")))
            TRY(check_format(r, json_text_of(group, "format"), false));
    }
    if (json_object_size(groups) > 1) r->out->group = 0;
    return r->out->bits ? INFER_OK : wrong(r, "config_groups", "there");
}

static enum infer_status read_compressed(const struct reading *r) {
    TRY(check_format(r, json_text_of(r->config, "format"), true));
    if (is_set(json_object_get(json_object_get(r->config, "sparsity_config"), "format")) &&
        strcmp(json_text_of(json_object_get(r->config, "sparsity_config"), "format"), "dense") != 0)
        return wrong(r, "sparsity_config", "'dense'");
    if (is_set(json_object_get(json_object_get(r->config, "transform_config"), "config_groups")))
        return wrong(r, "transform_config", "empty");
    r->out->divided = true;
    return read_groups(r);
}

static enum infer_status read_modelopt(const struct reading *r) {
    const char *algo = json_text_of(r->config, "quant_algo");
    if (strcmp(algo, "FP8") != 0 && strcmp(algo, "NVFP4") != 0)
        return wrong(r, "quant_algo", "'FP8' or 'NVFP4'");
    if (strcmp(algo, "FP8") == 0) r->out->scales = HF_SCALES_ONE;
    return INFER_OK;
}

/* What nobody reads here, and in what its models are to be had. */
static const struct {
    const char *names, *help;
} others[] = {{"mlx", "the model in BF16, or convert that to a GGUF file in q4_k_m"},
              {"torchao|quanto|optimum-quanto|eetq|gemma|metal|experts_int8|deepspeedfp|inc|ascend|modelslim",
               "the model in BF16, or convert that to a GGUF file in q8_0"},
              {"hqq|sinq|squeezellm|bitblas|marlin|gptq_marlin|gptq_marlin_24|awq_marlin|qqq",
               "a folder in GPTQ or AWQ, or the model in BF16"},
              {"exl2|exl3", "a GGUF file of as many bits"},
              {"aqlm|vptq|quip|quip#|quip_sharp|qtip", "a GGUF file, as IQ2_XS"},
              {"spqr", "a GGUF file, as IQ3_S"},
              {"higgs", "a GGUF file, as Q4_K_M"},
              {"bitnet|bitblas_bitnet", "a GGUF file in TQ2_0"},
              {"quark|nvfp4|mxfp8|fp_quant|fouroversix",
               "a folder in compressed-tensors (nvfp4-pack-quantized, mxfp4-pack-quantized) or in modelopt"},
              {"mxfp4", "a folder in compressed-tensors, where this is no gpt-oss"},
              {"gguf", "the GGUF file itself"}};

/* MLX says numbers and no method. */
static enum infer_status unknown_method(const struct reading *r, const char *method) {
    const char *help = "the model in BF16 or as GGUF";
    if (!*method) method = json_object_get(r->config, "group_size") ? "mlx" : "?";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (key_names(others[i].names, method, strlen(method))) help = others[i].help;
    return err_set(INFER_E_UNSUPPORTED, "%s: '%s': weights quantised by '%.32s' are not supported; take %s",
                   r->path, r->key, method, help);
}

enum infer_status hf_packing_mlx(const json_t *config, const char *path) {
    return unknown_method(&(struct reading){.config = config, .path = path, .key = "quantization"}, "");
}

/* Every key is one of a list. */
static enum infer_status check_keys(const struct reading *r, const char *known,
                                    const struct key_ignore *ignore) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)r->config, key, v) {
        char name[96];
        snprintf(name, sizeof name, "quantization_config.%.64s", key);
        if (!key_names(known, key, strlen(key)) && !json_is_null(v)) TRY(key_unknown(ignore, r->path, name));
    }
    return INFER_OK;
}

/* modelopt's older layout: {"producer": .., "quantization": {"quant_algo": .., ..}}, no algorithm where weights are as they were.
 * *r becomes the inner object. source: modelopt's export of hf_quant_config.json */
static enum infer_status open_older(struct reading *r, const char **method, const struct key_ignore *ignore) {
    const json_t *inner = json_object_get(r->config, "quantization"),
                 *algo = json_object_get(inner, "quant_algo");
    if (!json_is_object(inner) || (**method && strcmp(*method, "modelopt") != 0)) return INFER_OK;
    TRY(check_keys(r, "producer|quantization|quant_method", ignore));
    *method = !algo || json_is_null(algo) ? NULL : "modelopt";
    r->config = inner;
    return INFER_OK;
}

enum infer_status hf_packing_read(struct hf_packing *out, const json_t *config, const char *path,
                                  const struct key_ignore *ignore) {
    struct reading r = {config, path, "quantization_config", out};
    const char *method = json_text_of(config, "quant_method");
    size_t i = 0, n = sizeof methods / sizeof *methods;
    *out = (struct hf_packing){0};
    if (json_is_string(config)) method = json_string_value(config);
    if (strcmp(method, "intel/auto-round") == 0) method = "auto-round";
    TRY(open_older(&r, &method, ignore));
    if (!method) return INFER_OK;
    config = r.config;
    while (i < n && strcmp(methods[i].name, method) != 0) i++;
    if (i == n || !json_is_object(config)) return unknown_method(&r, method);
    out->method = methods[i].method;
    out->name = methods[i].name;
    TRY(check_keys(&r, methods[i].keys, ignore));
    TRY(check_types(&r, config));
    if (is_set(json_object_get(config, "kv_cache_scheme")))
        log_line(LOG_NOTE, "%s: 'kv_cache_scheme' is not used; .kv_type says how keys and values are kept",
                 path);
    if (strcmp(out->name, "auto-round") == 0) return read_auto_round(&r);
    if (out->method == HF_GPTQ) return read_gptq(&r);
    if (out->method == HF_AWQ) return read_awq(&r);
    if (strcmp(out->name, "fbgemm_fp8") == 0) out->scales = HF_SCALES_ROWS;
    if (out->method == HF_FP8) return read_fp8(&r);
    if (out->method == HF_COMPRESSED) return read_compressed(&r);
    if (out->method == HF_MODELOPT) return read_modelopt(&r);
    return INFER_OK;
}
