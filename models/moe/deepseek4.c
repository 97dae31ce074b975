/* DeepSeek V4: one key that is the value, too, a window and, in layers that say it, entries of runs of positions, of which index heads choose
 * some (runs of 4) or none (longer ones); four residual streams that are mixed; experts by roots of softplus, those of the first layers by the
 * token. Its layer that drafts is passed over.
 * sources: DeepSeek-AI 2026 (DeepSeek-V4); HF modeling_deepseek_v4; llama.cpp's deepseek4 for the keys and tensors of its files. */
#include "models/shared.h"

static const struct hf_name hf_layer_deepseek4[] = {
    {"attn_norm.", "attn_norm.", HF_SAME},
    {"ffn_norm.", "ffn_norm.", HF_SAME},
    {"hc_attn_fn", "hc_attn_fn.weight", HF_SAME},
    {"hc_attn_base", "hc_attn_base.weight", HF_SAME},
    {"hc_attn_scale", "hc_attn_scale.weight", HF_SAME},
    {"hc_ffn_fn", "hc_ffn_fn.weight", HF_SAME},
    {"hc_ffn_base", "hc_ffn_base.weight", HF_SAME},
    {"hc_ffn_scale", "hc_ffn_scale.weight", HF_SAME},
    {"attn.wq_a.", "attn_q_a.", HF_SAME},
    {"attn.q_norm.", "attn_q_a_norm.", HF_SAME},
    {"attn.wq_b.", "attn_q_b.", HF_SAME},
    {"attn.wkv.", "attn_kv.", HF_SAME},
    {"attn.kv_norm.", "attn_kv_a_norm.", HF_SAME},
    {"attn.norm.", "attn_kv_a_norm.", HF_SAME}, /* what transformers 5.24 writes it as */
    {"attn.wo_a.", "attn_output_a.", HF_SAME},
    {"attn.wo_b.", "attn_output_b.", HF_SAME},
    {"attn.attn_sink", "attn_sinks.weight", HF_SAME},
    {"attn.compressor.wkv.", "attn_compressor_kv.", HF_SAME},
    {"attn.compressor.wgate.", "attn_compressor_gate.", HF_SAME},
    {"attn.compressor.ape", "attn_compressor_ape.weight", HF_SAME},
    {"attn.compressor.norm.", "attn_compressor_norm.", HF_SAME},
    {"attn.indexer.wq_b.", "indexer.attn_q_b.", HF_SAME},
    {"attn.indexer.weights_proj.", "indexer.proj.", HF_SAME},
    {"attn.indexer.scorer.weights_proj.", "indexer.proj.", HF_SAME},
    {"attn.indexer.compressor.wkv.", "indexer_compressor_kv.", HF_SAME},
    {"attn.indexer.compressor.wgate.", "indexer_compressor_gate.", HF_SAME},
    {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight", HF_SAME},
    {"attn.indexer.compressor.norm.", "indexer_compressor_norm.", HF_SAME},
    {"ffn.gate.bias", "exp_probs_b.bias", HF_SAME},
    {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight", HF_IDS},
    {"ffn.gate.", "ffn_gate_inp.", HF_SAME},
    {"ffn.shared_experts.w1.", "ffn_gate_shexp.", HF_SAME},
    {"ffn.shared_experts.w3.", "ffn_up_shexp.", HF_SAME},
    {"ffn.shared_experts.w2.", "ffn_down_shexp.", HF_SAME},
    {0}};
static const struct hf_name hf_whole_deepseek4[] = {{"embed.weight", "token_embd.weight", HF_SAME},
                                                    {"head.weight", "output.weight", HF_SAME},
                                                    {"hc_head_fn", "output_hc_fn.weight", HF_SAME},
                                                    {"hc_head_base", "output_hc_base.weight", HF_SAME},
                                                    {"hc_head_scale", "output_hc_scale.weight", HF_SAME},
                                                    {"hc_head.hc_fn", "output_hc_fn.weight", HF_SAME},
                                                    {"hc_head.hc_base", "output_hc_base.weight", HF_SAME},
                                                    {"hc_head.hc_scale", "output_hc_scale.weight", HF_SAME},
                                                    {0}};

const struct arch arch_deepseek4 = {
    .name = "deepseek4",
    .families = "DeepSeek V4 Flash, Pro",
    .slot = {SLOTS_ENTRIES, SLOTS_NORMS, SLOTS_EXPERTS, SLOTS_SHARED, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU_LIMIT,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.scaled_full = true,
    .attn.entries = true,
    .moe = {.act = ROUTE_ROOT, .norm = ROUTE_NORM_ADD, .eps = 1e-20f},
    .keys = KEYS_EXPERTS "|" KEYS_ENTRIES "|expert_shared_count|nextn_predict_layers",
    .hf.models = (const struct arch_hf[]){{"deepseek_v4", "DeepseekV4ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|n_routed_experts|n_shared_experts|moe_intermediate_size|norm_topk_prob|"
                               "routed_scaling_factor|q_lora_rank|index_n_heads|index_head_dim|index_topk|"
                               "hc_mult|hc_sinkhorn_iters|hc_eps|o_groups|o_lora_rank|num_hash_layers|"
                               "compress_ratios|swiglu_limit|num_nextn_predict_layers|scoring_func|"
                               "compress_rope_theta|qk_rope_head_dim",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1},
                                                 {"routed_scaling_factor", 1.5},
                                                 {"hc_mult", 4},
                                                 {"hc_sinkhorn_iters", 20},
                                                 {"hc_eps", 1e-6},
                                                 {"o_groups", 8},
                                                 {"o_lora_rank", 1024},
                                                 {"swiglu_limit", 10},
                                                 {0}},
    .hf.layer = hf_layer_deepseek4,
    .hf.whole = hf_whole_deepseek4,
};
