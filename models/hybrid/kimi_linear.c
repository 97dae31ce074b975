/* Kimi Linear: three layers with the gated delta rule, each row of whose states decays by itself, for each one with attention by a latent,
 * which does not rotate; the first layers are dense; sigmoid scores, a bias of the choice, a factor, an ungated shared part.
 * sources: Kimi Team 2025 (arXiv 2510.26692); HF modeling_kimi_linear; llama.cpp's kimi-linear for the keys and tensors of its files. */
#include "models/shared.h"

static const struct hf_name hf_layer_kimi_linear[] = {
    {"self_attn.q_conv1d.weight", "ssm_conv1d_q.weight", HF_SQUEEZE},
    {"self_attn.k_conv1d.weight", "ssm_conv1d_k.weight", HF_SQUEEZE},
    {"self_attn.v_conv1d.weight", "ssm_conv1d_v.weight", HF_SQUEEZE},
    {"self_attn.f_a_proj.", "ssm_f_a.", HF_SAME},
    {"self_attn.f_b_proj.", "ssm_f_b.", HF_SAME},
    {"self_attn.g_a_proj.", "ssm_g_a.", HF_SAME},
    {"self_attn.g_b_proj.", "ssm_g_b.", HF_SAME},
    {"self_attn.b_proj.", "ssm_beta.", HF_SAME},
    {"self_attn.A_log", "ssm_a", HF_NEG_EXP},
    {"self_attn.dt_bias", "ssm_dt.bias", HF_SAME},
    {"self_attn.o_norm.", "ssm_norm.", HF_SAME},
    {"self_attn.q_a_proj.", "attn_q_a.", HF_SAME},
    {"self_attn.q_a_layernorm.", "attn_q_a_norm.", HF_SAME},
    {"self_attn.q_b_proj.", "attn_q_b.", HF_SAME},
    {"self_attn.kv_a_proj_with_mqa.", "attn_kv_a_mqa.", HF_SAME},
    {"self_attn.kv_a_layernorm.", "attn_kv_a_norm.", HF_SAME},
    {"self_attn.kv_b_proj.", "attn_k_b.", HF_LATENT},
    {0},
};

const struct arch arch_kimi_linear = {
    .name = "kimi-linear",
    .families = "Kimi Linear 48B-A3B",
    .slot = {SLOTS_LATENT_EXPERTS, SLOTS_DELTA_ROWS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NONE,
    .attn.latent = true,
    .mixer.kind = MIX_DELTA,
    .mixer.where = MIXER_NO_KEYS,
    .mixer.by_row = true,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD, .eps = 1e-20f, .group_top2 = true},
    .keys = KEYS_LATENT_EXPERTS "|" KEYS_DELTA_ROWS,
    .hf.models = (const struct arch_hf[]){{"kimi_linear", "KimiLinearForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_LATENT_EXPERTS
    "|num_experts|num_local_experts|num_experts_per_token|num_shared_experts|moe_renormalize|num_expert_group|"
    "mlp_layer_types|model_max_length|linear_head_dim|linear_num_heads|linear_conv_kernel_dim",
    .hf.defaults = (const struct arch_default[]){{"moe_renormalize", 1}, {0}},
    .hf.layer = hf_layer_kimi_linear,
};
