/* MiMo V2: keys wider than values, a third of a head rotated; windows in five of six layers, which have a base, key heads and sinks of their
 * own; values times a number; the first layer is dense; sigmoid scores, a bias of the choice, groups.
 * sources: HF modeling_mimo_v2_flash; llama.cpp's mimo2 for the keys of its files. */
#include "models/shared.h"

const struct arch arch_mimo2 = {
    .name = "mimo2",
    .families = "MiMo V2 Flash",
    .slot = {SLOTS_DENSE, SLOTS_EXPERTS, SLOTS_DRAFT, [SLOT_ATTN_SINKS] = SLOT_MAY,
             [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_QKV_BIAS(SLOT_MAY)},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys =
        KEYS_EXPERTS "|expert_group_count|expert_group_used_count|attention.value_scale|rope.freq_base_swa|"
                     "nextn_predict_layers",
    .hf.models = (const struct arch_hf[]){{"mimo_v2_flash", "MiMoV2FlashForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|n_routed_experts|moe_intermediate_size|norm_topk_prob|n_group|topk_group|routed_scaling_factor|"
    "mlp_layer_types|moe_layer_freq|head_dim|swa_head_dim|v_head_dim|swa_v_head_dim|num_attention_heads|"
    "swa_num_attention_heads|swa_num_key_value_heads|hybrid_layer_pattern|sliding_window_size|swa_rope_theta|"
    "attention_value_scale|layernorm_epsilon|attention_chunk_size",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.rotated = 0.334f,
    .hf.layer =
        (const struct hf_name[]){{"self_attn.attention_sink_bias", "attn_sinks.weight", HF_SAME}, {0}},
};
