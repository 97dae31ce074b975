/* Tensors of the file to the slots of its architecture. */
#include "model/model_impl.h"

#include <stdio.h>

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

enum infer_status model_bind_tensors(struct model *m) {
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
    TRY(model_bind_rope(m, divisor));
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
