// MLA (attention by a latent): a matrix for each head, and values that are the first numbers of their keys.
#pragma once
#include "cuda/common/stack.h"

cudaError_t op_stack_run(dev_tables t, stack_job j, int n, bool decode, op_queue s);
// dv: of a value, the first numbers of its key (kv.dv is 0)
cudaError_t op_attend_mla_run(dev_tables t, dev_kv kv, int dv, rows q, rows out, attend_rule a, int n,
                              op_queue s);
