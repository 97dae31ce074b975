/* dots.llm1: a Qwen3 block; the first layers are dense; sigmoid scores, a bias of the choice, groups, a factor, an ungated shared part.
 * source: HF modeling_dots1. */
#include "models/shared.h"

const struct arch arch_dots1 = {
    .name = "dots1",
    .families = "dots.llm1",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_group_count|expert_group_used_count",
    .hf.models = (const struct arch_hf[]){{"dots1", "Dots1ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|n_routed_experts|n_shared_experts|moe_intermediate_size|norm_topk_prob|n_group|topk_group|"
    "routed_scaling_factor|first_k_dense_replace",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 0}, {0}},
};
