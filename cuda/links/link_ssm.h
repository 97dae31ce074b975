/* The operations of a LINK_SSM. */
#pragma once
#include "cuda/plan/links.h"

struct ssm_ops {
    const struct op_conv *conv;
    const struct op_ssm *ssm;
    const struct op_glu *glu;
    const struct op_norm *norm; /* NULL: none */
};
LINK_C struct ssm_ops link_ssm_ops(const struct op_list *l, const struct cuda_link *k);
