/* EAGLE-3: a head that drafts for another model, by three hidden rows of it, one fused vector; one layer of Llama whose attention reads the embedding
 * of a token beside that vector, and a vocabulary that may be a part of the model's.
 * sources: Li et al. 2025 (arXiv 2503.01840); SafeAILab/EAGLE (cnets); vLLM and SGLang (llama_eagle3); llama.cpp (eagle3), whose names in GGUF these
 * are. */
#include "models/shared.h"

const struct arch arch_eagle3 = {
    .name = "eagle3",
    .families = "heads that draft (EAGLE-3)",
    .drafts = true,
    .slot = {SLOTS_HEAD, SLOTS_GATED, [SLOT_ATTN_OUTPUT] = SLOT_MUST, [SLOT_FFN_NORM] = SLOT_MUST,
             [SLOT_OUTPUT_NORM] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .keys = "extract_layers|target_hidden_size|norm_before_residual",
    .hf.models = (const struct arch_hf[]){{"llama", "LlamaForCausalLMEagle3", NULL},
                                          {"llama", "Eagle3LlamaForCausalLM", NULL},
                                          {"llama", "LlamaForCausalLM", NULL},
                                          {"llama", "Eagle3Speculator", NULL},
                                          {"llama", "Eagle3DraftModel", NULL},
                                          {0}},
    .hf.keys = "mlp_bias",
    .hf.layer = (const struct hf_name[]){{"hidden_norm.", "attn_norm_2.", HF_SAME}, {0}},
    .hf.whole = (const struct hf_name[]){{"fc.", "fc.", HF_SAME},
                                         {"d2t", "", HF_SKIP}, /* hf_eagle.c */
                                         {"t2d", "", HF_SKIP},
                                         {0}},
    .hf.halves = true,
};
