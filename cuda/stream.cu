// The table of streaming kernels.
#include "stream.h"

#define TABLE(f)                                                                                             \
    f(q4k, 18) f(q6k, 18) f(q4k_q6k, 4) f(q4, 18) f(q4m, 18) f(q8, 18) f(q8m, 18) f(q5k, 18) f(q5k_q6k, 4)   \
        f(q3k, 18) f(iq4, 18) f(q2k, 18) f(f16, 6) f(bf16, 6)
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
        if (k->l != l || k->l2 != l2 || k->ga != ga || k->epilogue != epi || nth--) return false;
        found = k;
        return true;
    });
    return found;
}

size_t mm_smem(const struct mm_kernel *k, size_t x_bytes) {
    return 1024 + (size_t)k->warps * (size_t)k->warps * 16 * (size_t)k->r * 4 + x_bytes + (size_t)k->ring;
}

size_t few_smem(const struct mm_kernel *k, int t, int u) {
    return 1024 + (size_t)(few_buffers(t) * k->warps * t * 16 * few_tiles(t, k->r, k->epilogue)) * 4 +
           (size_t)(u * t) * FEW_ROW + (size_t)few_ring(t, k->ring, k->epilogue);
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
        for (auto run : k->few)
            if (run && e == cudaSuccess) e = all_shared_memory((const void *)run);
        return e != cudaSuccess;
    });
    return e;
}
