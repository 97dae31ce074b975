/* ModernBERT: norms in front without biases (none in front of the first attention), gates, rotation, and in two of three layers a window on both
 * sides, with a base of its own.
 * sources: Warner et al. 2024 (arXiv 2412.13663); HF modeling_modernbert */
#include "models/shared.h"

const struct arch arch_modern_bert = {
    .name = "modern-bert",
    .families = "ModernBERT: gte-modernbert, granite-embedding R2, modernbert-embed, and rerankers of it",
    .slot =
        {SLOTS_ENCODER, [SLOT_ATTN_NORM] = SLOT_MAY, [SLOT_FFN_NORM] = SLOT_MUST, [SLOT_ATTN_QKV] = SLOT_MUST,
         [SLOT_FFN_GATE_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_OUTPUT_NORM] = SLOT_MUST},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope = {.kind = ROPE_NEOX, .scaled_full = true},
    .attn.full_first = true,
    .encoder = {.on = true, .head = ACT_GELU_ERF},
    .keys = KEYS_ENCODER "|attention.layer_norm_epsilon|rope.freq_base_swa",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 3},
                                              {"rope.freq_base", 16e4},
                                              {"rope.freq_base_swa", 1e4},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"modernbert", "ModernBertModel", NULL},
                                          {"modernbert", "ModernBertForMaskedLM", NULL},
                                          {"modernbert", "ModernBertForSequenceClassification", NULL},
                                          {0}},
    .hf.keys = "norm_eps|layer_norm_eps|hidden_activation|local_attention|global_attn_every_n_layers|"
               "global_rope_theta|local_rope_theta|classifier_pooling|position_embedding_type",
    .hf.defaults =
        (const struct arch_default[]){{"local_attention", 128}, {"global_attn_every_n_layers", 3}, {0}},
    .hf.layer = (const struct hf_name[]){{"attn.Wqkv.", "attn_qkv.", HF_SAME},
                                         {"attn.Wo.", "attn_output.", HF_SAME},
                                         {"attn_norm.", "attn_norm.", HF_SAME},
                                         {"mlp_norm.", "ffn_norm.", HF_SAME},
                                         {"mlp.Wi.", "ffn_up.", HF_SAME},
                                         {"mlp.Wo.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"embeddings.tok_embeddings.weight", "token_embd.weight", HF_SAME},
                                         {"embeddings.norm.", "token_embd_norm.", HF_SAME},
                                         {"final_norm.", "output_norm.", HF_SAME},
                                         {"head.dense.", "cls.", HF_SAME},
                                         {"head.norm.", "cls.norm.", HF_SAME},
                                         HF_NAMES_CLASSIFIER,
                                         {"decoder.", "", HF_SKIP},
                                         {0}},
};
