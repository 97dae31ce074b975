/* GLM-4 of 2024: a Llama block with biases on q, k and v, half of a head rotated by neighbours, gate and up in one tensor. Files of
 * ChatGLM 2 and 3 have q, k and v in one, too.
 * sources: HF modeling_glm; llama.cpp's chatglm for the tensors of its files. */
#include "models/shared.h"

const struct arch arch_chatglm = {
    .name = "chatglm",
    .families = "GLM-4 9B (2024), GLM-Edge; ChatGLM 2 and 3 (GGUF)",
    .slot = {SLOTS_CORE, SLOTS_NORMS, [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_ATTN_QKV_BIAS] = SLOT_MAY, SLOTS_QKV,
             SLOTS_QKV_BIAS(SLOT_MAY), [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_FFN_GATE_UP] = SLOT_MUST,
             [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .hf.models = (const struct arch_hf[]){{"glm", "GlmForCausalLM", NULL}, {0}},
    .hf.defaults = (const struct arch_default[]){{"attention_bias", 1}, {0}},
    .hf.rotated = 0.5f,
};
