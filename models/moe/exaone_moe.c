/* EXAONE with experts: windows in three of four layers, which alone rotate; the first layers are dense; sigmoid scores, a bias of the
 * choice, groups, a factor, an ungated shared part. source: HF modeling_exaone_moe. */
#include "models/shared.h"

const struct arch arch_exaone_moe = {
    .name = "exaone-moe",
    .families = "K-EXAONE 236B-A23B",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.where = ROPE_WINDOWED,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_group_count|expert_group_used_count",
    .hf.models = (const struct arch_hf[]){{"exaone_moe", "ExaoneMoeForCausalLM", NULL},
                                          {"exaone_moe", "ExaoneMoEForCausalLM", NULL},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|num_experts|num_shared_experts|moe_intermediate_size|norm_topk_prob|n_group|topk_group|"
    "routed_scaling_factor|first_k_dense_replace|first_last_k_dense_replace|mlp_layer_types|is_moe_layer|"
    "num_nextn_predict_layers|sliding_window_pattern",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
};
