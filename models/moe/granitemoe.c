/* Granite MoE: a Granite block with experts, whose weights are a softmax over the chosen.
 * source: HF modeling_granitemoe. */
#include "models/shared.h"

const struct arch arch_granitemoe = {
    .name = "granitemoe",
    .families = "Granite 3 1B-A400M, 3B-A800M",
    .slot = {SLOTS_DENSE, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .scale.logit_divides = true,
    .moe = {.act = ROUTE_CHOSEN, .norm = ROUTE_NORM_NONE},
    .keys = KEYS_EXPERTS "|expert_shared_feed_forward_length|embedding_scale|residual_scale|logit_scale",
    .hf.models = (const struct arch_hf[]){{"granitemoe", "GraniteMoeForCausalLM", NULL},
                                          {"granitemoeshared", "GraniteMoeSharedForCausalLM", NULL},
                                          {0}},
    .hf.layer = (const struct hf_name[]){{"shared_mlp.input_linear.", "ffn_gate_shexp.", HF_HALVES},
                                         {"shared_mlp.output_linear.", "ffn_down_shexp.", HF_SAME},
                                         {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_local_experts|shared_intermediate_size|embedding_multiplier|"
                               "residual_multiplier|attention_multiplier|logits_scaling",
    .hf.halves = true,
};
