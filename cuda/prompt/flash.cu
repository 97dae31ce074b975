// Attention of prompt rows with heads up to 128: launches.
#include "cuda/prompt/flash_wgmma.cuh"
#include "cuda/prompt/flash_mma.cuh"

bool prompt_attend_has(int dk, int dv) { return dk <= 128 && dv <= 128 && dk % 8 == 0 && dv % 8 == 0; }
template <int D, class J> static cudaError_t attend(const J &j, int n, cudaStream_t s) {
    int smem = ATTEND_STAGES * 2 * (D / 64) * ATTEND_KEYS * 128 + 256 * D + 1024;
    cudaError_t e =
        cudaFuncSetAttribute(flash_wgmma_kernel<D, J>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    if (e != cudaSuccess) return e;
    flash_wgmma_kernel<D, J><<<dim3(j.n_head, (n + ATTEND_ROWS - 1) / ATTEND_ROWS), 384, smem, s>>>(j);
    return cudaGetLastError();
}
template <int D, class J> static cudaError_t flash(const J &j, int n, cudaStream_t s) {
    cudaError_t e = cudaFuncSetAttribute(flash_mma_kernel<D, J>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         flash_size<D>::smem);
    if (e != cudaSuccess) return e;
    dim3 grid((unsigned)j.n_head, (unsigned)((n + FLASH_ROWS - 1) / FLASH_ROWS));
    flash_mma_kernel<D, J><<<grid, 128, flash_size<D>::smem, s>>>(j);
    return cudaGetLastError();
}
template <class J> static cudaError_t launch(const J &j, int n, bool mma, cudaStream_t s) {
    bool small = j.dk <= 64 && j.dv <= 64;
    if (j.type != KV_F16) return cudaErrorInvalidValue;
    if (mma) return small ? flash<64>(j, n, s) : flash<128>(j, n, s);
    return small ? attend<64>(j, n, s) : attend<128>(j, n, s);
}
cudaError_t prompt_attend_launch(const prompt_attend_job &j, int n, bool mma, cudaStream_t s) {
    return launch(j, n, mma, s);
}
cudaError_t prompt_attend_both_launch(const prompt_attend_both &j, int n, bool mma, cudaStream_t s) {
    return launch(j, n, mma, s);
}
