/* Falcon: attention and feed-forward part read the same x, by one norm (7B) or by two; in files of the latter attn_norm_2 is attention's and
 * attn_norm the feed-forward part's.
 * sources: Almazrouei et al. 2023 (arXiv 2311.16867); HF modeling_falcon. */
#include "models/shared.h"

const struct arch arch_falcon = {
    .name = "falcon",
    .families = "Falcon 7B, 40B, 180B",
    .slot = {SLOTS_PLAIN, [SLOT_ATTN_NORM_2] = SLOT_MAY, [SLOT_ATTN_NORM_2_BIAS] = SLOT_MAY,
             [SLOT_ATTN_QKV] = SLOT_MUST, [SLOT_ATTN_QKV_BIAS] = SLOT_MAY, [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MAY,
             [SLOT_FFN_UP_BIAS] = SLOT_MAY, [SLOT_FFN_DOWN_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope.kind = ROPE_NEOX,
    .attn.parallel = true,
    .keys = "activation|attention.layer_norm_epsilon|use_parallel_residual",
    .hf.models = (const struct arch_hf[]){{"falcon", "FalconForCausalLM", NULL},
                                          {"RefinedWebModel", "RWForCausalLM", NULL},
                                          {"RefinedWeb", "RWForCausalLM", NULL},
                                          {0}},
    .hf.keys = "layer_norm_epsilon|new_decoder_architecture|multi_query|parallel_attn|num_kv_heads|"
               "ffn_hidden_size|activation|bias|num_ln_in_parallel_attn|n_head|n_layer|n_head_kv",
    .hf.defaults = (const struct arch_default[]){{"max_position_embeddings", 2048}, {0}},
    .hf.layer = (const struct hf_name[]){{"ln_attn.", "attn_norm_2.", HF_SAME},
                                         {"ln_mlp.", "attn_norm.", HF_SAME},
                                         {"self_attention.query_key_value.", "attn_qkv.", HF_QKV_HEADS},
                                         {"self_attention.dense.", "attn_output.", HF_SAME},
                                         {"mlp.dense_h_to_4h.", "ffn_up.", HF_SAME},
                                         {"mlp.dense_4h_to_h.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"word_embeddings.weight", "token_embd.weight", HF_SAME},
                                         {"ln_f.", "output_norm.", HF_SAME},
                                         {0}},
    .hf.tied = true,
};
