/* EmbeddingGemma: Gemma 3's blocks whose rows see each other, windows on both sides, two products behind the mean.
 * sources: Schechter Vera et al. 2025 (arXiv 2509.20354); HF modeling_gemma3, use_bidirectional_attention */
#include "models/shared.h"

const struct arch arch_gemma_embedding = {
    .name = "gemma-embedding",
    .families = "EmbeddingGemma 300M",
    .slot = {[SLOT_TOKEN_EMBD] = SLOT_MUST,
             [SLOT_OUTPUT_NORM] = SLOT_MUST,
             [SLOT_ATTN_OUTPUT] = SLOT_MUST,
             SLOTS_QKV,
             SLOTS_NORMS,
             SLOTS_GATED,
             SLOTS_POST_NORM,
             SLOTS_QK_NORM,
             SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_GELU_TANH,
    .rope = {.kind = ROPE_NEOX, .scaled_full = true},
    .encoder.on = true,
    .scale.embd_sqrt = true,
    .keys =
        KEYS_ENCODER "|rope.freq_base_swa|dense_2_feat_in|dense_2_feat_out|dense_3_feat_in|dense_3_feat_out",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 6},
                                              {"rope.freq_base", 1e6},
                                              {"rope.freq_base_swa", 1e4},
                                              {0}},
    .hf.models = (const struct arch_hf[]){{"gemma3_text encoder", "Gemma3TextModel", NULL}, {0}},
    .hf.keys = "hidden_activation|query_pre_attn_scalar|rope_local_base_freq|sliding_window_pattern|"
               "_sliding_window_pattern|use_bidirectional_attention",
    .hf.layer = hf_layer_sandwich,
    .hf.plus_one = true,
    .hf.tied = true,
};
