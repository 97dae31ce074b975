/* Gemma 4: full layers have wider heads, fewer of keys, and in the larger models values that are the keys as they come; V is normalised
 * without weights; full layers rotate the first quarter of the frequencies of a whole head. In the small ones (E2B, E4B) the last layers attend to
 * what earlier ones keep, and each layer has an input of each token of its own.
 * source: HF modeling_gemma4. */
#include "models/shared.h"

static const struct hf_name hf_layer_gemma4[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"pre_feedforward_layernorm.", "ffn_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {"pre_feedforward_layernorm_2.", "pre_ffw_norm_2.", HF_SAME},
    {"post_feedforward_layernorm_1.", "post_ffw_norm_1.", HF_SAME},
    {"post_feedforward_layernorm_2.", "post_ffw_norm_2.", HF_SAME},
    {"layer_scalar", "layer_output_scale.weight", HF_SAME},
    {"per_layer_input_gate.", "inp_gate.", HF_SAME},
    {"per_layer_projection.", "proj.", HF_SAME},
    {"post_per_layer_input_norm.", "post_norm.", HF_SAME},
    {"router.proj.", "ffn_gate_inp.", HF_SAME},
    {"router.scale", "ffn_gate_inp.scale", HF_SAME},
    {"router.per_expert_scale", "ffn_down_exps.scale", HF_SAME},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight", HF_SAME},
    {"experts.down_proj", "ffn_down_exps.weight", HF_SAME},
    {0},
};

static const struct hf_name hf_whole_gemma4[] = {
    {"embed_tokens_per_layer.", "per_layer_token_embd.", HF_SAME},
    {"per_layer_model_projection.", "per_layer_model_proj.", HF_SAME},
    {"per_layer_projection_norm.", "per_layer_proj_norm.", HF_SAME},
    {0},
};

const struct arch arch_gemma4 = {
    .name = "gemma4",
    .families = "Gemma 4 E2B, E4B, 12B, 26B-A4B, 31B (text)",
    .slot = {SLOTS_CORE, [SLOT_ATTN_Q] = SLOT_MUST, [SLOT_ATTN_K] = SLOT_MUST, SLOTS_NORMS, SLOTS_GATED,
             SLOTS_POST_NORM,
             SLOTS_QK_NORM, [SLOT_ATTN_V] = SLOT_MAY, [SLOT_LAYER_SCALE] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_LAYER_INPUTS, SLOTS_EXPERTS, [SLOT_FFN_ROUTER_SCALE] = SLOT_MUST,
             [SLOT_FFN_DOWN_EXPS_SCALE] = SLOT_MUST, [SLOT_FFN_EXPERTS_NORM] = SLOT_MUST,
             [SLOT_POST_DENSE_NORM] = SLOT_MUST, [SLOT_POST_EXPERTS_NORM] = SLOT_MUST},
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD, .beside = true},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .attn.v_norm = true,
    .attn.both = BOTH_WINDOWED,
    .scale.embd_sqrt = true,
    .keys =
        "rope.freq_base_swa|rope.dimension_count_swa|attention.key_length_swa|attention.value_length_swa|"
        "final_logit_softcapping|attention.shared_kv_layers|embedding_length_per_layer_input|attention.causal_images|" KEYS_EXPERTS,
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 6},
                                              {"attention.scale", 1},
                                              {"rope.freq_base", 1e6},
                                              {"rope.freq_base_swa", 1e4},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"gemma4_text", "Gemma4ForCausalLM", NULL},
                                          {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text"},
                                          {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", NULL},
                                          {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration",
                                           "gemma4_unified_text"},
                                          {0}},
    .hf.keys = "hidden_activation|final_logit_softcapping|per_layer_config|global_head_dim|"
               "num_global_key_value_heads|attention_k_eq_v|proportional|text_config|enable_moe_block|"
               "num_experts|top_k_experts|moe_intermediate_size|hidden_size_per_layer_input|"
               "num_kv_shared_layers|use_double_wide_mlp",
    .hf.layer = hf_layer_gemma4,
    .hf.whole = hf_whole_gemma4,
    .hf.tied = true,
};
