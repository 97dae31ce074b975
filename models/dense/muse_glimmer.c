/* Muse Glimmer, the part for text: embeddings normalised, norms in front of and behind both parts, those behind with an epsilon of their own;
 * each head of q and k normalised without weights, q times a number; each number of the heads' output through a gate; windows and rotation
 * in three of four layers; logits capped. Files have q's number as weights of its norm, folders in config.json.
 * sources: HF modeling_muse_glimmer; llama.cpp's muse-glimmer and its converter. */
#include "models/shared.h"

const struct arch arch_muse_glimmer = {
    .name = "muse-glimmer",
    .families = "Muse Glimmer 30B (text)",
    .slot = {SLOTS_DENSE, SLOTS_POST_NORM,
             SLOTS_QK_NORM, [SLOT_ATTN_GATE] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS},
    .norm = NORM_RMS,
    .norm_behind_eps = 1e-8f,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .rope.where = ROPE_WINDOWED,
    .scale.embd_norm = true,
    .keys = "final_logit_softcapping|logit_scale|attention.rope_pattern",
    .defaults = (const struct arch_default[]){{"attention.sliding_window_pattern", 4}, {0}},
    .hf.models =
        (const struct arch_hf[]){{"muse_glimmer", "MuseGlimmerForConditionalGeneration", "muse_glimmer_text"},
                                 {0}},
    .hf.keys =
        "text_config|hidden_activation|final_logit_softcapping|qk_scale_factor|output_multiplier|layer_rope_theta",
    .hf.layer = (const struct hf_name[]){{"self_attn.gate_proj.", "attn_gate.", HF_SAME},
                                         {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
                                         {"pre_feedforward_layernorm.", "ffn_norm.", HF_SAME},
                                         {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"norm.", "output_norm.", HF_PLAIN}, {0}},
    .hf.plus_one = true,
    .hf.halves = true,
};
