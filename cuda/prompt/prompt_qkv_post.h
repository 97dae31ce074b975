// Prompt rows of what a plain Llama does not have: attention of heads above 128, norms of values and behind the rotation, a
// temperature of scores, norms and factors between a product and the residual stream.
#pragma once
#include "cuda/common/front.h"
#include "cuda/prompt/prompt_kernels.h"

struct prompt_qkv_post_job {
    prompt_put_job put;
    bool v_norm, late; // values are normed, without weights; norms of q and k stand behind the rotation
    float temp_beta;   // 0: none
    int temp_len, temp_offset;
};
// Whether prompt_put_launch does less than this.
static inline bool prompt_qkv_post_wanted(const prompt_qkv_post_job &j) {
    return j.v_norm || j.late || j.temp_beta != 0;
}
cudaError_t prompt_qkv_post_launch(const prompt_qkv_post_job &j, int n, cudaStream_t s);

// Attention of heads up to 512 on sm_90a.
cudaError_t flash_wide_launch(const prompt_attend_job &j, int n, cudaStream_t s);

// x = scale * (x + norm(factor * y)); widths are multiples of 4.
struct prompt_post_job {
    rows x, y;
    const float *norm; // NULL: weights of 1
    bool normed;
    float eps, factor, scale;
    const int *n_row;
};
cudaError_t prompt_post_launch(const prompt_post_job &j, int n, cudaStream_t s);

// As prompt_norm_launch, with what f does to the rows.
cudaError_t prompt_front_launch(rows x, const front_job &f, const int *n_row, uint8_t *tiles, int k_tiles,
                                int order, int n, cudaStream_t s);
