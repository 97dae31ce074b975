/* Qwen3 MoE: a Qwen3 block with experts; the weights of the chosen add up to 1.
 * sources: Yang et al. 2025 (arXiv 2505.09388); HF modeling_qwen3_moe. */
#include "models/shared.h"

const struct arch arch_qwen3moe = {
    .name = "qwen3moe",
    .families = "Qwen3 30B-A3B, 235B-A22B, Qwen3-Coder 30B-A3B, 480B-A35B",
    .tried = "8 layers of the shape of 30B-A3B",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS,
    .hf.models = (const struct arch_hf[]){{"qwen3_moe", "Qwen3MoeForCausalLM", NULL},
                                          {"internvl", "InternVLForConditionalGeneration", "qwen3_moe"},
                                          {"internvl_chat", "InternVLChatModel", "qwen3_moe"},
                                          {0}},
    .hf.keys =
        "text_config|" HF_KEYS_EXPERTS
        "|num_experts|num_local_experts|moe_intermediate_size|norm_topk_prob|mlp_only_layers|decoder_sparse_step",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 0}, {0}},
    .hf.window_by_layer = true,
};
