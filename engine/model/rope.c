/* Frequencies of rotation, with what scales them. */
#include "model/model_impl.h"

#include <math.h>

/* YaRN (Peng et al. 2023, arXiv 2309.00071): frequencies that turn often within the original context are kept, slow
 * ones are divided by the factor, with a linear ramp between the dims that turn beta_fast and beta_slow times. */
struct yarn {
    float base, factor, beta_fast, beta_slow;
    int n_orig;
    bool truncate; /* the ends of the ramp are whole dims */
};

static void rope_yarn(float *inv_freq, int n_rot, const struct yarn *y) {
    double scale = n_rot / (2 * log((double)y->base));
    double low = scale * log(y->n_orig / ((double)y->beta_fast * 2 * M_PI));
    double high = scale * log(y->n_orig / ((double)y->beta_slow * 2 * M_PI));
    if (y->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, n_rot - 1);
    for (int i = 0; i < n_rot / 2; i++) {
        double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        inv_freq[i] = (float)((double)inv_freq[i] * ((1 - ramp) + ramp / (double)y->factor));
    }
}

/* What YaRN multiplies q and k by; times: yarn_log_multiplier or 1. source: Peng et al. 2023 */
static float yarn_magnitude(float factor, float times) {
    return factor > 1 ? 1 + 0.1f * times * logf(factor) : 1;
}

/* With an original length of its own the file says how far YaRN stretches, where context_length is the original. */
static enum infer_status bind_yarn(struct model *m, struct rope *r, float *inv_freq, float base,
                                   float factor) {
    struct yarn y = {.base = base,
                     .factor = factor,
                     .truncate = arch_default(m->arch, "rope.scaling.yarn_truncate", 1) != 0};
    char key[128];
    bool present;
    float times;
    TRY(model_read_int(m, "rope.scaling.original_context_length", 1, MODEL_MAX_CTX, m->n_ctx_train,
                       &y.n_orig));
    TRY(model_read_float(m, "rope.scaling.yarn_beta_fast", 0, 1e6f, 32, &y.beta_fast));
    TRY(model_read_float(m, "rope.scaling.yarn_beta_slow", 0, 1e6f, 1, &y.beta_slow));
    TRY(model_read_float(m, "rope.scaling.yarn_log_multiplier", 0, 1e6f, 0, &times));
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "rope.scaling.yarn_truncate"), &y.truncate,
                  &present));
    rope_yarn(inv_freq, r->n_rot, &y);
    if (m->arch->attn.latent && times > 0) {
        float all = yarn_magnitude(factor, times / 0.1f); /* files of such models have a tenth */
        if (r == &m->rope[0])
            m->attn_scale *= all * all;  /* of whole scores; attn_factor is of what rotates */
    } else if (!m->arch->attn.entries) { /* which are as large as without it */
        r->mscale *= yarn_magnitude(factor, 1);
        if (times > 0) r->mscale /= yarn_magnitude(factor, times);
    }
    bool own =
        tensorfile_meta(m->file, model_key(m, key, sizeof key, "rope.scaling.original_context_length"));
    double reach = own ? (double)y.n_orig * (double)factor : 0;
    if (reach > m->n_ctx_train && reach <= MODEL_MAX_CTX) m->n_ctx_train = (int)reach;
    return INFER_OK;
}

/* A key that the scaling type at hand does not read is a sign that another one was meant. */
static enum infer_status refuse_unread(const struct model *m, const char *name, struct str type) {
    char key[128];
    if (m->rope_given || !tensorfile_meta(m->file, model_key(m, key, sizeof key, name))) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: %s is there, which rope scaling '%.*s' does not read",
                   m->file->path, key, (int)type.len, type.data);
}

static enum infer_status bind_scaling(struct model *m, struct rope *r, float *inv_freq, float base) {
    struct str type = {"linear", 6}; /* the default of GGUF, when there is a factor */
    float factor = 0, old = 0;
    bool present;
    char key[128];
    TRY(meta_str(m->file, model_key(m, key, sizeof key, "rope.scaling.type"), &type, &present));
    TRY(model_read_float(m, "rope.scaling.factor", 0, 1e6f, 0, &factor));
    TRY(model_read_float(m, "rope.scale_linear", 0, 1e6f, 0, &old)); /* from before there were types */
    TRY(model_read_float(m, "rope.scaling.attn_factor", 0, 1e6f, 1, &r->mscale));
    if (old != 0 && factor != 0 && old != factor)
        return err_set(INFER_E_INPUT, "%s: rope.scale_linear is %g and rope.scaling.factor %g", m->file->path,
                       (double)old, (double)factor);
    if (factor == 0) factor = old != 0 ? old : 1;
    if (str_is(type, "yarn")) return bind_yarn(m, r, inv_freq, base, factor);
    TRY(refuse_unread(m, "rope.scaling.yarn_beta_fast", type));
    TRY(refuse_unread(m, "rope.scaling.yarn_beta_slow", type));
    TRY(refuse_unread(m, "rope.scaling.yarn_truncate", type));
    if (factor != 1 && str_is(type, "none"))
        return err_set(INFER_E_UNSUPPORTED, "%s: a factor of rope scaling is %g, but its type is 'none'",
                       m->file->path, (double)factor);
    if (!str_is(type, "none") && !str_is(type, "linear") && !(str_is(type, "longrope") && m->n_ctx_short))
        return err_set(INFER_E_UNSUPPORTED, "%s: rope scaling '%.*s' is not supported (none, linear, yarn)",
                       m->file->path, (int)type.len, type.data);
    for (int i = 0; i < r->n_rot / 2; i++) inv_freq[i] /= factor;
    return INFER_OK;
}

/* Divides by divisor[n_rot / 2], where there is one. */
static enum infer_status divide(const struct model *m, float *inv_freq, int n, const float *divisor) {
    for (int i = 0; divisor && i < n; i++) {
        if (!(divisor[i] > 0))
            return err_set(INFER_E_INPUT, "%s: divisor %d of the frequencies of rope is %g", m->file->path, i,
                           (double)divisor[i]);
        inv_freq[i] /= divisor[i];
    }
    return INFER_OK;
}

/* Which of a row's positions turns a pair. source: Qwen2-VL (arXiv 2409.12191), HF modeling_qwen3_vl for those in turns */
static enum infer_status bind_axes(struct model *m, struct rope *r) {
    static const char name[] = "rope.dimension_sections";
    uint32_t section[4] = {0};
    char key[128];
    bool there;
    if (!m->arch->keys || !key_names(m->arch->keys, name, sizeof name - 1)) return INFER_OK;
    const struct meta *meta = tensorfile_meta(m->file, model_key(m, key, sizeof key, name));
    if (meta && meta->n >= 3 && meta->n <= 4)
        TRY(meta_u32_array(m->file, key, section, (size_t)meta->n, &there));
    if (!section[0] && !section[1] && !section[2]) return INFER_OK;
    int32_t *axis = arena_alloc(&m->arena, (size_t)(r->n_rot / 2) * sizeof *axis);
    if (!axis) return err_set(INFER_E_MEMORY, "out of memory for rope");
    for (uint32_t i = 0; i < (uint32_t)r->n_rot / 2; i++) {
        const uint32_t turn = i % 3;
        if (m->arch->rope.axes_in_turns)
            axis[i] = turn && i < 3 * (uint64_t)section[turn] ? 1 + (int32_t)turn : 1;
        else
            axis[i] = i < section[0]                             ? 1
                      : i - section[0] < section[1]              ? 2
                      : i - section[0] - section[1] < section[2] ? 3
                                                                 : 1;
    }
    r->axis = axis;
    return INFER_OK;
}

/* One of m->rope, whose n_rot is set; scaled: with what stretches the context. */
static enum infer_status bind_one(struct model *m, struct rope *r, float base, bool scaled,
                                  const float *divisor) {
    int half = r->n_rot / 2;
    float *inv_freq = arena_alloc(&m->arena, (size_t)half * sizeof *inv_freq);
    if (!inv_freq) return err_set(INFER_E_MEMORY, "out of memory for rope");
    for (int i = 0; i < half; i++) inv_freq[i] = (float)pow((double)base, -2.0 * i / r->n_rot);
    *r = (struct rope){.kind = m->arch->rope.kind, .n_rot = r->n_rot, .mscale = 1, .inv_freq = inv_freq};
    bool neox = false, told; /* folders of Hugging Face do not have llama's rows of q and k permuted */
    char key[128];
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "rope.neox"), &neox, &told));
    if (neox) r->kind = ROPE_NEOX;
    TRY(bind_axes(m, r));
    if (r->axis && !told)
        r->kind = ROPE_NEOX; /* where files have sections, GLM-4's rows are in halves, too */
    if (scaled) TRY(bind_scaling(m, r, inv_freq, base));
    return scaled ? divide(m, inv_freq, half, divisor) : INFER_OK;
}

/* Which layers rotate: rotated[i]. */
static enum infer_status read_rotated(const struct model *m, uint32_t *rotated) {
    char key[128];
    bool told, there, windows = false, all = m->arch->rope.where != ROPE_TOLD;
    for (int i = 0; i < m->n_layer; i++) windows |= m->layer[i].attn.window != 0;
    TRY(meta_u32_array(m->file, model_key(m, key, sizeof key, "rope.layers"), rotated, (size_t)m->n_layer,
                       &told));
    static const char pattern[] = "attention.rope_pattern"; /* the same in files of granite_swa */
    if (!told && m->arch->keys && key_names(m->arch->keys, pattern, sizeof pattern - 1))
        TRY(meta_u32_array(m->file, model_key(m, key, sizeof key, pattern), rotated, (size_t)m->n_layer,
                           &told));
    if (m->arch->rope.where == ROPE_TOLD)
        TRY(meta_bool(m->file, model_key(m, key, sizeof key, "rope.scaling.finetuned"), &all, &there));
    for (int i = 0; !told && i < m->n_layer; i++) {
        rotated[i] = all;
        if (m->arch->rope.where == ROPE_WINDOWED && windows) rotated[i] = m->layer[i].attn.window != 0;
        if (m->arch->rope.where == ROPE_WINDOWED_DENSE && windows)
            rotated[i] = m->layer[i].attn.window != 0 || !m->layer[i].moe.n_expert;
        if (m->arch->rope.where == ROPE_PERIOD_4) rotated[i] = (i + 1) % 4 != 0;
    }
    return INFER_OK;
}

enum infer_status model_bind_rope(struct model *m, const struct rope_divisors *divisor) {
    static const struct rope none = {.kind = ROPE_NONE};
    const struct arch *a = m->arch;
    float base[2];
    TRY(model_read_int(m, "rope.scaling.dynamic_context_length", 0, MODEL_MAX_CTX, 0, &m->n_ctx_most));
    TRY(model_read_float(m, "rope.freq_base", 1, 1e12f, 10000, &base[0]));
    if (a->attn.entries) {
        base[1] = base[0];
        TRY(model_read_float(m, "attention.compress_rope_freq_base", 1, 1e12f, base[1], &base[0]));
    } else
        TRY(model_read_float(m, "rope.freq_base_swa", 1, 1e12f, base[0], &base[1]));
    if (divisor->beyond) {
        TRY(model_read_int(m, "rope.scaling.original_context_length", 1, MODEL_MAX_CTX, -1, &m->n_ctx_short));
        m->rope[2] = m->rope[0], m->rope[3] = m->rope[1];
    }
    for (int w = 0; w < (divisor->beyond ? 4 : 2); w++) {
        const float *d = w > 1 ? divisor->beyond : divisor->within ? divisor->within : divisor->all;
        TRY(bind_one(m, &m->rope[w], base[w % 2], w % 2 == 0 || !a->rope.scaled_full, d));
    }
    /* one rope for all where both are the same: one table of angles a step */
    bool apart = a->rope.scaled_full || base[0] != base[1] || m->rope[0].n_rot != m->rope[1].n_rot;
    uint32_t *rotated = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *rotated);
    if (!rotated) return err_set(INFER_E_MEMORY, "out of memory for rope");
    TRY(read_rotated(m, rotated));
    for (int i = 0; i < m->n_layer; i++) {
        int w = apart && m->layer[i].attn.window && !m->layer[i].entry.every;
        m->layer[i].attn.rope = rotated[i] ? &m->rope[w] : &none;
        m->layer[i].attn.rope_long = m->n_ctx_short ? rotated[i] ? &m->rope[2 + w] : &none : NULL;
    }
    return INFER_OK;
}
