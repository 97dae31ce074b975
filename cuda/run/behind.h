// What comes behind each link of a step where somebody looks: when it ended, and what it wrote.
#pragma once
#include "cuda/run/look.h"
#include "cuda/run/stamps.h"

static inline enum infer_status behind_link(cuda_backend *b, const struct op_list *l, const program_link *d,
                                            bool overlap, cudaStream_t s) {
    TRY(stamps_link(b, d, overlap, s));
    return look_link(b, l, d);
}
static inline enum infer_status behind_ops(cuda_backend *b, const struct op_list *l, int first, int n_op,
                                           op_queue q) {
    TRY(stamps_ops(b, l, first, n_op, q));
    return look_ops(b, l, first, n_op);
}
