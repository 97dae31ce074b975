/* StarCoder2: LayerNorm and biases everywhere, a feed-forward part without a gate.
 * sources: Lozhkov et al. 2024 (arXiv 2402.19173); HF modeling_starcoder2. */
#include "models/shared.h"

const struct arch arch_starcoder2 = {
    .name = "starcoder2",
    .families = "StarCoder2 3B, 7B, 15B",
    .slot = {SLOTS_PLAIN, SLOTS_QKV, SLOTS_QKV_BIAS(SLOT_MAY), [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MAY,
             [SLOT_FFN_NORM] = SLOT_MUST, [SLOT_FFN_NORM_BIAS] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MAY,
             [SLOT_FFN_DOWN_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NEOX,
    .keys = "attention.layer_norm_epsilon|activation",
    .hf.models = (const struct arch_hf[]){{"starcoder2", "Starcoder2ForCausalLM", NULL}, {0}},
    .hf.keys = "norm_epsilon|use_bias|embedding_dropout|residual_dropout",
    .hf.layer = (const struct hf_name[]){{"mlp.c_fc.", "ffn_up.", HF_SAME},
                                         {"mlp.c_proj.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.tied = true,
};
