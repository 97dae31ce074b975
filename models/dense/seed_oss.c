/* Seed-OSS: a Llama block with biases on q, k and v; its files call the norm in front of the feed-forward part post_attention_norm.
 * source: HF modeling_seed_oss. */
#include "models/shared.h"

const struct arch arch_seed_oss = {
    .name = "seed_oss",
    .families = "Seed-OSS 36B",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST,
             SLOTS_GATED, [SLOT_FFN_NORM_AFTER] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS,
             SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .hf.models = (const struct arch_hf[]){{"seed_oss", "SeedOssForCausalLM", NULL}, {0}},
    .hf.keys = "mlp_bias|attention_out_bias|residual_dropout",
    .hf.layer = (const struct hf_name[]){{"post_attention_layernorm.", "post_attention_norm.", HF_SAME}, {0}},
};
