/* A rank's share of a layer with a state: heads and what is theirs, which numbers of the states they are, and of a short convolution
 * channels. */
#include "model/shard_impl.h"
#include "seam/weight.h"

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* The heads of this rank and the groups (key heads; B and C) that they read, each a run. */
struct heads {
    struct span head, group;
    bool parts; /* a part of a group's heads */
};

/* Whole runs of heads for a rank or, of fewer runs than ranks, a part of one (each run begins with a block of the matrix that reads
 * it then). A run has the heads of a group, or (tiled) one of every group. */
static bool heads_of(const struct shard *s, const struct layer *l, bool tiled, struct heads *out) {
    const struct state_sizes *z = &l->mixer.sizes;
    const int n_run = tiled ? z->n_head / z->n_group : z->n_group, each = z->n_head / n_run;
    const int runs = shard_unit(&l->mixer.out, each * z->head_dim),
              heads = shard_unit(&l->mixer.out, z->head_dim);
    struct span run, in = {0, each};
    if (divides(n_run, runs, s->n)) {
        run = shard_span(n_run, runs, s->rank, s->n);
        out->head = scaled(run, each);
    } else if (runs == 1 && n_run < s->n && divides(each, heads, (s->n + n_run - 1) / n_run)) {
        run = (struct span){s->rank * n_run / s->n, 1};
        const int first = (run.first * s->n + n_run - 1) / n_run,
                  end = ((run.first + 1) * s->n + n_run - 1) / n_run;
        in = shard_span(each, heads, s->rank - first, end - first);
        out->head = (struct span){run.first * each + in.first, in.n};
    } else {
        return false;
    }
    out->group = tiled ? in : run;
    out->parts = n_run < s->n && !tiled;
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void put(struct weight_group *g, const struct weight *of, struct span rows) {
    g->member[g->n_member] = weight_rows(of, rows.first, rows.n);
    g->n += g->member[g->n_member++].n;
}
/* These rows of the one member, in its place. */
static void take_sections(struct shard *s, struct weight_group *g, const struct span *section) {
    const struct weight whole = g->member[0];
    g->n_member = g->n = 0;
    for (int i = 0; i < WEIGHT_GROUP_MAX; i++) {
        put(g, &whole, section[i]);
        s->m->share.group[g->id].col[i] = section[i].first;
    }
}

/* ---- convolutions and states --------------------------------------------------------------------------------------- */

/* Channels in sections: their taps, and of the inputs that are kept theirs. */
static enum infer_status cut_conv(struct shard *s, struct layer *l, const struct span *section, int n) {
    const size_t taps = (size_t)l->mixer.sizes.taps;
    struct state_share *state = &s->m->share.state[l->mixer.conv_store];
    *state = (struct state_share){.n_row = (int)taps - 1, .whole = l->mixer.sizes.channels, .n_section = n};
    size_t own = 0, at = 0;
    for (int i = 0; i < n; i++) {
        state->section[i].first = section[i].first, state->section[i].n = section[i].n;
        own += (size_t)section[i].n;
    }
    float *w = arena_alloc(&s->m->arena, own * taps * sizeof *w),
          *bias = arena_alloc(&s->m->arena, own * sizeof *bias);
    if (!w || !bias) return err_set(INFER_E_MEMORY, "out of memory for a convolution");
    for (int i = 0; i < n; at += (size_t)section[i++].n) {
        const size_t first = (size_t)section[i].first, channels = (size_t)section[i].n;
        memcpy(w + at * taps, l->mixer.conv_w + first * taps, channels * taps * sizeof *w);
        if (l->mixer.conv_bias) memcpy(bias + at, l->mixer.conv_bias + first, channels * sizeof *bias);
    }
    l->mixer.conv_w = w;
    if (l->mixer.conv_bias) l->mixer.conv_bias = bias;
    l->mixer.sizes.channels = (int)own;
    s->m->state[l->mixer.conv_store].n_elem = (int)((taps - 1) * own);
    return INFER_OK;
}

/* Vectors, states and columns of heads. */
static enum infer_status cut_heads(struct shard *s, struct layer *l, const struct heads *h) {
    struct state_sizes *z = &l->mixer.sizes;
    const struct span numbers = scaled(h->head, z->n_state * z->head_dim);
    s->m->share.state[l->mixer.store] = (struct state_share){.n_row = 1,
                                                             .whole = s->of->state[l->mixer.store].n_elem,
                                                             .n_section = 1,
                                                             .section = {{numbers.first, numbers.n}}};
    s->m->state[l->mixer.store].n_elem = numbers.n;
    l->mixer.dt_bias += h->head.first;
    l->mixer.decay += h->head.first;
    if (l->mixer.skip) l->mixer.skip += h->head.first;
    z->n_head = h->head.n, z->n_group = h->group.n;
    l->mixer.partial = true;
    return shard_columns(s, &l->mixer.out, scaled(h->head, z->head_dim));
}

/* ---- layers -------------------------------------------------------------------------------------------------------- */

/* Rows of q, k and v; of z, b and a. */
static enum infer_status shard_delta(struct shard *s, struct layer *l) {
    const struct state_sizes z = l->mixer.sizes;
    struct weight_group *in = &l->mixer.in;
    struct heads h;
    if (s->of->arch->mixer.by_row) return INFER_OK;
    const bool apart = in->n_member == STATE_SECTIONS; /* q, k and v as a matrix each */
    if ((in->n_member != 1 && !apart) || in->n_split || !heads_of(s, l, s->of->tiled, &h)) return INFER_OK;
    const int keys = z.n_group * z.n_state;
    const struct span k = scaled(h.group, z.n_state), v = scaled(h.head, z.head_dim),
                      section[] = {k, {keys + k.first, k.n}, {2 * keys + v.first, v.n}}, own[] = {k, k, v},
                      gates[] = {v, h.head, h.head};
    if (apart)
        TRY(shard_members(s, in, own));
    else
        take_sections(s, in, section);
    TRY(shard_members(s, &l->mixer.gates, gates));
    TRY(cut_conv(s, l, section, 3));
    return cut_heads(s, l, &h);
}

/* Rows of z and x, and of B, C and the step, in two groups; in the whole all are one matrix, or z, x B C and the step. */
static enum infer_status cut_ssm_in(struct shard *s, struct layer *l, const struct heads *h) {
    const struct state_sizes *z = &l->mixer.sizes;
    struct weight_group *in = &l->mixer.in, *part = arena_alloc(&s->m->arena, 2 * sizeof *part);
    if (!part) return err_set(INFER_E_MEMORY, "out of memory for %s", in->member[0].name);
    const bool apart = in->n_member > 1;
    const struct weight *xbc = &in->member[apart], *step = &in->member[in->n_member - 1];
    const int inner = z->n_head * z->head_dim, groups = z->n_group * z->n_state, x = apart ? 0 : inner,
              dt = apart ? 0 : 2 * inner + 2 * groups;
    const struct span own = scaled(h->head, z->head_dim), b = scaled(h->group, z->n_state);
    for (int p = 0; p < 2; p++) {
        part[p].k = in->k;
        part[p].id = p ? s->m->n_group++ : in->id;
        s->m->group[part[p].id] = &part[p];
    }
    put(&part[0], &in->member[0], own);
    put(&part[0], xbc, (struct span){x + own.first, own.n});
    put(&part[1], xbc, (struct span){x + inner + b.first, b.n});
    put(&part[1], xbc, (struct span){x + inner + groups + b.first, b.n});
    put(&part[1], step, (struct span){dt + h->head.first, h->head.n});
    const int bc = 2 * inner + b.first;
    s->m->share.group[part[0].id] = (struct group_share){in->id, {own.first, inner + own.first}, 0, 0};
    s->m->share.group[part[1].id] =
        (struct group_share){in->id, {bc, bc + groups, 2 * inner + 2 * groups + h->head.first}, 0, 0};
    in->n = part[0].n + part[1].n;
    in->split = part, in->n_split = 2;
    return INFER_OK;
}

/* The norm of a group of which ranks have parts is over what they gather. */
static enum infer_status gather_norm(struct shard *s, struct layer *l) {
    int *col = arena_alloc(&s->m->arena, ((size_t)s->n + 1) * sizeof *col);
    if (!col) return err_set(INFER_E_MEMORY, "out of memory for %d ranks", s->n);
    for (int r = 0; r < s->n; r++) {
        struct heads h;
        const struct shard other = {.of = s->of, .rank = r, .n = s->n};
        heads_of(&other, l, false, &h);
        col[r] = h.head.first * l->mixer.sizes.head_dim;
    }
    col[s->n] = l->mixer.sizes.n_head * l->mixer.sizes.head_dim;
    l->mixer.gathered = col;
    l->mixer.norm_dim = col[s->n] / l->mixer.sizes.n_group;
    return INFER_OK;
}

static enum infer_status shard_ssm(struct shard *s, struct layer *l) {
    const struct state_sizes z = l->mixer.sizes;
    const struct weight_group *in = &l->mixer.in;
    struct heads h;
    if (in->n_split || (in->n_member != 1 && in->n_member != 3) || !heads_of(s, l, false, &h))
        return INFER_OK;
    const int inner = z.n_head * z.head_dim, groups = z.n_group * z.n_state;
    const struct span x = scaled(h.head, z.head_dim), b = scaled(h.group, z.n_state),
                      section[] = {x, {inner + b.first, b.n}, {inner + groups + b.first, b.n}};
    if (h.parts && l->mixer.norm.w)
        TRY(gather_norm(s, l));
    else
        shard_norm(&l->mixer.norm, h.head, z.head_dim);
    TRY(cut_ssm_in(s, l, &h));
    TRY(cut_conv(s, l, section, 3));
    return cut_heads(s, l, &h);
}

/* Rows of B, C and X. */
static enum infer_status shard_conv(struct shard *s, struct layer *l) {
    struct weight_group *in = &l->mixer.in;
    const int n = l->mixer.sizes.channels, unit = shard_unit(&l->mixer.out, 1);
    if (in->n_member != 1 || in->n_split || !divides(n, unit, s->n)) return INFER_OK;
    const struct span own = shard_span(n, unit, s->rank, s->n);
    const struct span section[] = {own, {n + own.first, own.n}, {2 * n + own.first, own.n}};
    take_sections(s, in, section);
    TRY(cut_conv(s, l, &own, 1));
    l->mixer.partial = true;
    return shard_columns(s, &l->mixer.out, own);
}

enum infer_status shard_mixer(struct shard *s, struct layer *l) {
    switch (l->mixer.kind) {
    case MIX_DELTA:
        return shard_delta(s, l);
    case MIX_SSM:
    case MIX_BOTH:
        return shard_ssm(s, l);
    case MIX_CONV:
        return shard_conv(s, l);
    default:
        return INFER_OK;
    }
}
