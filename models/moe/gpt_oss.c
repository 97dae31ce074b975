/* gpt-oss: windows in every second layer, sinks, biases everywhere, YaRN whose ramp does not end at whole dims, experts in MXFP4 with a clamped
 * gate and weights that are a softmax over the chosen.
 * sources: OpenAI 2025 (arXiv 2508.10925); HF modeling_gpt_oss. */
#include "models/shared.h"

const struct arch arch_gpt_oss = {
    .name = "gpt-oss",
    .families = "gpt-oss 20b, 120b",
    .tried = "8 layers of the shape of 20B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_QKV_BIAS(SLOT_MUST), SLOTS_EXPERTS, [SLOT_ATTN_NORM] = SLOT_MUST,
             [SLOT_FFN_NORM_AFTER] = SLOT_MUST, [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MUST,
             [SLOT_ATTN_SINKS] = SLOT_MUST, [SLOT_FFN_ROUTER_BIAS] = SLOT_MUST,
             [SLOT_FFN_GATE_EXPS_BIAS] = SLOT_MUST, [SLOT_FFN_UP_EXPS_BIAS] = SLOT_MUST,
             [SLOT_FFN_DOWN_EXPS_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_SWIGLU_OAI,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_CHOSEN, .norm = ROUTE_NORM_NONE},
    .keys = KEYS_EXPERTS "|swiglu_limit|swiglu_alpha",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 2},
                                              {"rope.scaling.yarn_truncate", 0},
                                              {"swiglu_limit", 7},
                                              {"swiglu_alpha", 1.702},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"gpt_oss", "GptOssForCausalLM", NULL},
                                          {"internvl", "InternVLForConditionalGeneration", "gpt_oss"},
                                          {"internvl_chat", "InternVLChatModel", "gpt_oss"},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|text_config|experts_per_token|num_local_experts|swiglu_limit|swiglu_alpha|quantization_config",
    .hf.layer =
        (const struct hf_name[]){{"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
                                 {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", HF_TURNS},
                                 {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight", HF_TURNS},
                                 {"mlp.experts.gate_up_proj_scales", "", HF_SKIP},
                                 {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", HF_TURNS},
                                 {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", HF_SAME},
                                 {"mlp.experts.down_proj_blocks", "ffn_down_exps.weight", HF_BLOCKS},
                                 {"mlp.experts.down_proj_scales", "", HF_SKIP},
                                 {"mlp.experts.down_proj", "ffn_down_exps.weight", HF_TRANSPOSE},
                                 {0}},
};
