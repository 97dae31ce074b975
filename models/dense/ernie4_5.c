/* ERNIE 4.5 dense: a Llama block that rotates neighbours in folders, too.
 * source: HF modeling_ernie4_5. */
#include "models/shared.h"

const struct arch arch_ernie4_5 = {
    .name = "ernie4_5",
    .families = "ERNIE 4.5 0.3B",
    .slot = {SLOTS_DENSE,
             SLOTS_QKV_BIAS(SLOT_MAY), [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MAY, [SLOT_FFN_GATE_BIAS] = SLOT_MAY,
             [SLOT_FFN_UP_BIAS] = SLOT_MAY, [SLOT_FFN_DOWN_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .hf.models = (const struct arch_hf[]){{"ernie4_5", "Ernie4_5ForCausalLM", NULL}, {0}},
    .hf.keys = "use_bias",
    .hf.tied = true,
};
