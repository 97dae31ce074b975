/* Command with experts: Command R7B's block (one norm for both branches; windows and rotation in three of four layers), the first layers
 * dense and rotated without a window; sigmoid scores, or a softmax over the chosen; the mean of the experts' sum and a shared part.
 * sources: HF modeling_cohere2_moe; llama.cpp's cohere2moe for the keys of its files. */
#include "models/shared.h"

const struct arch arch_cohere2moe = {
    .name = "cohere2moe",
    .families = "North Mini Code",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST, SLOTS_GATED, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_LAYER,
    .norm_either = true,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.where = ROPE_WINDOWED_DENSE,
    .attn.parallel = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .mean = true},
    .keys = KEYS_EXPERTS
    "|attention.layer_norm_epsilon|logit_scale|expert_shared_count|expert_shared_feed_forward_length",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models = (const struct arch_hf[]){{"cohere2_moe", "Cohere2MoeForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|layer_norm_eps|logit_scale|sliding_window_pattern|num_experts|num_shared_experts|norm_topk_prob|"
    "mlp_layer_types|first_k_dense_replace|prefix_dense_intermediate_size|expert_selection_fn",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.tied = true,
    .hf.windows_behind_dense = true,
};
