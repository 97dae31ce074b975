// Between a product and the residual stream of decode rows: x = scale * (x + norm(factor * y)), and x as its next reader wants it.
#pragma once
#include "cuda/decode/gemv/act_rows.h"

struct post_job {
    float *y;             // [row][x.width], what the product added to zeros; zeros again behind this
    const float *squares; // sums of y's squares of 16 columns, give.square_row apart
    const float *norm;    // NULL: weights of 1
    bool normed;
    float eps, factor, scale;
    act_rows_job give; // x, its rows, the next norm; what it is given as
    bool gives;
};
cudaError_t post_norm_launch(const post_job &j, int n, bool overlap, cudaStream_t s);
