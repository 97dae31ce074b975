/* The operations of a LINK_MIX. */
#pragma once
#include "cuda/plan/links.h"

struct mix_ops {
    const struct op_matmul *gate; /* NULL: none */
    const struct op_mix *mix;
    const struct op_add *add;
};
LINK_C struct mix_ops link_mix_ops(const struct op_list *l, const struct cuda_link *k);
