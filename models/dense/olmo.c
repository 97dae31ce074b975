/* OLMo, the first: a Llama block whose LayerNorms have neither weights nor biases; in some models q, k and v are clamped.
 * sources: Groeneveld et al. 2024 (arXiv 2402.00838); HF modeling_olmo; llama.cpp's olmo for the rows of q and k. */
#include "models/shared.h"

const struct arch arch_olmo = {
    .name = "olmo",
    .families = "OLMo 1B and 7B (2024)",
    .slot = {[SLOT_TOKEN_EMBD] = SLOT_MUST,
             [SLOT_ATTN_OUTPUT] = SLOT_MUST,
             SLOTS_QKV,
             SLOTS_GATED,
             [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS},
    .norm = NORM_LAYER,
    .norm_bare = true,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .keys = "attention.layer_norm_epsilon|attention.clamp_kqv",
    .hf.models = (const struct arch_hf[]){{"olmo", "OlmoForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_eps|clip_qkv",
    .hf.defaults = (const struct arch_default[]){{"layer_norm_eps", 1e-5}, {0}},
    .hf.halves = true,
};
