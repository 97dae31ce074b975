/* Nemotron-H: each layer is a Mamba-2 mixer, attention without rotation, or a plain feed-forward part with a squared ReLU.
 * source: HF modeling_nemotron_h. */
#include "models/shared.h"

const struct arch arch_nemotron_h = {
    .name = "nemotron_h",
    .families = "Nemotron-H 4B, 8B, 47B, 56B; Nemotron Nano 2 9B, 12B",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST, SLOTS_SSM, [SLOT_SSM_NORM] = SLOT_MUST,
             [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_RELU2,
    .rope = ROPE_NONE,
    .mixer = MIX_SSM,
    .mixer_where = MIXER_NO_KEYS,
    .alone = true,
    .keys = KEYS_SSM "|attention.layer_norm_epsilon",
    .hf = (const struct arch_hf[]){{"nemotron_h", "NemotronHForCausalLM", NULL}, {0}},
    .hf_keys = HF_KEYS_NEMOTRON_H,
    .hf_layer = hf_layer_mixer,
    .hf_whole = hf_whole_backbone,
    .hf_sparse = "nemotron_h_moe",
};
