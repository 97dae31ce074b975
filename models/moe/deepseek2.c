/* DeepSeek V2 and V3 and their relatives: attention by a latent that is key and value of all heads; the first layers are dense; softmax or
 * sigmoid scores, groups, a bias of the choice, a factor, an ungated shared part.
 * sources: DeepSeek-AI 2024 (arXiv 2405.04434, 2412.19437); HF modeling_deepseek_v2, modeling_deepseek_v3, modeling_glm4_moe_lite;
 * llama.cpp's deepseek2 for the keys of its files. */
#include "models/shared.h"

const struct arch arch_deepseek2 = {
    .name = "deepseek2",
    .families = "DeepSeek V2, V2-Lite, V2.5, V3, V3.1, R1; Kimi K2; GLM-4.7-Flash; Mistral Large 3",
    .slot = {SLOTS_LATENT_EXPERTS, SLOTS_DRAFT},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .attn.latent = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_LATENT_EXPERTS "|nextn_predict_layers",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"deepseek_v2", "DeepseekV2ForCausalLM", NULL},
                                          {"deepseek_v3", "DeepseekV3ForCausalLM", NULL},
                                          {"kimi_k2", "DeepseekV3ForCausalLM", NULL},
                                          {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", NULL},
                                          {0}},
    .hf.keys = HF_KEYS_LATENT_EXPERTS "|mlp_layer_types|num_nextn_predict_layers|topk_method|scoring_func",
    .hf.sigmoid = "deepseek_v3|kimi_k2|glm4_moe_lite",
    .hf.layer = hf_layer_latent,
};
