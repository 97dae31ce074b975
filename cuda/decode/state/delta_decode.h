// A layer's gated delta rule of decode rows, from what its projection left to the input of its output projection: convolution, unit
// lengths, gates, the state's update, the output and its norm and gate, in one kernel.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/decode/gemv/gemv.h"
#include "cuda/plan/delta_plan.h"

struct delta_decode_job {
    dev_tables t;
    const float *x, *z, *a, *b; // [row]: q, k, v before the convolution; z [n_value][128]; a, b [n_value]
    size_t x_row, z_row, a_row, b_row; // floats
    const float *conv_w, *conv_bias;   // [channel][4], [channel] or NULL
    const float *A, *dt_bias;          // [n_value]
    const float *norm;                 // [128]
    float eps;
    float *conv, *state; // slot 0 of their stores, slots so many floats apart:
    size_t conv_elem, state_elem;
    int n_key, n_value;
    bool tiled;   // value head h has key head h % n_key
    bool wait;    // the step itself is still being written
    int *arrived; // [row][n_key], 0 before and after
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch; // xo as tiles of act_tile.cuh with so many rows; 0: as rows
};
// Rows of n_seq sequences at most.
cudaError_t delta_decode_launch(const delta_decode_job &j, int rows, int n_seq, bool overlap, int sm_count,
                                cudaStream_t s);
