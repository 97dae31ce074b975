/* Matrices of several residual streams. */
#include "model/bind.h"
#include "seam/weight.h"

#include <math.h>
#include <stdio.h>

enum infer_status bind_row(struct binder *b, struct weight_group *g, int n, float factor) {
    float *w = arena_alloc(&b->m->arena, (size_t)n * sizeof *w);
    if (!w) return err_set(INFER_E_MEMORY, "out of memory for a mean");
    for (int i = 0; i < n; i++) w[i] = 1;
    const struct weight mean = {.name = "mean",
                                .type = QUANT_F32,
                                .n = 1,
                                .k = n,
                                .data = w,
                                .factor = factor,
                                .n_stack = 1,
                                .stack_bytes = (size_t)n * sizeof *w};
    bind_member(b->m, g, &mean, 1);
    return bind_number(b, g);
}

/* Matrix i of a stack, as llama.cpp has them, or a tensor of its own. */
static enum infer_status bind_one(struct binder *b, struct weight_group *g, const char *name, int i) {
    struct model *m = b->m;
    char own[64], whole[64];
    snprintf(own, sizeof own, "%s.%d.weight", name, i);
    snprintf(whole, sizeof whole, "%s.weight", name);
    const struct tensor *t = tensorfile_find(m->file, whole);
    const int n = t ? m->n_stream - 1 : 1;
    if (!t) t = tensorfile_find(m->file, own);
    if (!t) return err_set(INFER_E_INPUT, "%s: tensor %s is missing", m->file->path, own);
    if (t->shape[0] != 1 || t->shape[1] != n || t->shape[2] != m->n_embd || t->shape[3] != m->n_embd)
        return err_set(INFER_E_INPUT, "%s: tensor %s is not %d matrices of [%d][%d]", m->file->path, t->name,
                       n, m->n_embd, m->n_embd);
    struct weight w = bind_weight(t);
    if (n > 1) w.data = (const char *)w.data + (size_t)i * w.stack_bytes;
    w.n_stack = 1;
    b->used[t - m->file->tensor] = 1;
    m->prompt_bytes += weight_bytes(&w), m->token_bytes += weight_bytes(&w);
    bind_member(m, g, &w, 1);
    return bind_number(b, g);
}

enum infer_status bind_streams(struct binder *b) {
    struct model *m = b->m;
    for (int i = 0; i + 1 < m->n_stream; i++) {
        TRY(bind_one(b, &m->stream_in[i], "altup_proj", i));
        TRY(bind_one(b, &m->stream_out[i], "altup_unembd_proj", i));
    }
    return m->n_stream ? bind_row(b, &m->mean, m->n_embd, 1 / (float)m->n_embd) : INFER_OK;
}

enum infer_status bind_streams_of(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    if (!m->n_stream || m->hyper.n_round || m->stream_low) return INFER_OK;
    float *ones = arena_alloc(&m->arena, (size_t)(m->n_stream + l->dense.n_ff) * sizeof *ones);
    if (!ones) return err_set(INFER_E_MEMORY, "out of memory for a layer");
    for (int i = 0; i < m->n_stream; i++) ones[i] = 1;
    l->stream.correct.member[0].bias = ones;
    l->stream.router.member[0].factor /= (float)m->n_embd;
    if (isinf(l->sparse)) return INFER_OK;
    float *below = ones + m->n_stream;
    for (int i = 0; i < l->dense.n_ff; i++) below[i] = -l->sparse;
    l->below = below;
    return bind_row(b, &l->mean, l->dense.n_ff, 1 / (float)l->dense.n_ff);
}
