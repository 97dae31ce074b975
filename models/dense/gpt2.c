/* GPT-2: learned positions, LayerNorm and biases everywhere, no gate; its folders have matrices transposed.
 * sources: Radford et al. 2019; HF modeling_gpt2. */
#include "models/shared.h"

const struct arch arch_gpt2 = {
    .name = "gpt2",
    .families = "GPT-2, DistilGPT2, Cerebras-GPT",
    .slot = {SLOTS_PLAIN, [SLOT_POSITION_EMBD] = SLOT_MUST, [SLOT_ATTN_QKV] = SLOT_MUST,
             [SLOT_ATTN_QKV_BIAS] = SLOT_MUST, [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MUST,
             [SLOT_FFN_NORM] = SLOT_MUST, [SLOT_FFN_NORM_BIAS] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MUST,
             [SLOT_FFN_DOWN_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NONE,
    .keys = "attention.layer_norm_epsilon|activation",
    .hf.models = (const struct arch_hf[]){{"gpt2", "GPT2LMHeadModel", NULL}, {0}},
    .hf.keys = "n_embd|n_layer|n_head|n_positions|n_inner|n_ctx|layer_norm_epsilon|activation_function|"
               "summary_activation|"
               "summary_first_dropout|summary_proj_to_labels|summary_type|summary_use_proj",
    .hf.layer = (const struct hf_name[]){{"ln_1.", "attn_norm.", HF_SAME},
                                         {"ln_2.", "ffn_norm.", HF_SAME},
                                         {"attn.c_attn.", "attn_qkv.", HF_TRANSPOSE},
                                         {"attn.c_proj.", "attn_output.", HF_TRANSPOSE},
                                         {"mlp.c_fc.", "ffn_up.", HF_TRANSPOSE},
                                         {"mlp.c_proj.", "ffn_down.", HF_TRANSPOSE},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"wte.weight", "token_embd.weight", HF_SAME},
                                         {"wpe.weight", "position_embd.weight", HF_SAME},
                                         {"ln_f.", "output_norm.", HF_SAME},
                                         {0}},
    .hf.tied = true,
};
