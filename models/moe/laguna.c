/* Laguna: q and k normalised by heads; gates of each head or of each number of what heads give, by ln(1 + exp(x)); in some models windows in
 * three of four layers, which have more heads of queries, a base of their own and rotate more of a head, where the others are scaled; the first
 * layers are dense; sigmoid scores, capped before, a bias of the choice, a factor, an ungated shared part.
 * sources: HF modeling_laguna; llama.cpp's laguna for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_laguna = {
    .name = "laguna",
    .families = "Laguna XS, S, M",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED,
             SLOTS_ATTN_BIAS, [SLOT_ATTN_GATE] = SLOT_MAY, [SLOT_ATTN_GATE_HEADS] = SLOT_MAY,
             [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .attn.full_first = true,
    .attn.gate_softplus = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|expert_shared_count|expert_shared_feed_forward_length|rope.freq_base_swa|"
                         "rope.dimension_count_swa|router_logit_softcapping",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models = (const struct arch_hf[]){{"laguna", "LagunaForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|num_experts|moe_intermediate_size|shared_expert_intermediate_size|moe_routed_scaling_factor|"
    "moe_router_logit_softcapping|mlp_layer_types|mlp_only_layers|decoder_sparse_step|"
    "num_attention_heads_per_layer",
    .hf.layer = (const struct hf_name[]){{"self_attn.g_proj.", "attn_gate.", HF_SAME},
                                         {"mlp.experts.e_score_correction_bias", "exp_probs_b.bias", HF_SAME},
                                         {0}},
};
