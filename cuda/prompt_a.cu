// A share of the prompt matmul's instances: F16, Q8, Q4.
#include "prompt_matmul.cuh"

PROMPT_PART(a) {
    switch (l) {
    case LAYOUT_F16:
        return prompt_layout<LAYOUT_F16>(j, e, n, sm_count, s);
    case LAYOUT_Q8:
        return prompt_layout<LAYOUT_Q8>(j, e, n, sm_count, s);
    case LAYOUT_Q4:
        return prompt_layout<LAYOUT_Q4>(j, e, n, sm_count, s);
    default:
        return cudaErrorInvalidValue;
    }
}
