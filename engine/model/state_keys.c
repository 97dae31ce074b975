/* Layers whose mixer is not attention: which they are, and their sizes. */
#include "model/model_impl.h"

enum { MAX_TAPS = CONV_MAX, MAX_HEADS = 4096 };

/* The layers by the key that names them, or all but each so many-th. Lists have the layers that draft, too. */
static enum infer_status read_interval(const struct model *m, uint32_t *mixed) {
    char key[128];
    bool there;
    int interval;
    TRY(model_read_int(m, "full_attention_interval", 1, 1 << 20,
                       (int)arch_default(m->arch, "full_attention_interval", 4), &interval));
    for (int i = 0; i < m->n_layer; i++) mixed[i] = (i + 1) % interval != 0;
    const struct meta *list =
        tensorfile_meta(m->file, model_key(m, key, sizeof key, "attention.recurrent_layers"));
    const bool more = !list || list->n != (size_t)m->n_layer; /* those of folders have not */
    return meta_u32_array(m->file, key, mixed, (size_t)(m->n_layer + (more ? m->n_draft : 0)), &there);
}

/* source: keys as llama.cpp's converter writes them; there the width of keys is that of values, here inner_size says it. */
static enum infer_status read_delta(struct model *m, struct state_sizes *s) {
    char key[128];
    int inner;
    bool grouped = !m->arch->mixer.tiled, there;
    TRY(model_read_int(m, "ssm.conv_kernel", 2, MAX_TAPS, -1, &s->taps));
    TRY(model_read_int(m, "ssm.state_size", 1, STATE_DIM_MAX, -1, &s->n_state));
    TRY(model_read_int(m, "ssm.group_count", 1, MAX_HEADS, -1, &s->n_group));
    TRY(model_read_int(m, "ssm.time_step_rank", 1, MAX_HEADS, -1, &s->n_head));
    TRY(model_read_int(m, "ssm.inner_size", 1, MAX_HEADS * STATE_DIM_MAX, -1, &inner));
    TRY(meta_bool(m->file, model_key(m, key, sizeof key, "ssm.grouped_heads"), &grouped, &there));
    TRY(model_read_float(m, "ssm.beta_scale", 1, 2, 1, &m->delta_beta));
    m->tiled = !grouped;
    s->head_dim = inner / s->n_head;
    s->channels = 2 * s->n_group * s->n_state + inner;
    if (s->n_head % s->n_group || inner % s->n_head || s->head_dim > STATE_DIM_MAX)
        return err_set(INFER_E_INPUT,
                       "%s: ssm.time_step_rank %d must be a multiple of ssm.group_count %d, and "
                       "ssm.inner_size %d one of it, at most %d times",
                       m->file->path, s->n_head, s->n_group, inner, STATE_DIM_MAX);
    return INFER_OK;
}

/* As many heads as attention has, of the same width for keys and values. source: keys as llama.cpp's converter writes them for Kimi Linear */
static enum infer_status read_delta_rows(struct model *m, struct state_sizes *s) {
    TRY(model_read_int(m, "ssm.conv_kernel", 2, MAX_TAPS, -1, &s->taps));
    TRY(model_read_int(m, "kda.head_dim", 1, STATE_DIM_MAX, -1, &s->n_state));
    s->n_group = s->n_head = m->layer[0].attn.n_head;
    s->head_dim = s->n_state;
    s->channels = 3 * s->n_head * s->head_dim;
    return INFER_OK;
}

/* Of Mamba-2: x, B and C are convolved. */
static enum infer_status read_ssm(struct model *m, struct state_sizes *s) {
    TRY(read_delta(m, s));
    s->channels = s->n_head * s->head_dim + 2 * s->n_group * s->n_state;
    return INFER_OK;
}

static enum infer_status read_sizes(struct model *m, struct state_sizes *s) {
    if (m->arch->mixer.by_row) return read_delta_rows(m, s);
    if (m->arch->mixer.kind == MIX_DELTA) return read_delta(m, s);
    if (m->arch->mixer.kind != MIX_CONV) return read_ssm(m, s);
    s->channels = m->n_embd;
    return model_read_int(m, "shortconv.l_cache", 2, MAX_TAPS, -1, &s->taps);
}

/* Where layers are a mixer or a feed-forward part, one without keys is the latter if it has a width. */
static enum mixer mixer_of(const struct model *m, const struct layer *l) {
    if (m->arch->mixer.where == MIXER_ALL || l->attn.n_kv_head == 0)
        return m->arch->mixer.alone && l->dense.n_ff ? MIX_NONE : m->arch->mixer.kind;
    return MIX_ATTENTION;
}

enum infer_status model_read_mixers(struct model *m) {
    struct state_sizes s = {0};
    if (m->arch->mixer.where == MIXER_NOWHERE) return INFER_OK;
    uint32_t *mixed = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_draft) * sizeof *mixed);
    if (!mixed) return err_set(INFER_E_MEMORY, "out of memory for %d layers", m->n_layer);
    if (m->arch->mixer.where == MIXER_INTERVAL) TRY(read_interval(m, mixed));
    TRY(read_sizes(m, &s));
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layer[i];
        if (m->arch->mixer.where == MIXER_INTERVAL)
            l->mixer.kind = mixed[i] ? m->arch->mixer.kind : MIX_ATTENTION;
        else
            l->mixer.kind = mixer_of(m, l);
        l->mixer.sizes = s;
    }
    return INFER_OK;
}
