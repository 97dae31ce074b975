// The table of streaming kernels.
#include "cuda/decode/gemv/gemv_shared.h"

// rows of layouts.def as F(name, number of kernels)
#define ROW_CODES(id)  F(id, 18)
#define ROW_EIGHTS(id) F(id, 8)
#define ROW_HALVES(id) F(id, 6)
#define ROW_FLOATS(id)
#define LAYOUT(id, name, bytes, kind) ROW_##kind(id)
#define PAIR(id, id2, slots, slots2)  F(id##_##id2, 4)
#define F(name, n)                    extern const struct mm_kernel mm_##name[n];
#include "cuda/plan/layouts.def"
#undef F

// Calls f for each entry until it returns true.
template <class T> static bool each(T f) {
#define LAYOUT(id, name, bytes, kind) ROW_##kind(id)
#define PAIR(id, id2, slots, slots2)  F(id##_##id2, 4)
#define F(name, n)                                                                                           \
    for (int i = 0; i < n; i++)                                                                              \
        if (f(&mm_##name[i])) return true;
#include "cuda/plan/layouts.def"
#undef F
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
    return gemv_lay_out(k->warps, k->r, x_bytes, (size_t)k->ring).bytes;
}

size_t few_plan(const struct mm_kernel *k, int t, int u, size_t most, struct few_shape *s) {
    const int a = layout_unit_bytes(k->l), b = k->l2 == LAYOUT_COUNT ? 0 : layout_unit_bytes(k->l2),
              unit = a > b ? a : b, tiles = few_tiles(k->r, k->epilogue);
    for (s->groups = FEW_GROUPS; s->groups; s->groups--)
        for (s->buffers = t == 8 ? 2 : 4; s->buffers; s->buffers /= 2)
            for (s->slots = FEW_SLOTS; s->slots >= 2; s->slots--) {
                const few_areas at = few_lay_out(*s, k->warps, t, 16 * tiles, u, unit);
                const size_t bytes = FEW_HEAD + (size_t)(at.sums + at.x + at.slots);
                if (bytes <= most) return bytes;
            }
    return 0;
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
