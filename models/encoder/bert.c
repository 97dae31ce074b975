/* BERT and its kin: learned positions, types of tokens, LayerNorm behind what each part adds, biases everywhere. RoBERTa's files count positions
 * from behind the padding's on, which is 2. GGUF has all of them under one name.
 * sources: Devlin et al. 2019 (arXiv 1810.04805); Liu et al. 2019 (arXiv 1907.11692); HF modeling_bert, modeling_xlm_roberta */
#include "models/shared.h"

const struct arch arch_bert = {
    .name = "bert",
    .families =
        "BERT, RoBERTa, XLM-RoBERTa: bge, bge-m3, e5, MiniLM, arctic-embed, gte; cross-encoders bge-reranker, jina-reranker-v2, ms-marco",
    .slot = {SLOTS_ENCODER, SLOTS_SUM_NORM, [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_ATTN_QKV_BIAS] = SLOT_MAY,
             [SLOT_ATTN_Q] = SLOT_MAY, [SLOT_ATTN_K] = SLOT_MAY, [SLOT_ATTN_V] = SLOT_MAY,
             SLOTS_QKV_BIAS(SLOT_MAY), [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MUST, [SLOT_POSITION_EMBD] = SLOT_MUST,
             [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST,
             [SLOT_FFN_DOWN_BIAS] = SLOT_MUST},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope.kind = ROPE_NONE,
    .encoder = {.on = true, .head = ACT_CAP},
    .keys = KEYS_ENCODER "|attention.layer_norm_epsilon|activation",
    .hf.models = (const struct arch_hf[]){{"bert", "BertModel", NULL},
                                          {"bert", "BertForSequenceClassification", NULL},
                                          {"bert", "BertForMaskedLM", NULL},
                                          {"bert", "BertForPreTraining", NULL},
                                          {"roberta", "RobertaModel", NULL},
                                          {"roberta", "RobertaForSequenceClassification", NULL},
                                          {"roberta", "RobertaForMaskedLM", NULL},
                                          {"xlm-roberta", "XLMRobertaModel", NULL},
                                          {"xlm-roberta", "XLMRobertaForSequenceClassification", NULL},
                                          {"xlm-roberta", "XLMRobertaForMaskedLM", NULL},
                                          {0}},
    .hf.keys = "layer_norm_eps|position_embedding_type|type_vocab_size|is_decoder|pad_token_id",
    .hf.rotary = "jina-bert-v3",
    .hf.layer = (const struct hf_name[]){HF_NAMES_MIXER, HF_NAMES_BERT, {0}},
    .hf.whole = (const struct hf_name[]){HF_NAMES_EMBEDDINGS,
                                         {"emb_ln.", "token_embd_norm.", HF_SAME},
                                         {"embeddings.position_embeddings.weight", "position_embd.weight",
                                          HF_POSITIONS},
                                         {"pooler.dense.", "cls.", HF_SAME},
                                         HF_NAMES_CLASSIFIER,
                                         {"cls.predictions.", "", HF_SKIP},
                                         {"cls.seq_relationship.", "", HF_SKIP},
                                         {"lm_head.", "", HF_SKIP},
                                         {0}},
};
