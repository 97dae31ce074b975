/* Granite 4: a Granite block whose mixer is Mamba-2 in most layers, with experts and a shared part or the latter alone; most do not rotate.
 * Bamba: with a dense feed-forward part and half of each head rotated.
 * sources: HF modeling_granitemoehybrid, modeling_bamba. */
#include "models/shared.h"

static const struct hf_name hf_layer_granitehybrid[] = {
    HF_NAMES_MAMBA("mamba."),
    {"shared_mlp.input_linear.", "ffn_gate_shexp.", HF_HALVES},
    {"shared_mlp.output_linear.", "ffn_down_shexp.", HF_SAME},
    /* Bamba's */
    {"pre_ff_layernorm.", "ffn_norm.", HF_SAME},
    {"feed_forward.gate_proj.", "ffn_gate.", HF_SAME},
    {"feed_forward.up_proj.", "ffn_up.", HF_SAME},
    {"feed_forward.down_proj.", "ffn_down.", HF_SAME},
    {0},
};

const struct arch arch_granitehybrid = {
    .name = "granitehybrid",
    .families = "Granite 4.0 H micro, tiny, small; Bamba 9B",
    .slot = {SLOTS_DENSE, SLOTS_SSM, [SLOT_SSM_NORM] = SLOT_MUST, SLOTS_EXPERTS,
             SLOTS_SHARED, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.where = ROPE_TOLD,
    .mixer.kind = MIX_SSM,
    .mixer.where = MIXER_NO_KEYS,
    .scale.logit_divides = true,
    .moe = {.act = ROUTE_CHOSEN, .norm = ROUTE_NORM_NONE},
    .keys = KEYS_EXPERTS
    "|" KEYS_SSM "|expert_shared_feed_forward_length|expert_shared_count|embedding_scale|residual_scale|"
    "logit_scale|rope.scaling.finetuned",
    .hf.models = (const struct arch_hf[]){{"granitemoehybrid", "GraniteMoeHybridForCausalLM", NULL},
                                          {"bamba", "BambaForCausalLM", NULL},
                                          {0}},
    .hf.layer = hf_layer_granitehybrid,
    .hf.keys = HF_KEYS_EXPERTS
    "|" HF_KEYS_MAMBA "|num_local_experts|shared_intermediate_size|embedding_multiplier|"
    "residual_multiplier|attention_multiplier|logits_scaling|"
    "position_embedding_type|attn_layer_indices|attn_rotary_emb|layers_block_type|mlp_bias",
    .hf.halves = true,
    .hf.whole = (const struct hf_name[]){{"final_layernorm.", "output_norm.", HF_SAME}, {0}},
};
