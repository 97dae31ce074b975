// Of two matmuls of one row the second: it begins when the first has the row, not when that one ends, and both are read side by side.
#pragma once
#include "cuda/decode/gemv/gemv.h"

typedef void (*gemv_twin)(const gemv_args);
// In place of k; NULL: there is none.
gemv_twin gemv_twin_find(const struct mm_kernel *k);
cudaError_t gemv_twin_prepare(void);
