/* EXAONE 4: norms behind attention and feed-forward part alone, q and k normalised by heads; where layers have windows, the others do not
 * rotate.
 * source: HF modeling_exaone4. */
#include "models/shared.h"

const struct arch arch_exaone4 = {
    .name = "exaone4",
    .families = "EXAONE 4.0 1.2B, 32B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_GATED, SLOTS_POST_NORM, SLOTS_QK_NORM, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.where = ROPE_WINDOWED,
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models = (const struct arch_hf[]){{"exaone4", "Exaone4ForCausalLM", NULL}, {0}},
    .hf.keys = "sliding_window_pattern",
    .hf.layer = hf_layer_post_norm,
};
