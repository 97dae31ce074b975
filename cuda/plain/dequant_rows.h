// Weights back as plain rows, for cuBLASLt.
#pragma once
#include "cuda/common/dev.h"

// Rows row0 .. row0 + n of a matrix as rows of k_pad elements, zeros behind k: halves, or float32 where wide.
cudaError_t dequant_rows_run(dev_matrix w, int row0, int n, int k_pad, void *out, bool wide, cudaStream_t s);
// out[t] = act(y[t][0 .. n)) * y[t][n .. 2n) as halves into rows of out_row.
cudaError_t dequant_rows_glu_run(const float *y, int n, int act, const int *n_row, void *out, int out_row,
                                 int rows, cudaStream_t s);
// out[t][i] += bias[i], i < n.
cudaError_t dequant_rows_bias_run(float *out, size_t stride, const float *bias, int n, const int *n_row,
                                  int rows, cudaStream_t s);
