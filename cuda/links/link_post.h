/* The operations of a LINK_POST behind its matmul: x = scale * (x + norm(factor * y)). */
#pragma once
#include "cuda/plan/links.h"

struct post_ops {
    const struct op_norm *norm; /* NULL: none */
    const struct op_add *add;
    float factor, scale; /* 1: none */
};
LINK_C struct post_ops link_post_ops(const struct op_list *l, const struct cuda_plan *plan,
                                     const struct cuda_link *k);
