// Float32 rows to and from the forms in which decode's matmuls read their input: for links whose neighbour has rows.
#pragma once
#include "cuda/decode/gemv/gemv.h"

struct act_rows_job {
    rows x;
    const int *n_row;
    // of the residual stream: norm weights, the rows' scales (gemv_args), sums of squares of 16 columns; norm NULL: as they are
    const float *norm, *scale;
    float *square;
    size_t square_row;
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch; // xo as tiles of act_tile.cuh with so many rows; 0: as rows
};
// n rows of j.x to j.xo.
cudaError_t act_rows_give(const act_rows_job &j, int n, bool overlap, cudaStream_t s);
// n rows of j.xo, GIVE_BF16, to j.x.
cudaError_t act_rows_take(const act_rows_job &j, int n, bool overlap, cudaStream_t s);
