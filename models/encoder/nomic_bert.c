/* Nomic's BERT: norms behind what each part adds, rotation in the place of positions, gates, no biases but those of norms.
 * sources: Nussbaum et al. 2024 (arXiv 2402.01613); HF modeling_nomic_bert */
#include "models/shared.h"

const struct arch arch_nomic_bert = {
    .name = "nomic-bert",
    .families = "nomic-embed-text v1, v1.5",
    .slot = {SLOTS_ENCODER, SLOTS_SUM_NORM, [SLOT_ATTN_QKV] = SLOT_MUST, SLOTS_GATED},
    .norm = NORM_LAYER,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .encoder.on = true,
    .keys = KEYS_ENCODER "|attention.layer_norm_epsilon",
    .defaults = (const struct arch_default[]){{"rope.freq_base", 1000}, {0}},
    .hf.models = (const struct arch_hf[]){{"nomic_bert", "NomicBertModel", NULL},
                                          {"nomic_bert", "NomicBertForMaskedLM", NULL},
                                          {0}},
    .hf.keys = HF_KEYS_NOMIC,
    .hf.sparse = "nomic-bert-moe",
    .hf.layer = (const struct hf_name[]){{"attn.Wqkv.", "attn_qkv.", HF_SAME},
                                         {"attn.out_proj.", "attn_output.", HF_SAME},
                                         {"norm1.", "attn_output_norm.", HF_SAME},
                                         {"norm2.", "layer_output_norm.", HF_SAME},
                                         {"mlp.fc11.", "ffn_up.", HF_SAME},
                                         {"mlp.fc12.", "ffn_gate.", HF_SAME},
                                         {"mlp.fc2.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){HF_NAMES_EMBEDDINGS,
                                         {"emb_ln.", "token_embd_norm.", HF_SAME},
                                         {"cls.predictions.", "", HF_SKIP},
                                         {0}},
};
