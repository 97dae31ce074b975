/* Hyper-parameters: keys of the file that are named after its architecture. */
#include "files/model_keys.h"
#include "model/model_impl.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum {
    MAX_LAYER = 1024,
    MAX_EMBD = 1 << 20,
    MAX_HEAD = 4096,
    MAX_FF = 1 << 22,
    MAX_VOCAB = 1 << 24,
};

const char *model_key(const struct model *m, char *buf, size_t n, const char *name) {
    snprintf(buf, n, "%s.%s", m->arch->name, name);
    return buf;
}

enum infer_status model_read_int(const struct model *m, const char *name, int min, int max, int fallback,
                                 int *out) {
    char key[128];
    uint32_t v = 0;
    bool present = true;
    TRY(meta_u32(m->file, model_key(m, key, sizeof key, name), &v, fallback < 0 ? NULL : &present));
    if (!present) {
        *out = fallback;
        return INFER_OK;
    }
    if (v < (uint32_t)min || v > (uint32_t)max)
        return err_set(INFER_E_INPUT, "%s: %s is %u, must be %d to %d", m->file->path, key, v, min, max);
    *out = (int)v;
    return INFER_OK;
}

enum infer_status model_read_float(const struct model *m, const char *name, float min, float max,
                                   float fallback, float *out) {
    char key[128];
    bool present = true;
    fallback = (float)arch_default(m->arch, name, (double)fallback);
    TRY(meta_f32(m->file, model_key(m, key, sizeof key, name), out, isnan(fallback) ? NULL : &present));
    if (!present) *out = fallback;
    if (!(*out >= min && *out <= max))
        return err_set(INFER_E_INPUT, "%s: %s is %g, must be %g to %g", m->file->path, key, (double)*out,
                       (double)min, (double)max);
    return INFER_OK;
}

/* A list of the file's layers, with or without those that draft. */
static enum infer_status read_list(const struct model *m, const char *key, uint32_t *out, bool *present) {
    const struct meta *list = tensorfile_meta(m->file, key);
    const size_t n = (size_t)m->n_layer, all = n + (size_t)m->n_draft;
    if (!list || list->type != META_ARRAY || list->n != all)
        return meta_u32_array(m->file, key, out, n, present);
    uint32_t *whole;
    TRY(mem_new(&whole, all * sizeof *whole, key));
    enum infer_status s = meta_u32_array(m->file, key, whole, all, present);
    if (!s) memcpy(out, whole, n * sizeof *whole);
    mem_free(whole);
    return s;
}

enum infer_status model_read_layers(const struct model *m, const char *name, int min, int max, int fallback,
                                    uint32_t *out) {
    char key[128];
    bool present = true;
    TRY(read_list(m, model_key(m, key, sizeof key, name), out, fallback < 0 ? NULL : &present));
    for (int i = 0; i < m->n_layer; i++) {
        if (!present) out[i] = (uint32_t)fallback;
        if (out[i] < (uint32_t)min || out[i] > (uint32_t)max)
            return err_set(INFER_E_INPUT, "%s: %s of layer %d is %u, must be %d to %d", m->file->path, key, i,
                           out[i], min, max);
    }
    return INFER_OK;
}

/* The window of every layer: of all, of all but each period-th, or of those that an array names. */
static enum infer_status read_windows(struct model *m, uint32_t *windowed) {
    int window = 0;
    char key[128];
    TRY(model_read_int(m, "attention.sliding_window", 0, INT_MAX,
                       (int)arch_default(m->arch, "attention.sliding_window", 0), &window));
    int usual = (int)arch_default(m->arch, "attention.sliding_window_pattern", 1);
    TRY(model_read_layers(m, "attention.sliding_window_pattern", 0, MAX_LAYER, usual, windowed));
    const struct meta *pattern =
        tensorfile_meta(m->file, model_key(m, key, sizeof key, "attention.sliding_window_pattern"));
    if (pattern && !window)
        return err_set(INFER_E_INPUT, "%s: %s is there, but no window", m->file->path, key);
    bool period = pattern ? pattern->type != META_ARRAY && windowed[0] : usual > 1;
    const int next = m->arch->attn.full_first ? 0 : 1;
    for (int i = 0; i < m->n_layer; i++)
        m->layer[i].attn.window = (period ? (uint32_t)(i + next) % windowed[i] : windowed[i]) ? window : 0;
    return INFER_OK;
}

/* The epsilon of norms; files that have the key of the other kind, too, say the same there. */
static enum infer_status read_eps(struct model *m) {
    static const char layer[] = "attention.layer_norm_epsilon", rms[] = "attention.layer_norm_rms_epsilon";
    char key[128];
    const bool either = m->arch->norm_either &&
                        !tensorfile_meta(m->file, model_key(m, key, sizeof key, layer)) &&
                        tensorfile_meta(m->file, model_key(m, key, sizeof key, rms));
    m->norm = either ? NORM_RMS : m->arch->norm;
    const bool is_layer = m->norm == NORM_LAYER && !m->arch->norm_key_rms;
    const char *name = is_layer ? layer : rms, *beside = is_layer ? rms : layer;
    float other;
    TRY(model_read_float(m, name, 0, 1, NAN, &m->eps));
    TRY(model_read_float(m, beside, 0, 1, m->eps, &other));
    return other == m->eps
               ? INFER_OK
               : err_set(INFER_E_INPUT, "%s: %s.%s is %g, but %s %g: norms have one epsilon", m->file->path,
                         m->arch->name, beside, (double)other, name, (double)m->eps);
}

/* Factors, caps and what else has its neutral value in most models. */
static enum infer_status read_scales(struct model *m) {
    const struct arch *a = m->arch;
    char key[128];
    bool there;
    TRY(read_eps(m));
    TRY(model_read_float(m, "attention.scale", 0, 1e6f, 0, &m->attn_scale));
    TRY(model_read_float(m, "attn_logit_softcapping", 0, 1e6f, 0, &m->attn_softcap));
    TRY(model_read_float(m, "attention.clamp_kqv", 0, 1e6f, 0, &m->qkv_limit));
    TRY(model_read_float(m, "final_logit_softcapping", 0, 1e6f, 0, &m->logit_softcap));
    TRY(model_read_float(m, "embedding_scale", 0, 1e6f, 1, &m->embd_scale));
    TRY(model_read_float(m, "attention.value_scale", 0, 1e6f, 1, &m->value_scale));
    TRY(model_read_float(m, "residual_scale", 0, 1e6f, 1, &m->residual_scale));
    TRY(model_read_float(m, "logit_scale", 0, 1e6f, 1, &m->logit_scale));
    TRY(model_read_float(m, "attention.temperature_scale", 0, 1e6f, 0, &m->temp_beta));
    if (a->scale.embd_sqrt) m->embd_scale *= sqrtf((float)m->n_embd);
    if (m->embd_scale == 0) m->embd_scale = 1; /* of files whose writers had nothing to say */
    if (m->value_scale == 0) m->value_scale = 1;
    if (m->residual_scale == 0) m->residual_scale = 1;
    if (m->logit_scale == 0) m->logit_scale = 1;
    if (a->scale.logit_divides) m->logit_scale = 1 / m->logit_scale;
    if (a->attn.temp_unrotated)
        TRY(model_read_int(m, "attention.temperature_length", 1, MODEL_MAX_CTX,
                           (int)arch_default(a, "attention.temperature_length", 1), &m->temp_len));
    else if (m->temp_beta != 0) {
        TRY(model_read_int(m, "attention.temperature_length", 0, MODEL_MAX_CTX, 0, &m->temp_len));
        if (!m->temp_len)
            TRY(model_read_int(m, "rope.scaling.original_context_length", 1, MODEL_MAX_CTX, -1,
                               &m->temp_len));
    }
    m->parallel = a->attn.parallel;
    return meta_bool(m->file, model_key(m, key, sizeof key, "use_parallel_residual"), &m->parallel, &there);
}

/* One of xIELU's numbers for every layer, whose key has no architecture in front. */
static enum infer_status read_xielu_key(const struct model *m, const char *key, float fallback, float *out) {
    bool there = true;
    TRY(meta_f32_array(m->file, key, out, (size_t)m->n_layer, isnan(fallback) ? NULL : &there));
    for (int i = 0; i < m->n_layer; i++) {
        if (!there) out[i] = fallback;
        if (!(fabsf(out[i]) < 1e6f))
            return err_set(INFER_E_INPUT, "%s: %s of layer %d is %g", m->file->path, key, i, (double)out[i]);
    }
    return INFER_OK;
}

/* alpha and alpha_n through softplus, alpha_n with beta added. source: HF activations.XIELUActivation */
static enum infer_status read_xielu(struct model *m) {
    const size_t n = (size_t)m->n_layer;
    float *p = arena_alloc(&m->arena, 4 * n * sizeof *p);
    if (!p) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    TRY(read_xielu_key(m, "xielu.alpha_p", NAN, p));
    TRY(read_xielu_key(m, "xielu.alpha_n", NAN, p + n));
    TRY(read_xielu_key(m, "xielu.beta", 0.5f, p + 2 * n));
    TRY(read_xielu_key(m, "xielu.eps", -1e-6f, p + 3 * n));
    for (size_t i = 0; i < n; i++) {
        struct act_numbers *k = &m->layer[i].act;
        double plus = log1p(exp((double)p[i])), minus = log1p(exp((double)p[n + i]));
        k->beta = p[2 * n + i];
        k->eps = p[3 * n + i];
        k->alpha = p[i] > 20 ? p[i] : (float)plus;
        k->alpha_n = k->beta + (p[n + i] > 20 ? p[n + i] : (float)minus);
        m->layer[i].act_all = *k;
    }
    return INFER_OK;
}

/* Which GELU it is, where the file says another than the architecture has: a key of this program. */
static enum infer_status read_gelu(struct model *m) {
    char key[128];
    struct str name;
    bool there;
    m->act = m->arch->act;
    TRY(meta_str(m->file, model_key(m, key, sizeof key, "activation"), &name, &there));
    if (!there) return INFER_OK;
    const bool gelu = m->act == ACT_GELU_ERF || m->act == ACT_GELU_TANH;
    if (!gelu || (!str_is(name, "gelu_erf") && !str_is(name, "gelu_tanh")))
        return err_set(INFER_E_UNSUPPORTED, "%s: %s is '%.*s', which is not supported here", m->file->path,
                       key, (int)(name.len < 40 ? name.len : 40), name.data);
    m->act = str_is(name, "gelu_erf") ? ACT_GELU_ERF : ACT_GELU_TANH;
    return INFER_OK;
}

/* Limits of every layer, 0: none; of layers that draft, too, in some files. */
static enum infer_status read_limits(const struct model *m, const char *name, float *out) {
    char key[128];
    bool there;
    const struct meta *list = tensorfile_meta(m->file, model_key(m, key, sizeof key, name));
    const bool all = list && list->type == META_ARRAY && list->n == (size_t)(m->n_layer + m->n_draft);
    TRY(meta_f32_array(m->file, key, out, (size_t)(m->n_layer + (all ? m->n_draft : 0)), &there));
    for (int i = 0; i < m->n_layer; i++)
        if (!(out[i] >= 0 && out[i] <= 1e6f))
            return err_set(INFER_E_INPUT, "%s: %s of layer %d is %g", m->file->path, key, i, (double)out[i]);
    return INFER_OK;
}
static enum infer_status read_clamps(struct model *m) {
    const size_t n = (size_t)(m->n_layer + m->n_draft);
    float *limit = arena_alloc(&m->arena, 2 * n * sizeof *limit);
    if (!limit) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    float all = 0;
    if (m->act == ACT_SILU_LIMIT) TRY(model_read_float(m, "swiglu_limit", 0, 1e6f, 0, &all));
    for (size_t i = 0; i < n; i++) limit[i] = all;
    TRY(read_limits(m, "swiglu_clamp_exp", limit));
    memcpy(limit + n, limit, n * sizeof *limit);
    if (m->act == ACT_SILU_CLAMP) memset(limit + n, 0, n * sizeof *limit);
    TRY(read_limits(m, "swiglu_clamp_shexp", limit + n));
    for (int i = 0; i < m->n_layer; i++) {
        m->layer[i].act.limit = limit[i];
        m->layer[i].act_all.limit = limit[n + (size_t)i];
    }
    return INFER_OK;
}

/* The numbers of activations. */
static enum infer_status read_act(struct model *m) {
    struct act_numbers k = {0};
    TRY(read_gelu(m));
    if (m->act == ACT_SILU_CLAMP || m->act == ACT_SILU_LIMIT) return read_clamps(m);
    if (m->act == ACT_XIELU) return read_xielu(m);
    TRY(model_read_float(m, "swiglu_limit", 0, 1e6f, 0, &k.limit));
    TRY(model_read_float(m, "swiglu_alpha", 0, 1e6f, 0, &k.alpha));
    for (int i = 0; i < m->n_layer; i++) m->layer[i].act = m->layer[i].act_all = k;
    return INFER_OK;
}

/* Of a full layer's heads and of a windowed one's; the key that other layers have is the fallback. */
static enum infer_status read_head_sizes(struct model *m) {
    const char *const names[2][3] = {
        {"attention.key_length", "attention.value_length", "rope.dimension_count"},
        {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"}};
    int v[2][3] = {{0}}, heads = 0;
    TRY(model_read_int(m, names[0][0], 1, MODEL_MAX_HEAD_DIM, 0, &v[0][0]));
    for (int i = 0; i < m->n_layer && !heads; i++) heads = m->layer[i].attn.n_head;
    if (!v[0][0]) v[0][0] = heads ? m->n_embd / heads : 2; /* of nothing */
    for (int w = 0; w < 2; w++) {
        int *of = v[w];
        if (w) TRY(model_read_int(m, names[w][0], 1, MODEL_MAX_HEAD_DIM, v[0][0], &of[0]));
        bool same = of[0] == v[0][0];
        TRY(model_read_int(m, names[w][1], 1, MODEL_MAX_HEAD_DIM, w && same ? v[0][1] : of[0], &of[1]));
        TRY(model_read_int(m, names[w][2], 2, MODEL_MAX_HEAD_DIM, w && same ? v[0][2] : of[0], &of[2]));
        if (of[0] < 1 || of[0] > MODEL_MAX_HEAD_DIM || of[2] > of[0] || of[2] % 2)
            return err_set(INFER_E_INPUT,
                           "%s: head size %d with %d rotated dims: must be even and at most the head size",
                           m->file->path, of[0], of[2]);
        m->rope[w].n_rot = of[2];
    }
    if (m->arch->rope.half_full) m->rope[0].n_rot = v[0][2] / 4 * 2;
    for (int i = 0; i < m->n_layer; i++) {
        const int *of = v[m->layer[i].attn.window ? 1 : 0];
        m->layer[i].attn.head_dim_k = of[0];
        m->layer[i].attn.head_dim_v = of[1];
    }
    return INFER_OK;
}

static enum infer_status read_qk_unit(struct model *m) {
    char key[128];
    bool there;
    m->qk_unit = m->arch->attn.qk_unit && !model_quirk(m, QUIRK_NO_QK_NORM);
    if (!m->arch->attn.qk_unit) return INFER_OK;
    return meta_bool(m->file, model_key(m, key, sizeof key, "attention.qk_norm"), &m->qk_unit, &there);
}

/* The last layers attend to what others keep; layers have an input of their own. */
static enum infer_status read_sharing(struct model *m) {
    static const char key[] = "attention.shared_kv_layers";
    int shared;
    if (!m->arch->keys || !key_names(m->arch->keys, key, sizeof key - 1)) return INFER_OK;
    TRY(model_read_int(m, key, 0, m->n_layer - 1, 0, &shared));
    TRY(model_read_int(m, "embedding_length_per_layer_input", 0, MAX_EMBD / m->n_layer, 0,
                       &m->n_layer_input));
    for (int i = m->n_layer - shared; i < m->n_layer; i++) m->layer[i].attn.borrows = true;
    m->whole = shared || m->n_layer_input;
    return INFER_OK;
}

/* Several residual streams, whose sizes tensors tell, and which gates are left. source: keys as llama.cpp's converter writes them; there a
 * layer without a limit has -infinity */
static enum infer_status read_streams(struct model *m) {
    static const char streams[] = "altup.num_inputs";
    char key[128];
    bool there;
    if (!m->arch->slot[SLOT_ALTUP_ROUTER]) return INFER_OK;
    const struct tensor *t = tensorfile_find(m->file, "blk.0.laurel_l.weight");
    float *sparse = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *sparse);
    if (!sparse) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    TRY(model_read_int(m, streams, 2, 4, 4, &m->n_stream));
    m->laurel_rank = t && t->shape[2] <= MAX_EMBD ? (int)t->shape[2] : 0;
    m->whole = true;
    TRY(meta_f32_array(m->file, model_key(m, key, sizeof key, "activation_sparsity_scale"), sparse,
                       (size_t)m->n_layer, &there));
    for (int i = 0; i < m->n_layer; i++) {
        if (!there) sparse[i] = i < 10 && m->n_layer > 10 ? 1.6448536f : -INFINITY;
        if (isnan(sparse[i]) || sparse[i] > 100 || (isfinite(sparse[i]) && sparse[i] < -100))
            return err_set(INFER_E_INPUT, "%s: %s of layer %d is %g", m->file->path, key, i,
                           (double)sparse[i]);
        m->layer[i].sparse = sparse[i];
    }
    return INFER_OK;
}

/* What a picture's rows have beside embeddings, and what they see. */
static enum infer_status read_pictures(struct model *m) {
    static const char deepstack[] = "n_deepstack_layers", causal[] = "attention.causal_images";
    bool there, told = m->n_layer_input != 0; /* of Gemma 4 the small ones */
    char key[128];
    if (m->arch->keys && key_names(m->arch->keys, deepstack, sizeof deepstack - 1))
        TRY(model_read_int(m, deepstack, 0, m->n_layer, 0, &m->n_deepstack));
    m->both = m->arch->attn.both;
    if (!m->both) return INFER_OK;
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, causal), &told, &there));
    if (told) m->both = BOTH_NOWHERE;
    return INFER_OK;
}

/* block_count has the layers that draft, too. */
static enum infer_status read_draft_layers(struct model *m) {
    static const char name[] = "nextn_predict_layers";
    if (!m->arch->keys || !key_names(m->arch->keys, name, sizeof name - 1)) return INFER_OK;
    TRY(model_read_int(m, name, 0, m->n_layer - 1, 0, &m->n_draft));
    m->n_layer -= m->n_draft;
    return INFER_OK;
}

/* As many as the embedding has rows. */
static enum infer_status read_vocab(struct model *m) {
    const struct tensor *embd = tensorfile_find(m->file, slot_info[SLOT_TOKEN_EMBD].name);
    if (m->arch->drafts) return model_read_head(m);
    if (!embd) return err_set(INFER_E_INPUT, "%s: tensor token_embd.weight is missing", m->file->path);
    int64_t rows = embd->n_dim == 2 ? embd->shape[2] : 0;
    if (rows < 1 || rows > MAX_VOCAB)
        return err_set(INFER_E_INPUT, "%s: token_embd.weight has %lld rows, must be 1 to %d", m->file->path,
                       (long long)rows, MAX_VOCAB);
    m->n_vocab = (int)rows;
    if (m->tok && tok_size(m->tok) > m->n_vocab)
        return err_set(INFER_E_INPUT, "%s: vocabulary has %d tokens but token_embd.weight has %d rows",
                       m->file->path, tok_size(m->tok), m->n_vocab);
    return INFER_OK;
}

enum infer_status model_read_hparams(struct model *m) {
    TRY(model_read_int(m, "block_count", 1, MAX_LAYER, -1, &m->n_layer));
    TRY(read_draft_layers(m));
    TRY(model_read_int(m, "embedding_length", 1, MAX_EMBD, -1, &m->n_embd));
    TRY(model_read_int(m, "context_length", 1, MODEL_MAX_CTX, -1, &m->n_ctx_train));
    TRY(model_read_encoder(m));
    TRY(read_vocab(m));
    TRY(read_scales(m));
    m->layer = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *m->layer);
    uint32_t *v = arena_alloc(&m->arena, 3 * (size_t)m->n_layer * sizeof *v);
    if (!m->layer || !v) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    uint32_t *n_head = v, *n_kv = v + m->n_layer, *n_ff = v + 2 * m->n_layer;
    const bool keyless = m->arch->mixer.where == MIXER_NO_KEYS; /* some layers may be */
    TRY(model_read_layers(m, "attention.head_count", !keyless, MAX_HEAD, -1, n_head));
    memcpy(n_kv, n_head, (size_t)m->n_layer * sizeof *v);
    bool present;
    char key[128];
    TRY(read_list(m, model_key(m, key, sizeof key, "attention.head_count_kv"), n_kv, &present));
    if (!present) memcpy(n_kv, n_head, (size_t)m->n_layer * sizeof *v);
    int usual = 0; /* of files without a dense layer */
    if ((m->arch->mixer.kind == MIX_DELTA || m->arch->attn.entries) && m->arch->slot[SLOT_FFN_ROUTER])
        TRY(model_read_int(m, "expert_feed_forward_length", 0, MAX_FF, 0, &usual));
    TRY(model_read_layers(m, "feed_forward_length", !m->arch->mixer.alone, MAX_FF, usual ? usual : -1, n_ff));
    for (int i = 0; i < m->n_layer; i++) {
        if (n_kv[i] < 1 ? !keyless : n_head[i] % n_kv[i])
            return err_set(INFER_E_INPUT, "%s: layer %d has %u heads and %u kv heads: not a multiple",
                           m->file->path, i, n_head[i], n_kv[i]);
        m->layer[i].attn.n_head = (int)n_head[i];
        m->layer[i].attn.n_kv_head = (int)n_kv[i];
        m->layer[i].dense.n_ff = (int)n_ff[i];
    }
    if (m->attn_scale == 0 && model_quirk(m, QUIRK_SCALE_OF_WIDTH))
        m->attn_scale = 1 / sqrtf((float)m->n_embd / (float)n_head[0]);
    TRY(model_read_mixers(m));
    TRY(read_act(m));
    TRY(read_windows(m, n_head));
    TRY(read_sharing(m));
    TRY(read_streams(m));
    TRY(read_pictures(m));
    TRY(model_read_experts(m));
    TRY(read_qk_unit(m));
    TRY(model_read_loops(m));
    TRY(m->arch->attn.latent ? model_read_latent(m) : read_head_sizes(m));
    if (m->arch->attn.entries) return model_read_entries(m);
    if (m->arch->attn.index_means) return model_read_gates(m);
    return m->arch->attn.index_runs ? model_read_index_runs(m) : INFER_OK;
}
