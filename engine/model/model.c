#include "model/model.h"
#include "models/registry.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum {
    MAX_LAYER = 1024,
    MAX_EMBD = 1 << 20,
    MAX_HEAD = 4096,
    MAX_HEAD_DIM = 1024,
    MAX_FF = 1 << 22,
    MAX_VOCAB = 1 << 24,
    MAX_CTX = 1 << 26,
};

/* ---- hyper-parameters --------------------------------------------------------------------------------------- */

/* key "<arch>.<name>" in buf */
static const char *arch_key(const struct model *m, char *buf, size_t n, const char *name) {
    snprintf(buf, n, "%s.%s", m->arch->name, name);
    return buf;
}

/* Reads an integer key and checks its range; absent: fallback, or an error when fallback is negative. */
static enum infer_status read_int(const struct model *m, const char *name, int min, int max, int fallback,
                                  int *out) {
    char key[128];
    uint32_t v = 0;
    bool present = true;
    TRY(meta_u32(m->file, arch_key(m, key, sizeof key, name), &v, fallback < 0 ? NULL : &present));
    if (!present) {
        *out = fallback;
        return INFER_OK;
    }
    if (v < (uint32_t)min || v > (uint32_t)max)
        return err_set(INFER_E_INPUT, "%s: %s is %u, must be %d to %d", m->file->path, key, v, min, max);
    *out = (int)v;
    return INFER_OK;
}

/* The same for a number; a fallback of NAN stands for a key that must be there. */
static enum infer_status read_float(const struct model *m, const char *name, float min, float max,
                                    float fallback, float *out) {
    char key[128];
    bool present = true;
    TRY(meta_f32(m->file, arch_key(m, key, sizeof key, name), out, isnan(fallback) ? NULL : &present));
    if (!present) *out = fallback;
    if (!(*out >= min && *out <= max))
        return err_set(INFER_E_INPUT, "%s: %s is %g, must be %g to %g", m->file->path, key, (double)*out,
                       (double)min, (double)max);
    return INFER_OK;
}

/* A per-layer integer: one number for all layers, or an array of n_layer. */
static enum infer_status read_layers(const struct model *m, const char *name, int min, int max, int fallback,
                                     uint32_t *out) {
    char key[128];
    bool present = true;
    TRY(meta_u32_array(m->file, arch_key(m, key, sizeof key, name), out, (size_t)m->n_layer,
                       fallback < 0 ? NULL : &present));
    for (int i = 0; i < m->n_layer; i++) {
        if (!present) out[i] = (uint32_t)fallback;
        if (out[i] < (uint32_t)min || out[i] > (uint32_t)max)
            return err_set(INFER_E_INPUT, "%s: %s of layer %d is %u, must be %d to %d", m->file->path, key, i,
                           out[i], min, max);
    }
    return INFER_OK;
}

static enum infer_status read_hparams(struct model *m) {
    const struct tensor *embd = tensorfile_find(m->file, slot_info[SLOT_TOKEN_EMBD].name);
    if (!embd) return err_set(INFER_E_INPUT, "%s: tensor token_embd.weight is missing", m->file->path);
    TRY(read_int(m, "block_count", 1, MAX_LAYER, -1, &m->n_layer));
    TRY(read_int(m, "embedding_length", 1, MAX_EMBD, -1, &m->n_embd));
    TRY(read_int(m, "context_length", 1, MAX_CTX, -1, &m->n_ctx_train));
    int64_t rows = embd->n_dim == 2 ? embd->shape[2] : 0;
    if (rows < 1 || rows > MAX_VOCAB)
        return err_set(INFER_E_INPUT, "%s: token_embd.weight has %lld rows, must be 1 to %d", m->file->path,
                       (long long)rows, MAX_VOCAB);
    m->n_vocab = (int)rows;
    if (m->tok && tok_size(m->tok) > m->n_vocab)
        return err_set(INFER_E_INPUT, "%s: vocabulary has %d tokens but token_embd.weight has %d rows",
                       m->file->path, tok_size(m->tok), m->n_vocab);
    TRY(read_float(m, "attention.layer_norm_rms_epsilon", 0, 1, NAN, &m->eps));
    TRY(read_float(m, "attention.scale", 0, 1e6f, 0, &m->attn_scale));
    TRY(read_int(m, "attention.sliding_window", 0, INT_MAX, 0, &m->n_window));
    m->embd_scale = 1;
    m->layer = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *m->layer);
    uint32_t *v = arena_alloc(&m->arena, 3 * (size_t)m->n_layer * sizeof *v);
    if (!m->layer || !v) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    uint32_t *n_head = v, *n_kv = v + m->n_layer, *n_ff = v + 2 * m->n_layer;
    TRY(read_layers(m, "attention.head_count", 1, MAX_HEAD, -1, n_head));
    memcpy(n_kv, n_head, (size_t)m->n_layer * sizeof *v);
    bool present;
    char key[128];
    TRY(meta_u32_array(m->file, arch_key(m, key, sizeof key, "attention.head_count_kv"), n_kv,
                       (size_t)m->n_layer, &present));
    if (!present) memcpy(n_kv, n_head, (size_t)m->n_layer * sizeof *v);
    TRY(read_layers(m, "feed_forward_length", 1, MAX_FF, -1, n_ff));
    int dim_k, dim_v;
    TRY(read_int(m, "attention.key_length", 1, MAX_HEAD_DIM, 0, &dim_k));
    if (!dim_k) dim_k = m->n_embd / (int)n_head[0];
    TRY(read_int(m, "attention.value_length", 1, MAX_HEAD_DIM, dim_k, &dim_v));
    TRY(read_int(m, "rope.dimension_count", 2, MAX_HEAD_DIM, dim_k, &m->n_rot));
    if (dim_k < 1 || dim_k > MAX_HEAD_DIM || m->n_rot > dim_k || m->n_rot % 2)
        return err_set(INFER_E_INPUT,
                       "%s: head size %d with %d rotated dims: must be even and at most the head size",
                       m->file->path, dim_k, m->n_rot);
    for (int i = 0; i < m->n_layer; i++) {
        if (n_kv[i] < 1 || n_head[i] % n_kv[i])
            return err_set(INFER_E_INPUT, "%s: layer %d has %u heads and %u kv heads: not a multiple",
                           m->file->path, i, n_head[i], n_kv[i]);
        m->layer[i].n_head = (int)n_head[i];
        m->layer[i].n_kv_head = (int)n_kv[i];
        m->layer[i].n_ff = (int)n_ff[i];
        m->layer[i].head_dim_k = dim_k;
        m->layer[i].head_dim_v = dim_v;
    }
    return INFER_OK;
}

/* ---- rope --------------------------------------------------------------------------------------------------- */

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
    TRY(read_int(m, "rope.scaling.original_context_length", 1, MAX_CTX, m->n_ctx_train, &y.n_orig));
    TRY(read_float(m, "rope.scaling.yarn_beta_fast", 0, 1e6f, 32, &y.beta_fast));
    TRY(read_float(m, "rope.scaling.yarn_beta_slow", 0, 1e6f, 1, &y.beta_slow));
    TRY(meta_bool(m->file, arch_key(m, key, sizeof key, "rope.scaling.yarn_truncate"), &y.truncate,
                  &present));
    rope_yarn(inv_freq, m->n_rot, &y);
    if (factor > 1) m->rope.mscale *= 1 + 0.1f * logf(factor);
    bool own = tensorfile_meta(m->file, arch_key(m, key, sizeof key, "rope.scaling.original_context_length"));
    double reach = own ? (double)y.n_orig * (double)factor : 0;
    if (reach > m->n_ctx_train && reach <= MAX_CTX) m->n_ctx_train = (int)reach;
    return INFER_OK;
}

/* A key that the scaling type at hand does not read is a sign that another one was meant. */
static enum infer_status refuse_unread(const struct model *m, const char *name, struct str type) {
    char key[128];
    if (!tensorfile_meta(m->file, arch_key(m, key, sizeof key, name))) return INFER_OK;
    return err_set(INFER_E_UNSUPPORTED, "%s: %s is there, which rope scaling '%.*s' does not read",
                   m->file->path, key, (int)type.len, type.data);
}

static bool str_is(struct str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static enum infer_status bind_scaling(struct model *m, float *inv_freq, float base) {
    struct str type = {"linear", 6}; /* the default of GGUF, when there is a factor */
    float factor = 0, old = 0;
    bool present;
    char key[128];
    TRY(meta_str(m->file, arch_key(m, key, sizeof key, "rope.scaling.type"), &type, &present));
    TRY(read_float(m, "rope.scaling.factor", 0, 1e6f, 0, &factor));
    TRY(read_float(m, "rope.scale_linear", 0, 1e6f, 0, &old)); /* from before there were types */
    TRY(read_float(m, "rope.scaling.attn_factor", 0, 1e6f, 1, &m->rope.mscale));
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

static enum infer_status bind_rope(struct model *m, const float *divisor) {
    float base;
    TRY(read_float(m, "rope.freq_base", 1, 1e12f, 10000, &base));
    float *inv_freq = arena_alloc(&m->arena, (size_t)m->n_rot / 2 * sizeof *inv_freq);
    if (!inv_freq) return err_set(INFER_E_MEMORY, "out of memory for rope");
    for (int i = 0; i < m->n_rot / 2; i++) inv_freq[i] = (float)pow((double)base, -2.0 * i / m->n_rot);
    m->rope = (struct rope){m->arch->rope, m->n_rot, 1, inv_freq};
    bool neox = false, told; /* folders of Hugging Face do not have llama's rows of q and k permuted */
    char key[128];
    TRY(meta_bool(m->file, arch_key(m, key, sizeof key, "rope.neox"), &neox, &told));
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

/* ---- tensors ------------------------------------------------------------------------------------------------ */

static int dim_value(const struct model *m, const struct layer *l, enum dim d) {
    if (!l) l = &m->layer[0];
    switch (d) {
    case DIM_ONE:
        return 1;
    case DIM_VOCAB:
        return m->n_vocab;
    case DIM_EMBD:
        return m->n_embd;
    case DIM_Q:
        return l->n_head * l->head_dim_k;
    case DIM_K:
        return l->n_kv_head * l->head_dim_k;
    case DIM_V:
        return l->n_kv_head * l->head_dim_v;
    case DIM_ATTN:
        return l->n_head * l->head_dim_v;
    case DIM_HEAD_K:
        return l->head_dim_k;
    case DIM_FF:
        return l->n_ff;
    case DIM_ROT_HALF:
        return m->n_rot / 2;
    }
    infer_bug("dim %d", (int)d);
}

struct binder {
    struct model *m;
    uint8_t *used; /* used[n_tensor] */
};

/* Finds the tensor of a slot in layer il (-1: outside) and checks its shape; *out NULL when it may be absent. */
static enum infer_status bind_slot(struct binder *b, enum slot slot, int il, const struct tensor **out) {
    struct model *m = b->m;
    const struct slot_info *s = &slot_info[slot];
    uint64_t bit = UINT64_C(1) << slot;
    char name[80];
    *out = NULL;
    if (!((m->arch->required | m->arch->optional) & bit)) return INFER_OK;
    snprintf(name, sizeof name, s->name, il);
    const struct tensor *t = tensorfile_find(m->file, name);
    if (!t) {
        if (m->arch->required & bit)
            return err_set(INFER_E_INPUT, "%s: tensor %s is missing", m->file->path, name);
        return INFER_OK;
    }
    const struct layer *l = il < 0 ? NULL : &m->layer[il];
    int64_t rows = dim_value(m, l, s->rows), cols = dim_value(m, l, s->cols);
    int64_t have_rows = t->shape[2], have_cols = t->shape[3];
    bool fits = t->shape[0] == 1 && t->shape[1] == 1 && have_rows == rows && have_cols == cols;
    if (!fits)
        return err_set(
            INFER_E_INPUT,
            "%s: tensor %s has shape [%lld][%lld][%lld][%lld], the model's sizes ask for [%lld][%lld]",
            m->file->path, name, (long long)t->shape[0], (long long)t->shape[1], (long long)have_rows,
            (long long)have_cols, (long long)rows, (long long)cols);
    b->used[t - m->file->tensor] = 1;
    *out = t;
    return INFER_OK;
}

/* A vector as floats: the map itself when it is F32, else a decoded copy. */
static enum infer_status bind_vector(struct binder *b, enum slot slot, int il, const float **out) {
    const struct tensor *t;
    TRY(bind_slot(b, slot, il, &t));
    *out = NULL;
    if (!t) return INFER_OK;
    if (t->type == QUANT_F32) {
        *out = t->data;
        return INFER_OK;
    }
    float *copy = arena_alloc(&b->m->arena, (size_t)t->shape[3] * sizeof *copy);
    if (!copy) return err_set(INFER_E_MEMORY, "out of memory for %s", t->name);
    quant_info(t->type)->decode(copy, t->data, (size_t)t->shape[3]);
    *out = copy;
    return INFER_OK;
}

static struct weight weight_of(const struct tensor *t) {
    return (struct weight){.name = t->name,
                           .type = t->type,
                           .n = (int)t->shape[2],
                           .k = (int)t->shape[3],
                           .n_stack = 1,
                           .data = t->data};
}

/* A group of up to three matrices with their biases; SLOT_COUNT ends the lists. */
static enum infer_status bind_group(struct binder *b, struct weight_group *g, int il, enum split_axis split,
                                    const enum slot matrix[WEIGHT_GROUP_MAX],
                                    const enum slot bias[WEIGHT_GROUP_MAX]) {
    struct model *m = b->m;
    g->id = m->n_group;
    g->split = split;
    for (int i = 0; i < WEIGHT_GROUP_MAX && matrix[i] != SLOT_COUNT; i++) {
        const struct tensor *t;
        TRY(bind_slot(b, matrix[i], il, &t));
        if (!t) infer_bug("slot %d is optional inside a group", (int)matrix[i]);
        struct weight *w = &g->member[g->n_member++];
        *w = weight_of(t);
        if (bias && bias[i] != SLOT_COUNT) TRY(bind_vector(b, bias[i], il, &w->bias));
        g->n += w->n;
        g->k = w->k;
        m->n_param += (uint64_t)w->n * (uint64_t)w->k;
        m->token_bytes += t->bytes;
    }
    m->group[m->n_group++] = g;
    return INFER_OK;
}

static enum infer_status bind_layer(struct binder *b, int il) {
    static const enum slot qkv[3] = {SLOT_ATTN_Q, SLOT_ATTN_K, SLOT_ATTN_V};
    static const enum slot qkv_bias[3] = {SLOT_ATTN_Q_BIAS, SLOT_ATTN_K_BIAS, SLOT_ATTN_V_BIAS};
    static const enum slot out[3] = {SLOT_ATTN_OUTPUT, SLOT_COUNT},
                           out_bias[3] = {SLOT_ATTN_OUTPUT_BIAS, SLOT_COUNT};
    static const enum slot gate_up[3] = {SLOT_FFN_GATE, SLOT_FFN_UP, SLOT_COUNT};
    static const enum slot down[3] = {SLOT_FFN_DOWN, SLOT_COUNT};
    struct layer *l = &b->m->layer[il];
    TRY(bind_vector(b, SLOT_ATTN_NORM, il, &l->attn_norm));
    TRY(bind_group(b, &l->qkv, il, SPLIT_ROWS, qkv, qkv_bias));
    TRY(bind_vector(b, SLOT_ATTN_Q_NORM, il, &l->q_norm));
    TRY(bind_vector(b, SLOT_ATTN_K_NORM, il, &l->k_norm));
    TRY(bind_group(b, &l->out, il, SPLIT_COLS, out, out_bias));
    TRY(bind_vector(b, SLOT_FFN_NORM, il, &l->ffn_norm));
    TRY(bind_group(b, &l->gate_up, il, SPLIT_ROWS, gate_up, NULL));
    TRY(bind_group(b, &l->down, il, SPLIT_COLS, down, NULL));
    l->rope = &b->m->rope;
    l->store = il;
    b->m->store[il] = (struct kv_store){0, l->n_kv_head, l->head_dim_k, l->head_dim_v};
    return INFER_OK;
}

static enum infer_status bind_tensors(struct model *m) {
    struct binder b = {m, arena_alloc(&m->arena, m->file->n_tensor + 1)};
    m->group = arena_alloc(&m->arena, ((size_t)m->n_layer * 4 + 1) * sizeof *m->group);
    m->store = arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *m->store);
    m->window = arena_alloc(&m->arena, sizeof *m->window);
    if (!b.used || !m->group || !m->store || !m->window)
        return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    m->n_store = m->n_layer;
    m->n_kv_group = 1;

    const struct tensor *t;
    const float *divisor;
    TRY(bind_slot(&b, SLOT_TOKEN_EMBD, -1, &t));
    m->embd = weight_of(t);
    TRY(bind_vector(&b, SLOT_ROPE_FREQS, -1, &divisor));
    TRY(bind_rope(m, divisor));
    for (int il = 0; il < m->n_layer; il++) TRY(bind_layer(&b, il));
    TRY(bind_vector(&b, SLOT_OUTPUT_NORM, -1, &m->output_norm));
    TRY(bind_slot(&b, SLOT_OUTPUT, -1, &t));
    m->tied = !t;
    enum slot head[3] = {m->tied ? SLOT_TOKEN_EMBD : SLOT_OUTPUT, SLOT_COUNT};
    if (!m->tied) m->n_param += (uint64_t)m->n_vocab * (uint64_t)m->n_embd;
    TRY(bind_group(&b, &m->head, -1, SPLIT_ROWS, head, NULL));

    for (size_t i = 0; i < m->file->n_tensor; i++)
        if (!b.used[i])
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: tensor %s is not part of architecture %s as this build knows it",
                           m->file->path, m->file->tensor[i].name, m->arch->name);
    for (int i = 0; i < m->n_group; i++)
        m->token_flops += 2 * (uint64_t)m->group[i]->n * (uint64_t)m->group[i]->k;
    return INFER_OK;
}

/* ---- open --------------------------------------------------------------------------------------------------- */

/* Whether every element is one of the row's neutral values. */
static bool is_neutral(const struct key_row *row, const struct meta *meta) {
    enum meta_type type = meta->type == META_ARRAY ? meta->elem : meta->type;
    for (size_t i = 0; i < meta->n; i++) {
        struct key_value v = {.is_number = type != META_STRING && type != META_BOOL && type != META_ARRAY};
        if (v.is_number) v.number = meta_elem_f64(meta, i);
        if (type == META_STRING)
            v = (struct key_value){.text = meta->strings[i].data, .len = meta->strings[i].len};
        if (type == META_BOOL) v.text = meta_elem_i64(meta, i) ? "true" : "false", v.len = strlen(v.text);
        if (type == META_ARRAY || !key_is_one_of(row->words, &v)) return false;
    }
    return true;
}

/* Every key in the architecture's own namespace is used, known to be harmless, or has a value that turns nothing on. */
static enum infer_status check_keys(const struct model *m, const struct key_ignore *ignore) {
    size_t prefix = strlen(m->arch->name) + 1;
    struct str type;
    bool present;
    TRY(meta_str(m->file, "general.type", &type, &present));
    if (present && !str_is(type, "model"))
        return err_set(INFER_E_UNSUPPORTED, "%s: general.type is '%.*s', which is no model by itself",
                       m->file->path, (int)(type.len < 64 ? type.len : 64), type.data);
    for (size_t i = 0; i < m->file->n_meta; i++) {
        const struct meta *meta = &m->file->meta[i];
        char key[256];
        size_t len =
            meta->key.len < sizeof key ? meta->key.len : sizeof key - 1; /* no known one is as long */
        if (len <= prefix || memcmp(meta->key.data, m->arch->name, prefix - 1) != 0 ||
            meta->key.data[prefix - 1] != '.')
            continue;
        memcpy(key, meta->key.data, len);
        key[len] = 0;
        const struct key_row *row = key_find(KEYS_GGUF, key + prefix);
        if (!row) TRY(key_unknown(ignore, m->file->path, key));
        if (row && row->use == KEY_OFF && !is_neutral(row, meta))
            return err_set(INFER_E_UNSUPPORTED, "%s: key '%s' has a value that is not supported (%s is)",
                           m->file->path, key, row->words);
    }
    return INFER_OK;
}

static enum infer_status bind(struct model *m, const struct key_ignore *ignore) {
    struct str name;
    TRY(meta_str(m->file, "general.architecture", &name, NULL));
    m->arch = arch_find(name.data, name.len);
    if (!m->arch) return arch_unsupported(m->file->path, name.data, name.len);
    TRY(check_keys(m, ignore));
    TRY(tok_open(&m->tok, m->file));
    TRY(read_hparams(m));
    return bind_tensors(m);
}

enum infer_status model_open(struct model **out, const char *path, const struct tensorfile_options *options) {
    struct model *m;
    *out = NULL;
    TRY(mem_new(&m, sizeof *m, "a model"));
    enum infer_status s = tensorfile_open(&m->file, path, options);
    if (s == INFER_OK) {
        if (options && options->vocab_only)
            s = tok_open(&m->tok, m->file);
        else
            s = bind(m, options ? &options->ignore : &(struct key_ignore){0});
    }
    if (s != INFER_OK) {
        model_close(m);
        return s;
    }
    *out = m;
    return INFER_OK;
}

void model_close(struct model *m) {
    if (!m) return;
    tok_close(m->tok);
    tensorfile_close(m->file);
    arena_free(&m->arena);
    mem_free(m);
}
