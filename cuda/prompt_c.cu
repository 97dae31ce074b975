// A share of the prompt matmul's instances: Q5K, Q8M, Q2K.
#include "prompt_matmul.cuh"
#include "prompt_mma.cuh"

template <int L>
static cudaError_t launch(const prompt_job &j, enum prompt_epilogue e, int n, int sm_count, bool mma,
                          cudaStream_t s) {
    return mma ? mma_layout<L>(j, e, n, s) : prompt_layout<L>(j, e, n, sm_count, s);
}

PROMPT_PART(c) {
    switch (l) {
    case LAYOUT_Q5K:
        return launch<LAYOUT_Q5K>(j, e, n, sm_count, mma, s);
    case LAYOUT_Q8M:
        return launch<LAYOUT_Q8M>(j, e, n, sm_count, mma, s);
    case LAYOUT_Q2K:
        return launch<LAYOUT_Q2K>(j, e, n, sm_count, mma, s);
    default:
        return cudaErrorInvalidValue;
    }
}
