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
    .rope.kind = ROPE_NONE,
    .mixer.kind = MIX_SSM,
    .mixer.where = MIXER_NO_KEYS,
    .mixer.alone = true,
    .keys = KEYS_SSM "|attention.layer_norm_epsilon",
    .hf.models = (const struct arch_hf[]){{"nemotron_h", "NemotronHForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_NEMOTRON_H,
    .hf.layer = hf_layer_mixer,
    .hf.whole = hf_whole_backbone,
    .hf.sparse = "nemotron_h_moe",
};
