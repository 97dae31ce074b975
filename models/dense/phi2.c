/* Phi 1 to 2: attention and a feed-forward part without a gate read one LayerNorm of x, biases everywhere, a part of each head rotated.
 * sources: Gunasekar et al. 2023 (arXiv 2306.11644); HF modeling_phi; llama.cpp's phi2 for the tensors of its files. */
#include "models/shared.h"

const struct arch arch_phi2 = {
    .name = "phi2",
    .families = "Phi-1, Phi-1.5, Phi-2",
    .slot = {SLOTS_PLAIN, SLOTS_QKV,
             SLOTS_QKV_BIAS(SLOT_MUST), [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_ATTN_QKV_BIAS] = SLOT_MAY,
             [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MUST,
             [SLOT_FFN_DOWN_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MUST, [SLOT_OUTPUT_BIAS] = SLOT_MUST},
    .norm = NORM_LAYER,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .attn.parallel = true,
    .keys = "activation|attention.layer_norm_epsilon",
    .hf.models = (const struct arch_hf[]){{"phi", "PhiForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_eps",
    .hf.rotated = 0.5f,
    .hf.layer = (const struct hf_name[]){{"self_attn.dense.", "attn_output.", HF_SAME},
                                         {"mlp.fc1.", "ffn_up.", HF_SAME},
                                         {"mlp.fc2.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"final_layernorm.", "output_norm.", HF_SAME}, {0}},
};
