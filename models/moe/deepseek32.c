/* DeepSeek V3.2: DeepSeek V3 whose attention looks at the positions that heads of its own choose, by keys that rotate in halves. Its layer that
 * drafts is passed over.
 * sources: DeepSeek-AI 2025 (arXiv 2512.02556); HF modeling_deepseek_v32; llama.cpp's deepseek32 for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_deepseek32 = {
    .name = "deepseek32",
    .families = "DeepSeek V3.2-Exp, V3.2, V3.2-Speciale",
    .slot = {SLOTS_LATENT_EXPERTS, SLOTS_INDEX},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .attn.latent = true,
    .attn.index_rope = ROPE_NEOX,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_LATENT_EXPERTS "|" KEYS_INDEX "|nextn_predict_layers",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"deepseek_v32", "DeepseekV32ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_LATENT_EXPERTS "|" HF_KEYS_INDEX "|mlp_layer_types|num_nextn_predict_layers",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.layer = hf_layer_index,
};
