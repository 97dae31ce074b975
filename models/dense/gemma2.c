/* Gemma 2: norms in front of and behind attention and feed-forward part, every second layer with a window, scores and logits capped.
 * Files of the 27B model (46 layers) leave its own scale of scores out.
 * sources: Gemma Team 2024 (arXiv 2408.00118); HF modeling_gemma2; llama.cpp's gemma2 for what its files leave out. */
#include "models/shared.h"

const struct arch arch_gemma2 = {
    .name = "gemma2",
    .families = "Gemma 2 2B, 9B, 27B",
    .slot = {SLOTS_DENSE, SLOTS_POST_NORM, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .scale.embd_sqrt = true,
    .keys = "attn_logit_softcapping|final_logit_softcapping",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 2},
                                              {"attn_logit_softcapping", 50},
                                              {"final_logit_softcapping", 30},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"gemma2", "Gemma2ForCausalLM", NULL}, {0}},
    .hf.keys = "hidden_activation|attn_logit_softcapping|final_logit_softcapping|query_pre_attn_scalar",
    .hf.layer = hf_layer_sandwich,
    .hf.plus_one = true,
    .hf.tied = true,
};
