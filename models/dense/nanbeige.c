/* Nanbeige 4.2: a Llama block whose layers are computed twice, with the last norm in between.
 * sources: llama.cpp's nanbeige for its keys; mlx-lm's nanbeige for the mathematics; the paper, arXiv 2607.22083. */
#include "models/shared.h"

const struct arch arch_nanbeige = {
    .name = "nanbeige",
    .families = "Nanbeige 4.2 3B",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .keys = "num_loops|skip_loop_final_norm",
    .hf.models = (const struct arch_hf[]){{"nanbeige", "NanbeigeForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|num_loops|skip_loop_final_norm|head_dim|kv_channels",
    .hf.halves = true,
};
