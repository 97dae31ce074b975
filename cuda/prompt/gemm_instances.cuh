// The prompt matmul's instances of a layout, a file each, so that they compile side by side.
#pragma once
#include "cuda/prompt/gemm_wgmma.cuh"
#include "cuda/prompt/gemm_mma.cuh"

#define GEMM(id)                                                                                             \
    PROMPT_MATMUL(id) {                                                                                      \
        return r->group == GROUP_WGMMA ? prompt_layout<LAYOUT_##id>(j, e, r->tokens, n, sm_count, s)         \
                                       : mma_layout<LAYOUT_##id>(j, e, r->tokens, n, s);                     \
    }
