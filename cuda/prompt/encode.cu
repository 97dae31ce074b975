// Attention without a store: which kernel heads of a size take.
#include "cuda/prompt/encode_mma.cuh"
#include "cuda/prompt/encode_wgmma.cuh"

template <int DK, int DV> static cudaError_t wide(const encode_job &j, int n, cudaStream_t s) {
    using size = encode_size<DK, DV>;
    auto kernel = encode_wgmma_kernel<DK, DV>;
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size::smem);
    if (e != cudaSuccess) return e;
    // blocks of a head follow each other: its keys stay in L2
    const dim3 grid((unsigned)((n + size::rows - 1) / size::rows), (unsigned)j.n_head);
    kernel<<<grid, size::threads, size::smem, s>>>(j);
    return cudaGetLastError();
}
template <int D> static cudaError_t narrow(const encode_job &j, int n, cudaStream_t s) {
    auto kernel = encode_mma_kernel<D>;
    const int smem = encode_mma_size<D>::smem;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    if (e != cudaSuccess) return e;
    kernel<<<dim3((unsigned)((n + 63) / 64), (unsigned)j.n_head), 128, smem, s>>>(j);
    return cudaGetLastError();
}
cudaError_t encode_launch(const encode_job &j, int n, bool mma, cudaStream_t s) {
    const int d = j.dim;
    if (d > ENCODE_DIM || d % 2) return cudaErrorInvalidValue;
    if (mma)
        return d <= 64   ? narrow<64>(j, n, s)
               : d <= 80 ? narrow<80>(j, n, s)
               : d <= 96 ? narrow<96>(j, n, s)
                         : narrow<128>(j, n, s);
    return d <= 64   ? wide<64, 64>(j, n, s)
           : d <= 72 ? wide<80, 72>(j, n, s)
           : d <= 80 ? wide<80, 80>(j, n, s)
           : d <= 88 ? wide<96, 88>(j, n, s)
           : d <= 96 ? wide<96, 96>(j, n, s)
                     : wide<128, 128>(j, n, s);
}
