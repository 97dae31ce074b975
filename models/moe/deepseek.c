/* DeepSeekMoE of 2024: Llama's attention, the first layer dense, softmax scores that stay as they are unless norm_topk_prob says otherwise, shared experts without a gate.
 * sources: Dai et al. 2024 (arXiv 2401.06066); modeling_deepseek of its folders; llama.cpp's table and its converter, which permutes rows of q and k as it does
 * for llama */
#include "models/shared.h"

const struct arch arch_deepseek = {
    .name = "deepseek",
    .families = "DeepSeekMoE 16B",
    .slot = {SLOTS_DENSE, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_EXPERTS "|expert_shared_count",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"deepseek", "DeepseekForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|n_routed_experts|n_shared_experts|moe_intermediate_size|norm_topk_prob|"
                               "first_k_dense_replace|scoring_func",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 0}, {0}},
    .hf.halves = true,
};
