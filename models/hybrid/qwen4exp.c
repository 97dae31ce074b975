/* Qwen3.8-Flash-Next: Qwen3.5's delta rule with sigmoid gates, attention to runs of positions that heads of their own choose by the mean of their
 * keys, residual streams that are read by gates in the place of all norms, and one layer that reads a table by runs of tokens. Its layer that
 * drafts is passed over.
 * sources: HF modeling_qwen4_exp; llama.cpp's qwen4exp for the keys and tensors of its files. */
#include "models/shared.h"

static const struct hf_name hf_layer_qwen4exp[] = {
    HF_NAMES_DELTA,
    {"self_attn.indexer.index_qk_proj.", "indexer.q_proj.", HF_INDEX_QK},
    {"self_attn.indexer.q_layernorm.", "indexer.q_norm.", HF_SAME},
    {"self_attn.indexer.k_layernorm.", "indexer.k_norm.", HF_SAME},
    {"attn_hyper_connection.hc_norm.", "hc_attn_norm.", HF_SAME},
    {"attn_hyper_connection.input_mix_weight_down.", "hc_attn_down.", HF_SAME},
    {"attn_hyper_connection.input_mix_weight_up.", "hc_attn_up.", HF_SAME},
    {"attn_hyper_connection.block_inject_weight.", "hc_attn_inject.", HF_SAME},
    {"mlp_hyper_connection.hc_norm.", "hc_ffn_norm.", HF_SAME},
    {"mlp_hyper_connection.input_mix_weight_down.", "hc_ffn_down.", HF_SAME},
    {"mlp_hyper_connection.input_mix_weight_up.", "hc_ffn_up.", HF_SAME},
    {"mlp_hyper_connection.block_inject_weight.", "hc_ffn_inject.", HF_SAME},
    {"ple.key_proj.", "ple_key.", HF_SAME},
    {"ple.value_proj.", "ple_value.", HF_SAME},
    {"ple.norm_key.", "ple_norm_key.", HF_PLUS_ONE},
    {"ple.norm_query.", "ple_norm_query.", HF_PLUS_ONE},
    {"ple.norm_conv.", "ple_norm_conv.", HF_PLUS_ONE},
    {"ple.conv1d.weight", "ple_conv1d.weight", HF_SQUEEZE},
    {"ple.ple_embedding.ngram_embedding.", "per_layer_token_embd.", HF_TABLE},
    {"ple.ple_embedding.layer_multipliers", "ple.layer_multipliers", HF_HASH},
    {"ple.ple_embedding.ngram_heads_vocab_sizes", "ple.head_vocab_sizes", HF_HASH},
    {"ple.ple_embedding.ngram_heads_offsets", "ple.head_offsets", HF_HASH},
    {0}};
static const struct hf_name hf_whole_qwen4exp[] = {
    {"hyper_connection_mixer.hc_norm.", "output_hc_norm.", HF_SAME},
    {"hyper_connection_mixer.input_mix_weight_down.", "output_hc_down.", HF_SAME},
    {"hyper_connection_mixer.input_mix_weight_up.", "output_hc_up.", HF_SAME},
    {0}};

const struct arch arch_qwen4exp = {
    .name = "qwen4exp",
    .families = "Qwen3.8-Flash-Next (text)",
    .slot = {[SLOT_TOKEN_EMBD] = SLOT_MUST,
             [SLOT_OUTPUT] = SLOT_MAY,
             [SLOT_ATTN_OUTPUT] = SLOT_MUST,
             [SLOT_ATTN_Q_GATED] = SLOT_MUST,
             [SLOT_ATTN_K] = SLOT_MUST,
             [SLOT_ATTN_V] = SLOT_MUST,
             [SLOT_FFN_SHEXP_GATE] = SLOT_MUST,
             [SLOT_STATE_BETA] = SLOT_MUST,
             [SLOT_STATE_ALPHA] = SLOT_MUST,
             SLOTS_QK_NORM,
             SLOTS_DELTA,
             SLOTS_GATES,
             SLOTS_EXPERTS,
             SLOTS_SHARED},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.axes_in_turns = true,
    .mixer.kind = MIX_DELTA,
    .mixer.where = MIXER_INTERVAL,
    .mixer.tiled = true,
    .mixer.gate_sigmoid = true,
    .attn.q_gated = true,
    .attn.index_means = true,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS "|" KEYS_DELTA "|" KEYS_GATES
                         "|expert_shared_count|expert_shared_feed_forward_length|rope.dimension_sections",
    .hf.models = (const struct arch_hf[]){{"qwen4_exp", "Qwen4ExpForConditionalGeneration", "qwen4_exp_text"},
                                          {"qwen4_exp_text", "Qwen4ExpForCausalLM", NULL},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS
    "|" HF_KEYS_DELTA "|num_experts|moe_intermediate_size|shared_expert_intermediate_size|text_config|"
    "norm_topk_prob|hc_count|hc_lowrank|indexer_n_heads|indexer_head_dim|indexer_budget|"
    "indexer_compress_ratio|ngram_size|heads_per_ngram|ple_conv_kernel_size|"
    "ple_layer_ids|ple_embed_dim|ngram_vocab_size_base|seed|eos_token_id|"
    "output_gate_type",
    .hf.defaults = (const struct arch_default[]){{"norm_topk_prob", 1},
                                                 {"hc_count", 4},
                                                 {"hc_lowrank", 320},
                                                 {"ngram_size", 3},
                                                 {"heads_per_ngram", 8},
                                                 {"ple_conv_kernel_size", 4},
                                                 {"ngram_vocab_size_base", 20000000},
                                                 {"seed", 1234},
                                                 {0}},
    .hf.layer = hf_layer_qwen4exp,
    .hf.whole = hf_whole_qwen4exp,
    .hf.rotated = 0.25f,
    .hf.plus_one = true,
};
