/* EXAONE 3: a Llama block under names of GPT-2's kind.
 * source: HF configuration_exaone and what it calls the tensors of published folders. */
#include "models/shared.h"

const struct arch arch_exaone = {
    .name = "exaone",
    .families = "EXAONE 3.0 7.8B, 3.5 2.4B to 32B, Deep",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .hf.models = (const struct arch_hf[]){{"exaone", "ExaoneForCausalLM", NULL}, {0}},
    .hf.keys = "num_layers|layer_norm_epsilon|mlp_bias",
    .hf.layer = (const struct hf_name[]){{"ln_1.", "attn_norm.", HF_SAME},
                                         {"ln_2.", "ffn_norm.", HF_SAME},
                                         {"attn.attention.q_proj.", "attn_q.", HF_SAME},
                                         {"attn.attention.k_proj.", "attn_k.", HF_SAME},
                                         {"attn.attention.v_proj.", "attn_v.", HF_SAME},
                                         {"attn.attention.out_proj.", "attn_output.", HF_SAME},
                                         {"mlp.c_fc_0.", "ffn_gate.", HF_SAME},
                                         {"mlp.c_fc_1.", "ffn_up.", HF_SAME},
                                         {"mlp.c_proj.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"wte.weight", "token_embd.weight", HF_SAME},
                                         {"ln_f.", "output_norm.", HF_SAME},
                                         {0}},
};
