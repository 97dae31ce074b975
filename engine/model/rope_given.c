/* How positions are turned by the caller's word: keys of the file that are set before it is bound, so that whatever reads them, and the
 * fingerprint of snapshots, has them. source of the names: llama.cpp's --rope-scaling, --rope-scale, --rope-freq-base and --yarn-.. */
#include "model/model_impl.h"

#include <stdio.h>
#include <string.h>

static enum infer_status set(struct model *m, const char *name, enum meta_type type, const void *raw) {
    char key[128];
    return tensorfile_set(m->file, model_key(m, key, sizeof key, name), type, raw);
}
static enum infer_status set_float(struct model *m, const char *name, float x) {
    return x == 0 ? INFER_OK : set(m, name, META_F32, &x);
}

static enum infer_status check(const struct model *m, const struct rope_given *g) {
    char key[128];
    static const char *const known[] = {"none", "linear", "yarn"};
    bool there = !g->scaling;
    for (int i = 0; i < 3; i++) there |= g->scaling && strcmp(g->scaling, known[i]) == 0;
    if (!there)
        return err_set(INFER_E_INPUT, ".rope_scaling is '%s', must be none, linear or yarn", g->scaling);
    const bool yarn = g->scaling && strcmp(g->scaling, "yarn") == 0;
    if (!yarn && (g->orig_ctx || g->beta_fast != 0 || g->beta_slow != 0))
        return err_set(INFER_E_INPUT,
                       ".yarn_orig_ctx, .yarn_beta_fast and .yarn_beta_slow are of .rope_scaling yarn");
    if (g->scaling && g->scale == 0 && strcmp(g->scaling, "none") != 0)
        return err_set(INFER_E_INPUT, ".rope_scaling %s needs .rope_scale", g->scaling);
    if (g->scale != 0 && (!g->scaling || strcmp(g->scaling, "none") == 0))
        return err_set(INFER_E_INPUT, ".rope_scale needs .rope_scaling linear or yarn");
    if (g->scaling &&
        tensorfile_meta(m->file, model_key(m, key, sizeof key, "rope.scaling.dynamic_context_length")))
        return err_set(INFER_E_UNSUPPORTED, ".rope_scaling: %s scales by the length of the text",
                       m->file->path);
    return INFER_OK;
}

enum infer_status model_give_rope(struct model *m, const struct rope_given *g) {
    char key[128];
    uint32_t n = 0;
    if (!g->scaling && g->scale == 0 && g->freq_base == 0 && g->attn_factor == 0 && !g->orig_ctx &&
        g->beta_fast == 0 && g->beta_slow == 0)
        return INFER_OK;
    TRY(check(m, g));
    m->rope_given = true;
    TRY(set_float(m, "rope.freq_base", g->freq_base));
    TRY(set_float(m, "rope.scaling.attn_factor", g->attn_factor));
    if (g->scaling) {
        const float factor = strcmp(g->scaling, "none") == 0 ? 1 : g->scale;
        TRY(set(m, "rope.scaling.type", META_STRING, g->scaling));
        TRY(set_float(m, "rope.scaling.factor", factor));
        if (tensorfile_meta(m->file, model_key(m, key, sizeof key, "rope.scale_linear")))
            TRY(set_float(m, "rope.scale_linear", factor));
        TRY(set_float(m, "rope.scaling.yarn_beta_fast", g->beta_fast));
        TRY(set_float(m, "rope.scaling.yarn_beta_slow", g->beta_slow));
    }
    if (g->scaling && strcmp(g->scaling, "yarn") == 0) {
        bool own;
        TRY(meta_u32(m->file, model_key(m, key, sizeof key, "rope.scaling.original_context_length"), &n,
                     &own));
        if (!own) TRY(meta_u32(m->file, model_key(m, key, sizeof key, "context_length"), &n, NULL));
        if (g->orig_ctx) n = (uint32_t)g->orig_ctx;
        TRY(set(m, "rope.scaling.original_context_length", META_U32, &n));
    }
    char told[200] = "";
    size_t at = 0;
    if (g->scaling) at += (size_t)snprintf(told, sizeof told, ", %.8s scaling", g->scaling);
    if (g->scale != 0) at += (size_t)snprintf(told + at, sizeof told - at, " by %g", (double)g->scale);
    if (n) at += (size_t)snprintf(told + at, sizeof told - at, " of %u positions", n);
    if (g->freq_base != 0)
        at += (size_t)snprintf(told + at, sizeof told - at, ", base %g", (double)g->freq_base);
    if (g->attn_factor != 0)
        snprintf(told + at, sizeof told - at, ", attention factor %g", (double)g->attn_factor);
    log_line(LOG_WARN, "positions are turned as asked, not as the file says: %s", told + 2);
    return INFER_OK;
}

void model_reach_rope(struct model *m, const struct rope_given *g) {
    const double reach =
        g->scaling && strcmp(g->scaling, "linear") == 0 ? (double)g->scale * m->n_ctx_train : 0;
    if (reach > m->n_ctx_train && reach <= MODEL_MAX_CTX) m->n_ctx_train = (int)reach;
}
