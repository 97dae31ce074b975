// Columns of rows in another order: out[r][i] = x[r][from[i]].
#pragma once
#include "cuda/common/dev.h"

// from[x.width]: a permutation, on the device
cudaError_t op_columns_run(dev_tables t, rows x, rows out, const int32_t *from, int n, bool out_rows,
                           op_queue s);
