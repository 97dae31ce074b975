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

/* With an original length of its own the file says how far YaRN stretches, where context_length is the original. */
static enum infer_status bind_yarn(struct model *m, float *inv_freq, float base, float factor) {
    struct yarn y = {.base = base, .factor = factor, .truncate = true};
    char key[128];
    bool present;
    TRY(model_read_int(m, "rope.scaling.original_context_length", 1, MODEL_MAX_CTX, m->n_ctx_train,
                       &y.n_orig));
    TRY(model_read_float(m, "rope.scaling.yarn_beta_fast", 0, 1e6f, 32, &y.beta_fast));
    TRY(model_read_float(m, "rope.scaling.yarn_beta_slow", 0, 1e6f, 1, &y.beta_slow));
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "rope.scaling.yarn_truncate"), &y.truncate,
                  &present));
    rope_yarn(inv_freq, m->n_rot, &y);
    if (factor > 1) m->rope.mscale *= 1 + 0.1f * logf(factor);
    bool own =
        tensorfile_meta(m->file, model_key(m, key, sizeof key, "rope.scaling.original_context_length"));
    double reach = own ? (double)y.n_orig * (double)factor : 0;
    if (reach > m->n_ctx_train && reach <= MODEL_MAX_CTX) m->n_ctx_train = (int)reach;
    return INFER_OK;
}

/* A key that the scaling type at hand does not read is a sign that another one was meant. */
static enum infer_status refuse_unread(const struct model *m, const char *name, struct str type) {
    char key[128];
    if (!tensorfile_meta(m->file, model_key(m, key, sizeof key, name))) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: %s is there, which rope scaling '%.*s' does not read",
                   m->file->path, key, (int)type.len, type.data);
}

static enum infer_status bind_scaling(struct model *m, float *inv_freq, float base) {
    struct str type = {"linear", 6}; /* the default of GGUF, when there is a factor */
    float factor = 0, old = 0;
    bool present;
    char key[128];
    TRY(meta_str(m->file, model_key(m, key, sizeof key, "rope.scaling.type"), &type, &present));
    TRY(model_read_float(m, "rope.scaling.factor", 0, 1e6f, 0, &factor));
    TRY(model_read_float(m, "rope.scale_linear", 0, 1e6f, 0, &old)); /* from before there were types */
    TRY(model_read_float(m, "rope.scaling.attn_factor", 0, 1e6f, 1, &m->rope.mscale));
    if (old != 0 && factor != 0 && old != factor)
        return err_set(INFER_E_INPUT, "%s: rope.scale_linear is %g and rope.scaling.factor %g", m->file->path,
                       (double)old, (double)factor);
    if (factor == 0) factor = old != 0 ? old : 1;
    if (str_is(type, "yarn")) return bind_yarn(m, inv_freq, base, factor);
    TRY(refuse_unread(m, "rope.scaling.yarn_beta_fast", type));
    TRY(refuse_unread(m, "rope.scaling.yarn_beta_slow", type));
    TRY(refuse_unread(m, "rope.scaling.yarn_truncate", type));
    if (factor != 1 && str_is(type, "none"))
        return err_set(INFER_E_UNSUPPORTED, "%s: a factor of rope scaling is %g, but its type is 'none'",
                       m->file->path, (double)factor);
    if (!str_is(type, "none") && !str_is(type, "linear"))
        return err_set(INFER_E_UNSUPPORTED, "%s: rope scaling '%.*s' is not supported (none, linear, yarn)",
                       m->file->path, (int)type.len, type.data);
    for (int i = 0; i < m->n_rot / 2; i++) inv_freq[i] /= factor;
    return INFER_OK;
}

enum infer_status model_bind_rope(struct model *m, const float *divisor) {
    float base;
    TRY(model_read_float(m, "rope.freq_base", 1, 1e12f, 10000, &base));
    float *inv_freq = arena_alloc(&m->arena, (size_t)m->n_rot / 2 * sizeof *inv_freq);
    if (!inv_freq) return err_set(INFER_E_MEMORY, "out of memory for rope");
    for (int i = 0; i < m->n_rot / 2; i++) inv_freq[i] = (float)pow((double)base, -2.0 * i / m->n_rot);
    m->rope = (struct rope){m->arch->rope, m->n_rot, 1, inv_freq};
    bool neox = false, told; /* folders of Hugging Face do not have llama's rows of q and k permuted */
    char key[128];
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "rope.neox"), &neox, &told));
    if (neox) m->rope.kind = ROPE_NEOX;
    TRY(bind_scaling(m, inv_freq, base));
    for (int i = 0; divisor && i < m->n_rot / 2; i++) {
        if (!(divisor[i] > 0))
            return err_set(INFER_E_INPUT, "%s: rope_freqs.weight[%d] is %g", m->file->path, i,
                           (double)divisor[i]);
        inv_freq[i] /= divisor[i];
    }
    return INFER_OK;
}
