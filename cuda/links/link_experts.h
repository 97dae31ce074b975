/* The operations of a LINK_EXPERTS. */
#pragma once
#include "cuda/plan/links.h"

struct experts_ops {
    const struct op_norm *norm; /* NULL: none */
    const struct op_matmul *router;
    const struct op_route *route;
    const struct op_experts *gated, *down;
    const struct op_glu *glu;
    /* the shared expert's, what weighs it; NULL: none */
    const struct op_matmul *shared, *shared_down, *weigh;
    const struct op_glu *shared_glu;
    const struct op_mix *mix; /* NULL: none */
    const struct op_add *add; /* NULL: none */
    bool single;              /* one matrix and its activation in place of gate and up */
};
LINK_C struct experts_ops link_experts_ops(const struct op_list *l, const struct cuda_link *k);
