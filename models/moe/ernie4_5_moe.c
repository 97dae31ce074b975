/* ERNIE 4.5 with experts: softmax scores, a bias of the choice, weights divided by their sum or 1e-12; shared experts without a gate.
 * source: HF modeling_ernie4_5_moe. */
#include "models/shared.h"

const struct arch arch_ernie4_5_moe = {
    .name = "ernie4_5-moe",
    .families = "ERNIE 4.5 21B-A3B, 300B-A47B",
    .slot = {SLOTS_DENSE, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_CLAMP, .eps = 1e-12f},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_shared_feed_forward_length",
    .hf.models = (const struct arch_hf[]){{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|moe_k|moe_num_experts|moe_num_shared_experts|moe_intermediate_size|moe_layer_start_index|"
    "moe_layer_end_index|moe_layer_interval|num_nextn_predict_layers",
    .hf.tied = true,
};
