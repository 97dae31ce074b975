/* LFM2 MoE: LFM2 with experts behind the first layers: sigmoid scores and a bias of the choice.
 * source: HF modeling_lfm2_moe. */
#include "models/shared.h"

const struct arch arch_lfm2moe = {
    .name = "lfm2moe",
    .families = "LFM2 8B-A1B, 24B-A2B",
    .slot = {SLOTS_LFM2, SLOTS_GATED, SLOTS_EXPERTS, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .mixer.kind = MIX_CONV,
    .mixer.where = MIXER_NO_KEYS,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-6f, .group_top2 = true},
    .keys = KEYS_EXPERTS "|shortconv.l_cache",
    .hf.models = (const struct arch_hf[]){{"lfm2_moe", "Lfm2MoeForCausalLM", NULL},
                                          {"lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2_moe"},
                                          {0}},
    .hf.keys = HF_KEYS_LFM2 "|" HF_KEYS_EXPERTS "|num_experts|moe_intermediate_size|num_dense_layers|"
                            "norm_topk_prob|routed_scaling_factor|use_expert_bias",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.layer = hf_layer_lfm2,
    .hf.whole = hf_whole_lfm2,
    .hf.tied = true,
};
