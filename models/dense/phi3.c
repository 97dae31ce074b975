/* Phi-3 and Phi-4: q, k and v in one tensor, gate and up in one; divisors of the frequencies for long contexts and for short ones.
 * sources: Abdin et al. 2024 (arXiv 2404.14219); HF modeling_phi3. */
#include "models/shared.h"

const struct arch arch_phi3 = {
    .name = "phi3",
    .families = "Phi-3 and Phi-3.5 mini and medium, Phi-4, Phi-4-mini",
    .slot = {SLOTS_CORE, SLOTS_NORMS, [SLOT_FFN_DOWN] = SLOT_MUST, [SLOT_ATTN_QKV] = SLOT_MUST,
             [SLOT_FFN_GATE_UP] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .hf.models = (const struct arch_hf[]){{"phi3", "Phi3ForCausalLM", NULL}, {0}},
};
