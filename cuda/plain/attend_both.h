// Attention where some rows see what follows them: rows of a picture (struct step.until), until[n].
#pragma once
#include "cuda/common/dev.h"

cudaError_t op_attend_both_run(dev_tables t, dev_kv kv, rows q, rows out, attend_rule a, const int32_t *until,
                               int n, op_queue s);
