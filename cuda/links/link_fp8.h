/* The operations of a LINK_FP8, LINK_FP8_SUM or LINK_FP8_GATED, NULL where the link has none. */
#pragma once
#include "cuda/plan/links.h"

struct fp8_ops {
    const struct op_rows *rows; /* of a head: whose product has a choice behind it */
    const struct op_norm *norm; /* of the first matmul's rows */
    const struct op_matmul *matmul, *down;
    const struct op_glu *glu; /* between the two */
    const struct op_add *add; /* of the last one to the residual stream */
    const struct op_select *select;
};
LINK_C struct fp8_ops link_fp8_ops(const struct op_list *l, const struct cuda_link *k);
