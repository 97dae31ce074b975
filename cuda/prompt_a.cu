// A share of the prompt matmul's instances: F16, Q8, Q4.
#include "prompt_matmul.cuh"
#include "prompt_mma.cuh"

template <int L>
static cudaError_t launch(const prompt_job &j, enum prompt_epilogue e, int n, int sm_count, bool mma,
                          cudaStream_t s) {
    return mma ? mma_layout<L>(j, e, n, s) : prompt_layout<L>(j, e, n, sm_count, s);
}

PROMPT_PART(a) {
    switch (l) {
    case LAYOUT_F16:
        return launch<LAYOUT_F16>(j, e, n, sm_count, mma, s);
    case LAYOUT_Q8:
        return launch<LAYOUT_Q8>(j, e, n, sm_count, mma, s);
    case LAYOUT_Q4:
        return launch<LAYOUT_Q4>(j, e, n, sm_count, mma, s);
    default:
        return cudaErrorInvalidValue;
    }
}
