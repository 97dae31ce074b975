// A Mamba-2 layer of decode rows, from what its projection left to the input of its output projection: convolution, step, the state's
// update, the gate and the norm of each group of heads, in one kernel.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/decode/gemv/gemv.h"
#include "cuda/plan/delta_plan.h"

struct ssm_decode_job {
    dev_tables t;
    const float *x, *z, *dt; // [row]: x, B, C before the convolution; z [n_head][64]; dt [n_head]
    size_t x_row, z_row, dt_row;
    const float *conv_w, *conv_bias; // [channel][4], [channel] or NULL
    const float *A, *dt_bias, *skip; // [n_head], skip NULL: none
    float lo, hi;
    const float *norm; // NULL: none
    int norm_step;     // weights from a group's to the next one's, 0: all have the same
    float eps;
    float *conv, *state; // slot 0 of their stores, slots so many floats apart:
    size_t conv_elem, state_elem;
    int n_head, n_group;
    bool wait;    // the step itself is still being written
    int *arrived; // [row][n_group], 0 before and after
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch; // xo as tiles of act_tile.cuh with so many rows; 0: as rows
};
cudaError_t ssm_decode_launch(const ssm_decode_job &j, int rows, bool overlap, cudaStream_t s);
