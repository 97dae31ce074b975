/* Of synth_file.c: shapes whose layers are short convolutions or Mamba-2 beside attention. source: config.json of LFM2-1.2B and
 * Nemotron-3-Nano-30B-A3B */
#pragma once

/* A letter for each layer: M has a state, * attention, E experts. Of lfm2 each has a feed-forward part beside. */
static const struct hybrid {
    const char *name, *layers;
    int taps, n_head, dim, n_state, n_group; /* of states */
    int n_shared;                            /* width of the part that all rows share */
} hybrids[] = {
    {"lfm2-1.2b", "MM*MM*MM*M*M*M*M", 3, 0, 0, 0, 0, 0},
    {"nemotron-3-nano-30b", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 4, 64, 64, 128, 8, 3712},
    {"tiny-lfm2", "M*MM", 3, 0, 0, 0, 0, 0},
    {"tiny-nemotron", "ME*EME", 4, 6, 16, 24, 2, 64},
    {"tiny-nemotron-128", "ME*EME", 4, 8, 64, 128, 2, 512}};
static const struct hybrid *hybrid_of(const struct shape *s) { /* NULL: none */
    for (size_t i = 0; i < sizeof hybrids / sizeof *hybrids; i++)
        if (strcmp(hybrids[i].name, s->name) == 0) return &hybrids[i];
    return NULL;
}
static int hybrid_channels(const struct hybrid *t) {
    return t->n_head * t->dim + 2 * t->n_group * t->n_state;
}

static void put_mamba(struct gguf_writer *w, const struct shape *s, const struct hybrid *t) {
    char key[96];
    put_key(w, s, "ssm.conv_kernel", (uint32_t)t->taps);
    put_key(w, s, "ssm.state_size", (uint32_t)t->n_state);
    put_key(w, s, "ssm.group_count", (uint32_t)t->n_group);
    put_key(w, s, "ssm.time_step_rank", (uint32_t)t->n_head);
    put_key(w, s, "ssm.inner_size", (uint32_t)(t->n_head * t->dim));
    put_key(w, s, "expert_shared_count", 1);
    put_key(w, s, "expert_shared_feed_forward_length", (uint32_t)t->n_shared);
    put_key(w, s, "expert_gating_func", 2);
    put_f32(w, s, "expert_weights_scale", 2.5f);
    snprintf(key, sizeof key, "%s.expert_weights_norm", s->arch);
    gguf_writer_bool(w, key, true);
    put_f32(w, s, "attention.layer_norm_epsilon", 1e-5f);
}

static enum infer_status put_hybrid(struct gguf_writer *w, const struct shape *s, const struct hybrid *t) {
    char key[96];
    uint32_t *kv;
    const size_t n = (size_t)s->n_layer;
    TRY(mem_new(&kv, 2 * n * sizeof *kv, "list of layers"));
    for (size_t i = 0; i < n; i++) {
        kv[i] = t->layers[i] == '*' ? (uint32_t)s->n_kv_head : 0;
        kv[n + i] = t->layers[i] == 'E' ? (uint32_t)s->n_ff : 0;
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->arch);
    gguf_writer_array(w, key, META_U32, kv, n);
    snprintf(key, sizeof key, "%s.feed_forward_length", s->arch);
    if (t->n_head)
        gguf_writer_array(w, key, META_U32, kv + n, n);
    else
        gguf_writer_u32(w, key, (uint32_t)s->n_ff);
    mem_free(kv);
    put_key(w, s, "attention.key_length", (uint32_t)s->head_dim);
    put_key(w, s, "attention.value_length", (uint32_t)s->head_dim);
    put_key(w, s, "rope.dimension_count", (uint32_t)s->head_dim);
    if (t->n_head)
        put_mamba(w, s, t);
    else
        put_key(w, s, "shortconv.l_cache", (uint32_t)t->taps);
    return INFER_OK;
}

static void add_state(struct list *l, int i, const struct hybrid *t, float residual) {
    const int d = l->s->n_embd, inner = t->n_head * t->dim, channels = hybrid_channels(t);
    if (!t->n_head) {
        add_matrix(l, i, "shortconv.in_proj.weight", 1, 3 * d, d, 1);
        add(l, i, "shortconv.conv.weight", 1, d, t->taps, 0, 0.5f);
        add_matrix(l, i, "shortconv.out_proj.weight", 1, d, d, residual);
        return;
    }
    add_matrix(l, i, "ssm_in.weight", 1, inner + channels + t->n_head, d, 1);
    add(l, i, "ssm_conv1d.weight", 1, channels, t->taps, 0, 0.5f);
    add(l, i, "ssm_conv1d.bias", 1, 1, channels, 0, 0.1f);
    add(l, i, "ssm_dt.bias", 1, 1, t->n_head, -3, 0.5f);
    add(l, i, "ssm_a", 1, t->n_head, 1, -1, 0.1f);
    add(l, i, "ssm_d", 1, t->n_head, 1, 1, 0.1f);
    add(l, i, "ssm_norm.weight", 1, t->n_group, inner / t->n_group, 1, 0.1f);
    add_matrix(l, i, "ssm_out.weight", 1, d, inner, residual);
}

static void add_attention(struct list *l, int i, bool norms, float residual) {
    const struct shape *s = l->s;
    const int d = s->n_embd, q = s->n_head * s->head_dim, kv = s->n_kv_head * s->head_dim;
    add_matrix(l, i, "attn_q.weight", 1, q, d, 1);
    add_matrix(l, i, "attn_k.weight", 1, kv, d, 1);
    add_matrix(l, i, "attn_v.weight", 1, kv, d, 1);
    add_matrix(l, i, "attn_output.weight", 1, d, q, residual);
    if (!norms) return;
    add_norm(l, i, "attn_q_norm.weight", s->head_dim);
    add_norm(l, i, "attn_k_norm.weight", s->head_dim);
}

static void add_hybrid(struct list *l, int i, const struct hybrid *t, float residual) {
    const struct shape *s = l->s;
    const int d = s->n_embd, ff = s->n_ff;
    add_norm(l, i, "attn_norm.weight", d);
    if (t->layers[i] == 'M') add_state(l, i, t, residual);
    if (t->layers[i] == '*') add_attention(l, i, !t->n_head, residual);
    if (!t->n_head) {
        add_norm(l, i, "ffn_norm.weight", d);
        add_matrix(l, i, "ffn_gate.weight", 1, ff, d, 1);
        add_matrix(l, i, "ffn_up.weight", 1, ff, d, 1);
        add_matrix(l, i, "ffn_down.weight", 1, d, ff, 2 * residual);
    }
    if (t->layers[i] != 'E') return;
    add_matrix(l, i, "ffn_gate_inp.weight", 1, s->n_expert, d, 1);
    add(l, i, "exp_probs_b.bias", 1, 1, s->n_expert, 0, 0.1f);
    add_matrix(l, i, "ffn_up_exps.weight", s->n_expert, ff, d, 1);
    add_matrix(l, i, "ffn_down_exps.weight", s->n_expert, d, ff, residual);
    add_matrix(l, i, "ffn_up_shexp.weight", 1, t->n_shared, d, 1);
    add_matrix(l, i, "ffn_down_shexp.weight", 1, d, t->n_shared, residual);
}
