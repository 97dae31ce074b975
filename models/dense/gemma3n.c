/* Gemma 3n: four residual streams, of which each layer computes with the first; something of low rank beside attention; V is normalised
 * without weights; the last layers attend to what earlier ones keep, and each has an input of each token of its own; in the first ten layers
 * gates are left out but for the largest.
 * sources: HF modeling_gemma3n; llama.cpp's gemma3n for the keys and tensors of its files. */
#include "models/shared.h"

static const struct hf_name hf_layer_gemma3n[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"pre_feedforward_layernorm.", "ffn_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {"per_layer_input_gate.", "inp_gate.", HF_SAME},
    {"per_layer_projection.", "proj.", HF_SAME},
    {"post_per_layer_input_norm.", "post_norm.", HF_SAME},
    {"altup.correction_coefs.", "altup_correct_coef.", HF_SAME},
    {"altup.prediction_coefs.", "altup_predict_coef.", HF_SAME},
    {"altup.modality_router.", "altup_router.", HF_SAME},
    {"altup.router_norm.", "altup_router_norm.", HF_SAME},
    {"altup.correct_output_scale", "altup_correct_scale.weight", HF_SAME},
    {"laurel.linear_left.", "laurel_l.", HF_SAME},
    {"laurel.linear_right.", "laurel_r.", HF_SAME},
    {"laurel.post_laurel_norm.", "laurel_post_norm.", HF_SAME},
    {0},
};
static const struct hf_name hf_whole_gemma3n[] = {
    {"embed_tokens_per_layer.", "per_layer_token_embd.", HF_SAME},
    {"per_layer_model_projection.", "per_layer_model_proj.", HF_SAME},
    {"per_layer_projection_norm.", "per_layer_proj_norm.", HF_SAME},
    {"altup_projections.", "altup_proj.", HF_SAME},
    {"altup_unembed_projections.", "altup_unembd_proj.", HF_SAME},
    {0},
};

const struct arch arch_gemma3n = {
    .name = "gemma3n",
    .families = "Gemma 3n E2B, E4B (text)",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS, SLOTS_GATED, SLOTS_POST_NORM, SLOTS_QK_NORM,
             SLOTS_LAYER_INPUTS, SLOTS_STREAMS, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .attn.v_norm = true,
    .scale.embd_sqrt = true,
    .keys = "rope.freq_base_swa|final_logit_softcapping|attention.shared_kv_layers|"
            "embedding_length_per_layer_input|altup.num_inputs|activation_sparsity_scale",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 5},
                                              {"attention.scale", 1},
                                              {"final_logit_softcapping", 30},
                                              {"rope.freq_base", 1e6},
                                              {"rope.freq_base_swa", 1e4},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"gemma3n_text", "Gemma3nForCausalLM", NULL},
                                          {"gemma3n", "Gemma3nForConditionalGeneration", "gemma3n_text"},
                                          {0}},
    .hf.keys = "hidden_activation|final_logit_softcapping|hidden_size_per_layer_input|num_kv_shared_layers|"
               "altup_num_inputs|activation_sparsity_pattern|rope_local_base_freq|text_config",
    .hf.layer = hf_layer_gemma3n,
    .hf.whole = hf_whole_gemma3n,
    .hf.tied = true,
};
