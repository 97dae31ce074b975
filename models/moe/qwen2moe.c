/* Qwen1.5 and Qwen2 MoE: a Qwen2 block with experts, whose weights stay as the softmax has them, and a shared part with a gate.
 * sources: Yang et al. 2024 (arXiv 2407.10671); HF modeling_qwen2_moe. */
#include "models/shared.h"

const struct arch arch_qwen2moe = {
    .name = "qwen2moe",
    .families = "Qwen1.5 MoE A2.7B, Qwen2 57B-A14B",
    .slot = {SLOTS_DENSE, SLOTS_QKV_BIAS(SLOT_MUST), SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_FFN_SHEXP_GATE] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_shared_feed_forward_length",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"qwen2_moe", "Qwen2MoeForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_experts|moe_intermediate_size|shared_expert_intermediate_size|"
                               "norm_topk_prob|mlp_only_layers|decoder_sparse_step",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 0}, {0}},
    .hf.window_by_layer = true,
};
