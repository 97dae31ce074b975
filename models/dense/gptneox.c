/* GPT-NeoX and Pythia: attention and feed-forward part read two norms of one x; a quarter of a head rotated; q, k and v in one tensor, in
 * folders head by head.
 * sources: Black et al. 2022 (arXiv 2204.06745); HF modeling_gpt_neox. */
#include "models/shared.h"

const struct arch arch_gptneox = {
    .name = "gptneox",
    .families = "Pythia, GPT-NeoX 20B, Dolly 2, RedPajama-INCITE",
    .slot =
        {SLOTS_PLAIN, [SLOT_ATTN_QKV] = SLOT_MUST, [SLOT_ATTN_QKV_BIAS] = SLOT_MAY,
         [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MAY, [SLOT_FFN_NORM] = SLOT_MUST, [SLOT_FFN_NORM_BIAS] = SLOT_MUST,
         [SLOT_FFN_UP_BIAS] = SLOT_MUST, [SLOT_FFN_DOWN_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_LAYER,
    .act = ACT_GELU_ERF,
    .rope.kind = ROPE_NEOX,
    .attn.parallel = true,
    .keys = "activation|attention.layer_norm_epsilon|use_parallel_residual",
    .hf.models = (const struct arch_hf[]){{"gpt_neox", "GPTNeoXForCausalLM", NULL}, {0}},
    .hf.keys = "layer_norm_eps|use_parallel_residual|rotary_pct|rotary_emb_base",
    .hf.defaults = (const struct arch_default[]){{"rotary_pct", 0.25}, {0}},
    .hf.layer = (const struct hf_name[]){{"post_attention_layernorm.", "ffn_norm.", HF_SAME},
                                         {"attention.query_key_value.", "attn_qkv.", HF_QKV_HEADS},
                                         {"attention.dense.", "attn_output.", HF_SAME},
                                         {"mlp.dense_h_to_4h.", "ffn_up.", HF_SAME},
                                         {"mlp.dense_4h_to_h.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"embed_in.weight", "token_embd.weight", HF_SAME},
                                         {"final_layer_norm.", "output_norm.", HF_SAME},
                                         {"embed_out.", "output.", HF_SAME},
                                         {0}},
};
