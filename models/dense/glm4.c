/* GLM-4 of 2025: norms in front of and behind attention and feed-forward part, biases on q, k and v, half of a head rotated, gate and up in
 * one tensor.
 * source: HF modeling_glm4. */
#include "models/shared.h"

const struct arch arch_glm4 = {
    .name = "glm4",
    .families = "GLM-4 9B and 32B 0414, GLM-Z1, GLM-4.1V 9B, GLM-OCR",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS, [SLOT_FFN_DOWN] = SLOT_MUST, SLOTS_POST_NORM,
             SLOTS_QKV_BIAS(SLOT_MAY), SLOTS_DRAFT, [SLOT_FFN_GATE_UP] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .keys = "rope.dimension_sections|nextn_predict_layers",
    .hf.models = (const struct arch_hf[]){{"glm4", "Glm4ForCausalLM", NULL},
                                          {"glm4v", "Glm4vForConditionalGeneration", "glm4v_text"},
                                          {"glm_ocr", "GlmOcrForConditionalGeneration", "glm_ocr_text"},
                                          {0}},
    .hf.keys = "text_config|num_nextn_predict_layers",
    .hf.defaults = (const struct arch_default[]){{"attention_bias", 1}, {0}}, /* GLM-4.1V has no such key */
    .hf.layer = (const struct hf_name[]){{"post_self_attn_layernorm.", "post_attention_norm.", HF_SAME},
                                         {"post_attention_layernorm.", "ffn_norm.", HF_SAME},
                                         {"post_mlp_layernorm.", "post_ffw_norm.", HF_SAME},
                                         {0}},
};
