#include <stdio.h>
#include <string.h>
#include "cuda/common/cuda_error.h"

static uint64_t call_count, call_fail;
extern "C" void cuda_fail_at(uint64_t n) {
    __atomic_store_n(&call_fail, n ? __atomic_load_n(&call_count, __ATOMIC_RELAXED) + n : 0,
                     __ATOMIC_RELAXED);
}
extern "C" uint64_t cuda_call_count(void) { return __atomic_load_n(&call_count, __ATOMIC_RELAXED); }
bool cuda_fails_now(void) {
    uint64_t n = __atomic_add_fetch(&call_count, 1, __ATOMIC_RELAXED);
    return n == __atomic_load_n(&call_fail, __ATOMIC_RELAXED);
}
enum infer_status cuda_error(cudaError_t e, const char *what) {
    char call[64];
    snprintf(call, sizeof call, "%.*s", (int)strcspn(what, "("), what);
    (void)cudaGetLastError();
    return err_set(e == cudaErrorMemoryAllocation ? INFER_E_MEMORY : INFER_E_DEVICE, "CUDA: %s: %s", call,
                   cudaGetErrorString(e));
}
