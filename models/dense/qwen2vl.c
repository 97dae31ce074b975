/* Qwen2-VL and Qwen2.5-VL, their text part: Qwen2, whose rotation has sections for time, lines and columns; one position for texts.
 * sources: Wang et al. 2024 (arXiv 2409.12191); HF modeling_qwen2_vl, modeling_qwen2_5_vl. */
#include "models/shared.h"

const struct arch arch_qwen2vl = {
    .name = "qwen2vl",
    .families = "Qwen2-VL, Qwen2.5-VL",
    .slot = {SLOTS_DENSE, SLOTS_QKV_BIAS(SLOT_MUST), [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .keys = "rope.dimension_sections",
    .hf.models =
        (const struct arch_hf[]){{"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text"},
                                 {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text"},
                                 {0}},
    .hf.keys = "text_config",
    .hf.window_by_layer = true,
};
