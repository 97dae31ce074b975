/* Files that leave out what their model has, known by their sizes: what no key of theirs says. */
#include "model/model_impl.h"

#include <string.h>

/* 0: any. */
static const struct {
    const char *arch;
    int n_layer, n_vocab, n_expert;
    enum quirk quirk;
} rows[] = {
    /* the first files of GLM-4.7-Flash, from before the key expert_gating_func; source: llama.cpp's deepseek2 */
    {"deepseek2", 47, 154880, 0, QUIRK_SIGMOIDS},
    /* Maverick, without the key attention.qk_norm; source: llama.cpp's llama4 */
    {"llama4", 0, 0, 128, QUIRK_NO_QK_NORM},
    /* Gemma 2 27B and Gemma 3 27B, without attention.scale; source: query_pre_attn_scalar of their config.json */
    {"gemma2", 46, 0, 0, QUIRK_SCALE_OF_WIDTH},
    {"gemma3", 62, 0, 0, QUIRK_SCALE_OF_WIDTH},
};

bool model_quirk(const struct model *m, enum quirk quirk) {
    int n_expert = 0;
    for (int i = 0; m->layer && i < m->n_layer; i++)
        if (m->layer[i].moe.n_expert) n_expert = m->layer[i].moe.n_expert;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].quirk == quirk && strcmp(rows[i].arch, m->arch->name) == 0 &&
            (!rows[i].n_layer || rows[i].n_layer == m->n_layer) &&
            (!rows[i].n_vocab || rows[i].n_vocab == m->n_vocab) &&
            (!rows[i].n_expert || rows[i].n_expert == n_expert))
            return true;
    return false;
}
