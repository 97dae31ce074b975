#include "models/shared.h"

const struct hf_name hf_layer_sandwich[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"pre_feedforward_layernorm.", "ffn_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {"layer_scalar", "layer_output_scale.weight", HF_SAME},
    {0},
};
const struct hf_name hf_layer_latent[] = {
    {"self_attn.q_a_proj.", "attn_q_a.", HF_SAME},
    {"self_attn.q_a_layernorm.", "attn_q_a_norm.", HF_SAME},
    {"self_attn.q_b_proj.", "attn_q_b.", HF_SAME},
    {"self_attn.kv_a_proj_with_mqa.", "attn_kv_a_mqa.", HF_SAME},
    {"self_attn.kv_a_layernorm.", "attn_kv_a_norm.", HF_SAME},
    {"self_attn.kv_b_proj.", "attn_k_b.", HF_LATENT},
    {0},
};
const struct hf_name hf_layer_post_norm[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {0},
};
