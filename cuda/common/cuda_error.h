// The one door for errors: every call of the runtime goes through CU. A test makes the n-th one fail.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>
#include "base/status.h"

extern "C" void cuda_fail_at(uint64_t n); // 0: none
extern "C" uint64_t cuda_call_count(void);
bool cuda_fails_now(void);
enum infer_status cuda_error(cudaError_t e, const char *what);
#define CU(call)                                                                                             \
    do {                                                                                                     \
        cudaError_t cu_error_ = cuda_fails_now() ? cudaErrorUnknown : (call);                                \
        if (cu_error_ != cudaSuccess) return cuda_error(cu_error_, #call);                                   \
    } while (0)
