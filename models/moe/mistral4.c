/* Mistral Small 4: DeepSeek's attention by a latent and its experts; queries that grow with the position beyond the original context; softmax
 * scores, groups by their two best experts.
 * source: HF modeling_mistral4; llama.cpp's mistral4 for the keys of its files. */
#include "models/shared.h"

const struct arch arch_mistral4 = {
    .name = "mistral4",
    .families = "Mistral Small 4 (text)",
    .slot = {SLOTS_LATENT_EXPERTS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .attn.latent = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_LATENT_EXPERTS,
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"mistral4", "Mistral4ForCausalLM", NULL},
                                          {"mistral3", "Mistral3ForConditionalGeneration", "mistral4"},
                                          {0}},
    .hf.keys = HF_KEYS_LATENT_EXPERTS "|llama_4_scaling_beta|text_config",
    .hf.layer = hf_layer_latent,
};
