/* Matrices and vectors of layers that are no plain attention, and what these keep. */
#include "model/bind.h"
#include "seam/weight.h"

/* q, k and v, where each head's query stands in front of its gate: slices of the one matrix. In some files they are one tensor. */
static enum infer_status bind_gated(struct binder *b, int il) {
    static const enum slot slots[] = {SLOT_ATTN_Q_GATED, SLOT_ATTN_K, SLOT_ATTN_V};
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const int dim = l->attn.head_dim_k, n = l->attn.n_head * dim;
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
    bind_member(m, &l->attn.qkv, &part, 1);
    part = weight_runs(&w[0], dim, dim, 2 * dim, n);
    bind_member(m, &l->attn.q_gate, &part, 1);
    for (int i = 1; i < 3; i++) bind_member(m, &l->attn.qkv, &w[i], 1);
    TRY(bind_number(b, &l->attn.qkv));
    return bind_number(b, &l->attn.q_gate);
}

/* The gate, beta and alpha: a matrix each, or the last two slices of one that has them by key heads. */
static enum infer_status bind_gates(struct binder *b, int il) {
    static const struct group_slots apart = {.matrix = {SLOT_STATE_GATE, SLOT_STATE_BETA, SLOT_STATE_ALPHA}};
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const int n = l->mixer.sizes.n_head, each = n / l->mixer.sizes.n_group;
    struct weight both, gate;
    bool there;
    TRY(bind_matrix(b, SLOT_STATE_BETA_ALPHA, SLOT_NONE, il, &both, &there));
    if (!there) return bind_group(b, &l->mixer.gates, il, &apart);
    TRY(bind_matrix(b, SLOT_STATE_GATE, SLOT_NONE, il, &gate, &there));
    bind_member(m, &l->mixer.gates, &gate, 1);
    for (int i = 0; i < 2; i++) {
        struct weight w = weight_runs(&both, i * each, each, 2 * each, n);
        bind_member(m, &l->mixer.gates, &w, 1);
    }
    return bind_number(b, &l->mixer.gates);
}

static int add_state(struct model *m, int n_elem) {
    m->state[m->n_state] = (struct state_store){n_elem};
    return m->n_state++;
}

/* The taps of q, k and v one behind the other, where they are a tensor each. */
static enum infer_status join_taps(struct binder *b, int il) {
    static const enum slot slots[] = {SLOT_STATE_CONV_Q, SLOT_STATE_CONV_K, SLOT_STATE_CONV_V};
    struct layer *l = &b->m->layer[il];
    const size_t taps = (size_t)l->mixer.sizes.taps;
    if (l->mixer.conv_w || b->m->arch->slot[slots[0]] == SLOT_ABSENT) return INFER_OK;
    float *w = arena_alloc(&b->m->arena, (size_t)l->mixer.sizes.channels * taps * sizeof *w);
    if (!w) return err_set(INFER_E_MEMORY, "out of memory for a convolution");
    l->mixer.conv_w = w;
    for (int i = 0; i < 3; i++) {
        const float *from;
        const size_t n = (size_t)bind_dim(b->m, l, slot_info[slots[i]].rows) * taps;
        TRY(bind_vector(b, slots[i], il, &from));
        memcpy(w, from, n * sizeof *w);
        w += n;
    }
    return INFER_OK;
}

/* A convolution's weights; *state: the store of its last inputs. */
static enum infer_status bind_conv(struct binder *b, int il, enum slot w, enum slot bias, int *state) {
    struct layer *l = &b->m->layer[il];
    TRY(bind_vector(b, w, il, &l->mixer.conv_w));
    TRY(bind_vector(b, bias, il, &l->mixer.conv_bias));
    *state = add_state(b->m, (l->mixer.sizes.taps - 1) * l->mixer.sizes.channels);
    return INFER_OK;
}

static enum infer_status bind_short_conv(struct binder *b, int il) {
    static const struct group_slots in = {.matrix = {SLOT_CONV_IN}, .bias = {SLOT_CONV_IN_BIAS}},
                                    out = {.matrix = {SLOT_CONV_OUT}, .bias = {SLOT_CONV_OUT_BIAS}};
    struct layer *l = &b->m->layer[il];
    TRY(bind_group(b, &l->mixer.in, il, &in));
    TRY(bind_group(b, &l->mixer.out, il, &out));
    return bind_conv(b, il, SLOT_CONV_TAPS, SLOT_CONV_TAPS_BIAS, &l->mixer.conv_store);
}

/* z, what is convolved, and the step, each with the factor of its rows; those of the second may differ, and are in the convolution's
 * weights then. */
static enum infer_status factor_parts(struct binder *b, int il, const struct tensor *t) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const struct state_sizes *s = &l->mixer.sizes;
    const int inner = s->n_head * s->head_dim, rows[] = {inner, s->channels, s->n_head};
    const float *factor = t->row_factor;
    const struct weight whole = l->mixer.in.member[0];
    float *w = arena_alloc(&m->arena, (size_t)s->channels * (size_t)s->taps * sizeof *w);
    if (!w) return err_set(INFER_E_MEMORY, "out of memory for %s", t->name);
    l->mixer.in.n_member = 0;
    for (int i = 0, row = 0; i < 3; row += rows[i++]) {
        struct weight part = weight_rows(&whole, row, rows[i]);
        part.factor = i == 1 ? 1 : factor[row];
        l->mixer.in.member[l->mixer.in.n_member++] = part;
    }
    for (int c = 0; c < s->channels; c++)
        for (int k = 0; k < s->taps; k++)
            w[c * s->taps + k] = l->mixer.conv_w[c * s->taps + k] * factor[inner + c];
    l->mixer.conv_w = w;
    return INFER_OK;
}

static enum infer_status bind_ssm(struct binder *b, int il) {
    static const struct group_slots in = {.matrix = {SLOT_SSM_IN}, .bias = {SLOT_SSM_IN_BIAS}};
    struct layer *l = &b->m->layer[il];
    const struct state_sizes *s = &l->mixer.sizes;
    TRY(bind_group(b, &l->mixer.in, il, &in));
    TRY(bind_conv(b, il, SLOT_STATE_CONV, SLOT_STATE_CONV_BIAS, &l->mixer.conv_store));
    const struct tensor *t;
    TRY(bind_slot(b, SLOT_SSM_IN, il, &t));
    if (t->row_factor) TRY(factor_parts(b, il, t));
    TRY(bind_vector(b, SLOT_STATE_DT_BIAS, il, &l->mixer.dt_bias));
    TRY(bind_vector(b, SLOT_SSM_A, il, &l->mixer.decay));
    TRY(bind_vector(b, SLOT_SSM_D, il, &l->mixer.skip));
    l->mixer.store = add_state(b->m, s->n_head * s->n_state * s->head_dim);
    return INFER_OK;
}

/* Decays of each row and the gate, of low rank, and the step. */
static enum infer_status bind_delta_rows(struct binder *b, int il) {
    static const struct group_slots low = {.matrix = {SLOT_STATE_F_A, SLOT_STATE_G_A, SLOT_STATE_BETA}};
    struct layer *l = &b->m->layer[il];
    TRY(bind_group(b, &l->mixer.gates, il, &low));
    TRY(bind_conv(b, il, SLOT_STATE_CONV, SLOT_STATE_CONV_BIAS, &l->mixer.conv_store));
    TRY(join_taps(b, il));
    TRY(bind_vector(b, SLOT_STATE_DT_ROWS, il, &l->mixer.dt_bias));
    TRY(bind_vector(b, SLOT_SSM_A, il, &l->mixer.decay));
    const struct state_sizes *s = &l->mixer.sizes;
    l->mixer.store = add_state(b->m, s->n_head * s->n_state * s->head_dim);
    return INFER_OK;
}

enum infer_status bind_mixer(struct binder *b, int il) {
    struct model *m = b->m;
    struct layer *l = &m->layer[il];
    const struct state_sizes *s = &l->mixer.sizes;
    if (l->mixer.kind == MIX_ATTENTION) return m->arch->attn.q_gated ? bind_gated(b, il) : INFER_OK;
    if (l->mixer.kind == MIX_NONE) return INFER_OK;
    if (l->mixer.kind == MIX_CONV) return bind_short_conv(b, il);
    if (l->mixer.kind != MIX_DELTA) return bind_ssm(b, il);
    if (m->arch->mixer.by_row) return bind_delta_rows(b, il);
    TRY(bind_gates(b, il));
    TRY(bind_conv(b, il, SLOT_STATE_CONV, SLOT_STATE_CONV_BIAS, &l->mixer.conv_store));
    TRY(join_taps(b, il));
    TRY(bind_vector(b, SLOT_STATE_DT_BIAS, il, &l->mixer.dt_bias));
    TRY(bind_vector(b, SLOT_STATE_DECAY, il, &l->mixer.decay));
    l->mixer.store = add_state(m, s->n_head * s->n_state * s->head_dim);
    return INFER_OK;
}
