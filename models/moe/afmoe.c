/* AFMoE (Trinity): norms in front of and behind both parts, q and k normalised by heads, each number of the heads' output through a gate;
 * windows in three of four layers, which alone rotate; the first layers are dense; sigmoid scores, a bias of the choice, a factor, an
 * ungated shared part.
 * sources: HF modeling_afmoe; llama.cpp's afmoe for the keys of its files. */
#include "models/shared.h"

const struct arch arch_afmoe = {
    .name = "afmoe",
    .families = "Trinity Nano, Mini, Large",
    .slot = {SLOTS_DENSE, SLOTS_POST_NORM, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED,
             [SLOT_ATTN_GATE] = SLOT_MUST, [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.where = ROPE_WINDOWED,
    .scale.embd_sqrt = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_EXPERTS "|expert_shared_count|embedding_scale",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models = (const struct arch_hf[]){{"afmoe", "AfmoeForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_experts|num_shared_experts|moe_intermediate_size|num_dense_layers|"
                               "route_scale|route_norm|mup_enabled|global_attn_every_n_layers",
    .hf.defaults = (const struct arch_default[]){{"route_norm", 1}, {0}},
    .hf.layer = (const struct hf_name[]){{"self_attn.gate_proj.", "attn_gate.", HF_SAME},
                                         {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
                                         {"pre_mlp_layernorm.", "ffn_norm.", HF_SAME},
                                         {"post_mlp_layernorm.", "post_ffw_norm.", HF_SAME},
                                         {"mlp.router.gate.", "ffn_gate_inp.", HF_SAME},
                                         {"mlp.expert_bias", "exp_probs_b.bias", HF_SAME},
                                         {0}},
};
