// Attention by a latent: a matrix for each head, and values that are the first numbers of their keys.
#pragma once
#include "cuda/common/dev.h"

struct stack_job { // op_heads
    dev_matrix w;  // of head 0; of head h: h * step rows further
    int step, n_head, rest;
    rows x, out;
};
cudaError_t op_stack_run(dev_tables t, stack_job j, int n, bool decode, op_queue s);
// dv: of a value, the first numbers of its key (kv.dv is 0)
cudaError_t op_attend_latent_run(dev_tables t, dev_kv kv, int dv, rows q, rows out, attend_rule a, int n,
                                 op_queue s);
