/* Jina's BERT of 2023: BERT's blocks without positions, for which scores fall with the distance of two tokens (ALiBi); gates with GELU, or none.
 * That for code has norms of queries and keys, over all heads, and behind attention x = norm_2(x + norm(x + a)); its one matrix of up and gate
 * begins with up, in folders and in GGUF files (llama.cpp's earlier ones have two).
 * sources: Guenther et al. 2023 (arXiv 2310.19923); Press et al. 2021 (arXiv 2108.12409); jina-bert-implementation; jina-bert-v2-qk-post-norm,
 * as text-embeddings-inference has it; llama.cpp's table */
#include "models/shared.h"

const struct arch arch_jina_bert_v2 = {
    .name = "jina-bert-v2",
    .families = "jina-embeddings-v2, jina-reranker-v1",
    .slot = {SLOTS_ENCODER, SLOTS_SUM_NORM, SLOTS_QKV,
             SLOTS_QKV_BIAS(SLOT_MUST), [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MUST, [SLOT_FFN_GATE_UP] = SLOT_MAY,
             [SLOT_FFN_GATE] = SLOT_MAY, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MAY,
             [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_FFN_DOWN_BIAS] = SLOT_MUST, [SLOT_ATTN_Q_NORM_ROW] = SLOT_MAY,
             [SLOT_ATTN_Q_NORM_BIAS] = SLOT_MAY, [SLOT_ATTN_K_NORM_ROW] = SLOT_MAY,
             [SLOT_ATTN_K_NORM_BIAS] = SLOT_MAY, [SLOT_ATTN_AGAIN_NORM] = SLOT_MAY,
             [SLOT_ATTN_AGAIN_NORM_BIAS] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope.kind = ROPE_NONE,
    .encoder = {.on = true, .alibi = true, .head = ACT_CAP},
    .keys = KEYS_ENCODER "|attention.layer_norm_epsilon",
    .hf.models = (const struct arch_hf[]){{"bert", "JinaBertModel", NULL},
                                          {"bert", "JinaBertForMaskedLM", NULL},
                                          {"bert", "JinaBertForSequenceClassification", NULL},
                                          {0}},
    .hf.keys = "layer_norm_eps|position_embedding_type|feed_forward_type|type_vocab_size|is_decoder",
    .hf.layer = (const struct hf_name[]){HF_NAMES_BERT,
                                         {"mlp.gated_layers.", "ffn_gate.", HF_HALVES},
                                         {"mlp.up_gated_layer.", "ffn_up.", HF_UP_GATE},
                                         {"mlp.down_layer.", "ffn_down.", HF_SAME},
                                         {"attention.self.layer_norm_q.", "attn_q_norm.", HF_SAME},
                                         {"attention.self.layer_norm_k.", "attn_k_norm.", HF_SAME},
                                         {"layer_norm_1.", "attn_norm_2.", HF_SAME},
                                         {"layer_norm_2.", "layer_output_norm.", HF_SAME},
                                         {"mlp.wo.", "ffn_down.", HF_SAME},
                                         {"mlp.layernorm.", "layer_output_norm.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){HF_NAMES_EMBEDDINGS,
                                         {"pooler.dense.", "cls.", HF_SAME},
                                         HF_NAMES_CLASSIFIER,
                                         {"cls.predictions.", "", HF_SKIP},
                                         {0}},
};
