/* Arcee AFM: a Llama block with squared ReLU and without a gate.
 * source: HF modeling_arcee. */
#include "models/shared.h"

const struct arch arch_arcee = {
    .name = "arcee",
    .families = "AFM 4.5B",
    .slot = {SLOTS_CORE, SLOTS_QKV,
             SLOTS_NORMS, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_RELU2,
    .rope.kind = ROPE_INTERLEAVED,
    .hf.keys = "mlp_bias",
    .hf.models = (const struct arch_hf[]){{"arcee", "ArceeForCausalLM", NULL}, {0}},
    .hf.halves = true,
};
