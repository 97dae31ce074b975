/* T5's encoder: what scores of attention get for the distance of two tokens, the same in all layers; no root in the scale; ReLU, or gates with GELU.
 * sources: Raffel et al. 2020 (arXiv 1910.10683); HF modeling_t5 */
#include "models/shared.h"

const struct arch arch_t5_encoder = {
    .name = "t5encoder",
    .families = "T5's encoder: sentence-t5, gtr-t5",
    .slot = {[SLOT_TOKEN_EMBD] = SLOT_MUST,
             [SLOT_OUTPUT_NORM] = SLOT_MUST,
             [SLOT_ATTN_OUTPUT] = SLOT_MUST,
             SLOTS_QKV,
             SLOTS_NORMS,
             [SLOT_ATTN_DISTANCE] = SLOT_MAY,
             [SLOT_FFN_GATE] = SLOT_MAY,
             [SLOT_FFN_UP] = SLOT_MUST,
             [SLOT_FFN_DOWN] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope.kind = ROPE_NONE,
    .encoder = {.on = true, .prefix = "enc."},
    .keys =
        KEYS_ENCODER "|attention.layer_norm_epsilon|attention.relative_buckets_count|decoder_start_token_id",
    .defaults = (const struct arch_default[]){{"attention.scale", 1}, {0}},
    .hf.models = (const struct arch_hf[]){{"t5", "T5EncoderModel", NULL}, {0}},
    .hf.keys = "d_model|d_kv|d_ff|num_layers|num_heads|n_positions|layer_norm_epsilon|is_encoder_decoder|"
               "relative_attention_num_buckets|is_decoder",
    .hf.defaults =
        (const struct arch_default[]){{"n_positions", 512}, {"relative_attention_num_buckets", 32}, {0}},
    .hf.layer =
        (const struct hf_name[]){{"layer.0.SelfAttention.q.", "attn_q.", HF_SAME},
                                 {"layer.0.SelfAttention.k.", "attn_k.", HF_SAME},
                                 {"layer.0.SelfAttention.v.", "attn_v.", HF_SAME},
                                 {"layer.0.SelfAttention.o.", "attn_o.", HF_SAME},
                                 {"layer.0.SelfAttention.relative_attention_bias.", "attn_rel_b.", HF_SAME},
                                 {"layer.0.layer_norm.", "attn_norm.", HF_SAME},
                                 {"layer.1.layer_norm.", "ffn_norm.", HF_SAME},
                                 {"layer.1.DenseReluDense.wi.", "ffn_up.", HF_SAME},
                                 {"layer.1.DenseReluDense.wi_0.", "ffn_gate.", HF_SAME},
                                 {"layer.1.DenseReluDense.wi_1.", "ffn_up.", HF_SAME},
                                 {"layer.1.DenseReluDense.wo.", "ffn_down.", HF_SAME},
                                 {0}},
    .hf.whole = (const struct hf_name[]){{"shared.weight", "token_embd.weight", HF_SAME},
                                         {"encoder.embed_tokens.weight", "", HF_SKIP},
                                         {"encoder.final_layer_norm.", "enc.output_norm.", HF_SAME},
                                         {0}},
};
