/* The operations of a LINK_SHORTCONV. */
#pragma once
#include "cuda/plan/links.h"

struct shortconv_ops {
    const struct op_glu *before, *behind;
    const struct op_conv *conv;
};
LINK_C struct shortconv_ops link_shortconv_ops(const struct op_list *l, const struct cuda_link *k);
