/* Gemma 3: as Gemma 2 with normalised q and k instead of caps, a window in five of six layers, which rotate by a base of their own and
 * unscaled. The models that see images, too: their text part.
 * sources: Gemma Team 2025 (arXiv 2503.19786); HF modeling_gemma3 and its configuration for what config.json leaves out. */
#include "models/shared.h"

const struct arch arch_gemma3 = {
    .name = "gemma3",
    .families = "Gemma 3 270M, 1B, 4B, 12B, 27B (text)",
    .slot = {SLOTS_DENSE, SLOTS_POST_NORM, SLOTS_QK_NORM, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .attn.both = BOTH_ALL,
    .scale.embd_sqrt = true,
    .keys = "rope.freq_base_swa|attn_logit_softcapping|final_logit_softcapping|mm.tokens_per_image",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 6},
                                              {"rope.freq_base", 1e6},
                                              {"rope.freq_base_swa", 1e4},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"gemma3_text", "Gemma3ForCausalLM", NULL},
                                          {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text"},
                                          {0}},
    .hf.keys = "hidden_activation|attn_logit_softcapping|final_logit_softcapping|query_pre_attn_scalar|"
               "rope_local_base_freq|sliding_window_pattern|_sliding_window_pattern|text_config",
    .hf.defaults = (const struct arch_default[]){{"hidden_size", 2304},
                                                 {"intermediate_size", 9216},
                                                 {"num_hidden_layers", 26},
                                                 {"num_attention_heads", 8},
                                                 {"num_key_value_heads", 4},
                                                 {"head_dim", 256},
                                                 {"max_position_embeddings", 131072},
                                                 {"rms_norm_eps", 1e-6},
                                                 {"query_pre_attn_scalar", 256},
                                                 {"sliding_window", 4096},
                                                 {"vocab_size", 262208},
                                                 {0}},
    .hf.layer = hf_layer_sandwich,
    .hf.both_ways = "gemma-embedding",
    .hf.plus_one = true,
    .hf.tied = true,
};
