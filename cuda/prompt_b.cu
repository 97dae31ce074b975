// A share of the prompt matmul's instances: Q4K, Q6K, Q4M.
#include "prompt_matmul.cuh"
#include "prompt_mma.cuh"

template <int L>
static cudaError_t launch(const prompt_job &j, enum prompt_epilogue e, int n, int sm_count, bool mma,
                          cudaStream_t s) {
    return mma ? mma_layout<L>(j, e, n, s) : prompt_layout<L>(j, e, n, sm_count, s);
}

PROMPT_PART(b) {
    switch (l) {
    case LAYOUT_Q4K:
        return launch<LAYOUT_Q4K>(j, e, n, sm_count, mma, s);
    case LAYOUT_Q6K:
        return launch<LAYOUT_Q6K>(j, e, n, sm_count, mma, s);
    case LAYOUT_Q4M:
        return launch<LAYOUT_Q4M>(j, e, n, sm_count, mma, s);
    default:
        return cudaErrorInvalidValue;
    }
}
