/* Nemotron: LayerNorm with weights around 0 in folders, squared ReLU without a gate, half of a head rotated.
 * source: HF modeling_nemotron. */
#include "models/shared.h"

const struct arch arch_nemotron = {
    .name = "nemotron",
    .families = "Nemotron-4 15B, Minitron 4B and 8B",
    .slot =
        {SLOTS_PLAIN,
         SLOTS_QKV, [SLOT_FFN_NORM] = SLOT_MUST, [SLOT_FFN_NORM_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY,
         SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_LAYER,
    .act = ACT_RELU2,
    .rope.kind = ROPE_NEOX,
    .keys = "attention.layer_norm_epsilon",
    .hf.models = (const struct arch_hf[]){{"nemotron", "NemotronForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|norm_eps|partial_rotary_factor|rope_percent|rope_percentage",
    .hf.plus_one = true,
};
