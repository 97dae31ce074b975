/* GLM-4.5 and later with experts: the first layers are dense; sigmoid scores, a bias of the choice, groups, a factor, and an ungated
 * shared part. Half of each head is rotated.
 * sources: GLM-4.5 Team 2025 (arXiv 2508.06471); HF modeling_glm4_moe. */
#include "models/shared.h"

const struct arch arch_glm4moe = {
    .name = "glm4moe",
    .families = "GLM-4.5, GLM-4.5-Air, GLM-4.5V, GLM-4.6, GLM-4.6V, GLM-4.7; Solar Open 100B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_QKV_BIAS(SLOT_MAY), SLOTS_GATED, SLOTS_EXPERTS, SLOTS_SHARED,
             SLOTS_DRAFT, [SLOT_ATTN_NORM] = SLOT_MUST, [SLOT_FFN_NORM_AFTER] = SLOT_MUST,
             [SLOT_ATTN_Q_NORM] = SLOT_MAY, [SLOT_ATTN_K_NORM] = SLOT_MAY, [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST,
             [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_EXPERTS
    "|expert_shared_count|expert_group_count|expert_group_used_count|nextn_predict_layers|rope.dimension_sections",
    .hf.models = (const struct arch_hf[]){{"glm4_moe", "Glm4MoeForCausalLM", NULL},
                                          {"solar_open", "SolarOpenForCausalLM", NULL},
                                          {"glm4v_moe", "Glm4vMoeForConditionalGeneration", "glm4v_moe_text"},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|text_config|n_routed_experts|n_shared_experts|moe_intermediate_size|norm_topk_prob|n_group|topk_group|"
    "routed_scaling_factor|first_k_dense_replace|num_nextn_predict_layers|use_qk_norm",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.layer = (const struct hf_name[]){{"post_attention_layernorm.", "post_attention_norm.", HF_SAME}, {0}},
};
