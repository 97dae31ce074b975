/* Granite with windows: a Granite block, a window in all layers but each fourth, a sink for each head, and layers that do not rotate.
 * sources: HF modeling_granite_swa; llama.cpp's granite_swa for the keys of its files. */
#include "models/shared.h"

const struct arch arch_granite_swa = {
    .name = "granite_swa",
    .families = "Granite with sliding windows",
    .slot = {SLOTS_DENSE, [SLOT_ATTN_SINKS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS,
             SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .scale.logit_divides = true,
    .keys = "embedding_scale|residual_scale|logit_scale|attention.rope_pattern",
    .hf.models = (const struct arch_hf[]){{"granite_swa", "GraniteSWAForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|embedding_multiplier|residual_multiplier|attention_multiplier|logits_scaling|"
               "layer_rope_theta",
    .hf.halves = true,
    .hf.tied = true,
    .hf.full_first = "granite_swa",
};
