/* Nemotron 3: Nemotron-H with mixtures of plain experts, which may read a projection of x, beside a shared one.
 * source: HF modeling_nemotron_h. */
#include "models/shared.h"

const struct arch arch_nemotron_h_moe = {
    .name = "nemotron_h_moe",
    .families = "Nemotron 3 Nano 30B-A3B, Super 120B-A12B",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST,
             SLOTS_SSM, [SLOT_SSM_NORM] = SLOT_MUST, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST,
             [SLOT_OUTPUT] = SLOT_MAY, [SLOT_FFN_ROUTER] = SLOT_MUST, [SLOT_FFN_UP_EXPS] = SLOT_MUST,
             [SLOT_FFN_DOWN_EXPS] = SLOT_MUST, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY,
             [SLOT_FFN_UP_SHEXP] = SLOT_MUST, [SLOT_FFN_DOWN_SHEXP] = SLOT_MUST,
             [SLOT_FFN_LATENT_DOWN] = SLOT_MUST, [SLOT_FFN_LATENT_UP] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_RELU2,
    .rope.kind = ROPE_NONE,
    .mixer.kind = MIX_SSM,
    .mixer.where = MIXER_NO_KEYS,
    .mixer.alone = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_SSM "|attention.layer_norm_epsilon|" KEYS_EXPERTS
                     "|expert_shared_count|expert_shared_feed_forward_length|expert_group_count|"
                     "expert_group_used_count|moe_latent_size",
    .hf.models = (const struct arch_hf[]){{"nemotron_h", "NemotronHForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_NEMOTRON_H,
    .hf.layer = hf_layer_mixer,
    .hf.whole = hf_whole_backbone,
};
