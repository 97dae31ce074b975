/* Nomic's BERT of 2025: in each other layer experts without gates in the place of the feed-forward part, whose weights are not divided by their
 * sum; one bias behind that sum. Files of llama.cpp's converter have no such bias.
 * sources: Nussbaum & Duderstadt 2025 (arXiv 2502.07972); nomic-bert-2048's modeling_hf_nomic_bert; llama.cpp's table */
#include "models/shared.h"

const struct arch arch_nomic_bert_moe = {
    .name = "nomic-bert-moe",
    .families = "nomic-embed-text v2-moe",
    .slot = {SLOTS_ENCODER, SLOTS_SUM_NORM, [SLOT_ATTN_QKV] = SLOT_MUST, [SLOT_ATTN_QKV_BIAS] = SLOT_MAY,
             [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MAY, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MAY,
             [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_FFN_DOWN_BIAS] = SLOT_MAY, [SLOT_FFN_ROUTER] = SLOT_MUST,
             [SLOT_FFN_UP_EXPS] = SLOT_MUST, [SLOT_FFN_DOWN_EXPS] = SLOT_MUST,
             [SLOT_FFN_EXPERTS_BIAS] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope.kind = ROPE_NEOX,
    .moe.act = ROUTE_SOFTMAX,
    .encoder.on = true,
    .keys = KEYS_ENCODER "|attention.layer_norm_epsilon|moe_every_n_layers",
    .defaults = (const struct arch_default[]){{"expert_weights_norm", 0}, {0}},
    .hf.models = (const struct arch_hf[]){{"nomic_bert", "NomicBertModel", NULL},
                                          {"nomic_bert", "NomicBertForMaskedLM", NULL},
                                          {0}},
    .hf.keys =
        HF_KEYS_NOMIC "|qkv_proj_bias|mlp_fc1_bias|mlp_fc2_bias|num_experts|moe_top_k|moe_every_n_layers",
    .hf.layer = (const struct hf_name[]){{"attn.Wqkv.", "attn_qkv.", HF_SAME},
                                         {"attn.out_proj.", "attn_output.", HF_SAME},
                                         {"mlp.experts.mlp.w1", "ffn_up_exps.weight", HF_EXPERT_ROWS},
                                         {"mlp.experts.mlp.w2", "ffn_down_exps.weight", HF_EXPERT_TURNED},
                                         {"mlp.experts.bias", "ffn_exps.bias", HF_SAME},
                                         HF_NAMES_MIXER,
                                         {0}},
    .hf.whole = (const struct hf_name[]){HF_NAMES_EMBEDDINGS,
                                         {"emb_ln.", "token_embd_norm.", HF_SAME},
                                         {"cls.predictions.", "", HF_SKIP},
                                         {0}},
};
