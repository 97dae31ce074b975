#include "models/shared.h"

const struct hf_name hf_layer_sandwich[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"pre_feedforward_layernorm.", "ffn_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {"layer_scalar", "layer_output_scale.weight", HF_SAME},
    {0},
};
#define HF_NAMES_LATENT                                                                                      \
    {"self_attn.q_a_proj.", "attn_q_a.", HF_SAME}, {"self_attn.q_a_layernorm.", "attn_q_a_norm.", HF_SAME},  \
        {"self_attn.q_b_proj.", "attn_q_b.", HF_SAME},                                                       \
        {"self_attn.kv_a_proj_with_mqa.", "attn_kv_a_mqa.", HF_SAME},                                        \
        {"self_attn.kv_a_layernorm.", "attn_kv_a_norm.", HF_SAME}, {                                         \
        "self_attn.kv_b_proj.", "attn_k_b.", HF_LATENT                                                       \
    }
const struct hf_name hf_layer_latent[] = {HF_NAMES_LATENT, {0}};
const struct hf_name hf_layer_index[] = {HF_NAMES_LATENT,
                                         {"self_attn.indexer.wq_b.", "indexer.attn_q_b.", HF_SAME},
                                         {"self_attn.indexer.wk.", "indexer.attn_k.", HF_SAME},
                                         {"self_attn.indexer.k_norm.", "indexer.k_norm.", HF_SAME},
                                         {"self_attn.indexer.weights_proj.", "indexer.proj.", HF_SAME},
                                         {0}};
const struct hf_name hf_layer_delta[] = {
    HF_NAMES_DELTA,
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {0},
};
const struct hf_name hf_layer_post_norm[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {0},
};
const struct hf_name hf_layer_lfm2[] = {HF_NAMES_LFM2, {0}};
const struct hf_name hf_whole_lfm2[] = {{"embedding_norm.", "token_embd_norm.", HF_SAME}, {0}};
const struct hf_name hf_layer_mixer[] = {
    HF_NAMES_MAMBA("mixer."),
    {"norm.", "attn_norm.", HF_SAME},
    {"mixer.q_proj.", "attn_q.", HF_SAME},
    {"mixer.k_proj.", "attn_k.", HF_SAME},
    {"mixer.v_proj.", "attn_v.", HF_SAME},
    {"mixer.o_proj.", "attn_output.", HF_SAME},
    {"mixer.up_proj.", "ffn_up.", HF_SAME},
    {"mixer.down_proj.", "ffn_down.", HF_SAME},
    {"mixer.fc1_latent_proj.", "ffn_latent_down.", HF_SAME},
    {"mixer.fc2_latent_proj.", "ffn_latent_up.", HF_SAME},
    {0},
};
const struct hf_name hf_whole_backbone[] = {{"embeddings.weight", "token_embd.weight", HF_SAME},
                                            {"embedding.weight", "token_embd.weight", HF_SAME},
                                            {"norm_f.", "output_norm.", HF_SAME},
                                            {0}};
