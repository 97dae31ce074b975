/* Llama 4, the part for text: three of four layers rotate and see the chunk that they are in alone, the fourth does not rotate, sees all and has
 * queries that grow with the position; rotated q and k normalised without weights (Scout); one expert, by a sigmoid that the expert's
 * input is multiplied by, beside a shared part, in all layers (Scout) or in every second one (Maverick).
 * sources: HF modeling_llama4; llama.cpp's llama4 for the keys of its files and what they leave out. */
#include "models/shared.h"

const struct arch arch_llama4 = {
    .name = "llama4",
    .families = "Llama 4 Scout, Maverick (text)",
    .slot = {SLOTS_DENSE, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.where = ROPE_WINDOWED,
    .attn.chunked = true,
    .attn.temp_unrotated = true,
    .attn.qk_unit = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_NONE},
    .moe.weight_on_input = true,
    .keys = "attention.temperature_scale|attention.temperature_length|attention.qk_norm|rope.layers|"
            "interleave_moe_layer_step|expert_layers|expert_feed_forward_length|expert_gating_func|"
            "expert_shared_count",
    .defaults = (const struct arch_default[]){{"attention.sliding_window", 8192},
                                              {"attention.sliding_window_pattern", 4},
                                              {"attention.temperature_scale", 0.1},
                                              {"attention.temperature_length", 8192},
                                              {"expert_shared_count", 1},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"llama4_text", "Llama4ForCausalLM", NULL},
                                          {"llama4", "Llama4ForConditionalGeneration", "llama4_text"},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|num_local_experts|intermediate_size_mlp|moe_layers|interleave_moe_layer_step|attention_chunk_size|"
    "no_rope_layers|no_rope_layer_interval|attn_temperature_tuning|attn_scale|floor_scale|use_qk_norm|"
    "text_config",
    .hf.defaults = (const struct arch_default[]){{"intermediate_size_mlp", 16384}, {0}},
    .hf.layer =
        (const struct hf_name[]){{"feed_forward.gate_proj.", "ffn_gate.", HF_SAME},
                                 {"feed_forward.up_proj.", "ffn_up.", HF_SAME},
                                 {"feed_forward.down_proj.", "ffn_down.", HF_SAME},
                                 {"feed_forward.experts.gate_up_proj", "ffn_gate_exps.weight", HF_COLUMNS},
                                 {"feed_forward.experts.down_proj", "ffn_down_exps.weight", HF_TRANSPOSE},
                                 {0}},
};
