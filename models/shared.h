/* What several tables of models/ have alike. */
#pragma once
#include "arch/arch.h"

/* Biases of q, k and v; use: SLOT_MAY or SLOT_MUST. */
#define SLOTS_QKV_BIAS(use) [SLOT_ATTN_Q_BIAS] = use, [SLOT_ATTN_K_BIAS] = use, [SLOT_ATTN_V_BIAS] = use
#define SLOTS_QK_NORM       [SLOT_ATTN_Q_NORM] = SLOT_MUST, [SLOT_ATTN_K_NORM] = SLOT_MUST
#define SLOTS_POST_NORM     [SLOT_POST_ATTN_NORM] = SLOT_MUST, [SLOT_POST_FFN_NORM] = SLOT_MUST

extern const struct hf_name hf_layer_sandwich[]; /* four norms, as Gemma calls them */
extern const struct hf_name hf_layer_latent[];   /* latent attention */
extern const struct hf_name
    hf_layer_post_norm[]; /* norms behind attention and feed-forward part alone, as OLMo 2 calls them */
