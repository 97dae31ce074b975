/* config.json -> the keys of GGUF: rotary positions. */
#include "files/hf/hf_config.h"

#include <math.h>
#include <string.h>

/* A parameter stands inside rope_parameters (transformers 5), inside rope_scaling (before), or beside them. */
enum { N_PLACE = 3 };
struct rope_source {
    const struct config *c;
    const json_t *place[N_PLACE]; /* NULL: not there */
    const json_t *windowed;       /* of layers with a window, NULL: as of all */
};

static bool same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* The value in whichever place has it, NULL when none has; two that differ are an error. */
static enum infer_status find(const struct rope_source *s, const char *key, const json_t **out) {
    *out = NULL;
    for (int i = 0; i < N_PLACE; i++) {
        bool beside = s->place[i] == s->c->root;
        bool read = !beside || config_reads(s->c, key) || config_known(key);
        const json_t *v = read ? json_object_get(s->place[i], key) : NULL;
        if (!v || json_is_null(v)) continue;
        if (*out && !same(*out, v))
            return err_set(INFER_E_INPUT,
                           "%s: '%s' has two values, in and beside 'rope_parameters' or 'rope_scaling'",
                           s->c->path, key);
        *out = v;
    }
    return INFER_OK;
}

static enum infer_status find_f32(const struct rope_source *s, const char *key, float fallback, float *out) {
    const json_t *v;
    TRY(find(s, key, &v));
    return config_f32(s->c, key, v, fallback, out);
}
static enum infer_status find_u32(const struct rope_source *s, const char *key, int64_t fallback,
                                  uint32_t *out) {
    const json_t *v;
    TRY(find(s, key, &v));
    return config_u32(s->c, key, v, fallback, out);
}

static enum infer_status open_source(const struct config *c, struct rope_source *s) {
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    *s = (struct rope_source){.c = c, .place[2] = c->root};
    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(c->root, names[i]);
        if (!v || json_is_null(v)) continue;
        if (!json_is_object(v)) return config_wrong(c, names[i], "an object or null");
        const json_t *full = json_object_get(v, "full_attention");
        s->windowed = full ? json_object_get(v, "sliding_attention") : s->windowed;
        s->place[i] = full ? full : v;
        if (full && (!c->out->table->rope.scaled_full || json_object_size(v) != (s->windowed ? 2u : 1u)))
            return err_set(INFER_E_UNSUPPORTED, "%s: '%s' by kinds of layers is not supported for %s",
                           c->path, names[i], c->out->arch);
    }
    return INFER_OK;
}

/* "default", "linear", .. */
static enum infer_status read_type(const struct rope_source *s, const char **out) {
    const json_t *type, *old;
    TRY(find(s, "rope_type", &type));
    TRY(find(s, "type", &old)); /* the name before transformers 4.45 */
    *out = "default";
    if (type && old && !same(type, old))
        return err_set(INFER_E_INPUT, "%s: 'type' and 'rope_type' of rope scaling differ", s->c->path);
    if (!type) type = old;
    if (!type) return INFER_OK;
    *out = json_string_value(type);
    if (!*out) return config_wrong(s->c, "rope_type", "a name");
    if (strcmp(*out, "su") == 0) *out = "longrope";   /* its first name */
    if (strcmp(*out, "mrope") == 0) *out = "default"; /* the same for texts */
    if (key_names("default|linear|llama3|yarn|longrope|dynamic", *out, strlen(*out))) return INFER_OK;
    if (key_names("proportional", *out, strlen(*out)) && config_reads(s->c, *out)) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED,
                   "%s: rope scaling '%.32s' is not supported (linear, llama3, yarn, longrope, dynamic)",
                   s->c->path, *out);
}

/* Nothing is in the objects that this type does not read. */
static enum infer_status check_rope_keys(const struct rope_source *s, const char *type) {
    const char *key;
    json_t *v;
    for (int i = 0; i < 2; i++) json_object_foreach((json_t *)s->place[i], key, v) {
            const struct key_row *row = key_find(KEYS_ROPE, key);
            if (json_is_null(v)) continue;
            TRY(config_in_range(s->c, key, v));
            if (strcmp(key, "llama_4_scaling_beta") == 0 && !config_reads(s->c, key)) row = NULL;
            if (!row) TRY(key_unknown(s->c->ignore, s->c->path, key));
            if (row && !key_names(row->words, type, strlen(type)))
                return err_set(INFER_E_UNSUPPORTED, "%s: rope scaling '%s' does not read '%s'", s->c->path,
                               type, key);
        }
    return INFER_OK;
}

/* Llama 3's scaling: frequencies whose wavelength is beyond original / low_freq_factor are divided by factor, those below
 * original / high_freq_factor are kept, between them the divisor's inverse is mixed linearly in original / wavelength.
 * source: Dubey et al. 2024 (arXiv 2407.21783) and the rope_scaling entry of its config.json. */
static enum infer_status llama3_divisors(const struct rope_source *s, float theta, float factor) {
    const struct config *c = s->c;
    float low = 0, high = 0;
    uint32_t original = 0;
    TRY(find_f32(s, "low_freq_factor", NAN, &low));
    TRY(find_f32(s, "high_freq_factor", NAN, &high));
    TRY(find_u32(s, "original_max_position_embeddings", -1, &original));
    if (!(low > 0 && high >= low) || !original) /* both alike: nothing is mixed, as Llama 4 Scout has it */
        return config_wrong(c, "rope_scaling", "one of llama3: 0 < low_freq_factor <= high_freq_factor");
    int half = c->out->n_rot / 2;
    float *d = arena_alloc(c->keys->arena, (size_t)half * sizeof *d);
    if (!d) return err_set(INFER_E_MEMORY, "out of memory: %d divisors", half);
    for (int i = 0; i < half; i++) {
        double turns =
            original * pow((double)theta, -2.0 * i / c->out->n_rot) / (2 * M_PI); /* original / wavelength */
        double mix = high > low ? fmin(1, fmax(0, (turns - (double)low) / ((double)high - (double)low)))
                                : turns > (double)low;
        d[i] = (float)(1 / ((1 - mix) / (double)factor + mix));
    }
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
static enum infer_status read_magnitude(const struct rope_source *s, float factor, float *times) {
    static const char *const keys[] = {"attention_factor", "attn_factor", "mscale", "mscale_all_dim"};
    float v[4];
    for (int i = 0; i < 4; i++) {
        TRY(find_f32(s, keys[i], 0, &v[i]));
        if (v[i] < 0) return config_wrong(s->c, keys[i], "0 or more");
    }
    float whole = v[0], mscale = v[2], all_dim = v[3];
    *times = v[1];
    if ((mscale > 0 && mscale != 1 && all_dim == 0) || (all_dim > 0 && mscale == 0))
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'mscale' and 'mscale_all_dim' of yarn go together: one alone is read differently "
                       "by different programs",
                       s->c->path);
    if ((whole > 0) + (*times > 0) + (all_dim > 0) > 1)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: 'attention_factor', 'attn_factor' and 'mscale' of yarn exclude each other",
                       s->c->path);
    if (all_dim > 0) whole = yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim);
    if (whole > 0) *times = whole / yarn_magnitude(factor, 1);
    if (all_dim > 0 && s->c->out->table->attn
                           .latent) { /* of whole scores; attn_factor is what is left for the rotated part */
        put_f32(s->c, "rope.scaling.yarn_log_multiplier", 0.1f * all_dim);
        *times = whole;
    }
    return INFER_OK;
}

/* source: Peng et al. 2023 (arXiv 2309.00071); truncate: modeling_rope_utils of transformers */
static enum infer_status read_yarn(const struct rope_source *s, float factor) {
    const struct config *c = s->c;
    uint32_t original = 0;
    float fast = 0, slow = 0, times = 0;
    bool truncate;
    const json_t *v;
    TRY(find_u32(s, "original_max_position_embeddings", 0, &original));
    TRY(find_f32(s, "beta_fast", 32, &fast));
    TRY(find_f32(s, "beta_slow", 1, &slow));
    TRY(read_magnitude(s, factor, &times));
    TRY(find(s, "truncate", &v));
    TRY(config_bool(c, "truncate", v, true, &truncate));
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
static enum infer_status read_longrope(const struct rope_source *s) {
    static const char *const keys[] = {"short_factor", "long_factor"};
    const struct config *c = s->c;
    float *d[2], whole, factor, times;
    uint32_t original = 0, half = (uint32_t)c->out->n_rot / 2;
    const json_t *v;
    TRY(find_u32(s, "original_max_position_embeddings", -1, &original));
    TRY(config_f32(c, "max_position_embeddings", json_object_get(c->root, "max_position_embeddings"), NAN,
                   &whole));
    TRY(find_f32(s, "factor", original ? whole / (float)original : 0, &factor));
    if (original < 2) return config_wrong(c, "original_max_position_embeddings", "above 1");
    for (int i = 0; i < 2; i++) {
        TRY(find(s, keys[i], &v));
        if (json_array_size(v) != half)
            return config_wrong(c, keys[i], "a list with a number for each frequency");
        d[i] = arena_alloc(c->keys->arena, (size_t)(half + 1) * sizeof(float));
        if (!d[i]) return err_set(INFER_E_MEMORY, "out of memory: %u divisors", half);
        for (uint32_t j = 0; j < half; j++) TRY(config_f32(c, keys[i], json_array_get(v, j), NAN, &d[i][j]));
    }
    times = factor > 1 ? sqrtf(1 + logf(factor) / logf((float)original)) : 1;
    TRY(find_f32(s, "attention_factor", times, &times));
    c->out->rope_short = d[0];
    c->out->rope_long = d[1];
    hf_put_str(c->keys, c->out->arch, "rope.scaling.type", "longrope", 8);
    put_u32(c, "rope.scaling.original_context_length", original);
    put_f32(c, "rope.scaling.attn_factor", times);
    return INFER_OK;
}

/* The first part of the frequencies is that of a whole head's rotation, the others are 0. source: modeling_gemma4 */
static enum infer_status proportional_divisors(const struct rope_source *s, float part) {
    int half = s->c->out->n_rot / 2, kept = (int)(part * (float)half);
    float *d = arena_alloc(s->c->keys->arena, (size_t)(half + 1) * sizeof *d);
    if (!d) return err_set(INFER_E_MEMORY, "out of memory: %d divisors", half);
    for (int i = 0; i < half; i++) d[i] = i < kept ? 1 : 1e30f;
    s->c->out->rope_divisor = d;
    return INFER_OK;
}

/* Layers with a window: their base, unscaled. */
static enum infer_status read_windowed(const struct rope_source *s, const uint32_t dim[2], float theta) {
    const struct config *c = s->c;
    const struct rope_source own = {.c = c, .place = {s->windowed}};
    const char *type;
    float base = 0, part = 1;
    if (!c->out->table->rope.scaled_full) return INFER_OK;
    if (s->windowed) {
        TRY(read_type(&own, &type));
        TRY(check_rope_keys(&own, type));
        if (strcmp(type, "default") != 0)
            return err_set(INFER_E_UNSUPPORTED, "%s: rope scaling '%s' of sliding_attention is not supported",
                           c->path, type);
        TRY(find_f32(&own, "partial_rotary_factor", 1, &part));
        TRY(find_f32(&own, "rope_theta", theta, &base));
    } else if (config_reads(c, "rope_local_base_freq")) {
        TRY(config_f32(c, "rope_local_base_freq", json_object_get(c->root, "rope_local_base_freq"), 10000,
                       &base));
    }
    if (!(part > 0 && part <= 1)) return config_wrong(c, "partial_rotary_factor", "above 0 and at most 1");
    if (base > 0) put_f32(c, "rope.freq_base_swa", base);
    int n_rot = (int)((float)dim[1] * part);
    if (n_rot != c->out->n_rot) put_u32(c, "rope.dimension_count_swa", (uint32_t)n_rot);
    return INFER_OK;
}

/* What the type adds to the base. */
static enum infer_status read_scaling(const struct rope_source *s, const char *type, float theta,
                                      float part) {
    const struct config *c = s->c;
    float factor = 0;
    if (strcmp(type, "default") == 0 || strcmp(type, "dynamic") == 0) return INFER_OK;
    if (strcmp(type, "longrope") == 0) return read_longrope(s);
    if (strcmp(type, "proportional") == 0) return proportional_divisors(s, part);
    TRY(find_f32(s, "factor", NAN, &factor));
    if (!(factor > 0)) return config_wrong(c, "factor", "above 0");
    if (strcmp(type, "llama3") == 0) return llama3_divisors(s, theta, factor);
    hf_put_str(c->keys, c->out->arch, "rope.scaling.type", type, strlen(type));
    put_f32(c, "rope.scaling.factor", factor);
    return strcmp(type, "yarn") == 0 ? read_yarn(s, factor) : INFER_OK;
}

/* Dynamic NTK: nothing within the length of the training; in a longer text the base grows with each position, while keys that are there keep
 * theirs, so that what is computed depends on how the text came in: that is refused. source: modeling_rope_utils of transformers */
static enum infer_status read_dynamic(const struct rope_source *s) {
    uint32_t most;
    float factor, alpha;
    TRY(find_f32(s, "factor", NAN, &factor));
    TRY(find_f32(s, "alpha", 0, &alpha));
    TRY(find_u32(s, "max_position_embeddings", -1, &most));
    if (!(factor >= 1)) return config_wrong(s->c, "factor", "at least 1, as 'dynamic' has it");
    if (alpha != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'alpha' of dynamic scaling is of Hunyuan's models",
                       s->c->path);
    put_u32(s->c, "rope.scaling.dynamic_context_length", most);
    return INFER_OK;
}

/* The base of Hunyuan's dynamic scaling is times alpha^(dim / (dim - 2)). source: modeling_hunyuan_v1_dense of transformers */
static enum infer_status read_alpha(const struct rope_source *s, uint32_t dim, float *theta) {
    float alpha = 0;
    TRY(find_f32(s, "alpha", 0, &alpha));
    if (!(alpha > 0) || dim <= 2) return config_wrong(s->c, "alpha", "above 0, as 'dynamic' needs");
    *theta *= powf(alpha, (float)dim / (float)(dim - 2));
    return INFER_OK;
}

/* Which position rotates which frequency, told to programs for images; texts have one position. */
static enum infer_status read_sections(const struct rope_source *s) {
    uint32_t section[4] = {0};
    const json_t *v;
    TRY(find(s, "mrope_section", &v));
    if (!v) return INFER_OK;
    for (size_t i = 0; i < 4 && i < json_array_size(v); i++)
        TRY(config_u32(s->c, "mrope_section", json_array_get(v, i), 0, &section[i]));
    hf_put_u32s(s->c->keys, s->c->out->arch, "rope.dimension_sections", section, 4);
    return INFER_OK;
}

/* Queries grow with the position; of a latent, files say by what length, too, which is the original one (llama.cpp opens none without). */
static enum infer_status put_temperature(const struct rope_source *s, float beta) {
    uint32_t original = 0;
    put_f32(s->c, "attention.temperature_scale", beta);
    if (!s->c->out->table->attn.latent) return INFER_OK;
    TRY(find_u32(s, "original_max_position_embeddings", -1, &original));
    put_u32(s->c, "attention.temperature_length", original);
    return INFER_OK;
}

/* The rotated numbers of a head have a key of their own; part may say the same, of a whole head. */
static enum infer_status check_latent_part(const struct config *c, uint32_t n_rot, float *part) {
    float whole = *part * (float)c->out->head_dim;
    if (*part != 1 && fabsf(whole - (float)n_rot) > 0.01f)
        return config_wrong(c, "partial_rotary_factor", "qk_rope_head_dim over the size of a head");
    *part = 1;
    return INFER_OK;
}

enum infer_status config_rope(struct config *c, const uint32_t dim[2]) {
    const char *type;
    struct rope_source s;
    float theta = 0, part = 0, beta = 0;
    uint32_t n_rot = 0;
    TRY(open_source(c, &s));
    TRY(read_type(&s, &type));
    TRY(check_rope_keys(&s, type));
    TRY(find_f32(&s, "partial_rotary_factor", 0, &part));
    if (part == 0 && config_reads(c, "rotary_pct"))
        TRY(find_f32(&s, "rotary_pct", 0, &part)); /* its old name */
    if (part == 0) part = c->out->table->hf.rotated != 0 ? c->out->table->hf.rotated : 1;
    if (c->out->table->attn.latent) TRY(check_latent_part(c, dim[0], &part));
    if (config_reads(c, "rotary_dim")) TRY(find_u32(&s, "rotary_dim", 0, &n_rot));
    if (n_rot) part = (float)n_rot / (float)dim[0];
    if (!(part > 0 && part <= 1)) return config_wrong(c, "partial_rotary_factor", "above 0 and at most 1");
    bool whole = strcmp(type, "proportional") == 0;
    c->out->n_rot = n_rot ? (int)n_rot : (int)((float)dim[0] * (whole ? 1 : part));
    if (c->out->table->rope.kind == ROPE_NONE) return INFER_OK;
    put_u32(c, "rope.dimension_count", (uint32_t)c->out->n_rot);
    /* files from before Code Llama have none, nor have Gemma's of images, whose class has another default */
    TRY(find_f32(&s, "rope_theta", (float)arch_default(c->out->table, "rope.freq_base", 10000), &theta));
    if (config_reads(c, "rotary_emb_base")) TRY(find_f32(&s, "rotary_emb_base", theta, &theta));
    if (strcmp(type, "dynamic") == 0)
        TRY(config_reads(c, "dynamic") ? read_alpha(&s, dim[0], &theta) : read_dynamic(&s));
    put_f32(c, "rope.freq_base", theta);
    if (c->out->table->hf.halves) put_bool(c, "rope.neox", true);
    TRY(find_f32(&s, "llama_4_scaling_beta", 0, &beta));
    if (beta > 0) TRY(put_temperature(&s, beta));
    TRY(read_sections(&s));
    TRY(read_windowed(&s, dim, theta));
    return read_scaling(&s, type, theta, part);
}
