/* Gemma, the first: a Llama block with GELU, heads of their own width, norms with w - 1, embeddings by the root of the width.
 * sources: Gemma Team 2024 (arXiv 2403.08295); HF modeling_gemma, whose configuration reads 'gelu' as the tanh form. */
#include "models/shared.h"

const struct arch arch_gemma = {
    .name = "gemma",
    .families = "Gemma 2B and 7B, CodeGemma",
    .slot = {SLOTS_DENSE, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .scale.embd_sqrt = true,
    .hf.models = (const struct arch_hf[]){{"gemma", "GemmaForCausalLM", NULL}, {0}},
    .hf.keys = "hidden_activation",
    .hf.plus_one = true,
    .hf.tied = true,
    .hf.gelu_is_tanh = true,
};
