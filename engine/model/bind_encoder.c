/* What encoders have around their layers: sums of embeddings, and the products behind the pooling.
 * sources: Devlin et al. 2019 (arXiv 1810.04805); Reimers & Gurevych 2019 (arXiv 1908.10084) */
#include "model/bind.h"
#include "seam/weight.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of positions with the vector of each type in them: one table, one operation. */
static enum infer_status bind_positions(struct binder *b) {
    struct model *m = b->m;
    const float *type;
    const size_t n = (size_t)m->n_embd, rows = (size_t)m->n_ctx_train;
    TRY(bind_vector(b, SLOT_TOKEN_TYPES, -1, &type));
    if (!m->position) m->type_embd = type, m->n_type = 1; /* which its models have for all */
    if (!m->position || !type) return INFER_OK;
    float *all = arena_alloc(&m->arena, (size_t)m->n_type * rows * n * sizeof *all);
    if (!all)
        return err_set(INFER_E_MEMORY, "out of memory for %d positions of %d types of tokens", m->n_ctx_train,
                       m->n_type);
    for (size_t k = 0; k < (size_t)m->n_type * rows; k++)
        for (size_t i = 0; i < n; i++)
            all[k * n + i] = m->position[k % rows * n + i] + type[k / rows * n + i];
    m->position = all;
    return INFER_OK;
}

static struct head_part *next_part(struct model *m) {
    struct head_part *p = &m->head_part[m->n_head_part++];
    p->act = ACT_SCALE;
    return p;
}

/* A product of sentence-transformers: what it reads is as wide as what the part before gives. */
static enum infer_status bind_dense(struct binder *b, const char *name) {
    struct model *m = b->m;
    char bias[32];
    const int from = model_vector_width(m);
    const struct tensor *t = tensorfile_find(m->file, name), *with;
    if (!t) return INFER_OK;
    snprintf(bias, sizeof bias, "%.7s.bias", name);
    with = tensorfile_find(m->file, bias);
    if (t->shape[1] != 1 || t->shape[3] != from)
        return err_set(INFER_E_INPUT, "%s: tensor %s reads %lld numbers, and vectors have %d", m->file->path,
                       name, (long long)t->shape[3], from);
    if (with && (with->type != QUANT_F32 || with->shape[3] != t->shape[2]))
        return err_set(INFER_E_INPUT, "%s: tensor %s has %lld numbers, not %lld of F32", m->file->path, bias,
                       (long long)with->shape[3], (long long)t->shape[2]);
    struct head_part *p = next_part(m);
    p->w = bind_weight(t);
    p->w.bias = with ? with->data : NULL;
    b->used[t - m->file->tensor] = 1;
    if (with) b->used[with - m->file->tensor] = 1;
    return INFER_OK;
}

/* Without the last matrix, the first is what training had for something else. */
static enum infer_status bind_scores(struct binder *b) {
    struct model *m = b->m;
    struct head_part first = {.act = m->arch->encoder.head}, out = {.act = ACT_SCALE};
    bool has_first, has_out;
    TRY(bind_matrix(b, SLOT_CLS, SLOT_CLS_BIAS, -1, &first.w, &has_first));
    TRY(bind_norm(b, SLOT_CLS_NORM, SLOT_NONE, -1, &first.norm));
    TRY(bind_matrix(b, SLOT_CLS_OUT, SLOT_CLS_OUT_BIAS, -1, &out.w, &has_out));
    if (!has_out) return INFER_OK;
    if (has_first) m->head_part[m->n_head_part++] = first;
    m->head_part[m->n_head_part++] = out;
    return INFER_OK;
}

/* Norms that some models of an architecture have stand in all of their layers, with their biases. */
static enum infer_status check_norms(const struct model *m, int il) {
    const struct layer *l = &m->layer[il], *first = &m->layer[0];
    const struct {
        const struct norm_weights *own, *first;
        const char *name;
    } part[] = {{&l->attn.q_norm, &first->attn.q_norm, "attn_q_norm"},
                {&l->attn.k_norm, &first->attn.q_norm, "attn_k_norm"},
                {&l->attn_again_norm, &first->attn_again_norm, "attn_norm_2"}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (!part[i].own->w != !part[i].first->w)
            return err_set(INFER_E_INPUT, "%s: blk.%d.%s.weight is %s", m->file->path, il, part[i].name,
                           part[i].own->w ? "there, and its partners are not" : "missing");
        if (part[i].own->w && m->arch->slot[SLOT_ATTN_AGAIN_NORM] && !part[i].own->bias)
            return err_set(INFER_E_INPUT, "%s: tensor blk.%d.%s.bias is missing", m->file->path, il,
                           part[i].name);
    }
    return INFER_OK;
}

/* What a layer may have in one form or another, it has in one; the norm in front of attention all have or none, but the first. */
static enum infer_status check_layers(const struct model *m) {
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layer[i];
        if (!l->moe.n_expert &&
            l->dense.gate_up.n != m->layer[0].dense.gate_up.n / m->layer[0].dense.n_ff * l->dense.n_ff)
            return err_set(INFER_E_INPUT, "%s: layer %d has a gate and others have none", m->file->path, i);
        if (l->attn.qkv.n != bind_dim(m, l, DIM_Q) + bind_dim(m, l, DIM_K) + bind_dim(m, l, DIM_V))
            return err_set(INFER_E_INPUT, "%s: layer %d has no matrix for queries, keys or values",
                           m->file->path, i);
        for (int k = 0; k < l->attn.qkv.n_member; k++)
            if (!l->attn.qkv.member[k].bias != !m->layer[0].attn.qkv.member[0].bias ||
                (m->arch->slot[SLOT_FFN_UP_BIAS] == SLOT_MUST && !l->attn.qkv.member[k].bias))
                return err_set(INFER_E_INPUT, "%s: layer %d has no bias of queries, keys or values",
                               m->file->path, i);
        TRY(check_norms(m, i));
        if (i > 1 && !l->attn_norm.w != !m->layer[1].attn_norm.w)
            return err_set(INFER_E_INPUT, "%s: tensor blk.%d.attn_norm.weight is missing", m->file->path,
                           l->attn_norm.w ? 1 : i);
    }
    return INFER_OK;
}

/* The bucket of p - t, half of them of those in front: the first ones exact, the others in steps of a logarithm up to FAR. source: HF modeling_t5 */
enum { FAR = 128 };
static int bucket_of(int distance, int n_bucket) {
    const int half = n_bucket / 2, exact = half / 2, far = abs(distance);
    if (far < exact) return (distance > 0 ? half : 0) + far;
    const float part = logf((float)far / (float)exact) / (float)log((double)FAR / exact);
    const int log_bucket = exact + (int)(part * (float)(half - exact));
    return (distance > 0 ? half : 0) + (log_bucket < half - 1 ? log_bucket : half - 1);
}

/* What each head adds for a distance; the first layer has it for all of them. */
static enum infer_status bind_distances(struct binder *b) {
    struct model *m = b->m;
    const float *w;
    char name[80];
    const int n_head = m->layer[0].attn.n_head;
    const size_t n = 2 * FAR + 1;
    if (!m->n_bucket) return INFER_OK;
    TRY(bind_vector(b, SLOT_ATTN_DISTANCE, 0, &w));
    if (!w)
        return err_set(INFER_E_INPUT, "%s: tensor %s is missing", m->file->path,
                       bind_name(m, name, SLOT_ATTN_DISTANCE, 0));
    float *bias = arena_alloc(&m->arena, (size_t)n_head * n * sizeof *bias);
    if (!bias) return err_set(INFER_E_MEMORY, "out of memory for distances");
    for (int h = 0; h < n_head; h++)
        for (int d = -FAR; d <= FAR; d++)
            bias[(size_t)h * n + (size_t)(d + FAR)] = w[bucket_of(-d, m->n_bucket) * n_head + h];
    m->attn_bias = bias;
    m->n_attn_bias = FAR;
    return INFER_OK;
}

/* -slope |d| for a distance d; slopes of 2^k heads are 2^(-8 i / 2^k), i = 1 .. 2^k, and where heads are more, those between.
 * source: Press et al. 2021 (arXiv 2108.12409) */
static enum infer_status bind_slopes(struct binder *b) {
    struct model *m = b->m;
    const int n_head = m->layer[0].attn.n_head, far = m->n_ctx_train - 1;
    const size_t n = 2 * (size_t)far + 1;
    int whole = 1;
    while (2 * whole <= n_head) whole *= 2;
    float *bias = arena_alloc(&m->arena, (size_t)n_head * n * sizeof *bias);
    if (!bias) return err_set(INFER_E_MEMORY, "out of memory for distances");
    for (int h = 0; h < n_head; h++) {
        const int between = 2 * (h - whole) + 1;
        const float slope = (float)(h < whole ? exp2(-8.0 * (h + 1) / whole) : exp2(-4.0 * between / whole));
        for (int d = -far; d <= far; d++) bias[(size_t)h * n + (size_t)(d + far)] = -slope * (float)abs(d);
    }
    m->attn_bias = bias;
    m->n_attn_bias = far;
    return INFER_OK;
}

/* One tensor of gate and up begins with up where a model has the norm behind a second sum. source: jina-bert-v2-qk-post-norm */
static void turn_halves(struct model *m) {
    for (int i = 0; i < m->n_layer; i++) {
        struct weight_group *g = &m->layer[i].dense.gate_up;
        if (!m->layer[i].attn_again_norm.w || g->n_member != 2) continue;
        const struct weight gate = g->member[1];
        if (strcmp(g->member[0].name, gate.name) != 0) continue; /* two tensors */
        g->member[1] = g->member[0];
        g->member[0] = gate;
    }
}

/* T5 without gates has ReLU. */
static void choose_act(struct model *m) {
    const struct layer *l = &m->layer[0];
    if (!m->n_bucket || m->arch->slot[SLOT_FFN_GATE] != SLOT_MAY || l->dense.gate_up.n != l->dense.n_ff)
        return;
    m->act = ACT_CLAMP;
    for (int i = 0; i < m->n_layer; i++) m->layer[i].act_all = (struct act_numbers){.limit = FLT_MAX};
}

enum infer_status bind_encoder(struct binder *b) {
    struct model *m = b->m;
    TRY(check_layers(m));
    TRY(bind_positions(b));
    TRY(m->arch->encoder.alibi ? bind_slopes(b) : bind_distances(b));
    choose_act(m);
    turn_halves(m);
    TRY(bind_norm(b, SLOT_EMBD_NORM, SLOT_EMBD_NORM_BIAS, -1, &m->embd_norm));
    TRY(bind_norm(b, SLOT_OUTPUT_NORM, SLOT_OUTPUT_NORM_BIAS, -1, &m->output_norm));
    TRY(bind_scores(b));
    if (m->n_label) return INFER_OK;
    TRY(bind_dense(b, "dense_2.weight"));
    return bind_dense(b, "dense_3.weight");
}
