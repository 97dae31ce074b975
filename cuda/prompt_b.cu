// A share of the prompt matmul's instances: Q4K, Q6K, Q4M.
#include "prompt_matmul.cuh"

PROMPT_PART(b) {
    switch (l) {
    case LAYOUT_Q4K:
        return prompt_layout<LAYOUT_Q4K>(j, e, n, sm_count, s);
    case LAYOUT_Q6K:
        return prompt_layout<LAYOUT_Q6K>(j, e, n, sm_count, s);
    case LAYOUT_Q4M:
        return prompt_layout<LAYOUT_Q4M>(j, e, n, sm_count, s);
    default:
        return cudaErrorInvalidValue;
    }
}
