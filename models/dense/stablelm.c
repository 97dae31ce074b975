/* StableLM: LayerNorm with biases, a quarter of a head rotated; the 12B model normalises each head of q and k with weights of its own, and
 * its attention and feed-forward part read one norm.
 * source: HF modeling_stablelm. */
#include "models/shared.h"

const struct arch arch_stablelm = {
    .name = "stablelm",
    .families = "StableLM 2 1.6B and 12B, StableLM Zephyr 3B, Stable Code 3B",
    .slot = {SLOTS_CORE, SLOTS_QKV, [SLOT_ATTN_NORM] = SLOT_MUST, SLOTS_GATED,
             SLOTS_QKV_BIAS(SLOT_MAY), [SLOT_ATTN_NORM_BIAS] = SLOT_MUST, [SLOT_OUTPUT_NORM_BIAS] = SLOT_MUST,
             [SLOT_FFN_NORM] = SLOT_MAY, [SLOT_FFN_NORM_BIAS] = SLOT_MAY, [SLOT_ATTN_Q_NORM_HEADS] = SLOT_MAY,
             [SLOT_ATTN_K_NORM_HEADS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .keys = "attention.layer_norm_epsilon|use_parallel_residual",
    .hf.models = (const struct arch_hf[]){{"stablelm", "StableLmForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_eps|use_parallel_residual|use_qkv_bias|qk_layernorm",
    .hf.layer = (const struct hf_name[]){{"self_attn.q_layernorm.norms.", "attn_q_norm.", HF_STACK},
                                         {"self_attn.k_layernorm.norms.", "attn_k_norm.", HF_STACK},
                                         {0}},
};
