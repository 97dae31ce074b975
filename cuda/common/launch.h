// Launches of kernels that wait for their input themselves.
#pragma once
#include <cuda_runtime.h>

// A launch that may start before the kernel in front of it has ended; kernels wait themselves (pdl_wait).
template <class... A, class... B>
static cudaError_t launch_overlapped(void (*k)(A...), dim3 grid, dim3 block, size_t smem, bool overlap,
                                     cudaStream_t s, B... args) {
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute at[1];
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = smem;
    c.stream = s;
    c.attrs = at;
    c.numAttrs = overlap ? 1 : 0;
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    return cudaLaunchKernelEx(&c, k, A(args)...);
}
