/* The operations of a LINK_MLA. */
#pragma once
#include "cuda/plan/links.h"

struct mla_ops {
    const struct op_norm *norm; /* of the latent */
    const struct op_rope *k_rope, *q_rope;
    const struct op_kv_put *put;
    const struct op_heads *keys, *values; /* each head's matrices: of queries, and of sums */
    const struct op_attend *attend;
};
LINK_C struct mla_ops link_mla_ops(const struct op_list *l, const struct cuda_link *k);
