/* What several tables of models/ have alike. */
#pragma once
#include "arch/arch.h"

/* Biases of q, k and v; use: SLOT_MAY or SLOT_MUST. */
#define SLOTS_QKV_BIAS(use) [SLOT_ATTN_Q_BIAS] = use, [SLOT_ATTN_K_BIAS] = use, [SLOT_ATTN_V_BIAS] = use
#define SLOTS_QK_NORM       [SLOT_ATTN_Q_NORM] = SLOT_MUST, [SLOT_ATTN_K_NORM] = SLOT_MUST
#define SLOTS_POST_NORM     [SLOT_POST_ATTN_NORM] = SLOT_MUST, [SLOT_POST_FFN_NORM] = SLOT_MUST

/* Attention by a latent and a mixture of experts with a shared part, as DeepSeek has them. */
#define SLOTS_LATENT_EXPERTS                                                                                 \
    SLOTS_CORE, SLOTS_NORMS, SLOTS_LATENT, SLOTS_GATED, SLOTS_EXPERTS,                                       \
        SLOTS_SHARED, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY
#define KEYS_LATENT_EXPERTS                                                                                  \
    KEYS_EXPERTS "|" KEYS_LATENT "|attention.temperature_scale|attention.temperature_length|"                \
                 "expert_shared_count|expert_group_count|expert_group_used_count"
#define HF_KEYS_LATENT_EXPERTS                                                                               \
    HF_KEYS_EXPERTS                                                                                          \
    "|" HF_KEYS_LATENT                                                                                       \
    "|n_routed_experts|n_shared_experts|moe_intermediate_size|norm_topk_prob|n_group|topk_group|"            \
    "routed_scaling_factor|first_k_dense_replace"

/* Layers with the gated delta rule, and attention whose queries have gates. */
#define SLOTS_DELTA_HYBRID                                                                                   \
    SLOTS_CORE, SLOTS_DELTA, SLOTS_GATED,                                                                    \
        SLOTS_QK_NORM, [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_ATTN_Q_GATED] = SLOT_MUST,                          \
                       [SLOT_ATTN_K] = SLOT_MUST, [SLOT_ATTN_V] = SLOT_MUST, [SLOT_ATTN_NORM] = SLOT_MUST,   \
                       [SLOT_FFN_NORM_AFTER] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY

extern const struct hf_name hf_layer_delta[];    /* layers with the gated delta rule */
extern const struct hf_name hf_layer_sandwich[]; /* four norms, as Gemma calls them */
extern const struct hf_name hf_layer_latent[];   /* latent attention */
extern const struct hf_name
    hf_layer_post_norm[]; /* norms behind attention and feed-forward part alone, as OLMo 2 calls them */
