// The table of streaming kernels.
#include "stream.h"

#define TABLE(f)                                                                                             \
    f(q4k, 10) f(q6k, 10) f(q4k_q6k, 2) f(q4, 10) f(q4m, 10) f(q8, 10) f(q8m, 10) f(q5k, 10) f(q5k_q6k, 2)   \
        f(q3k, 10) f(iq4, 10) f(f16, 6) f(bf16, 6)
#define DECLARE(name, n) extern const struct mm_kernel mm_##name[n];
TABLE(DECLARE)

// Calls f for each entry until it returns true.
template <class F> static bool each(F f) {
#define VISIT(name, n)                                                                                       \
    for (int i = 0; i < n; i++)                                                                              \
        if (f(&mm_##name[i])) return true;
    TABLE(VISIT)
    return false;
}

const struct mm_kernel *mm_find(enum layout l, enum layout l2, int ga, enum mm_epilogue epi, int nth) {
    const struct mm_kernel *found = NULL;
    each([&](const struct mm_kernel *k) {
        if (k->l != l || k->l2 != l2 || (k->ga && k->ga != ga) || k->epilogue != epi || nth--) return false;
        found = k;
        return true;
    });
    return found;
}

size_t mm_smem(const struct mm_kernel *k, bool many, int buffers, size_t x_bytes) {
    size_t red = many ? (size_t)buffers * (size_t)k->warps[0] * 8 * 36 * 4
                      : (size_t)k->warps[0] * k->warps[0] * 16 * k->r * 4;
    return 1024 + red + x_bytes + (size_t)k->ring[many];
}

cudaError_t all_shared_memory(const void *kernel) {
    cudaFuncAttributes fa;
    int device, most;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&fa, kernel);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 most - (int)fa.sharedSizeBytes);
    // one split of L1 and shared memory for all: an SM changes it only when idle, which would undo overlap
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    return e;
}
cudaError_t mm_prepare(void) {
    cudaError_t e = cudaSuccess;
    each([&](const struct mm_kernel *k) {
        for (auto run : k->run)
            if (run && e == cudaSuccess) e = all_shared_memory((const void *)run);
        return e != cudaSuccess;
    });
    return e;
}
