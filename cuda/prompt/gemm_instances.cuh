// A share of the prompt matmul's instances, so that they compile side by side: PROMPT_INSTANCES(part, layouts).
#pragma once
#include "cuda/prompt/gemm_wgmma.cuh"
#include "cuda/prompt/gemm_mma.cuh"

template <int L>
static cudaError_t prompt_instance(const prompt_job &j, enum prompt_epilogue e, const struct route *r, int n,
                                   int sm_count, cudaStream_t s) {
    return r->group == GROUP_WGMMA ? prompt_layout<L>(j, e, r->tokens, n, sm_count, s)
                                   : mma_layout<L>(j, e, r->tokens, n, s);
}
#define PROMPT_CASE(x)                                                                                       \
    case LAYOUT_##x:                                                                                         \
        return prompt_instance<LAYOUT_##x>(j, e, r, n, sm_count, s);
#define PROMPT_INSTANCES(part, ...)                                                                          \
    PROMPT_PART(part) {                                                                                      \
        switch (l) {                                                                                         \
            __VA_ARGS__                                                                                      \
        default:                                                                                             \
            return cudaErrorInvalidValue;                                                                    \
        }                                                                                                    \
    }
