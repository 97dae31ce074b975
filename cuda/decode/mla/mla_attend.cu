// Attention by a latent on tensor cores: which kernel takes which rows.
#include "cuda/common/launch.h"
#include "cuda/decode/mla/mla_attend.cuh"

typedef void kernel_fn(mla_job);
struct kernels {
    kernel_fn *run;
    int bytes;
};
#define KERNEL(mt, t)                                                                                        \
    { mla_decode_kernel<mt, t>, mla_shape<mt, t>::bytes }
#define KERNELS(mt)                                                                                          \
    {                                                                                                        \
        KERNEL(mt, KV_F32), KERNEL(mt, KV_F16), KERNEL(mt, KV_Q8_0), KERNEL(mt, KV_F8), KERNEL(mt, KV_Q5_0), \
            KERNEL(mt, KV_Q4_0)                                                                              \
    }
static const struct kernels decode[2][KV_TYPES] = {KERNELS(2), KERNELS(4)},
                            prompt = {mla_prompt_kernel<4>, mla_shape<4, KV_F16>::bytes};

cudaError_t mla_prepare(void) {
    for (int i = 0; i <= 2 * KV_TYPES; i++) {
        const struct kernels &k = i < 2 * KV_TYPES ? decode[i / KV_TYPES][i % KV_TYPES] : prompt;
        const cudaError_t e =
            cudaFuncSetAttribute(k.run, cudaFuncAttributeMaxDynamicSharedMemorySize, k.bytes);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}
cudaError_t mla_decode_launch(const mla_job &j, int rows, bool overlap, cudaStream_t s) {
    const int pairs = mla_pairs(j.n_head);
    const struct kernels &k = decode[pairs == 64][j.kv.type];
    const cudaError_t e = launch_overlapped(k.run, dim3(j.max_split, (j.n_head + pairs - 1) / pairs, rows),
                                            pairs * 8, (size_t)k.bytes, overlap, s, j);
    if (e != cudaSuccess) return e;
    return launch_overlapped(mla_merge_kernel, dim3(j.n_head, LATENT_V / 128, rows), 256, 0, overlap, s, j);
}
cudaError_t mla_prompt_launch(const mla_job &j, int rows, cudaStream_t s) {
    if (j.kv.type != KV_F16) return cudaErrorInvalidValue;
    return launch_overlapped(prompt.run, dim3((unsigned)((rows * (long long)j.n_head + 63) / 64)), 512,
                             (size_t)prompt.bytes, false, s, j);
}
