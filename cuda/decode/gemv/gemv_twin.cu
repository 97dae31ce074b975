// Kernels of gemv.cuh that do not wait for the one in front before they end. That one lets them begin behind its own wait (.first of its job):
// what both read is there then.
#include "cuda/decode/gemv/gemv_twin.h"
#include "cuda/decode/gemv/gemv_instances.h"

namespace {
enum { WARPS = 8, GROUP = 32 };
struct as_twin : only_finish {
    static constexpr bool twin = true;
};
// L2 < 0: one region
template <int L, int L2, int S, int S2>
__global__ void __launch_bounds__(WARPS * 32, 2) gemv_twin_kernel(const __grid_constant__ gemv_args j) {
    as_twin none;
    if (L2 < 0 || (int)blockIdx.x < j.split)
        gemv_one<L, GROUP, 1, WARPS, S, EPI_STORE, false>(j, 0, blockIdx.x, L2 < 0 ? gridDim.x : j.split,
                                                          none);
    else if constexpr (L2 >= 0)
        gemv_one<L2, GROUP, 1, WARPS, S2, EPI_STORE, false>(j, 1, blockIdx.x - j.split, gridDim.x - j.split,
                                                            none);
}
struct twin_kernel {
    enum layout l, l2;
    int ring;
    gemv_twin run;
};
// Slots as GEMV_CODES and GEMV_PAIR have them.
#define TWIN(l)                                                                                              \
    {                                                                                                        \
        l, LAYOUT_COUNT, WARPS * 2 * format<l>::slots *layout_unit_bytes(l),                                 \
            gemv_twin_kernel<l, -1, 2 * format<l>::slots, 1>                                                 \
    }
#define TWIN_PAIR(l, l2, s, s2)                                                                              \
    {                                                                                                        \
        l, l2, WARPS *MM_MAX((s)*layout_unit_bytes(l), (s2)*layout_unit_bytes(l2)),                          \
            gemv_twin_kernel<l, l2, s, s2>                                                                   \
    }
const twin_kernel twins[] = {TWIN(LAYOUT_Q4K), TWIN(LAYOUT_Q8), TWIN_PAIR(LAYOUT_Q4K, LAYOUT_Q6K, 4, 3)};
} // namespace

gemv_twin gemv_twin_find(const struct mm_kernel *k) {
    for (const twin_kernel &t : twins)
        if (t.l == k->l && t.l2 == k->l2 && t.ring == k->ring && k->ga == GROUP && k->warps == WARPS &&
            k->r == 1 && k->epilogue == EPI_STORE)
            return t.run;
    return NULL;
}
cudaError_t gemv_twin_prepare(void) {
    cudaError_t e = cudaSuccess;
    for (const twin_kernel &t : twins)
        if (e == cudaSuccess) e = all_shared_memory((const void *)t.run);
    return e;
}
