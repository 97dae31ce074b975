/* Falcon-H1: attention and a Mamba-2 mixer of the same input, added; factors of their inputs and outputs, which files have in the matrices.
 * Files call the norm in front of the feed-forward part ffn_norm, without .weight.
 * sources: HF modeling_falcon_h1; llama.cpp's falcon-h1 for the names of its files. */
#include "models/shared.h"

static const struct hf_name hf_layer_falcon_h1[] = {
    HF_NAMES_MAMBA("mamba."),
    {"pre_ff_layernorm.weight", "ffn_norm", HF_SAME},
    {"feed_forward.gate_proj.", "ffn_gate.", HF_SAME},
    {"feed_forward.up_proj.", "ffn_up.", HF_SAME},
    {"feed_forward.down_proj.", "ffn_down.", HF_SAME},
    {0},
};

const struct arch arch_falcon_h1 = {
    .name = "falcon-h1",
    .families = "Falcon-H1 0.5B to 34B",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_GATED,
             SLOTS_SSM, [SLOT_ATTN_NORM] = SLOT_MUST, [SLOT_FFN_NORM] = SLOT_MAY,
             [SLOT_FFN_NORM_BARE] = SLOT_MAY, [SLOT_SSM_NORM] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY,
             SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .mixer.kind = MIX_BOTH,
    .mixer.where = MIXER_ALL,
    .keys = KEYS_SSM,
    .hf.models = (const struct arch_hf[]){{"falcon_h1", "FalconH1ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_MAMBA
    "|mlp_bias"
    "|mamba_d_ssm|mamba_rms_norm|mamba_norm_before_gate|embedding_multiplier|lm_head_multiplier|"
    "attention_in_multiplier|attention_out_multiplier|key_multiplier|ssm_in_multiplier|ssm_out_multiplier|"
    "mlp_multipliers|ssm_multipliers",
    .hf.layer = hf_layer_falcon_h1,
    .hf.whole = (const struct hf_name[]){{"final_layernorm.", "output_norm.", HF_SAME}, {0}},
};
