/* Matrices and vectors of layers that are no plain attention, and what these keep. */
#include "model/bind.h"
#include "seam/weight.h"

/* q, k and v, where each head's query stands in front of its gate: slices of the one matrix. In some files they are one tensor. */
static enum infer_status bind_gated(struct binder *b, int il) {
    static const enum slot slots[] = {SLOT_ATTN_Q_GATED, SLOT_ATTN_K, SLOT_ATTN_V};
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const int dim = l->head_dim_k, n = l->n_head * dim;
    struct weight whole, w[3], part;
    bool fused, there;
    TRY(bind_matrix(b, SLOT_ATTN_QKV, SLOT_NONE, il, &whole, &fused));
    for (int i = 0, row = 0; i < 3; i++) {
        if (fused)
            w[i] = weight_rows(&whole, row, bind_dim(m, l, slot_info[slots[i]].rows));
        else
            TRY(bind_matrix(b, slots[i], SLOT_NONE, il, &w[i], &there));
        row += w[i].n;
    }
    part = weight_runs(&w[0], 0, dim, 2 * dim, n);
    bind_member(m, &l->qkv, &part, 1);
    part = weight_runs(&w[0], dim, dim, 2 * dim, n);
    bind_member(m, &l->q_gate, &part, 1);
    for (int i = 1; i < 3; i++) bind_member(m, &l->qkv, &w[i], 1);
    bind_number(b, &l->qkv);
    bind_number(b, &l->q_gate);
    return INFER_OK;
}

/* The gate, beta and alpha: a matrix each, or the last two slices of one that has them by key heads. */
static enum infer_status bind_gates(struct binder *b, int il) {
    static const struct group_slots apart = {.matrix = {SLOT_STATE_GATE, SLOT_STATE_BETA, SLOT_STATE_ALPHA}};
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const int n = l->sizes.n_head, each = n / l->sizes.n_group;
    struct weight both, gate;
    bool there;
    TRY(bind_matrix(b, SLOT_STATE_BETA_ALPHA, SLOT_NONE, il, &both, &there));
    if (!there) return bind_group(b, &l->state_gates, il, &apart);
    TRY(bind_matrix(b, SLOT_STATE_GATE, SLOT_NONE, il, &gate, &there));
    bind_member(m, &l->state_gates, &gate, 1);
    for (int i = 0; i < 2; i++) {
        struct weight w = weight_runs(&both, i * each, each, 2 * each, n);
        bind_member(m, &l->state_gates, &w, 1);
    }
    bind_number(b, &l->state_gates);
    return INFER_OK;
}

static int add_state(struct model *m, int n_elem) {
    m->state[m->n_state] = (struct state_store){n_elem};
    return m->n_state++;
}

enum infer_status bind_mixer(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const struct state_sizes *s = &l->sizes;
    if (l->mix == MIX_ATTENTION) return m->arch->q_gated ? bind_gated(b, il) : INFER_OK;
    TRY(bind_gates(b, il));
    TRY(bind_vector(b, SLOT_STATE_CONV, il, &l->conv_w));
    TRY(bind_vector(b, SLOT_STATE_CONV_BIAS, il, &l->conv_bias));
    TRY(bind_vector(b, SLOT_STATE_DT_BIAS, il, &l->dt_bias));
    TRY(bind_vector(b, SLOT_STATE_DECAY, il, &l->decay));
    l->conv_state = add_state(m, (s->taps - 1) * s->channels);
    l->state = add_state(m, s->n_head * s->n_state * s->head_dim);
    return INFER_OK;
}
