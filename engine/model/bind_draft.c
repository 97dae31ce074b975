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

enum infer_status bind_draft_input(struct binder *b) {
    static const struct group_slots proj = {.matrix = {SLOT_DRAFT_PROJ}};
    struct model *m = b->m;
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
    if (!m->output_norm.w)
        return err_set(INFER_E_INPUT, "%s: tensor %s is missing", m->file->path,
                       slot_info[SLOT_OUTPUT_NORM_2].name);
    enum slot slot = bind_end(m, SLOT_DRAFT_HEAD, SLOT_OUTPUT, &il);
    TRY(bind_slot(b, slot, il, &t));
    m->tied = !t;
    const struct group_slots head = {.matrix = {m->tied ? SLOT_TOKEN_EMBD : slot},
                                     .bias = {SLOT_OUTPUT_BIAS}};
    if (!m->tied) m->n_param += (uint64_t)m->n_vocab * (uint64_t)m->n_embd;
    if (!m->tied) m->n_param_token += (uint64_t)m->n_vocab * (uint64_t)m->n_embd;
    TRY(bind_group(b, &m->head, il, &head));
    m->head.member[0].factor *= m->logit_scale;
    return INFER_OK;
}
