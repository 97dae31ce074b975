/* Qwen3-VL with experts, the part for text: a Qwen3 MoE whose folders have the stacks of experts with rows and columns changed.
 * source: HF modeling_qwen3_vl_moe. */
#include "models/shared.h"

const struct arch arch_qwen3vlmoe = {
    .name = "qwen3vlmoe",
    .families = "Qwen3-VL 30B-A3B, 235B-A22B (text)",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.axes_in_turns = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|rope.dimension_sections|n_deepstack_layers",
    .hf.models =
        (const struct arch_hf[]){{"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text"},
                                 {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|num_experts|num_local_experts|moe_intermediate_size|norm_topk_prob|mlp_only_layers|decoder_sparse_step|"
    "text_config",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.layer =
        (const struct hf_name[]){{"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", HF_TRANSPOSE},
                                 {"mlp.experts.down_proj", "ffn_down_exps.weight", HF_TRANSPOSE},
                                 {0}},
};
