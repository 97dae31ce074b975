/* MiniMax-M3: queries and keys normalised by heads, half of a head rotated; behind the first layers each key head looks at the runs of 128 positions
 * that a head of its own chooses, and at the row's own; clamped gates; the first layers are dense; sigmoid scores, a bias of the choice, a factor,
 * an ungated shared part. The layers that draft are passed over.
 * sources: HF modeling_minimax_m3_vl; llama.cpp's minimax-m3 for the keys and tensors of its files. */
#include "models/shared.h"

const struct arch arch_minimax_m3 = {
    .name = "minimax-m3",
    .families = "MiniMax-M3 (text)",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, SLOTS_EXPERTS, SLOTS_SHARED,
             SLOTS_INDEX_PROJ, [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SWIGLU_OAI,
    .rope.kind = ROPE_NEOX,
    .attn.index_runs = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|" KEYS_INDEX_RUNS "|expert_shared_count|expert_shared_feed_forward_length|"
                         "swiglu_limit|swiglu_alpha",
    .defaults = (const struct arch_default[]){{"swiglu_limit", 7}, {"swiglu_alpha", 1.702}, {0}},
    .hf.models =
        (const struct arch_hf[]){
            {"minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", NULL},
            {"minimax_m3", "MiniMaxM3SparseForCausalLM", NULL},
            {"minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl_text"},
            {"minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", "minimax_m3"},
            {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|num_local_experts|n_shared_experts|shared_intermediate_size|dense_intermediate_size|"
    "routed_scaling_factor|rotary_dim|swiglu_limit|swiglu_alpha|mlp_layer_types|moe_layer_freq|"
    "index_n_heads|index_head_dim|index_topk_blocks|index_block_size|index_local_blocks|index_layers|text_config",
    .hf.layer = (const struct hf_name[]){{"mlp.gate_up_proj.", "ffn_gate.", HF_HALVES},
                                         {"mlp.shared_experts.gate_up_proj.", "ffn_gate_shexp.", HF_HALVES},
                                         {"self_attn.index_q_proj.", "indexer.q_proj.", HF_SAME},
                                         {"self_attn.index_k_proj.", "indexer.k_proj.", HF_SAME},
                                         {"self_attn.index_q_norm.", "indexer.q_norm.", HF_SAME},
                                         {"self_attn.index_k_norm.", "indexer.k_norm.", HF_SAME},
                                         {"self_attn.indexer.q_proj.", "indexer.q_proj.", HF_SAME},
                                         {"self_attn.indexer.k_proj.", "indexer.k_proj.", HF_SAME},
                                         {"self_attn.indexer.q_norm.", "indexer.q_norm.", HF_SAME},
                                         {"self_attn.indexer.k_norm.", "indexer.k_norm.", HF_SAME},
                                         {0}},
    .hf.plus_one = true,
};
