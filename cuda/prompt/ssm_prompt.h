// Mamba-2 of prompt rows, in chunks of 64 positions that end at multiples of 64: what the positions of a chunk are to each other for all
// chunks at once, then the chunks of each sequence one after the other, for columns of the states at once; then the gate and the norm.
#pragma once
#include "cuda/prompt/delta_prompt.h"

// Channels: x [n_head][head_dim], B [n_group][128], C [n_group][128], of which B and C become halves.
struct ssm_prompt_job : chunk_rows_job {
    const float *dt; // [row][n_head]
    size_t dt_row;
    const float *A, *dt_bias, *skip; // [n_head], skip NULL: none
    float lo, hi;
    int n_head, head_dim, n_group;
};
cudaError_t ssm_prompt_launch(const ssm_prompt_job &j, int n, int n_slot, int sm_count, cudaStream_t s);
// Chunks that a block has at a time with so much shared memory; attributes of the kernels, once a device.
int ssm_prompt_stages(size_t shared);
cudaError_t ssm_prompt_prepare(int stages);
// x * silu(z), divided by the root mean square of each group of dim columns and times w (NULL: neither), from rows to the tiles of a matmul
// (prompt_tiles.cuh).
struct ssm_norm_job {
    const float *x, *z, *w;
    size_t x_row, z_row;
    float eps;
    int dim, n_group, w_step; // w_step: weights from a group's to the next one's, 0: all have the same
    const int *n_row;
    uint8_t *tiles;
    int k_tiles, order;
};
cudaError_t ssm_norm_launch(const ssm_norm_job &j, int n, cudaStream_t s);
