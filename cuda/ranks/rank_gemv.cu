// The table of kernels that multiply and add up over ranks: for the types of most files, on chips that have room for a wide block.
#include "cuda/ranks/rank_gemv.h"

extern const struct rank_gemv_kernel rank_gemv_q4k[2], rank_gemv_q6k[2], rank_gemv_q8[2], rank_gemv_f16[1];

template <class T> static bool each(T f) {
    for (int i = 0; i < 2; i++)
        if (f(&rank_gemv_q4k[i]) || f(&rank_gemv_q6k[i]) || f(&rank_gemv_q8[i])) return true;
    return f(&rank_gemv_f16[0]);
}
const struct rank_gemv_kernel *rank_gemv_find(enum layout l, int ga) {
    const struct rank_gemv_kernel *found = NULL;
    each([&](const struct rank_gemv_kernel *k) {
        if (k->l != l || k->ga != ga) return false;
        found = k;
        return true;
    });
    return found;
}
cudaError_t rank_gemv_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct rank_gemv_kernel *k) {
        for (auto run : k->run)
            if (e == cudaSuccess) e = all_shared_memory((const void *)run);
        return e != cudaSuccess;
    });
    return e;
}
