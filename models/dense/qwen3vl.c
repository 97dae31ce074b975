/* Qwen3-VL, its text part: Qwen3; positions of three kinds are one for texts.
 * source: HF modeling_qwen3_vl. */
#include "models/shared.h"

const struct arch arch_qwen3vl = {
    .name = "qwen3vl",
    .families = "Qwen3-VL 2B to 32B (text)",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.axes_in_turns = true,
    .keys = "rope.dimension_sections|n_deepstack_layers",
    .hf.models = (const struct arch_hf[]){{"qwen3_vl_text", "Qwen3VLTextModel", NULL},
                                          {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text"},
                                          {0}},
    .hf.keys = "text_config",
};
