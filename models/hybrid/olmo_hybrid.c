/* OLMo Hybrid: three layers with the gated delta rule, whose steps reach 2, for each one with attention. Norms stand in front of both parts
 * where a layer has a state, behind both where it attends; q and k normalised over the whole row; published models do not rotate.
 * sources: HF modeling_olmo_hybrid; OLMo-core, whose checkpoints that reads. llama.cpp has no such files: keys and tensors are called as
 * its qwen35 and olmo2 call them. */
#include "models/shared.h"

static const struct hf_name hf_layer_olmo_hybrid[] = {
    {"linear_attn.q_proj.", "attn_q.", HF_SAME},
    {"linear_attn.k_proj.", "attn_k.", HF_SAME},
    {"linear_attn.v_proj.", "attn_v.", HF_SAME},
    {"linear_attn.g_proj.", "attn_gate.", HF_SAME},
    {"linear_attn.b_proj.", "ssm_beta.", HF_SAME},
    {"linear_attn.a_proj.", "ssm_alpha.", HF_SAME},
    {"linear_attn.q_conv1d.weight", "ssm_conv1d_q.weight", HF_SQUEEZE},
    {"linear_attn.k_conv1d.weight", "ssm_conv1d_k.weight", HF_SQUEEZE},
    {"linear_attn.v_conv1d.weight", "ssm_conv1d_v.weight", HF_SQUEEZE},
    {"linear_attn.dt_bias", "ssm_dt.bias", HF_SAME},
    {"linear_attn.A_log", "ssm_a", HF_VALUE_DECAYS},
    {"linear_attn.o_norm.", "ssm_norm.", HF_SAME},
    {"linear_attn.o_proj.", "ssm_out.", HF_SAME},
    {"attention_layer_norm.", "attn_norm.", HF_SAME},
    {"feedforward_layer_norm.", "post_attention_norm.",
     HF_SAME}, /* where transformers wrote it, of attention's, too */
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {0},
};

const struct arch arch_olmo_hybrid = {
    .name = "olmo-hybrid",
    .families = "OLMo Hybrid 7B",
    .slot =
        {SLOTS_CORE, SLOTS_QKV, SLOTS_GATED, SLOTS_POST_NORM, SLOTS_DELTA_APART,
         SLOTS_ATTN_BIAS, [SLOT_STATE_BETA] = SLOT_MUST, [SLOT_STATE_ALPHA] = SLOT_MUST,
         [SLOT_ATTN_NORM] = SLOT_MUST, [SLOT_FFN_NORM_AFTER] = SLOT_MUST, [SLOT_ATTN_Q_NORM_ROW] = SLOT_MUST,
         [SLOT_ATTN_K_NORM_ROW] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.where = ROPE_TOLD,
    .mixer.kind = MIX_DELTA,
    .mixer.where = MIXER_INTERVAL,
    .mixer.sides = true,
    .mixer.norm_eps = 1e-5f,
    .keys = KEYS_DELTA "|ssm.beta_scale",
    .defaults = (const struct arch_default[]){{"ssm.beta_scale", 2}, {0}},
    .hf.models = (const struct arch_hf[]){{"olmo_hybrid", "OlmoHybridForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_DELTA "|linear_allow_neg_eigval",
    .hf.layer = hf_layer_olmo_hybrid,
};
