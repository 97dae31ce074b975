// Instances of the kernels of halves for many decode rows.
#pragma once
#include "wide_half.cuh"

#define HALF_ENTRY(l, shared, nt)                                                                            \
    { l, shared, nt, half_shape<l, nt>::parts *half_shape<l, nt>::x, wide_half_kernel<l, nt, shared> }
