/* Hunyuan 3: a Qwen3 block; the first layer is dense; sigmoid scores, a bias of the choice, a factor, an ungated shared part.
 * sources: HF modeling_hy_v3; llama.cpp's hy_v3 for the tensors of its files. */
#include "models/shared.h"

const struct arch arch_hy_v3 = {
    .name = "hy_v3",
    .families = "Hunyuan 3 (Hy3)",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED,
             SLOTS_DRAFT, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY, [SLOT_FFN_CHOICE_BIAS_BARE] = SLOT_MAY,
             [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_shared_feed_forward_length|nextn_predict_layers",
    .hf.models = (const struct arch_hf[]){{"hy_v3", "HYV3ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|num_experts|num_shared_experts|moe_intermediate_size|mlp_layer_types|"
    "first_k_dense_replace|qk_norm|router_scaling_factor|route_norm|num_nextn_predict_layers",
    .hf.defaults = (const struct arch_default[]){{"route_norm", 1}, {0}},
    .hf.layer = (const struct hf_name[]){{"mlp.router.gate.", "ffn_gate_inp.", HF_SAME},
                                         {"mlp.expert_bias", "exp_probs_b", HF_SAME},
                                         {"final_layernorm.", "nextn.shared_head_norm.", HF_SAME},
                                         {0}},
};
