/* config.json -> the keys of GGUF: rotary positions. */
#include "files/hf/hf_config.h"

#include <math.h>
#include <string.h>

/* Sets c->rope: a parameter stands inside rope_parameters (transformers 5), inside rope_scaling (before), or beside them. windowed: of
 * layers with a window, NULL: as of all. */
static enum infer_status open_rope(struct config *c, const json_t **windowed) {
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    *windowed = NULL;
    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(c->root, names[i]);
        if (!v || json_is_null(v)) continue;
        if (!json_is_object(v)) return config_wrong(c, names[i], "an object or null");
        const json_t *full = json_object_get(v, "full_attention");
        *windowed = full ? json_object_get(v, "sliding_attention") : *windowed;
        c->rope[i] = full ? full : v;
        if (full && (!c->out->table->rope.scaled_full || json_object_size(v) != (*windowed ? 2u : 1u)))
            return err_set(INFER_E_UNSUPPORTED, "%s: '%s' by kinds of layers is not supported for %s",
                           c->path, names[i], c->out->arch);
    }
    return INFER_OK;
}

/* "default", "linear", .. */
static enum infer_status read_type(struct config *c, const char **out) {
    const json_t *type = get_json(c, K_ROPE_TYPE), *old = get_json(c, K_ROPE_TYPE_OLD);
    *out = "default";
    if (type && old && !json_equal(type, old))
        return err_set(INFER_E_INPUT, "%s: 'type' and 'rope_type' of rope scaling differ", c->path);
    if (!type) type = old;
    if (!type) return c->status;
    *out = json_string_value(type);
    if (!*out) return config_wrong(c, "rope_type", "a name");
    if (strcmp(*out, "su") == 0) *out = "longrope";   /* its first name */
    if (strcmp(*out, "mrope") == 0) *out = "default"; /* the same for texts */
    if (key_names("default|linear|llama3|yarn|longrope|dynamic", *out, strlen(*out))) return INFER_OK;
    if (key_names("proportional", *out, strlen(*out)) && config_reads(c, *out)) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED,
                   "%s: rope scaling '%.32s' is not supported (linear, llama3, yarn, longrope, dynamic)",
                   c->path, *out);
}

/* Nothing is in the objects that this type does not read. */
static enum infer_status check_rope_keys(const struct config *c, const char *type) {
    const char *key;
    json_t *v;
    for (int i = 0; i < 2; i++) json_object_foreach((json_t *)c->rope[i], key, v) {
            const struct key_row *row = key_find(KEYS_ROPE, key);
            if (json_is_null(v)) continue;
            TRY(config_in_range(c, key, v));
            if (strcmp(key, "llama_4_scaling_beta") == 0 && !config_reads(c, key)) row = NULL;
            if (!row) TRY(key_unknown(c->ignore, c->path, key));
            if (row && !key_names(row->words, type, strlen(type)))
                return err_set(INFER_E_UNSUPPORTED, "%s: rope scaling '%s' does not read '%s'", c->path, type,
                               key);
        }
    return INFER_OK;
}

/* Llama 3's scaling: frequencies whose wavelength is beyond original / low_freq_factor are divided by factor, those below
 * original / high_freq_factor are kept, between them the divisor's inverse is mixed linearly in original / wavelength.
 * source: Dubey et al. 2024 (arXiv 2407.21783) and the rope_scaling entry of its config.json. */
static enum infer_status llama3_divisors(struct config *c, float theta, float factor) {
    const float low = get_f32(c, K_ROPE_LOW), high = get_f32(c, K_ROPE_HIGH);
    const uint32_t original = get_u32(c, K_ROPE_ORIGINAL);
    TRY(c->status);
    if (!(low > 0 && high >= low) || !original) /* both alike: nothing is mixed, as Llama 4 Scout has it */
        return config_wrong(c, "rope_scaling", "one of llama3: 0 < low_freq_factor <= high_freq_factor");
    int half = c->out->n_rot / 2;
    float *d = arena_alloc(c->keys->arena, (size_t)c->out->n_divisor * sizeof *d);
    if (!d) return err_set(INFER_E_MEMORY, "out of memory: %d divisors", half);
    for (int i = 0; i < half; i++) {
        double turns =
            original * pow((double)theta, -2.0 * i / c->out->n_rot) / (2 * M_PI); /* original / wavelength */
        double mix = high > low ? fmin(1, fmax(0, (turns - (double)low) / ((double)high - (double)low)))
                                : turns > (double)low;
        d[i] = (float)(1 / ((1 - mix) / (double)factor + mix));
    }
    for (int i = half; i < c->out->n_divisor; i++) d[i] = 1; /* of layers that rotate more, unscaled */
    c->out->rope_divisor = d;
    return INFER_OK;
}

/* What YaRN multiplies q and k by, as a whole; times = 1: the value for factor alone. */
static float yarn_magnitude(float factor, float times) {
    return factor > 1 ? 1 + 0.1f * times * logf(factor) : 1;
}

/* What GGUF's attn_factor is, which multiplies the magnitude; 0: 1. attention_factor stands for the product, as does mscale
 * over mscale_all_dim (both or none). sources: modeling_rope_utils of transformers; attn_factor, which
 * DeepSeek-R1-0528-Qwen3-8B has, is read by vLLM alone */
static enum infer_status read_magnitude(struct config *c, float factor, float *times) {
    const float mscale = get_f32(c, K_ROPE_MSCALE), all_dim = get_f32(c, K_ROPE_MSCALE_ALL);
    float whole = get_f32(c, K_ROPE_MAGNITUDE);
    *times = get_f32(c, K_ROPE_MAGNITUDE_TIMES);
    TRY(c->status);
    if ((mscale > 0 && mscale != 1 && all_dim == 0) || (all_dim > 0 && mscale == 0))
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'mscale' and 'mscale_all_dim' of yarn go together: one alone is read differently "
                       "by different programs",
                       c->path);
    if ((whole > 0) + (*times > 0) + (all_dim > 0) > 1)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'attention_factor', 'attn_factor' and 'mscale' of yarn exclude each other",
                       c->path);
    if (all_dim > 0) whole = yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim);
    if (whole > 0) *times = whole / yarn_magnitude(factor, 1);
    if (all_dim > 0 && c->out->table->attn.latent) {
        /* of whole scores; attn_factor is what is left for the rotated part */
        put_f32(c, "rope.scaling.yarn_log_multiplier", 0.1f * all_dim);
        *times = whole;
    }
    return INFER_OK;
}

/* source: Peng et al. 2023 (arXiv 2309.00071); truncate: modeling_rope_utils of transformers */
static enum infer_status read_yarn(struct config *c, float factor) {
    const uint32_t original = get_u32_or(c, K_ROPE_ORIGINAL, 0);
    const float fast = get_f32(c, K_ROPE_FAST), slow = get_f32(c, K_ROPE_SLOW);
    const bool truncate = get_flag(c, K_ROPE_TRUNCATE);
    float times = 0;
    TRY(read_magnitude(c, factor, &times));
    if (original) put_u32(c, "rope.scaling.original_context_length", original);
    put_f32(c, "rope.scaling.yarn_beta_fast", fast > 0 ? fast : 32);
    put_f32(c, "rope.scaling.yarn_beta_slow", slow > 0 ? slow : 1);
    if (truncate != (arch_default(c->out->table, "rope.scaling.yarn_truncate", 1) != 0))
        put_bool(c, "rope.scaling.yarn_truncate", truncate);
    if (times > 0) put_f32(c, "rope.scaling.attn_factor", times);
    return INFER_OK;
}

/* Divisors of the frequencies, one for each, of contexts within the original length and beyond it; q and k are times
 * sqrt(1 + ln(whole / original) / ln(original)) in both. source: modeling_rope_utils of transformers; Ding et al. 2024 (LongRoPE) */
static enum infer_status read_longrope(struct config *c) {
    static const enum hf_key keys[] = {K_ROPE_SHORT, K_ROPE_LONG};
    const uint32_t original = get_u32(c, K_ROPE_ORIGINAL), whole = get_u32(c, K_CTX),
                   half = (uint32_t)c->out->n_rot / 2;
    float *d[2], factor = original ? (float)whole / (float)original : 0, times;
    if (get_json(c, K_ROPE_FACTOR)) factor = get_f32(c, K_ROPE_FACTOR);
    TRY(c->status);
    if (original < 2) return config_wrong(c, "original_max_position_embeddings", "above 1");
    for (int i = 0; i < 2; i++) {
        const json_t *v = get_json(c, keys[i]);
        if (json_array_size(v) != half)
            return key_wrong(c, keys[i], "a list with a number for each frequency");
        d[i] = arena_alloc(c->keys->arena, (size_t)(half + 1) * sizeof(float));
        if (!d[i]) return err_set(INFER_E_MEMORY, "out of memory: %u divisors", half);
        for (uint32_t j = 0; j < half; j++)
            TRY(config_f32(c, key_name(c, keys[i]), json_array_get(v, j), NAN, &d[i][j]));
    }
    times = factor > 1 ? sqrtf(1 + logf(factor) / logf((float)original)) : 1;
    if (get_json(c, K_ROPE_MAGNITUDE)) times = get_f32(c, K_ROPE_MAGNITUDE);
    const float near = get_f32(c, K_ROPE_SHORT_MAGNITUDE), far = get_f32(c, K_ROPE_LONG_MAGNITUDE);
    TRY(c->status);
    if ((near != 0 || far != 0) && (near != far || !config_reads(c, "short_mscale")))
        return err_set(
            INFER_E_UNSUPPORTED,
            "%s: 'short_mscale' and 'long_mscale' of longrope are supported where both are one, in "
            "Phi-3.5-MoE alone",
            c->path);
    if (near != 0) times = near;
    c->out->rope_short = d[0];
    c->out->rope_long = d[1];
    hf_put_str(c->keys, c->out->arch, "rope.scaling.type", "longrope", 8);
    put_u32(c, "rope.scaling.original_context_length", original);
    put_f32(c, "rope.scaling.attn_factor", times);
    return INFER_OK;
}

/* The first part of the frequencies is that of a whole head's rotation, the others are 0. source: modeling_gemma4 */
static enum infer_status proportional_divisors(const struct config *c, float part) {
    int half = c->out->n_rot / 2, kept = (int)(part * (float)half);
    float *d = arena_alloc(c->keys->arena, (size_t)(half + 1) * sizeof *d);
    if (!d) return err_set(INFER_E_MEMORY, "out of memory: %d divisors", half);
    for (int i = 0; i < half; i++) d[i] = i < kept ? 1 : 1e30f;
    c->out->rope_divisor = d;
    return INFER_OK;
}

/* Layers with a window: their base, unscaled. */
static enum infer_status read_windowed(struct config *c, const json_t *windowed, const uint32_t dim[2],
                                       float theta) {
    struct config own = *c;
    const char *type;
    float base = 0, part = 1;
    own.root = NULL, own.rope[0] = windowed, own.rope[1] = NULL;
    if (!c->out->table->rope.scaled_full) return INFER_OK;
    if (windowed) {
        TRY(read_type(&own, &type));
        TRY(check_rope_keys(&own, type));
        if (strcmp(type, "default") != 0)
            return err_set(INFER_E_UNSUPPORTED, "%s: rope scaling '%s' of sliding_attention is not supported",
                           c->path, type);
        if (get_json(&own, K_ROPE_PART)) part = get_f32(&own, K_ROPE_PART);
        base = get_json(&own, K_ROPE_THETA) ? get_f32(&own, K_ROPE_THETA) : theta;
        TRY(own.status);
    } else if (key_reads(c, K_ROPE_LOCAL) || key_reads(c, K_ROPE_WINDOWED)) {
        const bool own = key_reads(c, K_ROPE_WINDOWED);
        base = get_f32(c, own ? K_ROPE_WINDOWED : K_ROPE_LOCAL);
        if (base < 1) return key_wrong(c, own ? K_ROPE_WINDOWED : K_ROPE_LOCAL, "from 1 to 1e12");
        if (get_json(c, K_ROPE_PART)) part = get_f32(c, K_ROPE_PART);
        TRY(c->status);
    }
    if (!(part > 0 && part <= 1)) return config_wrong(c, "partial_rotary_factor", "above 0 and at most 1");
    if (base > 0) put_f32(c, c->out->table->attn.entries ? "rope.freq_base" : "rope.freq_base_swa", base);
    int n_rot = (int)((float)dim[1] * part);
    if (n_rot != c->out->n_rot) put_u32(c, "rope.dimension_count_swa", (uint32_t)n_rot);
    return INFER_OK;
}

/* What the type adds to the base. */
static enum infer_status read_scaling(struct config *c, const char *type, float theta, float part) {
    if (strcmp(type, "default") == 0 || strcmp(type, "dynamic") == 0) return INFER_OK;
    if (strcmp(type, "longrope") == 0) return read_longrope(c);
    if (strcmp(type, "proportional") == 0) return proportional_divisors(c, part);
    const float factor = get_f32(c, K_ROPE_FACTOR);
    TRY(c->status);
    if (!(factor > 0)) return config_wrong(c, "factor", "above 0");
    if (strcmp(type, "llama3") == 0) return llama3_divisors(c, theta, factor);
    hf_put_str(c->keys, c->out->arch, "rope.scaling.type", type, strlen(type));
    put_f32(c, "rope.scaling.factor", factor);
    return strcmp(type, "yarn") == 0 ? read_yarn(c, factor) : INFER_OK;
}

/* Dynamic NTK: nothing within the length of the training; in a longer text the base grows with each position, while keys that are there keep
 * theirs, so that what is computed depends on how the text came in: that is refused. source: modeling_rope_utils of transformers */
static enum infer_status read_dynamic(struct config *c) {
    const float factor = get_f32(c, K_ROPE_FACTOR), alpha = get_f32(c, K_ROPE_ALPHA);
    const uint32_t most = get_u32(c, K_CTX);
    TRY(c->status);
    if (!(factor >= 1)) return config_wrong(c, "factor", "at least 1, as 'dynamic' has it");
    if (alpha != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'alpha' of dynamic scaling is of Hunyuan's models", c->path);
    put_u32(c, "rope.scaling.dynamic_context_length", most);
    return INFER_OK;
}

/* The base of Hunyuan's dynamic scaling is times alpha^(dim / (dim - 2)). source: modeling_hunyuan_v1_dense of transformers */
static enum infer_status read_alpha(struct config *c, uint32_t dim, float *theta) {
    const float alpha = get_f32(c, K_ROPE_ALPHA);
    TRY(c->status);
    if (!(alpha > 0) || dim <= 2) return config_wrong(c, "alpha", "above 0, as 'dynamic' needs");
    *theta *= powf(alpha, (float)dim / (float)(dim - 2));
    return INFER_OK;
}

/* Which position rotates which frequency, told to programs for images; texts have one position. */
static enum infer_status read_sections(struct config *c) {
    uint32_t section[4] = {0};
    const json_t *v = get_json(c, K_ROPE_SECTIONS);
    if (!v) return c->status;
    for (size_t i = 0; i < 4 && i < json_array_size(v); i++)
        TRY(config_u32(c, "mrope_section", json_array_get(v, i), 0, &section[i]));
    hf_put_u32s(c->keys, c->out->arch, "rope.dimension_sections", section, 4);
    if (c->out->table->rope.kind == ROPE_INTERLEAVED) put_bool(c, "rope.neox", false);
    return INFER_OK;
}

/* Queries grow with the position; of a latent, files say by what length, too, which is the original one (llama.cpp opens none without). */
static enum infer_status put_temperature(struct config *c, float beta) {
    put_f32(c, "attention.temperature_scale", beta);
    if (c->out->table->attn.latent) put_u32(c, "attention.temperature_length", get_u32(c, K_ROPE_ORIGINAL));
    return c->status;
}

/* The rotated numbers of a head have a key of their own; part may say the same, of a whole head. */
static enum infer_status check_latent_part(const struct config *c, uint32_t n_rot, float *part) {
    float whole = *part * (float)c->out->head_dim;
    if (*part != 1 && fabsf(whole - (float)n_rot) > 0.01f)
        return config_wrong(c, "partial_rotary_factor", "qk_rope_head_dim over the size of a head");
    *part = 1;
    return INFER_OK;
}

/* The part of a head that rotates, or how many numbers of it (0: by the part). */
static enum infer_status read_part(struct config *c, uint32_t dim, float *part, uint32_t *n_rot) {
    *part = get_f32(c, K_ROPE_PART);
    if (*part == 0) *part = get_f32(c, K_ROPE_PART_OLD);
    if (*part == 0) *part = c->out->table->hf.rotated != 0 ? c->out->table->hf.rotated : 1;
    *n_rot = get_u32(c, K_ROPE_ROTATED);
    TRY(c->status);
    if (c->out->table->attn.latent) TRY(check_latent_part(c, dim, part));
    if (*n_rot) *part = (float)*n_rot / (float)dim;
    return *part > 0 && *part <= 1 ? INFER_OK
                                   : config_wrong(c, "partial_rotary_factor", "above 0 and at most 1");
}

/* A base for each layer; 0: it does not rotate. source: configuration_granite_swa of transformers */
static enum infer_status read_bases(struct config *c, float *theta) {
    const json_t *list = get_layers(c, K_ROPE_THETAS, "a list with a base for each layer"), *v;
    uint8_t *rotated = get_room(c, c->n_layer);
    bool all = true;
    float base = 0, one;
    size_t i;
    TRY(c->status);
    json_array_foreach(list, i, v) {
        TRY(config_f32(c, "layer_rope_theta", v, NAN, &one));
        if (!(one == 0 || (one >= 1 && one <= 1e12f)))
            return key_wrong(c, K_ROPE_THETAS, "0, or from 1 to 1e12");
        if (one != 0 && base != 0 && one != base)
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: 'layer_rope_theta' has several bases, which is not supported", c->path);
        if (one != 0) base = one;
        all &= rotated[i] = one != 0;
    }
    if (base != 0 && !key_reads(c, K_Q_FACTOR)) *theta = base; /* Muse Glimmer has it beside the list */
    if (!all) put_bools(c, "attention.rope_pattern", rotated);
    return INFER_OK;
}

/* OLMo Hybrid's published models do not rotate: they have no base, or null for all of rotation. Without these keys its class has a base. */
static bool has_no_base(struct config *c) {
    const json_t *const at[] = {c->root, c->rope[0], c->rope[1]};
    bool null = json_is_null(json_object_get(c->root, "rope_parameters"));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        null |= json_is_null(json_object_get(at[i], "rope_theta"));
    return null && !get_json(c, K_ROPE_THETA);
}

enum infer_status config_rope(struct config *c, const uint32_t dim[2]) {
    const json_t *windowed;
    const char *type;
    float theta, part, beta;
    uint32_t n_rot;
    TRY(open_rope(c, &windowed));
    TRY(read_type(c, &type));
    TRY(check_rope_keys(c, type));
    TRY(read_part(c, dim[0], &part, &n_rot));
    bool whole = strcmp(type, "proportional") == 0;
    c->out->n_rot = n_rot ? (int)n_rot : (int)((float)dim[0] * (whole ? 1 : part));
    if (c->out->table->rope.kind == ROPE_NONE) return INFER_OK;
    const bool half = c->out->table->rope.half_full;
    c->out->n_divisor = half ? c->out->n_rot : c->out->n_rot / 2;
    put_u32(c, "rope.dimension_count", (uint32_t)(half ? 2 * c->out->n_rot : c->out->n_rot));
    if (c->out->table->rope.where == ROPE_TOLD && !key_reads(c, K_POSITION))
        put_bool(c, "rope.scaling.finetuned", !has_no_base(c));
    /* files from before Code Llama have none, nor have Gemma's of images, whose class has another default */
    theta = get_json(c, K_ROPE_THETA_OLD) ? get_f32(c, K_ROPE_THETA_OLD) : get_f32(c, K_ROPE_THETA);
    beta = get_f32(c, K_ROPE_BETA);
    TRY(read_bases(c, &theta));
    TRY(c->status);
    if (strcmp(type, "dynamic") == 0)
        TRY(config_reads(c, "dynamic") ? read_alpha(c, dim[0], &theta) : read_dynamic(c));
    put_f32(c, c->out->table->attn.entries ? "attention.compress_rope_freq_base" : "rope.freq_base", theta);
    if (c->out->table->hf.halves) put_bool(c, "rope.neox", true);
    if (beta > 0) TRY(put_temperature(c, beta));
    TRY(read_sections(c));
    TRY(read_windowed(c, windowed, dim, theta));
    return read_scaling(c, type, theta, part);
}
