/* Apertus: a Llama block with q and k normalised, without a gate, whose activation has numbers of its own in every layer: tensors of
 * folders, keys of GGUF. source: HF modeling_apertus; llama.cpp's apertus for the keys of its files. */
#include "models/shared.h"

const struct arch arch_apertus = {
    .name = "apertus",
    .families = "Apertus 8B, 70B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS,
             SLOTS_QK_NORM, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_XIELU,
    .rope.kind = ROPE_NEOX,
    .hf.models = (const struct arch_hf[]){{"apertus", "ApertusForCausalLM", NULL}, {0}},
    .hf.keys = "qk_norm",
    .hf.layer = (const struct hf_name[]){{"attention_layernorm.", "attn_norm.", HF_SAME},
                                         {"feedforward_layernorm.", "ffn_norm.", HF_SAME},
                                         {"mlp.act_fn.alpha_p", "xielu.alpha_p", HF_KEY},
                                         {"mlp.act_fn.alpha_n", "xielu.alpha_n", HF_KEY},
                                         {"mlp.act_fn.beta", "xielu.beta", HF_KEY},
                                         {"mlp.act_fn.eps", "xielu.eps", HF_KEY},
                                         {0}},
};
