/* The ends of a model: those of a whole one, or of a layer that drafts. */
#include <stdio.h>
#include "model/bind.h"

bool bind_is_others(const struct model *m, const char *name) {
    int layer = -1;
    bool draft = sscanf(name, "blk.%5d.", &layer) == 1 && layer >= m->first + m->n_layer;
    if (m->draft_proj.n) return layer != m->first;
    return draft && layer < m->n_layer + m->n_draft;
}

enum slot bind_end(const struct model *m, enum slot own, enum slot shared, int *il) {
    char name[80];
    *il = m->first && tensorfile_find(m->file, bind_name(m, name, own, 0)) ? 0 : -1;
    return *il < 0 ? shared : own;
}

enum infer_status bind_embedding(struct binder *b) {
    struct model *m = b->m;
    const struct tensor *t;
    int il = -1;
    const enum slot slot = m->target ? SLOT_HEAD_EMBD : bind_end(m, SLOT_DRAFT_EMBD, SLOT_TOKEN_EMBD, &il);
    TRY(bind_slot(b, slot, il, &t));
    if (!t && m->n_embd != m->target->n_embd)
        return err_set(INFER_E_INPUT,
                       "%s: token_embd.weight is missing, and that of %s has %d numbers, not %d",
                       m->file->path, m->target->file->path, m->target->n_embd, m->n_embd);
    m->embd = t ? bind_weight(t) : m->target->embd;
    return t ? bind_factor(b, t, &m->embd.factor) : INFER_OK;
}

/* Of a head for another model. */
static enum infer_status bind_head_input(struct binder *b) {
    static const struct group_slots fuse = {.matrix = {SLOT_HEAD_FUSE}},
                                    qkv = {.matrix = {SLOT_HEAD_Q, SLOT_HEAD_K, SLOT_HEAD_V},
                                           .bias = {SLOT_ATTN_Q_BIAS, SLOT_ATTN_K_BIAS, SLOT_ATTN_V_BIAS}};
    struct model *m = b->m;
    TRY(bind_group(b, &m->fuse, -1, &fuse));
    TRY(bind_norm(b, SLOT_HEAD_EMBD_NORM, SLOT_NONE, 0, &m->draft_embd_norm));
    TRY(bind_norm(b, SLOT_HEAD_HIDDEN_NORM, SLOT_NONE, 0, &m->draft_hidden_norm));
    return bind_group(b, &m->layer[0].attn.qkv, 0, &qkv);
}

enum infer_status bind_draft_input(struct binder *b) {
    static const struct group_slots proj = {.matrix = {SLOT_DRAFT_PROJ}};
    struct model *m = b->m;
    if (m->target) return bind_head_input(b);
    if (!m->first) return INFER_OK;
    TRY(bind_group(b, &m->draft_proj, 0, &proj));
    TRY(bind_norm(b, SLOT_DRAFT_EMBD_NORM, SLOT_NONE, 0, &m->draft_embd_norm));
    return bind_norm(b, SLOT_DRAFT_HIDDEN_NORM, SLOT_NONE, 0, &m->draft_hidden_norm);
}

enum infer_status bind_output(struct binder *b) {
    struct model *m = b->m;
    const struct tensor *t;
    int il;
    if (m->first)
        TRY(bind_norm(b, SLOT_DRAFT_NORM, SLOT_NONE, 0, &m->output_norm));
    else
        TRY(bind_front_norm(b, SLOT_OUTPUT_NORM, SLOT_OUTPUT_NORM_BIAS, -1, &m->output_norm));
    if (!m->output_norm.w) TRY(bind_norm(b, SLOT_OUTPUT_NORM_2, SLOT_NONE, -1, &m->output_norm));
    if (!m->output_norm.w && !m->stream_low) /* whose last gates have one */
        return err_set(INFER_E_INPUT, "%s: tensor %s is missing", m->file->path,
                       slot_info[SLOT_OUTPUT_NORM_2].name);
    enum slot slot = bind_end(m, SLOT_DRAFT_HEAD, SLOT_OUTPUT, &il);
    TRY(bind_slot(b, slot, il, &t));
    if (m->target && !t) { /* the target's, whose vocabulary it has then */
        m->head = (struct weight_group){0};
        bind_member(m, &m->head, &m->target->head.member[0], 1);
        return bind_number(b, &m->head);
    }
    m->tied = !t;
    const struct group_slots head = {.matrix = {m->tied ? SLOT_TOKEN_EMBD : slot},
                                     .bias = {SLOT_OUTPUT_BIAS}};
    if (!m->tied) m->n_param += (uint64_t)m->n_vocab * (uint64_t)m->n_embd;
    if (!m->tied) m->n_param_token += (uint64_t)m->n_vocab * (uint64_t)m->n_embd;
    TRY(bind_group(b, &m->head, il, &head));
    m->head.member[0].factor *= m->logit_scale;
    return INFER_OK;
}
