/* The arithmetic of OP_BALANCE (backend.h): float32, one row at a time, so that it has the same bits on every backend that has it. */
#pragma once
#include "seam/backend.h"

/* One row: x[width] -> out[width], which may be x. */
void balance_row(const struct op_balance *o, const float *x, float *out);
