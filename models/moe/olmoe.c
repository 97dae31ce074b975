/* OLMoE: a Llama block with q and k normalised over whole rows and experts whose weights stay as the softmax has them.
 * sources: Muennighoff et al. 2024 (arXiv 2409.02060); HF modeling_olmoe. */
#include "models/shared.h"

const struct arch arch_olmoe = {
    .name = "olmoe",
    .families = "OLMoE 1B-7B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS, SLOTS_EXPERTS, [SLOT_ATTN_Q_NORM_ROW] = SLOT_MUST,
             [SLOT_ATTN_K_NORM_ROW] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|attention.clamp_kqv",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"olmoe", "OlmoeForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_experts|norm_topk_prob|clip_qkv",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 0}, {0}},
};
