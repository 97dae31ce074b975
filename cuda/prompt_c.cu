// A share of the prompt matmul's instances: Q5K, Q8M, Q2K.
#include "prompt_matmul.cuh"

PROMPT_PART(c) {
    switch (l) {
    case LAYOUT_Q5K:
        return prompt_layout<LAYOUT_Q5K>(j, e, n, sm_count, s);
    case LAYOUT_Q8M:
        return prompt_layout<LAYOUT_Q8M>(j, e, n, sm_count, s);
    case LAYOUT_Q2K:
        return prompt_layout<LAYOUT_Q2K>(j, e, n, sm_count, s);
    default:
        return cudaErrorInvalidValue;
    }
}
