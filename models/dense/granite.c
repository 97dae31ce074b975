/* Granite 3 and 4: a Llama block with factors of embeddings, branches, scores and logits.
 * source: HF modeling_granite. */
#include "models/shared.h"

const struct arch arch_granite = {
    .name = "granite",
    .families = "Granite 3.0 to 3.3 2B, 8B; Granite 4 (dense)",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .scale.logit_divides = true,
    .keys = "embedding_scale|residual_scale|logit_scale",
    .hf.models = (const struct arch_hf[]){{"granite", "GraniteForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|embedding_multiplier|residual_multiplier|attention_multiplier|logits_scaling",
    .hf.halves = true,
};
