// Attention by a latent on tensor cores: which kernel takes which rows.
#include "cuda/common/launch.h"
#include "cuda/decode/mla/mla_attend.cuh"

typedef void kernel_fn(mla_job);
struct kernels {
    kernel_fn *run;
    int bytes;
};
#define KERNELS(name, mt)                                                                                    \
    {                                                                                                        \
        {name<mt, KV_F32>, mla_shape<mt, KV_F32>::bytes}, {name<mt, KV_F16>, mla_shape<mt, KV_F16>::bytes},  \
        {                                                                                                    \
            name<mt, KV_Q8_0>, mla_shape<mt, KV_Q8_0>::bytes                                                 \
        }                                                                                                    \
    }
static const struct kernels decode[2][3] = {KERNELS(mla_decode_kernel, 2), KERNELS(mla_decode_kernel, 4)},
                            prompt[3] = KERNELS(mla_prompt_kernel, 4);

cudaError_t mla_prepare(void) {
    for (int i = 0; i < 9; i++) {
        const struct kernels &k = i < 6 ? decode[i / 3][i % 3] : prompt[i - 6];
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
    const struct kernels &k = prompt[j.kv.type];
    return launch_overlapped(k.run, dim3((unsigned)((rows * (long long)j.n_head + 63) / 64)), 512,
                             (size_t)k.bytes, false, s, j);
}
