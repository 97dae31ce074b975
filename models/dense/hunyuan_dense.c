/* Hunyuan dense: a Llama block whose q and k are normalised behind rotation, with a base that alpha enlarges.
 * source: HF modeling_hunyuan_v1_dense. */
#include "models/shared.h"

const struct arch arch_hunyuan_dense = {
    .name = "hunyuan-dense",
    .families = "Hunyuan 0.5B to 7B",
    .slot = {SLOTS_DENSE, SLOTS_QK_NORM, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .attn.qk_norm_late = true,
    .hf.models = (const struct arch_hf[]){{"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", NULL}, {0}},
    .hf.keys = "dynamic",
    .hf.layer = (const struct hf_name[]){{"self_attn.query_layernorm.", "attn_q_norm.", HF_SAME},
                                         {"self_attn.key_layernorm.", "attn_k_norm.", HF_SAME},
                                         {0}},
};
