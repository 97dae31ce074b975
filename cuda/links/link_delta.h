/* The operations of a LINK_DELTA. */
#pragma once
#include "cuda/plan/links.h"

struct delta_ops {
    const struct op_conv *conv;
    const struct op_delta *delta;
    const struct op_norm *norm;
    const struct op_glu *glu;
};
LINK_C struct delta_ops link_delta_ops(const struct op_list *l, const struct cuda_link *k);
