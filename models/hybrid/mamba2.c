/* Mamba-2: every layer is a state space mixer, without attention and feed-forward part.
 * sources: Dao & Gu 2024 (arXiv 2405.21060); HF modeling_mamba2. */
#include "models/shared.h"

const struct arch arch_mamba2 = {
    .name = "mamba2",
    .families = "Mamba-2 130M to 2.7B, Mamba Codestral 7B",
    .slot = {[SLOT_TOKEN_EMBD] = SLOT_MUST,
             [SLOT_OUTPUT_NORM] = SLOT_MUST,
             [SLOT_OUTPUT] = SLOT_MAY,
             [SLOT_ATTN_NORM] = SLOT_MUST,
             SLOTS_SSM,
             [SLOT_SSM_NORM] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NONE,
    .mixer.kind = MIX_SSM,
    .mixer.where = MIXER_NO_KEYS,
    .mixer.alone = true,
    .keys = KEYS_SSM,
    .hf.models = (const struct arch_hf[]){{"mamba2", "Mamba2ForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_epsilon|state_size|num_heads|n_groups|conv_kernel|expand|time_step_limit|use_bias|"
               "use_conv_bias",
    .hf.layer = hf_layer_mixer,
    .hf.whole = hf_whole_backbone,
};
