/* LFM2: short convolutions between two gates in most layers, attention with normalised q and k in the others; the last norm is called
 * that of the embedding. source: HF modeling_lfm2, and its configuration for the width of the feed-forward part. */
#include "models/shared.h"

const struct arch arch_lfm2 = {
    .name = "lfm2",
    .families = "LFM2 350M, 700M, 1.2B, 2.6B",
    .slot = {SLOTS_LFM2, SLOTS_GATED},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .mixer.kind = MIX_CONV,
    .mixer.where = MIXER_NO_KEYS,
    .keys = "shortconv.l_cache",
    .hf.models = (const struct arch_hf[]){{"lfm2", "Lfm2ForCausalLM", NULL},
                                          {"lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2"},
                                          {0}},
    .hf.keys = HF_KEYS_LFM2
    "|text_config|block_ff_dim|block_auto_adjust_ff_dim|block_ffn_dim_multiplier|block_multiple_of|full_attn_idxs",
    .hf.layer = hf_layer_lfm2,
    .hf.whole = hf_whole_lfm2,
    .hf.tied = true,
};
