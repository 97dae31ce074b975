/* SmolLM3: a Llama block; every fourth layer does not rotate.
 * source: HF modeling_smollm3. */
#include "models/shared.h"

const struct arch arch_smollm3 = {
    .name = "smollm3",
    .families = "SmolLM3 3B",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.where = ROPE_PERIOD_4,
    .keys = "rope.layers",
    .hf.models = (const struct arch_hf[]){{"smollm3", "SmolLM3ForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|no_rope_layers|no_rope_layer_interval",
    .hf.halves = true,
    .hf.tied = true,
    .hf.window_by_layer = true,
};
