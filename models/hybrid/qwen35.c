/* Qwen3.5 and later: three layers with the gated delta rule for each one with attention, whose output has a gate by element. In GGUF the
 * value heads are in turns: each key head's first, then each one's second.
 * sources: HF modeling_qwen3_5; llama.cpp's qwen35 for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_qwen35 = {
    .name = "qwen35",
    .families = "Qwen3.5, 3.6 0.8B to 27B",
    .slot = {SLOTS_DELTA_HYBRID, SLOTS_DRAFT, [SLOT_STATE_BETA] = SLOT_MUST, [SLOT_STATE_ALPHA] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.axes_in_turns = true,
    .mixer.kind = MIX_DELTA,
    .mixer.where = MIXER_INTERVAL,
    .mixer.tiled = true,
    .attn.q_gated = true,
    .keys = KEYS_DELTA "|rope.dimension_sections|nextn_predict_layers",
    .hf.models =
        (const struct arch_hf[]){{"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"},
                                 {"qwen3_5_text", "Qwen3_5ForCausalLM", NULL},
                                 {"minicpmv4_6", "MiniCPMV4_6ForConditionalGeneration", "qwen3_5_text"},
                                 {0}},
    .hf.keys = HF_KEYS_DELTA "|text_config",
    .hf.layer = hf_layer_delta,
    .hf.rotated = 0.25f,
    .hf.plus_one = true,
};
