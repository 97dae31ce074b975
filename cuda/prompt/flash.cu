// Attention of prompt rows with heads up to 128: launches.
#include "cuda/prompt/flash_wgmma.cuh"
#include "cuda/prompt/flash_mma.cuh"

bool prompt_attend_has(int dk, int dv) { return dk <= 128 && dv <= 128 && dk % 8 == 0 && dv % 8 == 0; }
template <int D, int T, class J> static cudaError_t attend(const J &j, int n, cudaStream_t s) {
    int smem = ATTEND_STAGES * 2 * (D / 64) * ATTEND_KEYS * 128 + 256 * D + 1024;
    cudaError_t e =
        cudaFuncSetAttribute(flash_wgmma_kernel<D, T, J>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    if (e != cudaSuccess) return e;
    flash_wgmma_kernel<D, T, J><<<dim3(j.n_head, (n + ATTEND_ROWS - 1) / ATTEND_ROWS), 384, smem, s>>>(j);
    return cudaGetLastError();
}
template <int D, int T, class J> static cudaError_t flash(const J &j, int n, cudaStream_t s) {
    cudaError_t e = cudaFuncSetAttribute(flash_mma_kernel<D, T, J>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, flash_size<D>::smem);
    if (e != cudaSuccess) return e;
    dim3 grid((unsigned)j.n_head, (unsigned)((n + FLASH_ROWS - 1) / FLASH_ROWS));
    flash_mma_kernel<D, T, J><<<grid, 128, flash_size<D>::smem, s>>>(j);
    return cudaGetLastError();
}
template <int T, class J> static cudaError_t launch(const J &j, int n, bool mma, cudaStream_t s) {
    bool small = j.dk <= 64 && j.dv <= 64;
    if (mma) return small ? flash<64, T>(j, n, s) : flash<128, T>(j, n, s);
    return small ? attend<64, T>(j, n, s) : attend<128, T>(j, n, s);
}
template <class J> static cudaError_t launch_any(const J &j, int n, bool mma, cudaStream_t s) {
    return j.type == KV_F16    ? launch<KV_F16>(j, n, mma, s)
           : j.type == KV_Q8_0 ? launch<KV_Q8_0>(j, n, mma, s)
                               : launch<KV_F32>(j, n, mma, s);
}
cudaError_t prompt_attend_launch(const prompt_attend_job &j, int n, bool mma, cudaStream_t s) {
    return launch_any(j, n, mma, s);
}
cudaError_t prompt_attend_both_launch(const prompt_attend_both &j, int n, bool mma, cudaStream_t s) {
    return launch_any(j, n, mma, s);
}
