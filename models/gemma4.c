/* Gemma 4, dense: full layers have wider heads, fewer of keys, and in the larger models values that are the keys as they come; V is normalised
 * without weights; full layers rotate the first quarter of the frequencies of a whole head.
 * source: HF modeling_gemma4. */
#include "models/shared.h"

const struct arch arch_gemma4 = {
    .name = "gemma4",
    .families = "Gemma 4 12B, 31B (text)",
    .slot = {SLOTS_CORE, [SLOT_ATTN_Q] = SLOT_MUST, [SLOT_ATTN_K] = SLOT_MUST, SLOTS_NORMS, SLOTS_GATED,
             SLOTS_POST_NORM, SLOTS_QK_NORM, [SLOT_ATTN_V] = SLOT_MAY, [SLOT_LAYER_SCALE] = SLOT_MAY,
             [SLOT_ROPE_FREQS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope = ROPE_NEOX,
    .rope_scaled_full = true,
    .v_norm = true,
    .embd_sqrt = true,
    .keys = "rope.freq_base_swa|rope.dimension_count_swa|attention.key_length_swa|attention.value_length_swa|"
            "final_logit_softcapping",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 6},
                                              {"attention.scale", 1},
                                              {"rope.freq_base", 1e6},
                                              {"rope.freq_base_swa", 1e4},
                                              {0}},
    .hf = (const struct arch_hf[]){{"gemma4_text", "Gemma4ForCausalLM", NULL},
                                   {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text"},
                                   {0}},
    .hf_keys = "hidden_activation|final_logit_softcapping|per_layer_config|global_head_dim|num_global_key_"
               "value_heads|"
               "attention_k_eq_v|proportional|text_config",
    .hf_layer = hf_layer_sandwich,
    .hf_tied = true,
};
