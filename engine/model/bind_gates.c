/* Streams that are read by gates, the means of runs of keys, and what runs of tokens read of a table. */
#include "model/bind.h"
#include "seam/weight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int add_state(struct model *m, int n_elem) {
    m->state[m->n_state] = (struct state_store){n_elem};
    return m->n_state++;
}
static enum infer_status room(struct model *m, size_t n, float **out) {
    *out = arena_alloc(&m->arena, n * sizeof **out);
    return *out ? INFER_OK : err_set(INFER_E_MEMORY, "out of memory for a layer");
}

/* Sums are divided by the number of streams. */
static void divide(struct weight_group *g, int n) {
    for (int i = 0; i < g->n_member; i++) g->member[i].factor /= (float)n;
}

/* The mean of a run's keys, as a convolution; and their rotation at the run's first position. */
static enum infer_status bind_means(struct model *m, struct layer *l) {
    const int n = l->index.by.block, dim = l->index.head_dim;
    float *w;
    TRY(room(m, (size_t)(n * dim), &w));
    for (int i = 0; i < n * dim; i++) w[i] = 1 / (float)n;
    TRY(bind_rope_runs(m, l->attn.rope, n, &l->index.first_rope));
    l->index.mean = w;
    l->index.state = add_state(m, (n - 1) * dim);
    return INFER_OK;
}

/* Taps as far from each other as runs of tokens are long, with zeros between. */
static enum infer_status bind_taps(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const int width = m->n_stream * m->n_embd, n = m->ngram_taps, apart = m->ngram.size,
              wide = (n - 1) * apart + 1;
    const float *from;
    float *w;
    TRY(bind_vector(b, SLOT_NGRAM_CONV, il, &from));
    TRY(room(m, (size_t)width * (size_t)wide, &w));
    memset(w, 0, (size_t)width * (size_t)wide * sizeof *w);
    for (int c = 0; c < width; c++)
        for (int k = 0; k < n; k++) w[c * wide + k * apart] = from[c * n + k];
    l->ngram.taps = w;
    l->ngram.n_tap = wide;
    l->ngram.conv_store = add_state(m, (wide - 1) * width);
    l->ngram.state = add_state(m, m->ngram.n_head * (m->ngram.size - 1));
    return INFER_OK;
}

enum infer_status bind_gates_of(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    if (!m->stream_low) return INFER_OK;
    for (int i = 0; i < 2; i++) {
        divide(&l->gates[i].down, m->n_stream);
        divide(&l->gates[i].inject, m->n_stream);
    }
    if (l->index.n_head) TRY(bind_means(m, l));
    return l->ngram.on ? bind_taps(b, il) : INFER_OK;
}

/* ---- the table ---- */

static enum infer_status part_of(const struct model *m, int i, const struct tensor **out) {
    char name[64];
    snprintf(name, sizeof name, "per_layer_token_embd.%d.weight", i);
    *out = tensorfile_find(m->file, name);
    return i || *out
               ? INFER_OK
               : err_set(INFER_E_INPUT, "%s: tensor per_layer_token_embd.weight is missing", m->file->path);
}

/* Parts of the same size, which folders have; *n_row: of all. */
static enum infer_status join_parts(struct binder *b, struct weight *w, int64_t *n_row) {
    struct model *m = b->m;
    const struct tensor *t, *first;
    int n = 0;
    TRY(part_of(m, 0, &first));
    for (t = first; t; n++) TRY(part_of(m, n + 1, &t));
    const void **part = arena_alloc(&m->arena, (size_t)n * sizeof *part);
    if (!part) return err_set(INFER_E_MEMORY, "out of memory for %d parts of a table", n);
    *w = bind_weight(first);
    for (int i = 0; i < n; i++) {
        TRY(part_of(m, i, &t));
        if (t->type != first->type || memcmp(t->shape, first->shape, sizeof t->shape) != 0)
            return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s has another type or size than %s",
                           m->file->path, t->name, first->name);
        part[i] = t->data;
        b->used[t - m->file->tensor] = 1;
    }
    w->n_stack = n;
    w->part = part;
    *n_row = (int64_t)n * first->shape[2];
    return INFER_OK;
}

static enum infer_status bind_table(struct binder *b) {
    struct model *m = b->m;
    const struct tensor whole = {.name = slot_info[SLOT_INPUT_TABLE].name},
                        *t = tensorfile_find(m->file, whole.name);
    struct weight w;
    int64_t n_row = 0;
    if (t) {
        w = bind_weight(t), n_row = t->shape[2];
        b->used[t - m->file->tensor] = 1;
    } else {
        TRY(join_parts(b, &w, &n_row));
    }
    TRY(bind_factor(b, &whole, &w.factor));
    if (w.k != m->n_ngram || (t && t->shape[1] != 1))
        return err_set(INFER_E_INPUT, "%s: tensor %s has rows of %d numbers, not of %d", m->file->path,
                       w.name, w.k, m->n_ngram);
    for (int h = 0; h < m->ngram.n_head; h++)
        if (m->ngram.first[h] > n_row - m->ngram.rows[h])
            return err_set(INFER_E_INPUT, "%s: tensor %s has %lld rows, head %d of n-grams reads up to %lld",
                           m->file->path, w.name, (long long)n_row, h,
                           (long long)(m->ngram.first[h] + m->ngram.rows[h]));
    bind_member(m, &m->ngram_table, &w, 0);
    m->token_bytes += (size_t)m->ngram.n_head * weight_stride(&w);
    return bind_number(b, &m->ngram_table);
}

enum infer_status bind_gates_head(struct binder *b) {
    static const struct group_slots down = {.matrix = {SLOT_GATES_HEAD_DOWN}},
                                    up = {.matrix = {SLOT_GATES_HEAD_UP}};
    struct model *m = b->m;
    TRY(bind_norm(b, SLOT_GATES_HEAD_NORM, SLOT_NONE, -1, &m->head_gates.norm));
    TRY(bind_group(b, &m->head_gates.down, -1, &down));
    TRY(bind_group(b, &m->head_gates.up, -1, &up));
    divide(&m->head_gates.down, m->n_stream);
    if (m->ngram_layer < 0) return INFER_OK;
    TRY(bind_table(b));
    return bind_row(b, &m->ngram_sum, m->n_embd, 1 / sqrtf((float)m->n_embd));
}
