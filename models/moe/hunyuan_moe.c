/* Hunyuan with experts: a Hunyuan block; softmax scores and an ungated shared part of an expert's size.
 * source: HF modeling_hunyuan_v1_moe. */
#include "models/shared.h"

const struct arch arch_hunyuan_moe = {
    .name = "hunyuan-moe",
    .families = "Hunyuan A13B",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .attn.qk_norm_late = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_shared_feed_forward_length",
    .defaults = (const struct arch_default[]){{"expert_shared_count", 1}, {0}},
    .hf.models = (const struct arch_hf[]){{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", NULL},
                                          {"hunyuan", "HunYuanMoEV1ForCausalLM", NULL},
                                          {0}},
    .hf.keys = "moe_topk|num_experts|num_shared_expert|moe_intermediate_size|dynamic",
    .hf.layer = (const struct hf_name[]){{"self_attn.query_layernorm.", "attn_q_norm.", HF_SAME},
                                         {"self_attn.key_layernorm.", "attn_k_norm.", HF_SAME},
                                         {0}},
};
