/* OLMo 2 and 3: norms behind attention and feed-forward part alone, q and k normalised over the whole row; OLMo 3 has windows in three of
 * four layers, and scaled rotation in the others alone.
 * sources: OLMo Team 2024 (arXiv 2501.00656); HF modeling_olmo2, modeling_olmo3. */
#include "models/shared.h"

const struct arch arch_olmo2 = {
    .name = "olmo2",
    .families = "OLMo 2 1B to 32B, OLMo 3 7B and 32B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_GATED, SLOTS_POST_NORM, [SLOT_ATTN_Q_NORM_ROW] = SLOT_MUST,
             [SLOT_ATTN_K_NORM_ROW] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .keys = "rope.freq_base_swa",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models = (const struct arch_hf[]){{"olmo2", "Olmo2ForCausalLM", NULL},
                                          {"olmo3", "Olmo3ForCausalLM", NULL},
                                          {0}},
    .hf.layer = hf_layer_post_norm,
};
