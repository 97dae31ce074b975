/* The operations of a LINK_ENCODE: up to two rotations of q and of k, attention without a store. */
#pragma once
#include "cuda/plan/links.h"

struct encode_ops {
    const struct op_rope *q[2], *k[2];
    int n_turn;
    const struct op_attend *attend;
};
LINK_C struct encode_ops link_encode_ops(const struct op_list *l, const struct cuda_link *k);
