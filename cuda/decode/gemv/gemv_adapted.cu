// The table of kernels of one row with adapters: for the types of most files, on chips that have room for a wide block.
#include "cuda/decode/gemv/gemv_adapted.h"

extern const struct gemv_adapted_kernel gemv_adapted_q4k[4], gemv_adapted_q6k[4], gemv_adapted_q8[4],
    gemv_adapted_q4[4], gemv_adapted_q4k_q6k[1];

template <class T> static bool each(T f) {
    for (int i = 0; i < 4; i++)
        if (f(&gemv_adapted_q4k[i]) || f(&gemv_adapted_q6k[i]) || f(&gemv_adapted_q8[i]) ||
            f(&gemv_adapted_q4[i]))
            return true;
    return f(&gemv_adapted_q4k_q6k[0]);
}
const struct gemv_adapted_kernel *gemv_adapted_find(const struct mm_kernel *k) {
    const struct gemv_adapted_kernel *found = NULL;
    each([&](const struct gemv_adapted_kernel *a) {
        if (a->l != k->l || a->l2 != k->l2 || a->ga != k->ga || a->epilogue != k->epilogue || a->r != k->r ||
            a->warps != k->warps || a->ring != k->ring)
            return false;
        found = a;
        return true;
    });
    return found;
}
cudaError_t gemv_adapted_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct gemv_adapted_kernel *k) {
        for (auto run : k->run)
            if (e == cudaSuccess) e = all_shared_memory((const void *)run);
        return e != cudaSuccess;
    });
    return e;
}
