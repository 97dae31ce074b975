/* Command R7B and relatives: attention and feed-forward part read one LayerNorm without bias; windows and rotation in three of four layers.
 * source: HF modeling_cohere2. */
#include "models/shared.h"

const struct arch arch_cohere2 = {
    .name = "cohere2",
    .families = "Command R7B, Command A, Tiny Aya",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST, SLOTS_GATED, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS},
    .norm = NORM_LAYER,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.where = ROPE_WINDOWED,
    .attn.parallel = true,
    .keys = "attention.layer_norm_epsilon|logit_scale",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models = (const struct arch_hf[]){{"cohere2", "Cohere2ForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_eps|logit_scale|sliding_window_pattern|_sliding_window_pattern|rotary_pct",
    .hf.tied = true,
};
