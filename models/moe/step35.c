/* Step 3.5: q and k normalised by heads, a gate for each head; windows in three of four layers, which have more heads of queries, a base of
 * their own and rotate whole heads, where the others rotate half of one, scaled; the first layers are dense; sigmoid scores, a bias of the
 * choice, a factor, an ungated shared part; in some layers what SiLU gives and what it is times have limits.
 * sources: HF modeling_step3p7; llama.cpp's step35 for the keys and tensors of its files. */
#include "models/shared.h"

static const struct hf_name hf_layer_step35[] = {
    {"self_attn.g_proj.", "attn_gate.", HF_SAME},
    {"moe.gate.", "ffn_gate_inp.", HF_SAME},
    {"moe.router_bias", "exp_probs_b.bias", HF_SAME},
    {"moe.gate_proj.", "ffn_gate_exps.", HF_SAME},
    {"moe.up_proj.", "ffn_up_exps.", HF_SAME},
    {"moe.down_proj.", "ffn_down_exps.", HF_SAME},
    {"share_expert.gate_proj.", "ffn_gate_shexp.", HF_SAME},
    {"share_expert.up_proj.", "ffn_up_shexp.", HF_SAME},
    {"share_expert.down_proj.", "ffn_down_shexp.", HF_SAME},
    {"transformer.shared_head.norm.", "nextn.shared_head_norm.", HF_SAME},
    {"transformer.shared_head.output.", "nextn.shared_head_head.", HF_SAME},
    {0},
};

const struct arch arch_step35 = {
    .name = "step35",
    .families = "Step 3.5 Flash, Step 3.7 Flash (text)",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_ATTN_GATE_HEADS] = SLOT_MUST,
             [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU_CLAMP,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .rope.half_full = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|expert_shared_feed_forward_length|rope.freq_base_swa|rope.dimension_count_swa|"
                         "swiglu_clamp_exp|swiglu_clamp_shexp|nextn_predict_layers",
    .hf.models = (const struct arch_hf[]){{"step3p5", "Step3p5ForCausalLM", NULL},
                                          {"step3p7", "Step3p7ForConditionalGeneration", "step3p5"},
                                          {0}},
    .hf.keys = "num_attention_groups|num_sliding_attention_heads|per_layer_config|moe_num_experts|"
               "n_routed_experts|moe_top_k|num_experts_per_tok|moe_intermediate_size|share_expert_dim|"
               "moe_router_scaling_factor|norm_expert_weight|mlp_layer_types|swiglu_limits|"
               "swiglu_limits_shared|query_pre_attn_scalar|num_nextn_predict_layers|text_config",
    .hf.defaults = (const struct arch_default[]){{"norm_expert_weight", 1}, {0}},
    .hf.layer = hf_layer_step35,
    .hf.plus_one = true,
};
