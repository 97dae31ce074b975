/* Phi-3.5-MoE: LayerNorms with biases, biases everywhere in attention and on the head; two experts, each by a softmax over those whose logit is
 * near that of the best that is left (SparseMixer); divisors of the frequencies for long contexts and for short ones.
 * sources: Abdin et al. 2024 (arXiv 2404.14219); Liu et al. 2023 (arXiv 2310.00811, 2409.12136); HF modeling_phimoe. llama.cpp's phimoe has the
 * tensors of its files, but the weights of a softmax over both, which is not what the model was trained with. */
#include "models/shared.h"

const struct arch arch_phimoe = {
    .name = "phimoe",
    .families = "Phi-3.5-MoE",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS, SLOTS_EXPERTS,
             SLOTS_ATTN_BIAS, [SLOT_ATTN_NORM_BIAS] = SLOT_MUST, [SLOT_FFN_NORM_BIAS] = SLOT_MUST,
             [SLOT_OUTPUT_NORM_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MUST, [SLOT_OUTPUT_BIAS] = SLOT_MAY},
    .norm = NORM_LAYER,
    .norm_key_rms = true,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_NEAR, .norm = ROUTE_NORM_NONE, .eps = 0.02f},
    .keys = KEYS_EXPERTS,
    .hf.models = (const struct arch_hf[]){{"phimoe", "PhimoeForCausalLM", NULL},
                                          {"phimoe", "PhiMoEForCausalLM", NULL},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_local_experts|lm_head_bias|short_mscale",
};
