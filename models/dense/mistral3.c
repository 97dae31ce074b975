/* Mistral 3 and Ministral 3: a Llama block whose queries grow with the position beyond the original context.
 * source: HF modeling_ministral3; llama.cpp's mistral3 for the keys of its files. */
#include "models/shared.h"

const struct arch arch_mistral3 = {
    .name = "mistral3",
    .families = "Ministral 3 3B, 8B, 14B; Mistral Small 3.2 and later (text)",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .keys = "attention.temperature_scale|rope.scaling.yarn_log_multiplier",
    .hf.models = (const struct arch_hf[]){{"ministral3", "Ministral3ForCausalLM", NULL},
                                          {"mistral3", "Mistral3ForConditionalGeneration", "ministral3"},
                                          {0}},
    .hf.keys = "llama_4_scaling_beta|text_config",
    .hf.halves = true,
};
