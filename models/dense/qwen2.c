/* Qwen2 and Qwen2.5: a Llama block with biases on q, k and v; rotation pairs dim i with i + n_rot/2.
 * sources: Yang et al. 2024 (arXiv 2407.10671); HF modeling_qwen2. */
#include "arch/arch.h"

const struct arch arch_qwen2 = {
    .name = "qwen2",
    .families = "Qwen2, Qwen2.5, QwQ, DeepSeek-R1-Distill-Qwen",
    .slot = {SLOTS_DENSE, [SLOT_ATTN_Q_BIAS] = SLOT_MUST, [SLOT_ATTN_K_BIAS] = SLOT_MUST,
             [SLOT_ATTN_V_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .hf.models = (const struct arch_hf[]){{"qwen2", "Qwen2ForCausalLM", NULL},
                                          {"internvl", "InternVLForConditionalGeneration", "qwen2"},
                                          {"internvl_chat", "InternVLChatModel", "qwen2"},
                                          {"minicpmv", "MiniCPMV", "qwen2"},
                                          {0}},
    .hf.keys = "text_config",
    .hf.window_by_layer = true,
};
