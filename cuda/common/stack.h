// Matrices of heads, which plain and tensor-core kernels multiply with.
#pragma once
#include "cuda/common/dev.h"

struct stack_job { // OP_HEADS
    dev_matrix w;  // of head 0; of head h: h * step rows further
    int step, n_head, rest;
    rows x, out;
};
