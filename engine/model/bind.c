/* Tensors of the file to the slots of its architecture. */
#include "model/bind.h"
#include "seam/weight.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

int bind_dim(const struct model *m, const struct layer *l, enum dim d) {
    if (!l) l = &m->layer[0];
    const struct state_sizes *s = &l->mixer.sizes;
    const int q = l->attn.n_head * l->attn.head_dim_k, k = l->attn.n_kv_head * l->attn.head_dim_k,
              v = l->attn.n_kv_head * l->attn.head_dim_v, inner = s->n_head * s->head_dim;
    const int size[DIM_COUNT] = {
        [DIM_ONE] = 1,
        [DIM_VOCAB] = m->n_vocab,
        [DIM_EMBD] = m->n_embd,
        [DIM_EMBD_2] = 2 * m->n_embd,
        [DIM_Q] = q,
        [DIM_K] = k,
        [DIM_V] = v,
        [DIM_QKV] = (m->arch->attn.q_gated ? 2 * q : q) + k + v,
        [DIM_ATTN] = l->attn.n_head * (l->mla.n_value ? l->mla.n_value : l->attn.head_dim_v),
        [DIM_HEAD_K] = l->attn.head_dim_k,
        [DIM_HEAD_V] = l->attn.head_dim_v,
        [DIM_Q_LATENT] = l->attn.n_head * (l->mla.n_nope + m->rope[0].n_rot),
        [DIM_Q_RANK] = l->mla.q_rank,
        [DIM_NOPE] = l->mla.n_nope,
        [DIM_VALUE] = l->mla.n_value,
        [DIM_NOPE_VALUE] = l->attn.n_head * (l->mla.n_nope + l->mla.n_value),
        [DIM_HEADS] = l->attn.n_head,
        [DIM_KV_HEADS] = l->attn.n_kv_head,
        [DIM_CTX] = m->n_ctx_train,
        [DIM_FF] = l->dense.n_ff,
        [DIM_GATE_UP] = 2 * l->dense.n_ff,
        [DIM_ROT_HALF] = m->rope[m->arch->rope.half_full].n_rot / 2,
        [DIM_EXPERTS] = l->moe.n_expert,
        [DIM_EXPERT_FF] = l->moe.n_ff,
        [DIM_EXPERT_GATE_UP] = 2 * l->moe.n_ff,
        [DIM_SHARED_FF] = l->moe.n_ff_shared,
        [DIM_LAYER_INPUT] = m->n_layer_input,
        [DIM_LAYER_INPUTS] = m->n_layer * m->n_layer_input,
        [DIM_Q_GATED] = 2 * q,
        [DIM_CHANNELS] = s->channels,
        [DIM_TAPS] = s->taps,
        [DIM_STATE_HEADS] = s->n_head,
        [DIM_STATE_HEADS_2] = 2 * s->n_head,
        [DIM_STREAMS] = m->n_stream,
        [DIM_STREAMS_2] = m->n_stream * m->n_stream,
        [DIM_LAUREL] = m->laurel_rank,
        [DIM_STATE_KEYS] = s->n_group * s->n_state,
        [DIM_STATE_DIM] = s->head_dim,
        [DIM_INNER] = inner,
        [DIM_STATE_IN] = l->mixer.kind == MIX_CONV ? 3 * s->channels : inner + s->channels + s->n_head,
        [DIM_STATE_GROUPS] = s->n_group,
        [DIM_STATE_GROUP] = s->n_group ? inner / s->n_group : 0,
        [DIM_TYPES] = m->n_type,
        [DIM_LABELS] = m->n_label,
        [DIM_BUCKETS] = m->n_bucket,
        [DIM_IDS] = model_ids(m),
        [DIM_TAPPED] = m->taps.n * m->taps.n_embd,
        [DIM_EXPERT_EMBD] = l->moe.n_latent ? l->moe.n_latent : m->n_embd,
        [DIM_INDEX_HEADS] = l->index.n_head,
        [DIM_INDEX_DIM] = l->index.head_dim,
        [DIM_INDEX_Q] = l->index.n_head * l->index.head_dim,
        [DIM_INDEX_ENTRY] = 2 * l->index.head_dim,
        [DIM_ENTRY] = (l->entry.twice ? 2 : 1) * l->attn.head_dim_k,
        [DIM_ENTRY_RUN] = l->entry.every,
        [DIM_OUT_LOW] = m->hyper.n_group * m->hyper.rank,
        [DIM_OUT_GROUP] = m->hyper.n_group ? q / m->hyper.n_group : 0,
        [DIM_STREAM_MIX] = 2 * m->n_stream + m->n_stream * m->n_stream,
        [DIM_STREAM_EMBD] = m->n_stream * m->n_embd,
        [DIM_STREAM_PARTS] = 3,
        [DIM_STREAM_LOW] = m->stream_low,
        [DIM_NGRAM] = m->ngram.n_head * m->n_ngram,
        [DIM_NGRAM_TAPS] = m->ngram_taps,
        [DIM_USED] = l->moe.n_used,
    };
    return size[d];
}

static enum infer_status missing(const struct model *m, const char *name) {
    return err_set(INFER_E_INPUT, "%s: tensor %s is missing", m->file->path, name);
}
static enum infer_status misshapen(const struct model *m, const struct tensor *t, int64_t rows,
                                   int64_t cols) {
    return err_set(INFER_E_INPUT,
                   "%s: tensor %s has shape [%lld][%lld][%lld][%lld], the model's sizes ask for [%lld][%lld]",
                   m->file->path, t->name, (long long)t->shape[0], (long long)t->shape[1],
                   (long long)t->shape[2], (long long)t->shape[3], (long long)rows, (long long)cols);
}

/* Of what a layer keeps of a position. */
static bool is_kept(enum slot slot) {
    return slot == SLOT_ATTN_K || slot == SLOT_ATTN_V || slot == SLOT_ATTN_K_NORM;
}
static bool is_index(enum slot slot) { return slot >= SLOT_INDEX_Q && slot <= SLOT_INDEX_WEIGHTS; }
/* Norms that stand on the other side of a layer's parts. */
static bool is_elsewhere(const struct layer *l, enum slot slot) {
    const bool front = slot == SLOT_ATTN_NORM || slot == SLOT_FFN_NORM_AFTER,
               behind = slot == SLOT_POST_ATTN_NORM || slot == SLOT_POST_FFN_NORM;
    return l->mixer.kind == MIX_ATTENTION ? front : behind;
}
/* What the architecture says of a slot, for a layer that has experts or has none. */
static enum slot_use slot_use(const struct model *m, enum slot slot, const struct layer *l) {
    bool sparse = l && l->moe.n_expert;
    if (slot >= SLOT_ROPE_FREQS && slot <= SLOT_ROPE_SHORT) /* what scales rotation, in any family */
        return m->arch->rope.kind == ROPE_NONE ? SLOT_ABSENT : SLOT_MAY;
    if (slot >= SLOT_FFN_GATE_SHEXP && slot <= SLOT_FFN_SHEXP_GATE && sparse && !l->moe.n_ff_shared)
        return SLOT_ABSENT;
    if (slot >= SLOT_FFN_ROUTER && !sparse) return SLOT_ABSENT;
    if (slot >= SLOT_FFN_GATE_UP && slot <= SLOT_FFN_DOWN_BIAS && sparse && !m->arch->moe.beside)
        return SLOT_ABSENT;
    const bool attends = !l || l->mixer.kind == MIX_ATTENTION || l->mixer.kind == MIX_BOTH;
    if (slot >= SLOT_ATTN_QKV && slot <= SLOT_ATTN_Q_GATED && !attends) return SLOT_ABSENT;
    if (slot >= SLOT_FFN_GATE_UP && slot <= SLOT_FFN_DOWN_BIAS && l && !l->dense.n_ff) return SLOT_ABSENT;
    if (slot >= SLOT_FFN_LATENT_DOWN && slot <= SLOT_FFN_LATENT_UP && l && !l->moe.n_latent)
        return SLOT_ABSENT;
    if (l && slot >= SLOT_STATE_QKV && slot <= SLOT_STATE_OUT &&
        (l->mixer.kind == MIX_ATTENTION || l->mixer.kind == MIX_NONE))
        return SLOT_ABSENT;
    if (slot >= SLOT_ATTN_Q_A && slot <= SLOT_ATTN_Q_B && l && !l->mla.q_rank) return SLOT_ABSENT;
    if (slot >= SLOT_INPUT_TABLE && slot <= SLOT_INPUT_NORM && !m->n_layer_input) return SLOT_ABSENT;
    if (l && l->attn.borrows && is_kept(slot)) return SLOT_ABSENT;
    if (l && !l->index.n_head && is_index(slot)) return SLOT_ABSENT;
    if (l && slot >= SLOT_ENTRY_KV && slot <= SLOT_ENTRY_NORM && !l->entry.every) return SLOT_ABSENT;
    if (l && slot >= SLOT_NGRAM_KEY && slot <= SLOT_NGRAM_CONV && !l->ngram.on) return SLOT_ABSENT;
    if (l && slot == SLOT_FFN_TOLD && !l->moe.is_told) return SLOT_ABSENT;
    if (l && m->arch->mixer.sides && is_elsewhere(l, slot)) return SLOT_ABSENT;
    if (slot == SLOT_ATTN_Q_LATENT && l && l->mla.q_rank) return SLOT_ABSENT;
    return (enum slot_use)m->arch->slot[slot];
}

/* Where gates are of each number or of each head, or stand beside another matrix or in it, the matrix says which. */
static bool is_other_gate(const struct model *m, enum slot slot) {
    return (slot == SLOT_ATTN_GATE && m->arch->slot[SLOT_ATTN_GATE_HEADS]) ||
           (slot == SLOT_ATTN_GATE_HEADS && m->arch->slot[SLOT_ATTN_GATE]) ||
           (slot == SLOT_FFN_GATE_UP && m->arch->slot[SLOT_FFN_UP]);
}

/* Matrices of a slot. */
static int slot_matrices(const struct slot_info *s, const struct layer *l) {
    return s->stack == SLOT_EACH_EXPERT ? l->moe.n_expert : s->stack == SLOT_EACH_HEAD ? l->attn.n_head : 1;
}

const char *bind_name(const struct model *m, char name[80], enum slot slot, int il) {
    const char *prefix = m->arch->encoder.prefix;
    const bool within = prefix && (slot_info[slot].name[0] == 'b' || slot == SLOT_OUTPUT_NORM);
    const int n = snprintf(name, 80, "%s", within ? prefix : "");
    snprintf(name + n, 80 - (size_t)n,
             prefix && slot == SLOT_ATTN_OUTPUT ? "blk.%d.attn_o.weight" : slot_info[slot].name,
             il + m->first);
    return name;
}

/* Finds the tensor of a slot in layer il (-1: outside) and checks its shape; *out NULL when it may be absent. */
enum infer_status bind_slot(struct binder *b, enum slot slot, int il, const struct tensor **out) {
    struct model *m = b->m;
    const struct slot_info *s = &slot_info[slot];
    const struct layer *l = il < 0 ? NULL : &m->layer[il];
    enum slot_use use = slot_use(m, slot, l);
    char name[80];
    *out = NULL;
    if (use == SLOT_ABSENT) return INFER_OK;
    const struct tensor *t = tensorfile_find(m->file, bind_name(m, name, slot, il));
    if (!t) {
        if (use == SLOT_MUST && s->stack != SLOT_EACH_EXPERT) return missing(m, name);
        return INFER_OK;
    }
    int64_t rows = bind_dim(m, l, s->rows), cols = bind_dim(m, l, s->cols);
    const bool taps = slot >= SLOT_STATE_CONV_Q && slot <= SLOT_STATE_CONV_V && t->shape[2] == 1;
    int64_t have_rows = t->shape[taps ? 1 : 2], have_cols = t->shape[3]; /* some have [channels][1][taps] */
    if (slot == SLOT_INPUT_TABLE && m->n_stream && have_rows < rows)
        rows = have_rows; /* tokens of texts alone */
    bool fits = t->shape[0] == 1 && t->shape[taps ? 2 : 1] == slot_matrices(s, l) && have_rows == rows &&
                have_cols == cols;
    if (!fits && is_other_gate(m, slot)) return INFER_OK;
    if (!fits) return misshapen(m, t, rows, cols);
    b->used[t - m->file->tensor] = 1;
    *out = t;
    return INFER_OK;
}

/* A vector, or a matrix without products, as floats: the map itself when it is F32, else a decoded copy. */
enum infer_status bind_vector(struct binder *b, enum slot slot, int il, const float **out) {
    const struct tensor *t;
    TRY(bind_slot(b, slot, il, &t));
    *out = NULL;
    if (!t) return INFER_OK;
    if (t->type == QUANT_F32) {
        *out = t->data;
        return INFER_OK;
    }
    size_t n = (size_t)(t->shape[1] * t->shape[2] * t->shape[3]);
    float *copy = arena_alloc(&b->m->arena, n * sizeof *copy);
    if (!copy) return err_set(INFER_E_MEMORY, "out of memory for %s", t->name);
    quant_info(t->type)->decode(copy, t->data, n);
    *out = copy;
    return INFER_OK;
}

struct weight bind_weight(const struct tensor *t) {
    return (struct weight){.name = t->name,
                           .type = t->type,
                           .n = (int)t->shape[2],
                           .k = (int)t->shape[3],
                           .data = t->data,
                           .factor = t->row_factor ? t->row_factor[0] : 1,
                           .n_stack = (int)t->shape[1],
                           .stack_bytes = t->bytes / (size_t)t->shape[1],
                           .columns = t->columns,
                           .fine = t->fine && t->type != QUANT_F32 && t->type != QUANT_F16 &&
                                   t->type != QUANT_BF16};
}

/* The matrices of a stack as tensors of their own, of which the stack's name has no part: ffn_gate.3.weight for ffn_gate_exps.weight.
 * GGUF files before April 2024 and folders have them so. *there: false when there is none. */
static enum infer_status bind_single(struct binder *b, enum slot slot, int il, struct weight *out,
                                     bool *there) {
    struct model *m = b->m;
    const struct slot_info *s = &slot_info[slot];
    const struct layer *l = &m->layer[il];
    const char *end = strstr(s->name, "_exps.weight");
    int64_t rows = bind_dim(m, l, s->rows), cols = bind_dim(m, l, s->cols);
    char front[64], name[80];
    snprintf(front, sizeof front, "%.*s", (int)(end - s->name), s->name);
    const void **part = arena_alloc(&m->arena, (size_t)l->moe.n_expert * sizeof *part);
    if (!part) return err_set(INFER_E_MEMORY, "out of memory for %d experts", l->moe.n_expert);
    for (int e = 0; e < l->moe.n_expert; e++) {
        int n = snprintf(name, sizeof name, front, il + m->first);
        snprintf(name + n, sizeof name - (size_t)n, ".%d.weight", e);
        const struct tensor *t = tensorfile_find(m->file, name);
        if (!t && e == 0) return INFER_OK;
        if (!t) return missing(m, name);
        if (t->shape[1] != 1 || t->shape[2] != rows || t->shape[3] != cols)
            return misshapen(m, t, rows, cols);
        if (e && t->type != out->type)
            return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s is %s, the experts before it are %s",
                           m->file->path, name, quant_info(t->type)->name, quant_info(out->type)->name);
        if (!e) *out = bind_weight(t);
        part[e] = t->data;
        b->used[t - m->file->tensor] = 1;
    }
    out->n_stack = l->moe.n_expert;
    out->part = part;
    *there = true;
    return INFER_OK;
}

/* The factor of a whole matrix, in GGUF the tensor X.scale beside X.weight: one element. */
enum infer_status bind_factor(struct binder *b, const struct tensor *matrix, float *factor) {
    char name[80];
    snprintf(name, sizeof name, "%.*sscale", (int)(strlen(matrix->name) - strlen("weight")), matrix->name);
    const struct tensor *t = tensorfile_find(b->m->file, name);
    if (!t) return INFER_OK;
    if (t->bytes != quant_info(t->type)->bytes || quant_info(t->type)->elems != 1)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: tensor %s: a factor of a matrix is one number, not %zu bytes of %s",
                       b->m->file->path, name, t->bytes, quant_info(t->type)->name);
    quant_info(t->type)->decode(factor, t->data, 1);
    if (!isfinite(*factor))
        return err_set(INFER_E_INPUT, "%s: tensor %s is %g", b->m->file->path, name, (double)*factor);
    b->used[t - b->m->file->tensor] = 1;
    return INFER_OK;
}

/* A slot's matrix with its factor and its bias; *there: false when it may be absent and is. */
enum infer_status bind_matrix(struct binder *b, enum slot matrix, enum slot bias, int il, struct weight *out,
                              bool *there) {
    const struct tensor *t;
    struct model *m = b->m;
    const struct layer *l = il < 0 ? NULL : &m->layer[il];
    const bool stack = slot_info[matrix].stack == SLOT_EACH_EXPERT;
    TRY(bind_slot(b, matrix, il, &t));
    *there = t != NULL;
    if (t) *out = bind_weight(t);
    if (!t && stack && slot_use(m, matrix, l) != SLOT_ABSENT) TRY(bind_single(b, matrix, il, out, there));
    if (!*there && stack && slot_use(m, matrix, l) == SLOT_MUST) {
        char name[80];
        return missing(m, bind_name(m, name, matrix, il));
    }
    if (!*there) return INFER_OK;
    /* of experts and their router, X.scale may be something else */
    if (t && !(stack && m->arch->slot[SLOT_FFN_DOWN_EXPS_SCALE]) &&
        !(matrix == SLOT_FFN_ROUTER && m->arch->slot[SLOT_FFN_ROUTER_SCALE]))
        TRY(bind_factor(b, t, &out->factor));
    m->prompt_bytes += weight_bytes(out);
    m->token_bytes +=
        stack ? weight_bytes(out) / (size_t)out->n_stack * (size_t)l->moe.n_used : weight_bytes(out);
    return bind_vector(b, bias, il, &out->bias);
}

/* used: how many matrices of a stack a token reads. */
void bind_member(struct model *m, struct weight_group *g, const struct weight *w, int used) {
    g->member[g->n_member++] = *w;
    g->n += w->n;
    g->k = w->k;
    m->n_param += (uint64_t)w->n * (uint64_t)w->k * (uint64_t)w->n_stack;
    m->n_param_token += (uint64_t)w->n * (uint64_t)w->k * (uint64_t)used;
}

static void number(struct binder *b, struct weight_group *g) {
    struct model *m = b->m;
    if (m->n_group == b->max_group) infer_bug("more than %d groups of weights", b->max_group);
    g->id = m->n_group;
    m->group[m->n_group++] = g;
}

/* Members that do not all have the same order of columns: a group for each run of those that do. */
static enum infer_status split(struct binder *b, struct weight_group *g) {
    struct weight_group *part = arena_alloc(&b->m->arena, (size_t)g->n_member * sizeof *part);
    if (!part) return err_set(INFER_E_MEMORY, "out of memory for %s", g->member[0].name);
    g->split = part--;
    for (int i = 0; i < g->n_member; i++) {
        const struct weight *w = &g->member[i];
        if (!i || w->columns != w[-1].columns) {
            *++part = (struct weight_group){.k = w->k};
            g->n_split++;
        }
        part->member[part->n_member++] = *w;
        part->n += w->n;
    }
    for (part = part - g->n_split + 1; part < g->split + g->n_split; part++) number(b, part);
    return INFER_OK;
}

enum infer_status bind_number(struct binder *b, struct weight_group *g) {
    bool differ = false;
    for (int i = 1; i < g->n_member; i++) differ |= g->member[i].columns != g->member[0].columns;
    if (differ) return split(b, g);
    if (g->n_member) number(b, g);
    return INFER_OK;
}

/* Without any of its slots in the architecture the group stays empty. */
enum infer_status bind_group(struct binder *b, struct weight_group *g, int il, const struct group_slots *s) {
    struct model *m = b->m;
    struct weight whole;
    bool fused, there;
    TRY(bind_matrix(b, s->fused, s->fused_bias, il, &whole, &fused));
    for (int i = 0, row = 0; i < WEIGHT_GROUP_MAX && s->matrix[i] != SLOT_NONE; i++) {
        struct weight w;
        if (fused)
            w = weight_rows(&whole, row,
                            bind_dim(m, il < 0 ? NULL : &m->layer[il], slot_info[s->matrix[i]].rows));
        else
            TRY(bind_matrix(b, s->matrix[i], s->bias[i], il, &w, &there));
        if (!fused && !there) continue;
        bind_member(m, g, &w,
                    slot_info[s->matrix[i]].stack == SLOT_EACH_EXPERT ? m->layer[il].moe.n_used : w.n_stack);
        row += w.n;
    }
    return bind_number(b, g);
}

/* The fields of struct layer and the slots that fill them. */
static const struct {
    size_t at;
    enum slot slot, bias;
} layer_norm[] = {
    {offsetof(struct layer, attn_norm), SLOT_ATTN_NORM, SLOT_ATTN_NORM_BIAS},
    {offsetof(struct layer, attn_norm_2), SLOT_ATTN_NORM_2, SLOT_ATTN_NORM_2_BIAS},
    {offsetof(struct layer, ffn_norm), SLOT_FFN_NORM, SLOT_FFN_NORM_BIAS},
    {offsetof(struct layer, ffn_norm), SLOT_FFN_NORM_AFTER, SLOT_NONE},
    {offsetof(struct layer, ffn_norm), SLOT_FFN_NORM_BARE, SLOT_NONE},
    {offsetof(struct layer, post_attn_norm), SLOT_POST_ATTN_NORM, SLOT_NONE},
    {offsetof(struct layer, post_ffn_norm), SLOT_POST_FFN_NORM, SLOT_NONE},
    {offsetof(struct layer, attn_sum_norm), SLOT_ATTN_OUT_NORM, SLOT_ATTN_OUT_NORM_BIAS},
    {offsetof(struct layer, attn_again_norm), SLOT_ATTN_AGAIN_NORM, SLOT_ATTN_AGAIN_NORM_BIAS},
    {offsetof(struct layer, ffn_sum_norm), SLOT_LAYER_OUT_NORM, SLOT_LAYER_OUT_NORM_BIAS},
    {offsetof(struct layer, moe.router_norm), SLOT_FFN_ROUTER_SCALE, SLOT_NONE},
    {offsetof(struct layer, moe.experts_norm), SLOT_FFN_EXPERTS_NORM, SLOT_NONE},
    {offsetof(struct layer, moe.post_dense_norm), SLOT_POST_DENSE_NORM, SLOT_NONE},
    {offsetof(struct layer, moe.post_experts_norm), SLOT_POST_EXPERTS_NORM, SLOT_NONE},
    {offsetof(struct layer, attn.q_norm), SLOT_ATTN_Q_NORM, SLOT_NONE},
    {offsetof(struct layer, attn.k_norm), SLOT_ATTN_K_NORM, SLOT_NONE},
    {offsetof(struct layer, attn.q_norm), SLOT_ATTN_Q_NORM_ROW, SLOT_ATTN_Q_NORM_BIAS},
    {offsetof(struct layer, attn.k_norm), SLOT_ATTN_K_NORM_ROW, SLOT_ATTN_K_NORM_BIAS},
    {offsetof(struct layer, attn.q_norm), SLOT_ATTN_Q_NORM_HEADS, SLOT_NONE},
    {offsetof(struct layer, attn.k_norm), SLOT_ATTN_K_NORM_HEADS, SLOT_NONE},
    {offsetof(struct layer, mla.q_a_norm), SLOT_ATTN_Q_A_NORM, SLOT_NONE},
    {offsetof(struct layer, mla.kv_a_norm), SLOT_ATTN_KV_A_NORM, SLOT_NONE},
    {offsetof(struct layer, index.q_norm), SLOT_INDEX_Q_NORM, SLOT_NONE},
    {offsetof(struct layer, index.k_norm), SLOT_INDEX_K_NORM, SLOT_INDEX_K_NORM_BIAS},
    {offsetof(struct layer, entry.norm), SLOT_ENTRY_NORM, SLOT_NONE},
    {offsetof(struct layer, entry.index_norm), SLOT_INDEX_ENTRY_NORM, SLOT_NONE},
    {offsetof(struct layer, gates[0].norm), SLOT_GATES_ATTN_NORM, SLOT_NONE},
    {offsetof(struct layer, gates[1].norm), SLOT_GATES_FFN_NORM, SLOT_NONE},
    {offsetof(struct layer, ngram.key_norm), SLOT_NGRAM_KEY_NORM, SLOT_NONE},
    {offsetof(struct layer, ngram.query_norm), SLOT_NGRAM_QUERY_NORM, SLOT_NONE},
    {offsetof(struct layer, ngram.conv_norm), SLOT_NGRAM_CONV_NORM, SLOT_NONE},
    {offsetof(struct layer, input.norm), SLOT_INPUT_NORM, SLOT_NONE},
    {offsetof(struct layer, stream.norm), SLOT_ALTUP_NORM, SLOT_NONE},
    {offsetof(struct layer, stream.scale), SLOT_ALTUP_SCALE, SLOT_NONE},
    {offsetof(struct layer, stream.laurel_norm), SLOT_LAUREL_NORM, SLOT_NONE},
    {offsetof(struct layer, mixer.norm), SLOT_STATE_NORM, SLOT_NONE},
    {offsetof(struct layer, mixer.norm), SLOT_SSM_NORM, SLOT_NONE},
};
static const struct {
    size_t at;
    struct group_slots slots;
} layer_group[] = {
    {offsetof(struct layer, attn.qkv),
     {.fused = SLOT_ATTN_QKV,
      .fused_bias = SLOT_ATTN_QKV_BIAS,
      .matrix = {SLOT_ATTN_Q, SLOT_ATTN_K, SLOT_ATTN_V},
      .bias = {SLOT_ATTN_Q_BIAS, SLOT_ATTN_K_BIAS, SLOT_ATTN_V_BIAS}}},
    {offsetof(struct layer, attn.q_gate), {.matrix = {SLOT_ATTN_GATE, SLOT_ATTN_GATE_HEADS}}},
    {offsetof(struct layer, mla.qkv_a), {.matrix = {SLOT_ATTN_Q_LATENT, SLOT_ATTN_Q_A, SLOT_ATTN_KV_A}}},
    {offsetof(struct layer, mla.q_b), {.matrix = {SLOT_ATTN_Q_B}}},
    {offsetof(struct layer, index.q), {.matrix = {SLOT_INDEX_Q, SLOT_INDEX_Q_PROJ}}},
    {offsetof(struct layer, index.kw), {.matrix = {SLOT_INDEX_K, SLOT_INDEX_K_PROJ, SLOT_INDEX_WEIGHTS}}},
    {offsetof(struct layer, entry.in), {.matrix = {SLOT_ATTN_KV, SLOT_ENTRY_KV, SLOT_ENTRY_GATE}}},
    {offsetof(struct layer, entry.index_in), {.matrix = {SLOT_INDEX_ENTRY_KV, SLOT_INDEX_ENTRY_GATE}}},
    {offsetof(struct layer, hyper[0].mix), {.matrix = {SLOT_HC_ATTN}}},
    {offsetof(struct layer, hyper[1].mix), {.matrix = {SLOT_HC_FFN}}},
    {offsetof(struct layer, gates[0].down), {.matrix = {SLOT_GATES_ATTN_DOWN}}},
    {offsetof(struct layer, gates[0].up), {.matrix = {SLOT_GATES_ATTN_UP}}},
    {offsetof(struct layer, gates[0].inject), {.matrix = {SLOT_GATES_ATTN_INJECT}}},
    {offsetof(struct layer, gates[1].down), {.matrix = {SLOT_GATES_FFN_DOWN}}},
    {offsetof(struct layer, gates[1].up), {.matrix = {SLOT_GATES_FFN_UP}}},
    {offsetof(struct layer, gates[1].inject), {.matrix = {SLOT_GATES_FFN_INJECT}}},
    {offsetof(struct layer, ngram.in), {.matrix = {SLOT_NGRAM_KEY, SLOT_NGRAM_VALUE}}},
    {offsetof(struct layer, mixer.in),
     {.fused = SLOT_STATE_QKV, .matrix = {SLOT_STATE_Q, SLOT_STATE_K, SLOT_STATE_V}}},
    {offsetof(struct layer, mixer.out),
     {.matrix = {SLOT_STATE_OUT, SLOT_STATE_ATTN_OUT}, .bias = {SLOT_STATE_OUT_BIAS}}},
    {offsetof(struct layer, mixer.decay_up), {.matrix = {SLOT_STATE_F_B}}},
    {offsetof(struct layer, mixer.gate_up), {.matrix = {SLOT_STATE_G_B}}},
    {offsetof(struct layer, attn.out),
     {.matrix = {SLOT_ATTN_OUTPUT, SLOT_ATTN_OUTPUT_B}, .bias = {SLOT_ATTN_OUTPUT_BIAS}}},
    {offsetof(struct layer, dense.gate_up),
     {.fused = SLOT_FFN_GATE_UP,
      .matrix = {SLOT_FFN_GATE, SLOT_FFN_UP},
      .bias = {SLOT_FFN_GATE_BIAS, SLOT_FFN_UP_BIAS}}},
    {offsetof(struct layer, stream.router), {.matrix = {SLOT_ALTUP_ROUTER}}},
    {offsetof(struct layer, stream.predict), {.matrix = {SLOT_ALTUP_PREDICT}}},
    {offsetof(struct layer, stream.correct), {.matrix = {SLOT_ALTUP_CORRECT}}},
    {offsetof(struct layer, stream.laurel_l), {.matrix = {SLOT_LAUREL_L}}},
    {offsetof(struct layer, stream.laurel_r), {.matrix = {SLOT_LAUREL_R}}},
    {offsetof(struct layer, input.gate), {.matrix = {SLOT_INPUT_GATE}}},
    {offsetof(struct layer, input.out), {.matrix = {SLOT_INPUT_OUT}}},
    {offsetof(struct layer, dense.down), {.matrix = {SLOT_FFN_DOWN}, .bias = {SLOT_FFN_DOWN_BIAS}}},
    {offsetof(struct layer, moe.router), {.matrix = {SLOT_FFN_ROUTER}, .bias = {SLOT_FFN_ROUTER_BIAS}}},
    {offsetof(struct layer, moe.experts),
     {.fused = SLOT_FFN_GATE_UP_EXPS,
      .fused_bias = SLOT_FFN_GATE_UP_EXPS_BIAS,
      .matrix = {SLOT_FFN_GATE_EXPS, SLOT_FFN_UP_EXPS},
      .bias = {SLOT_FFN_GATE_EXPS_BIAS, SLOT_FFN_UP_EXPS_BIAS}}},
    {offsetof(struct layer, moe.experts_down),
     {.matrix = {SLOT_FFN_DOWN_EXPS}, .bias = {SLOT_FFN_DOWN_EXPS_BIAS}}},
    {offsetof(struct layer, moe.shared), {.matrix = {SLOT_FFN_GATE_SHEXP, SLOT_FFN_UP_SHEXP}}},
    {offsetof(struct layer, moe.shared_down), {.matrix = {SLOT_FFN_DOWN_SHEXP}}},
    {offsetof(struct layer, moe.latent_down), {.matrix = {SLOT_FFN_LATENT_DOWN}}},
    {offsetof(struct layer, moe.latent_up), {.matrix = {SLOT_FFN_LATENT_UP}}},
    {offsetof(struct layer, moe.shared_gate), {.matrix = {SLOT_FFN_SHEXP_GATE}}}};
enum {
    N_LAYER_NORM = sizeof layer_norm / sizeof *layer_norm,
    N_LAYER_GROUP = sizeof layer_group / sizeof *layer_group
};

/* The store of the last layer with one of its own and the same window. source: modeling_gemma4 of transformers */
static enum infer_status borrow_store(struct model *m, int il) {
    struct layer *l = &m->layer[il], *from = l - 1;
    while (from >= m->layer && (from->attn.borrows || from->attn.window != l->attn.window)) from--;
    if (from < m->layer || from->attn.n_kv_head != l->attn.n_kv_head)
        return err_set(INFER_E_INPUT, "%s: layer %d has no keys, nor has a layer of its kind before it",
                       m->file->path, il);
    l->attn.store = from->attn.store;
    return INFER_OK;
}

/* What the layer keeps; layers of one window are a group. */
static enum infer_status bind_store(struct model *m, int il) {
    struct layer *l = &m->layer[il];
    int g = 0;
    if (l->attn.borrows) return borrow_store(m, il);
    while (g < m->n_kv_group && m->window[g] != l->attn.window) g++;
    if (g == KV_GROUPS)
        return err_set(INFER_E_UNSUPPORTED, "%s: attention windows of more than %d lengths", m->file->path,
                       KV_GROUPS);
    if (g == m->n_kv_group) m->window[m->n_kv_group++] = l->attn.window;
    l->attn.store = m->n_store++;
    m->store[l->attn.store] = (struct kv_store){.group = g,
                                                .n_kv_head = l->attn.n_kv_head,
                                                .head_dim_k = l->attn.head_dim_k,
                                                .head_dim_v = l->attn.head_dim_v,
                                                .v_in_k = m->arch->attn.latent || m->arch->attn.entries};
    if (!l->index.n_head || m->arch->attn.entries) return INFER_OK;
    l->index.store = m->n_store++;
    m->store[l->index.store] = (struct kv_store){.group = g,
                                                 .n_kv_head = 1,
                                                 .head_dim_k = l->index.head_dim,
                                                 .every = l->index.by.whole ? l->index.by.block : 0,
                                                 .v_in_k = true};
    return INFER_OK;
}

/* What slots hold; nothing where the architecture or the file has none. */
enum infer_status bind_norm(struct binder *b, enum slot w, enum slot bias, int il, struct norm_weights *out) {
    const float *data;
    TRY(bind_vector(b, w, il, &data));
    if (!data) return INFER_OK;
    const struct layer *l = il < 0 ? NULL : &b->m->layer[il];
    *out = (struct norm_weights){
        .w = data, .n = bind_dim(b->m, l, slot_info[w].rows) * bind_dim(b->m, l, slot_info[w].cols)};
    return bind_vector(b, bias, il, &out->bias);
}

enum infer_status bind_front_norm(struct binder *b, enum slot w, enum slot bias, int il,
                                  struct norm_weights *out) {
    struct model *m = b->m;
    if (!m->arch->norm_bare) return bind_norm(b, w, bias, il, out);
    float *ones = arena_alloc(&m->arena, (size_t)m->n_embd * sizeof *ones);
    if (!ones) return err_set(INFER_E_MEMORY, "out of memory for a norm");
    for (int i = 0; i < m->n_embd; i++) ones[i] = 1;
    *out = (struct norm_weights){.w = ones, .n = m->n_embd};
    return INFER_OK;
}

/* The factor of what a group adds to the residual stream, with its bias. */
static enum infer_status scale_group(struct model *m, struct weight_group *g, float factor) {
    for (int i = 0; i < g->n_member && factor != 1; i++) {
        struct weight *w = &g->member[i];
        w->factor *= factor;
        if (!w->bias) continue;
        size_t n = (size_t)w->n * (size_t)w->n_stack;
        float *bias = arena_alloc(&m->arena, n * sizeof *bias);
        if (!bias) return err_set(INFER_E_MEMORY, "out of memory for a bias");
        for (size_t k = 0; k < n; k++) bias[k] = factor * w->bias[k];
        w->bias = bias;
    }
    return INFER_OK;
}

static enum infer_status scale_norm(struct model *m, struct norm_weights *norm, float factor) {
    if (!norm->w) return INFER_OK;
    float *w = arena_alloc(&m->arena, (size_t)norm->n * sizeof *w);
    if (!w) return err_set(INFER_E_MEMORY, "out of memory for a norm");
    for (int i = 0; i < norm->n; i++) w[i] = norm->w[i] * factor;
    norm->w = w;
    return INFER_OK;
}

/* e = (norm(proj x / sqrt(n_embd)) + table[id] * sqrt(n_layer_input)) / sqrt(2), that root in the norm's weights and in the factor by
 * which the table is read. Of the table a token reads a row. */
static enum infer_status bind_layer_inputs(struct binder *b) {
    static const struct group_slots proj = {.matrix = {SLOT_INPUT_PROJ}};
    struct model *m = b->m;
    const struct tensor *t;
    struct weight table;
    if (!m->n_layer_input) return INFER_OK;
    TRY(bind_slot(b, SLOT_INPUT_TABLE, -1, &t));
    if (!t) return missing(m, slot_info[SLOT_INPUT_TABLE].name);
    table = bind_weight(t);
    TRY(bind_factor(b, t, &table.factor));
    bind_member(m, &m->input_table, &table, 0);
    TRY(bind_number(b, &m->input_table));
    m->token_bytes += weight_stride(&table);
    TRY(bind_group(b, &m->input_proj, -1, &proj));
    m->input_proj.member[0].factor /= sqrtf((float)m->n_embd);
    TRY(bind_norm(b, SLOT_INPUT_PROJ_NORM, SLOT_NONE, -1, &m->input_proj_norm));
    return scale_norm(m, &m->input_proj_norm, sqrtf(0.5f));
}

/* Keys and values, or choices, of a layer that borrows them: some files have what nothing reads. */
static void pass_over(struct binder *b, int il) {
    const struct layer *l = &b->m->layer[il];
    const bool chosen = l->index.by.n_top && !l->index.n_head;
    char name[80];
    for (int i = 0; i < SLOT_COUNT; i++) {
        const enum slot slot = (enum slot)i;
        if (!(l->attn.borrows && is_kept(slot)) && !(chosen && is_index(slot))) continue;
        const struct tensor *t = tensorfile_find(b->m->file, bind_name(b->m, name, slot, il));
        if (t) b->used[t - b->m->file->tensor] = 1;
    }
}

static enum infer_status bind_layer(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const float *scale;
    for (size_t i = 0; i < N_LAYER_NORM; i++)
        TRY(bind_norm(b, layer_norm[i].slot, layer_norm[i].bias, il,
                      (struct norm_weights *)(void *)((char *)l + layer_norm[i].at)));
    if (m->arch->norm_bare) {
        TRY(bind_front_norm(b, SLOT_NONE, SLOT_NONE, il, &l->attn_norm));
        l->ffn_norm = l->attn_norm;
    }
    const bool bound = m->arch->attn.q_gated || m->target; /* q, k and v: bind_mixer, bind_draft */
    for (size_t i = bound ? 1 : 0; i < N_LAYER_GROUP; i++)
        TRY(bind_group(b, (struct weight_group *)(void *)((char *)l + layer_group[i].at), il,
                       &layer_group[i].slots));
    if (m->arch->slot[SLOT_FFN_NORM_BARE] && !l->ffn_norm.w) return missing(m, "blk.N.ffn_norm");
    const bool attends = l->mixer.kind == MIX_ATTENTION || l->mixer.kind == MIX_BOTH;
    if (m->arch->slot[SLOT_ATTN_GATE_HEADS] && attends && !l->attn.q_gate.n)
        return missing(m, "blk.N.attn_gate.weight of the heads' size, or of one number a head");
    l->post_attn_norm.eps = l->post_ffn_norm.eps = m->arch->norm_behind_eps;
    l->mixer.norm.eps = m->arch->mixer.norm_eps;
    TRY(bind_streams_of(b, il));
    TRY(bind_latent(b, il));
    TRY(bind_mixer(b, il));
    TRY(bind_vector(b, SLOT_ATTN_SINKS, il, &l->attn.sinks));
    TRY(bind_vector(b, SLOT_LAYER_SCALE, il, &scale));
    l->scale = scale ? *scale : 1;
    l->attn.qk_row = m->arch->slot[SLOT_ATTN_Q_NORM_ROW] != SLOT_ABSENT;
    TRY(scale_group(m, &l->attn.out, m->residual_scale * m->value_scale));
    TRY(scale_group(m, &l->mixer.out, m->residual_scale));
    TRY(scale_group(m, &l->dense.down, m->residual_scale));
    TRY(scale_group(m, l->moe.n_latent ? &l->moe.latent_up : &l->moe.experts_down, m->residual_scale));
    TRY(scale_group(m, &l->moe.shared_down, m->residual_scale));
    if (m->arch->moe.mean && l->moe.n_ff_shared) {
        TRY(scale_group(m, &l->moe.experts_down, 0.5f));
        TRY(scale_group(m, &l->moe.shared_down, 0.5f));
    }
    /* What the router reads is x / rms(x) * scale / sqrt(n_embd). */
    TRY(scale_norm(m, &l->moe.router_norm, 1 / sqrtf((float)m->n_embd)));
    pass_over(b, il);
    TRY(bind_vector(b, SLOT_FFN_CHOICE_BIAS, il, &l->moe.route.bias));
    if (!l->moe.route.bias) TRY(bind_vector(b, SLOT_FFN_CHOICE_BIAS_BARE, il, &l->moe.route.bias));
    TRY(bind_vector(b, SLOT_FFN_EXPERTS_BIAS, il, &l->moe.bias));
    TRY(bind_vector(b, SLOT_FFN_DOWN_EXPS_SCALE, il, &l->moe.route.expert_scale));
    l->attn.store = -1;
    if (l->mixer.kind == MIX_NONE) l->ffn_norm = l->attn_norm, l->attn_norm = (struct norm_weights){0};
    if (attends && !m->encoder) TRY(bind_store(m, il));
    TRY(bind_gates_of(b, il));
    return bind_entries(b, il);
}

enum infer_status model_bind_tensors(struct model *m) {
    struct binder b = {.m = m,
                       .used = arena_alloc(&m->arena, m->file->n_tensor + 1),
                       .max_group = m->n_layer * (N_LAYER_GROUP + 10) + 12};
    m->group = arena_alloc(&m->arena, (size_t)b.max_group * sizeof *m->group);
    m->store = arena_alloc(&m->arena, 3 * (size_t)(m->n_layer * m->n_loop) * sizeof *m->store);
    m->window = arena_alloc(&m->arena, KV_GROUPS * sizeof *m->window);
    m->state = arena_alloc(&m->arena, (2 * (size_t)m->n_layer + 2) * sizeof *m->state);
    if (!b.used || !m->group || !m->store || !m->window || !m->state)
        return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);

    struct rope_divisors divisor;
    int il;
    TRY(bind_embedding(&b));
    TRY(bind_vector(&b, SLOT_POSITION_EMBD, -1, &m->position));
    TRY(bind_vector(&b, SLOT_ROPE_FREQS, -1, &divisor.all));
    TRY(bind_vector(&b, SLOT_ROPE_LONG, -1, &divisor.beyond));
    TRY(bind_vector(&b, SLOT_ROPE_SHORT, -1, &divisor.within));
    TRY(model_bind_rope(m, &divisor));
    m->index_rope = m->rope[0];
    m->index_rope.kind = m->arch->attn.index_rope;
    TRY(bind_layer_inputs(&b));
    TRY(m->hyper.n_round ? bind_hyper_head(&b) : m->stream_low ? bind_gates_head(&b) : bind_streams(&b));
    TRY(bind_draft_input(&b));
    const struct model before = *m;
    for (il = 0; il < m->n_layer; il++) TRY(bind_layer(&b, il));
    bind_loop_bytes(m, &before);
    if (!m->n_kv_group) m->window[m->n_kv_group++] = 0; /* positions are counted in pages, also of nothing */
    TRY(m->encoder ? bind_encoder(&b) : bind_output(&b));

    for (size_t i = 0; i < m->file->n_tensor; i++)
        if (!b.used[i] && !(m->target && m->file->tensor[i].raw) &&
            !bind_is_others(m, m->file->tensor[i].name))
            return err_set(INFER_E_UNSUPPORTED,
                           "%s: tensor %s is not part of architecture %s as this build knows it",
                           m->file->path, m->file->tensor[i].name, m->arch->name);
    m->token_flops = 2 * (m->n_param_token - (m->tied ? 0 : (uint64_t)m->n_vocab * (uint64_t)m->n_embd));
    return bind_loops(&b);
}
