/* GLM-5: DeepSeek's attention by a latent, which looks at the positions that heads of its own choose; layers may take the choice of the layer
 * before (GLM-5.2); experts as DeepSeek V3 has them, the first layers are dense. Its layer that drafts is passed over.
 * sources: HF modeling_glm_moe_dsa; llama.cpp's glm-dsa for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_glm_dsa = {
    .name = "glm-dsa",
    .families = "GLM-5, GLM-5.1, GLM-5.2",
    .slot = {SLOTS_LATENT_EXPERTS, SLOTS_INDEX},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .attn.latent = true,
    .attn.index_rope = ROPE_INTERLEAVED,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_LATENT_EXPERTS "|" KEYS_INDEX "|attention.indexer.types|nextn_predict_layers",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"glm_moe_dsa", "GlmMoeDsaForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_LATENT_EXPERTS "|" HF_KEYS_INDEX "|indexer_types|index_topk_pattern|index_topk_freq|"
                                      "index_skip_topk_offset|mlp_layer_types|num_nextn_predict_layers",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.layer = hf_layer_index,
};
