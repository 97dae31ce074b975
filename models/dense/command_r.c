/* Command R and Aya: attention and feed-forward part read one LayerNorm without bias, neighbours rotate; the largest model normalises each
 * head of q and k with weights of its own.
 * source: HF modeling_cohere. */
#include "models/shared.h"

const struct arch arch_command_r = {
    .name = "command-r",
    .families = "Command R, Command R+, Aya 23, Aya Expanse",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST,
             SLOTS_GATED, [SLOT_ATTN_Q_NORM_HEADS] = SLOT_MAY, [SLOT_ATTN_K_NORM_HEADS] = SLOT_MAY,
             [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_LAYER,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .attn.parallel = true,
    .keys = "attention.layer_norm_epsilon|logit_scale",
    .hf.models = (const struct arch_hf[]){{"cohere", "CohereForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_eps|logit_scale|model_max_length",
    .hf.tied = true,
};
