/* Jina's embeddings of 2024: RoBERTa's blocks with rotation in the place of positions. Their own folders (model_type xlm-roberta) have an
 * adapter for each task (engine/files/hf/hf_task.c).
 * sources: Sturua et al. 2024 (arXiv 2409.10173); HF modeling_jina_embeddings_v3; xlm-roberta-flash-implementation; llama.cpp's table */
#include "models/shared.h"

const struct arch arch_jina_bert_v3 = {
    .name = "jina-bert-v3",
    .families = "jina-embeddings-v3, with its tasks",
    .slot = {SLOTS_ENCODER, SLOTS_SUM_NORM, [SLOT_ATTN_QKV] = SLOT_MUST, [SLOT_ATTN_QKV_BIAS] = SLOT_MUST,
             [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MUST, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_UP_BIAS] = SLOT_MUST,
             [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_FFN_DOWN_BIAS] = SLOT_MUST},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope.kind = ROPE_NEOX,
    .encoder = {.on = true, .head = ACT_CAP},
    .keys = KEYS_ENCODER "|attention.layer_norm_epsilon",
    .defaults = (const struct arch_default[]){{"rope.freq_base", 2e4}, {0}},
    .hf.models = (const struct arch_hf[]){{"jina_embeddings_v3", "JinaEmbeddingsV3Model", NULL},
                                          {"xlm-roberta", "XLMRobertaModel", NULL},
                                          {"xlm-roberta", "XLMRobertaLoRA", NULL},
                                          {0}},
    .hf.keys =
        "layer_norm_eps|type_vocab_size|position_embedding_type|rotary_emb_base|pad_token_id|is_decoder|"
        "lora_adaptations|lora_alpha",
    .hf.layer = (const struct hf_name[]){HF_NAMES_MIXER, {0}},
    .hf.whole = (const struct hf_name[]){HF_NAMES_EMBEDDINGS,
                                         {"emb_ln.", "token_embd_norm.", HF_SAME},
                                         {"pooler.dense.", "cls.", HF_SAME},
                                         {0}},
};
