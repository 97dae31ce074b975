// A layer's gated delta rule of prompt rows, in chunks of 64 positions that end at multiples of 64: what the positions of a chunk are to
// each other for all chunks at once, then the chunks of each sequence one after the other, for columns of the states at once.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/plan/delta_plan.h"

// Of the step's rows: chunks, and the runs of chunks of a sequence.
struct delta_chunk {
    int row, n; // rows of the step, 1 to 64
};
struct delta_run {
    int row, n_row, chunk, n_chunk;
};
// count[0]: chunks, count[1]: runs
struct delta_cuts {
    int *count;
    struct delta_chunk *chunk; // [delta_chunks]
    struct delta_run *run;     // [delta_runs]
};
// Rows of a layer whose channels, blocks of 128, go through a convolution, then as halves or as rows to what has the state.
struct chunk_rows_job {
    dev_tables t;
    const float *x; // [row][n_block][128] before the convolution
    size_t x_row;
    const float *conv_w, *conv_bias;
    float *conv, *state;
    size_t conv_elem, state_elem;
    int n_block, first_half, n_half; // blocks that become halves
    int stages;
    delta_cuts cuts;
    // between the kernels: halves [row][n_half][128], rows qk_row bytes apart, v [row][others][128], and what each chunk and head keeps
    // (delta_plan.h)
    uint8_t *qk;
    size_t qk_row;
    float *v;
    size_t v_row;
    uint8_t *pair, *factor;
    float *out; // [row][head][columns]
    size_t out_row;
};
// Halves: q and k, of unit length.
struct delta_prompt_job : chunk_rows_job {
    const float *a, *b; // [row][n_value]
    size_t a_row, b_row;
    const float *A, *dt_bias;
    int n_key, n_value;
    bool tiled;
};
cudaError_t delta_cuts_launch(dev_tables t, delta_cuts c, cudaStream_t s); // once a step
// n: rows, runs: the most there may be
cudaError_t delta_prompt_launch(const delta_prompt_job &j, int n, int n_slot, int sm_count, cudaStream_t s);
// Chunks that a block has at a time with so much shared memory; attributes of the kernels, once a device.
int delta_prompt_stages(size_t shared);
cudaError_t delta_prompt_prepare(int stages);
// The norm of each head's 128 numbers and the gate, from rows to the tiles of a matmul (prompt_tiles.cuh): out * rsqrt(mean + eps) * w * silu(z).
struct delta_norm_job {
    const float *x, *z, *w;
    size_t x_row, z_row;
    float eps;
    int n_head;
    const int *n_row;
    uint8_t *tiles;
    int k_tiles, order;
};
cudaError_t delta_norm_launch(const delta_norm_job &j, int n, cudaStream_t s);
