/* What attention to entries of runs of positions keeps, its output by groups, streams that are mixed, and the experts of ids. */
#include "model/bind.h"
#include "seam/weight.h"

static int add_store(struct model *m, int dim_k, int dim_v, int every) {
    int g = 0;
    while (g < m->n_kv_group && m->window[g]) g++;
    if (g == m->n_kv_group) m->window[m->n_kv_group++] = 0;
    m->store[m->n_store] = (struct kv_store){
        .group = g, .n_kv_head = 1, .head_dim_k = dim_k, .head_dim_v = dim_v, .every = every, .v_in_k = true};
    return m->n_store++;
}
static int add_state(struct model *m, int runs, int every, int width) {
    m->state[m->n_state] = (struct state_store){2 * runs * every * width};
    return m->n_state++;
}

/* A matrix for each group of heads, one below the other. */
static enum infer_status bind_out(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    struct weight w;
    bool there;
    TRY(bind_matrix(b, SLOT_ATTN_OUTPUT_A, SLOT_NONE, il, &w, &there));
    w.n = m->hyper.rank;
    w.n_stack = m->hyper.n_group;
    w.stack_bytes = weight_stride(&w) * (size_t)w.n;
    bind_member(m, &l->entry.out_a, &w, w.n_stack);
    return bind_number(b, &l->entry.out_a);
}

/* told[n_vocab][n_used]: the file's whole numbers. */
static enum infer_status bind_told(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const struct tensor *t;
    TRY(bind_slot(b, SLOT_FFN_TOLD, il, &t));
    if (!t) return INFER_OK;
    if (!t->raw || strcmp(t->raw, "I32") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s has no whole numbers (I32)", m->file->path,
                       t->name);
    const int32_t *id = t->data;
    for (int i = 0; i < m->n_vocab * l->moe.n_used; i++)
        if (id[i] < 0 || id[i] >= l->moe.n_expert)
            return err_set(INFER_E_INPUT, "%s: %s: token %d has expert %d of %d", m->file->path, t->name,
                           i / l->moe.n_used, id[i], l->moe.n_expert);
    l->moe.told = id;
    return INFER_OK;
}

static enum infer_status bind_hyper(struct binder *b, int il) {
    struct layer *l = &b->m->layer[il];
    TRY(bind_vector(b, SLOT_HC_ATTN_BASE, il, &l->hyper[0].base));
    TRY(bind_vector(b, SLOT_HC_ATTN_SCALE, il, &l->hyper[0].scale));
    TRY(bind_vector(b, SLOT_HC_FFN_BASE, il, &l->hyper[1].base));
    return bind_vector(b, SLOT_HC_FFN_SCALE, il, &l->hyper[1].scale);
}

static bool is_rope(const struct rope *r, const struct rope *of, int every) {
    return r && r->every == every && r->kind == of->kind && r->n_rot == of->n_rot &&
           r->mscale == of->mscale && r->inv_freq == of->inv_freq && r->axis == of->axis;
}
enum infer_status bind_rope_runs(struct model *m, const struct rope *of, int every, const struct rope **out) {
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layer[i];
        *out = is_rope(l->entry.rope, of, every)         ? l->entry.rope
               : is_rope(l->index.first_rope, of, every) ? l->index.first_rope
                                                         : NULL;
        if (*out) return INFER_OK;
    }
    struct rope *r = arena_alloc(&m->arena, sizeof *r);
    if (!r) return err_set(INFER_E_MEMORY, "out of memory for rope");
    *r = *of;
    r->every = every;
    *out = r;
    return INFER_OK;
}

enum infer_status bind_entries(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const int n = l->attn.head_dim_k, runs = l->entry.twice ? 2 : 1;
    if (!m->arch->attn.entries) return INFER_OK;
    TRY(bind_out(b, il));
    TRY(bind_told(b, il));
    TRY(bind_hyper(b, il));
    if (!l->entry.every) return INFER_OK;
    TRY(bind_vector(b, SLOT_ENTRY_BIAS, il, &l->entry.bias));
    TRY(bind_vector(b, SLOT_INDEX_ENTRY_BIAS, il, &l->entry.index_bias));
    TRY(bind_rope_runs(m, l->attn.rope, l->entry.every, &l->entry.rope));
    l->entry.store = add_store(m, n, n, l->entry.every);
    l->entry.state = add_state(m, runs, l->entry.every, runs * n);
    if (!l->index.n_head) return INFER_OK;
    l->index.store = add_store(m, l->index.head_dim, 0, l->entry.every);
    l->entry.index_state = add_state(m, runs, l->entry.every, runs * l->index.head_dim);
    return INFER_OK;
}

enum infer_status bind_hyper_head(struct binder *b) {
    static const struct group_slots head = {.matrix = {SLOT_HC_HEAD}};
    struct model *m = b->m;
    TRY(bind_group(b, &m->hyper.head, -1, &head));
    TRY(bind_vector(b, SLOT_HC_HEAD_BASE, -1, &m->hyper.base));
    return bind_vector(b, SLOT_HC_HEAD_SCALE, -1, &m->hyper.scale);
}
