/* Llama and its many relatives: pre-norm blocks, GQA, gated SiLU feed-forward, tied or untied head.
 * Files in GGUF hold q and k with rows permuted so that rotation acts on neighbours. Llama 3's frequency scaling comes
 * as the tensor rope_freqs (one divisor per frequency).
 * sources: Touvron et al. 2023 (arXiv 2302.13971); Dubey et al. 2024 (arXiv 2407.21783); HF modeling_llama. */
#include "models/shared.h"

const struct arch arch_llama = {
    .name = "llama",
    .families =
        "Llama 1 to 3.x, SmolLM, SmolLM2, Mistral 7B, Ministral 8B, Mixtral, CWM 32B, InternLM 3 8B, TinyLlama, Yi, Nanbeige 4.1",
    .tried = "SmolLM2 135M as published; shapes of 135M, 1B, 8B",
    .slot = {SLOTS_DENSE, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_EXPERTS, SLOTS_ATTN_BIAS, SLOTS_FFN_BIAS},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_INTERLEAVED,
    .moe = {.act = ROUTE_SOFTMAX, .norm = ROUTE_NORM_ADD},
    .hf.models = (const struct arch_hf[]){{"llama", "LlamaForCausalLM", NULL},
                                          {"llama", "LLaMAForCausalLM", NULL},
                                          {"mistral", "MistralForCausalLM", NULL},
                                          {"mixtral", "MixtralForCausalLM", NULL},
                                          {"ministral", "MinistralForCausalLM", NULL},
                                          {"cwm", "CwmForCausalLM", NULL},
                                          {"internlm3", "InternLM3ForCausalLM", NULL},
                                          {"mistral3", "Mistral3ForConditionalGeneration", "mistral"},
                                          {"smolvlm", "SmolVLMForConditionalGeneration", "llama"},
                                          {"idefics3", "Idefics3ForConditionalGeneration", "llama"},
                                          {"minicpmv", "MiniCPMV", "llama"},
                                          {0}},
    .hf.keys = HF_KEYS_EXPERTS "|mlp_bias"
                               "|num_local_experts|text_config",
    .hf.halves = true,
    .hf.full_first = "cwm",
};
