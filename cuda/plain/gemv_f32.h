// Matrices of F32 with few rows, and what follows them in the list.
#pragma once
#include "cuda/common/dev.h"

struct gemv_f32_job { // out = W x, up to 8 rows a launch
    dev_tables t;
    const uint8_t *weights;                // row tiles of n_part parts
    int n_tile, n_part, tile_parts, steps; // parts of a warp in a tile, up to a multiple of what is ahead
    int n_member, base[WEIGHT_GROUP_MAX], n[WEIGHT_GROUP_MAX], col[WEIGHT_GROUP_MAX];
    bool paired;       // a tile holds 8 rows of gate, then 8 of up
    const float *bias; // of all members' columns; NULL: none
    rows x, out;
    rows add; // added to the product; p NULL: nothing
    int act;  // of gate, times up; -1: both as they are
    int row0;
    bool out_rows;
};
// Whether the group is one matrix of F32 whose input and output lie well enough for it.
bool op_gemv_f32_take(const struct cuda_group *g, rows x);
// The job of a group: product alone; add and act are the caller's.
gemv_f32_job op_gemv_f32_job(const struct cuda_group *g, const uint8_t *weights, const float *bias);
cudaError_t op_gemv_f32_run(gemv_f32_job j, int n, int sm_count, op_queue s);
