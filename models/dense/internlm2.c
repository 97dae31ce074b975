/* InternLM 2: a Llama block whose folders have each key head's queries, key and value together in one matrix.
 * sources: Cai et al. 2024 (arXiv 2403.17297); llama.cpp's internlm2 and its converter for the names of both kinds of files. */
#include "models/shared.h"

const struct arch arch_internlm2 = {
    .name = "internlm2",
    .families = "InternLM 2 and 2.5 1.8B, 7B, 20B",
    .slot = {SLOTS_DENSE, [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .hf.models = (const struct arch_hf[]){{"internlm2", "InternLM2ForCausalLM", NULL}, {0}},
    .hf.halves = true,
    .hf.layer = (const struct hf_name[]){{"attention.wqkv.", "attn_qkv.", HF_QKV_HEADS},
                                         {"attention.wo.", "attn_output.", HF_SAME},
                                         {"attention_norm.", "attn_norm.", HF_SAME},
                                         {"ffn_norm.", "ffn_norm.", HF_SAME},
                                         {"feed_forward.w1.", "ffn_gate.", HF_SAME},
                                         {"feed_forward.w3.", "ffn_up.", HF_SAME},
                                         {"feed_forward.w2.", "ffn_down.", HF_SAME},
                                         {0}},
    .hf.whole = (const struct hf_name[]){{"tok_embeddings.", "token_embd.", HF_SAME},
                                         {"output.", "output.", HF_SAME},
                                         {0}},
};
