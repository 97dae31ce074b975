/* Ling 2 and Ring 2: q, k and v in one matrix, half of each head rotated; the first layers are dense; sigmoid scores, a bias of the choice,
 * groups, a factor, an ungated shared part. source: modeling_bailing_moe_v2 of inclusionAI. */
#include "models/shared.h"

const struct arch arch_bailingmoe2 = {
    .name = "bailingmoe2",
    .families = "Ling 2.0, Ring 2.0 (mini, flash, 1T)",
    .slot = {SLOTS_CORE, SLOTS_NORMS, SLOTS_GATED, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED,
             [SLOT_ATTN_QKV] = SLOT_MUST, [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_EXPERTS
    "|expert_shared_count|expert_shared_feed_forward_length|expert_group_count|expert_group_used_count",
    .hf.models = (const struct arch_hf[]){{"bailing_moe", "BailingMoeV2ForCausalLM", NULL},
                                          {"bailing_moe_v2", "BailingMoeV2ForCausalLM", NULL},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_experts|num_shared_experts|moe_shared_expert_intermediate_size|"
                               "moe_intermediate_size|norm_topk_prob|n_group|topk_group|"
                               "routed_scaling_factor|first_k_dense_replace|use_qk_norm",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1}, {0}},
    .hf.whole = (const struct hf_name[]){{"word_embeddings.weight", "token_embd.weight", HF_SAME}, {0}},
    .hf.layer = (const struct hf_name[]){{"attention.query_key_value.", "attn_qkv.", HF_SAME},
                                         {"attention.dense.", "attn_output.", HF_SAME},
                                         {"attention.query_layernorm.", "attn_q_norm.", HF_SAME},
                                         {"attention.key_layernorm.", "attn_k_norm.", HF_SAME},
                                         {"mlp.gate.expert_bias", "exp_probs_b.bias", HF_SAME},
                                         {0}},
};
