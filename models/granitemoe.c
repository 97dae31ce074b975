/* Granite MoE: a Granite block with experts, whose weights are a softmax over the chosen.
 * source: HF modeling_granitemoe. */
#include "models/shared.h"

const struct arch arch_granitemoe = {
    .name = "granitemoe",
    .families = "Granite 3 1B-A400M, 3B-A800M",
    .slot = {SLOTS_DENSE, SLOTS_EXPERTS, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope = ROPE_INTERLEAVED,
    .logit_divides = true,
    .moe = {ROUTE_CHOSEN, ROUTE_NORM_NONE, 0, false, false},
    .keys = KEYS_EXPERTS "|embedding_scale|residual_scale|logit_scale",
    .hf = (const struct arch_hf[]){{"granitemoe", "GraniteMoeForCausalLM", NULL}, {0}},
    .hf_keys = HF_KEYS_EXPERTS
    "|num_local_experts|embedding_multiplier|residual_multiplier|attention_multiplier|logits_scaling",
    .hf_halves = true,
};
