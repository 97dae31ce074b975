/* One rank's share of a model: heads (those with a state: shard_state.c), columns of the feed-forward parts and of every expert, rows of the vocabulary. What a rank computes
 * of a sum is added up by `reduce` (forward.c). What cannot be divided every rank has whole and computes with the same bits.
 * source: Shoeybi et al. 2019 (arXiv 1909.08053): columns first, rows behind, one sum for each part of a layer. */
#include "model/shard_impl.h"
#include "seam/comm.h"
#include "seam/weight.h"

int shard_unit(const struct weight_group *reads, int width) {
    const struct weight *w = &reads->member[0];
    const int block = (int)quant_info(w->type)->elems;
    int unit = 1;
    if (reads->n_member != 1 || w->columns) return 0;
    while ((int64_t)unit * width % block) unit++;
    return unit;
}

/* ---- weights ------------------------------------------------------------------------------------------------- */

/* Matrices that lie apart, each as far from its beginning as data says. */
static enum infer_status move_parts(struct shard *s, struct weight *w, const struct weight *from, int first) {
    if (!from->part) return INFER_OK;
    const ptrdiff_t by = (const char *)w->data - (const char *)from->data;
    const void **part = arena_alloc(&s->m->arena, (size_t)w->n_stack * sizeof *part);
    if (!part) return err_set(INFER_E_MEMORY, "out of memory for %d experts", w->n_stack);
    for (int e = 0; e < w->n_stack; e++) part[e] = (const char *)from->part[first + e] + by;
    w->part = part;
    w->data = part[0];
    return INFER_OK;
}

static struct group_share *share_of(struct shard *s, const struct weight_group *g) {
    return &s->m->share.group[g->id];
}

static enum infer_status cut_rows(struct shard *s, struct weight *w, struct span span) {
    const struct weight from = *w;
    struct weight whole = from;
    whole.part = NULL;
    *w = weight_rows(&whole, span.first, span.n);
    return move_parts(s, w, &from, 0);
}
enum infer_status shard_columns(struct shard *s, struct weight_group *g, struct span span) {
    const struct weight from = g->member[0];
    struct weight whole = from, *w = &g->member[0];
    whole.part = NULL;
    *w = weight_columns(&whole, span.first, span.n);
    g->k = span.n;
    share_of(s, g)->k = span.first;
    return move_parts(s, w, &from, 0);
}
/* Of stacks with a matrix for each head or expert. */
static enum infer_status cut_stacks(struct shard *s, struct weight_group *g, struct span span) {
    share_of(s, g)->stack = span.first;
    for (int i = 0; i < g->n_member; i++) {
        const struct weight from = g->member[i];
        struct weight *w = &g->member[i];
        w->n_stack = span.n;
        w->bias = weight_bias(&from, span.first);
        if (from.part)
            TRY(move_parts(s, w, &from, span.first));
        else
            w->data = (const char *)from.data + (size_t)span.first * from.stack_bytes;
    }
    return INFER_OK;
}

enum infer_status shard_members(struct shard *s, struct weight_group *g, const struct span *span) {
    g->n = 0;
    for (int i = 0; i < g->n_member; i++) {
        TRY(cut_rows(s, &g->member[i], span[i]));
        g->n += g->member[i].n;
        if (!g->n_split) share_of(s, g)->col[i] += span[i].first;
    }
    if (!g->n_split) return INFER_OK;
    struct weight_group *part = arena_alloc(&s->m->arena, (size_t)g->n_split * sizeof *part);
    if (!part) return err_set(INFER_E_MEMORY, "out of memory for %s", g->member[0].name);
    for (int p = 0, i = 0; p < g->n_split; p++) {
        part[p] = g->split[p];
        part[p].n = 0;
        for (int k = 0; k < part[p].n_member; k++, i++) {
            part[p].member[k] = g->member[i];
            part[p].n += part[p].member[k].n;
            share_of(s, &part[p])->col[k] += span[i].first;
        }
        s->m->group[part[p].id] = &part[p];
    }
    g->split = part;
    return INFER_OK;
}

/* ---- attention ----------------------------------------------------------------------------------------------- */

/* How layers with so many key heads are divided: the same way in all of them, for some read what others keep. */
enum cut { CUT_NONE, CUT_KEYS, CUT_QUERIES };

static bool attends(const struct layer *l) {
    return l->mixer.kind == MIX_ATTENTION || l->mixer.kind == MIX_BOTH;
}

static bool has_state(const struct layer *l) {
    return l->mixer.kind != MIX_NONE && l->mixer.kind != MIX_ATTENTION;
}

/* Runs of `unit` key heads and all queries that read them; or, of fewer key heads than ranks, queries of one key head, if those of each
 * begin with a block of the matrix that reads them. */
static enum cut attention_cut(const struct shard *s, int n_kv_head, int *unit) {
    bool by_queries = n_kv_head < s->n;
    *unit = 1;
    for (int il = 0; il < s->of->n_layer; il++) {
        const struct layer *l = &s->of->layer[il];
        if (!attends(l) || l->attn.n_kv_head != n_kv_head) continue;
        if (l->index.n_head || s->of->arch->attn.entries) return CUT_NONE;
        const int each = l->attn.n_head / n_kv_head;
        const int keys = shard_unit(&l->attn.out, each * l->attn.head_dim_v),
                  queries = shard_unit(&l->attn.out, l->attn.head_dim_v);
        if (!keys || l->attn.qk_row || l->attn.n_head % n_kv_head) return CUT_NONE;
        while (*unit % keys) ++*unit;
        by_queries &= keys == 1 && divides(each, queries, (s->n + n_kv_head - 1) / n_kv_head);
    }
    return divides(n_kv_head, *unit, s->n) ? CUT_KEYS : by_queries ? CUT_QUERIES : CUT_NONE;
}

/* The key heads of this rank; and its queries among those of the layer. */
static struct span keys_of(const struct shard *s, int n_kv_head, enum cut cut, int unit) {
    if (cut == CUT_KEYS) return shard_span(n_kv_head, unit, s->rank, s->n);
    return (struct span){s->rank * n_kv_head / s->n, 1};
}
static struct span queries_of(const struct shard *s, const struct layer *l, enum cut cut, struct span keys) {
    const int n_kv = l->attn.n_kv_head, each = l->attn.n_head / n_kv;
    if (cut == CUT_KEYS) return scaled(keys, each);
    const int first = (keys.first * s->n + n_kv - 1) / n_kv,
              end = ((keys.first + 1) * s->n + n_kv - 1) / n_kv;
    struct span q =
        shard_span(each, shard_unit(&l->attn.out, l->attn.head_dim_v), s->rank - first, end - first);
    q.first += keys.first * each;
    return q;
}

void shard_norm(struct norm_weights *w, struct span heads, int dim) {
    if (!w->w || w->n == dim) return;
    w->w += (size_t)heads.first * (size_t)dim;
    if (w->bias) w->bias += (size_t)heads.first * (size_t)dim;
    w->n = heads.n * dim;
}

static enum infer_status shard_attention(struct shard *s, struct layer *l) {
    int unit;
    const enum cut cut = attention_cut(s, l->attn.n_kv_head, &unit);
    if (cut == CUT_NONE) return INFER_OK;
    const struct span k = keys_of(s, l->attn.n_kv_head, cut, unit), q = queries_of(s, l, cut, k);
    const struct span rows[] = {scaled(q, l->attn.head_dim_k), scaled(k, l->attn.head_dim_k),
                                scaled(k, l->attn.head_dim_v)};
    TRY(shard_members(s, &l->attn.qkv, rows));
    if (l->attn.q_gate.n) {
        const struct span gate = l->attn.q_gate.n == l->attn.n_head ? q : scaled(q, l->attn.head_dim_v);
        TRY(shard_members(s, &l->attn.q_gate, &gate));
    }
    TRY(shard_columns(s, &l->attn.out, scaled(q, l->attn.head_dim_v)));
    shard_norm(&l->attn.q_norm, q, l->attn.head_dim_k);
    shard_norm(&l->attn.k_norm, k, l->attn.head_dim_k);
    if (l->attn.sinks) l->attn.sinks += q.first;
    l->attn.n_head = q.n, l->attn.n_kv_head = k.n;
    s->m->store[l->attn.store].n_kv_head = k.n;
    s->m->share.key_head[l->attn.store] = k.first;
    l->attn.partial = true;
    return INFER_OK;
}

/* Latents are everybody's, and kept by all. */
static enum infer_status shard_latent(struct shard *s, struct layer *l) {
    const int unit = shard_unit(&l->attn.out, l->mla.n_value),
              wide = l->mla.n_nope + l->attn.head_dim_k - l->attn.head_dim_v;
    if (!divides(l->attn.n_head, unit, s->n)) return INFER_OK;
    const struct span h = shard_span(l->attn.n_head, unit, s->rank, s->n), q = scaled(h, wide);
    if (l->mla.q_rank) {
        TRY(shard_members(s, &l->mla.q_b, &q));
    } else {
        const struct span rows[] = {q, {0, l->mla.qkv_a.member[1].n}};
        TRY(shard_members(s, &l->mla.qkv_a, rows));
    }
    TRY(cut_stacks(s, &l->mla.k_b, h));
    TRY(cut_stacks(s, &l->mla.v_b, h));
    TRY(shard_columns(s, &l->attn.out, scaled(h, l->mla.n_value)));
    l->attn.n_head = h.n;
    l->attn.partial = true;
    return INFER_OK;
}

/* ---- feed-forward parts -------------------------------------------------------------------------------------- */

static enum infer_status cut_ff(struct shard *s, struct weight_group *up, struct weight_group *down,
                                int *n_ff) {
    const struct span f = shard_span(*n_ff, shard_unit(down, 1), s->rank, s->n), rows[] = {f, f};
    TRY(shard_members(s, up, rows));
    TRY(shard_columns(s, down, f));
    *n_ff = f.n;
    return INFER_OK;
}

static enum infer_status shard_dense(struct shard *s, struct layer *l) {
    if (!l->dense.n_ff || l->below || !l->dense.down.n ||
        !divides(l->dense.n_ff, shard_unit(&l->dense.down, 1), s->n))
        return INFER_OK;
    l->dense.partial = true;
    return cut_ff(s, &l->dense.gate_up, &l->dense.down, &l->dense.n_ff);
}

/* Its columns or, where these cannot be cut, all of it on rank 0. */
static enum infer_status shard_shared(struct shard *s, struct layer *l) {
    if (!l->moe.n_ff_shared) return INFER_OK;
    if (divides(l->moe.n_ff_shared, shard_unit(&l->moe.shared_down, 1), s->n))
        return cut_ff(s, &l->moe.shared, &l->moe.shared_down, &l->moe.n_ff_shared);
    if (s->rank) l->moe.n_ff_shared = l->moe.shared_gate.n = 0;
    return INFER_OK;
}

static enum infer_status shard_experts(struct shard *s, struct layer *l) {
    const bool columns = divides(l->moe.n_ff, shard_unit(&l->moe.experts_down, 1), s->n),
               whole = divides(l->moe.n_expert, 1, s->n) && s->by != EXPERTS_CUT &&
                       (s->by == EXPERTS_WHOLE || !columns);
    if (!l->moe.n_expert || (!columns && !whole)) return INFER_OK;
    if (whole) {
        const struct span own = shard_span(l->moe.n_expert, 1, s->rank, s->n);
        TRY(cut_stacks(s, &l->moe.experts, own));
        TRY(cut_stacks(s, &l->moe.experts_down, own));
        l->moe.first = own.first, l->moe.n_own = own.n;
    } else {
        TRY(cut_ff(s, &l->moe.experts, &l->moe.experts_down, &l->moe.n_ff));
    }
    TRY(shard_shared(s, l));
    if (l->moe.n_latent && s->rank) l->moe.latent_up.member[0].bias = NULL; /* once in the sum */
    l->moe.partial = true;
    return INFER_OK;
}

/* ---- the model ----------------------------------------------------------------------------------------------- */

/* A group of the model or of a layer: the same one of the copy. */
static const struct weight_group *copied(const struct shard *s, const struct weight_group *g) {
    const char *at = (const char *)g, *layers = (const char *)s->of->layer, *whole = (const char *)s->of;
    if (at >= layers && at < layers + (size_t)s->of->n_layer * sizeof *s->of->layer)
        return (const struct weight_group *)(const void *)((char *)s->m->layer + (at - layers));
    if (at >= whole && at < whole + sizeof *s->of)
        return (const struct weight_group *)(const void *)((char *)s->m + (at - whole));
    return g; /* of members in several orders */
}

static enum infer_status copy_arrays(struct shard *s) {
    struct model *m = s->m;
    const struct model *of = s->of;
    struct arena arena = {0};
    m->arena = arena;
    m->borrows = true;
    const size_t layers = (size_t)of->n_layer, stores = (size_t)of->n_store, groups = (size_t)of->n_group,
                 states = (size_t)of->n_state;
    m->layer = arena_alloc(&m->arena, layers * sizeof *m->layer);
    m->store = arena_alloc(&m->arena, stores * sizeof *m->store);
    m->state = arena_alloc(&m->arena, states * sizeof *m->state);
    m->group = arena_alloc(&m->arena, (groups + layers) * sizeof *m->group); /* a layer may have one more */
    m->share.vocab = arena_alloc(&m->arena, ((size_t)s->n + 1) * sizeof *m->share.vocab);
    m->share.key_head = arena_alloc(&m->arena, (stores + 1) * sizeof *m->share.key_head);
    m->share.state = arena_alloc(&m->arena, states * sizeof *m->share.state);
    m->share.group = arena_alloc(&m->arena, (groups + layers) * sizeof *m->share.group);
    if (!m->layer || !m->store || !m->state || !m->group || !m->share.vocab || !m->share.key_head ||
        !m->share.state || !m->share.group)
        return err_set(INFER_E_MEMORY, "out of memory for a share of the model");
    memcpy(m->layer, of->layer, layers * sizeof *m->layer);
    if (stores) memcpy(m->store, of->store, stores * sizeof *m->store);
    if (states) memcpy(m->state, of->state, states * sizeof *m->state);
    for (size_t i = 0; i < groups; i++) {
        const struct weight_group *g = of->group[i];
        m->group[i] = copied(s, g);
        m->share.group[i] = (struct group_share){.of = (int)i};
        for (int k = 1; k < g->n_member; k++)
            m->share.group[i].col[k] = m->share.group[i].col[k - 1] + g->member[k - 1].n;
    }
    return INFER_OK;
}

static enum infer_status shard_head(struct shard *s) {
    enum { TOGETHER = 64 };
    struct model *m = s->m;
    const int unit = divides(m->n_vocab, TOGETHER, s->n) ? TOGETHER : 1;
    if (m->n_vocab < s->n)
        return err_set(INFER_E_UNSUPPORTED, "a vocabulary of %d tokens for %d ranks", m->n_vocab, s->n);
    for (int r = 0; r < s->n; r++) m->share.vocab[r] = shard_span(m->n_vocab, unit, r, s->n).first;
    m->share.vocab[s->n] = m->n_vocab;
    const struct span own = shard_span(m->n_vocab, unit, s->rank, s->n);
    return shard_members(s, &m->head, &own);
}

static enum infer_status divide(struct shard *s) {
    struct model *m = s->m;
    TRY(copy_arrays(s));
    m->share.rank = s->rank, m->share.n = s->n;
    for (int il = 0; il < m->n_layer; il++) {
        struct layer *l = &m->layer[il];
        if (attends(l)) TRY(m->arch->attn.latent ? shard_latent(s, l) : shard_attention(s, l));
        TRY(shard_mixer(s, l));
        TRY(shard_dense(s, l));
        TRY(shard_experts(s, l));
        m->share.n_attn_whole += (attends(l) && !l->attn.partial) || (has_state(l) && !l->mixer.partial);
        m->share.n_ff_whole += (l->dense.down.n && !l->dense.partial) || (l->moe.n_expert && !l->moe.partial);
    }
    return shard_head(s);
}

enum infer_status model_shard(struct model **out, const struct model *of, int rank, int n) {
    return model_shard_by(out, of, rank, n, EXPERTS_FIT);
}
enum infer_status model_shard_by(struct model **out, const struct model *of, int rank, int n,
                                 enum experts_by by) {
    struct shard s = {.of = of, .rank = rank, .n = n, .by = by};
    *out = NULL;
    if (n < 1 || n > RANKS_MAX || rank < 0 || rank >= n)
        return err_set(INFER_E_INPUT, "rank %d of %d: 1 to %d ranks compute a model", rank, n, RANKS_MAX);
    if (of->encoder) return err_set(INFER_E_UNSUPPORTED, "%s: an encoder is computed whole", of->file->path);
    TRY(mem_new(&s.m, sizeof *s.m, "a share of the model"));
    *s.m = *of;
    enum infer_status st = divide(&s);
    if (st)
        model_close(s.m);
    else
        *out = s.m;
    return st;
}
