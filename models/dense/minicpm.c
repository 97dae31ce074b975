/* MiniCPM: a Llama block with factors of embeddings, of what each part adds (by the number of layers), and of logits (by the width). GGUF files from before
 * these keys are refused.
 * sources: Hu et al. 2024 (arXiv 2404.06395); modeling_minicpm of its folders, as vLLM has it; llama.cpp's table */
#include "models/shared.h"

#include <math.h>

const struct arch arch_minicpm = {
    .name = "minicpm",
    .families = "MiniCPM 1B and 2B, MiniCPM4 0.5B and 8B (dense)",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .scale.logit_divides = true,
    .keys = "embedding_scale|residual_scale|logit_scale",
    .defaults = (const struct arch_default[]){{"embedding_scale", (double)NAN},
                                              {"residual_scale", (double)NAN},
                                              {"logit_scale", (double)NAN},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"minicpm", "MiniCPMForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|scale_emb|scale_depth|dim_model_base",
    .hf.halves = true,
    .hf.tied = true,
};
