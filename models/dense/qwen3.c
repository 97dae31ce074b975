/* Qwen3 dense: RMS norm over every head of q and k before rotation, no biases, head_dim apart from n_embd / n_head.
 * sources: Yang et al. 2025 (arXiv 2505.09388); HF modeling_qwen3. */
#include "models/shared.h"

const struct arch arch_qwen3 = {
    .name = "qwen3",
    .families = "Qwen3 0.6B to 32B",
    .slot = {SLOTS_DENSE, [SLOT_ATTN_Q_NORM] = SLOT_MUST, [SLOT_ATTN_K_NORM] = SLOT_MUST,
             [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .hf.models = (const struct arch_hf[]){{"qwen3", "Qwen3ForCausalLM", NULL},
                                          {"internvl", "InternVLForConditionalGeneration", "qwen3"},
                                          {"internvl_chat", "InternVLChatModel", "qwen3"},
                                          {"minicpmv", "MiniCPMV", "qwen3"},
                                          {0}},
    .hf.keys = "text_config",
    .hf.window_by_layer = true,
};
