/* Qwen3.5 and later with experts: layers as qwen35 has them, a mixture of experts with a gated shared part in each.
 * sources: HF modeling_qwen3_5_moe; llama.cpp's qwen35moe for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_qwen35moe = {
    .name = "qwen35moe",
    .families = "Qwen3.5, 3.6 35B-A3B, 122B-A10B, 397B-A17B",
    .slot = {SLOTS_DELTA_HYBRID, SLOTS_DRAFT, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_FFN_SHEXP_GATE] = SLOT_MUST,
             [SLOT_STATE_BETA] = SLOT_MUST, [SLOT_STATE_ALPHA] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.axes_in_turns = true,
    .mixer.kind = MIX_DELTA,
    .mixer.where = MIXER_INTERVAL,
    .mixer.tiled = true,
    .attn.q_gated = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|" KEYS_DELTA "|expert_shared_count|expert_shared_feed_forward_length|"
                         "rope.dimension_sections|nextn_predict_layers",
    .hf.models =
        (const struct arch_hf[]){{"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"},
                                 {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", NULL},
                                 {0}},
    .hf.keys = HF_KEYS_EXPERTS "|" HF_KEYS_DELTA
                               "|num_experts|moe_intermediate_size|shared_expert_intermediate_size|"
                               "text_config",
    .hf.layer = hf_layer_delta,
    .hf.rotated = 0.25f,
    .hf.plus_one = true,
};
