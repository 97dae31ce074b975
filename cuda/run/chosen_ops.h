// From operations to jobs of the plain kernels: positions that are chosen, attention to them, rows of a table by runs of tokens.
#pragma once
#include "cuda/run/cuda_impl.h"

// Whether attention looks at the positions of a list, and at nothing beside them.
static inline bool attends_chosen(const struct op_attend *o) {
    return o->store >= 0 && o->by.n_top > 0 && !o->entries;
}
enum infer_status cuda_index_op(cuda_backend *b, const struct op_list *l, const struct op_index *o, int n,
                                op_queue s);
enum infer_status cuda_attend_chosen_op(cuda_backend *b, const struct op_list *l, const struct op_attend *o,
                                        int n, op_queue s);
enum infer_status cuda_ngram_op(cuda_backend *b, const struct op_list *l, const struct op_ngram *o, int n,
                                op_queue s);
