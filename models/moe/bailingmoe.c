/* Ling and Ring 1: q, k and v in one matrix of folders; softmax scores, an ungated shared part.
 * source: llama.cpp's bailingmoe and its converter, which permutes rows of q and k as it does for llama. */
#include "models/shared.h"

const struct arch arch_bailingmoe = {
    .name = "bailingmoe",
    .families = "Ling and Ring lite, plus (1.0, 1.5)",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS, SLOTS_GATED, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|expert_shared_count",
    .hf.models = (const struct arch_hf[]){{"bailing_moe", "BailingMoeForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_experts|num_shared_experts|moe_intermediate_size|norm_topk_prob|"
                               "first_k_dense_replace",
    .hf.halves = true,
    .hf.whole = (const struct hf_name[]){{"word_embeddings.weight", "token_embd.weight", HF_SAME}, {0}},
    .hf.layer = (const struct hf_name[]){{"attention.query_key_value.", "attn_qkv.", HF_SAME},
                                         {"attention.dense.", "attn_output.", HF_SAME},
                                         {0}},
};
