/* Qwen3-Next: three layers with the gated delta rule for each one with attention, whose output has a gate by element; a mixture of experts
 * with a gated shared part. Value heads of one key head follow each other.
 * sources: HF modeling_qwen3_next; llama.cpp's qwen3next for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_qwen3next = {
    .name = "qwen3next",
    .families = "Qwen3-Next 80B-A3B, Qwen3-Coder-Next",
    .slot = {SLOTS_DELTA_HYBRID, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_FFN_SHEXP_GATE] = SLOT_MUST, [SLOT_STATE_BETA_ALPHA] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .mixer.kind = MIX_DELTA,
    .mixer.where = MIXER_INTERVAL,
    .attn.q_gated = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|" KEYS_DELTA
                         "|expert_shared_count|expert_shared_feed_forward_length|nextn_predict_layers",
    .hf.models = (const struct arch_hf[]){{"qwen3_next", "Qwen3NextForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|" HF_KEYS_DELTA
                               "|num_experts|moe_intermediate_size|shared_expert_intermediate_size|"
                               "norm_topk_prob|mlp_only_layers|decoder_sparse_step",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.rotated = 0.25f,
    .hf.layer = hf_layer_delta,
    .hf.plus_one = true,
};
