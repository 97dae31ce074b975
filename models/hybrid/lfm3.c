/* LFM3: LFM2's short convolutions and attention, with norms in front and behind, a gate of each head, and windows in half of the layers that attend,
 * which rotate whole heads by a base of their own; the others rotate the first half of the frequencies of a whole head.
 * source: HF modeling_lfm3. */
#include "models/shared.h"

static const struct hf_name hf_layer_lfm3[] = {
    HF_NAMES_LFM2,
    {"post_operator_norm.", "post_attention_norm.", HF_SAME},
    {"post_ffn_norm.", "post_ffw_norm.", HF_SAME},
    {"self_attn.q_norm.", "attn_q_norm.", HF_SAME},
    {"self_attn.k_norm.", "attn_k_norm.", HF_SAME},
    {"self_attn.o_proj.", "attn_output.", HF_SAME},
    {"self_attn.g_proj.", "attn_gate.", HF_SAME},
    {"self_attn.gate_proj.", "attn_gate.", HF_SAME},
    {0},
};

const struct arch arch_lfm3 = {
    .name = "lfm3",
    .families = "LFM3 1.7B",
    .slot = {SLOTS_LFM2, SLOTS_GATED, SLOTS_POST_NORM, [SLOT_ATTN_GATE_HEADS] = SLOT_MUST},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .rope.scaled_full = true,
    .mixer.kind = MIX_CONV,
    .mixer.where = MIXER_NO_KEYS,
    .keys = "shortconv.l_cache|rope.freq_base_swa",
    .hf.models = (const struct arch_hf[]){{"lfm3", "Lfm3ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_LFM2 "|proportional",
    .hf.defaults = (const struct arch_default[]){{"conv_L_cache", 7}, {0}},
    .hf.layer = hf_layer_lfm3,
    .hf.whole = hf_whole_lfm2,
    .hf.tied = true,
};
