// Instances of the kernels for many decode rows.
#pragma once
#include "wide.cuh"

#define WIDE_ENTRY(l, lx, lc, ga, nt)                                                                        \
    { l, lc, ga, nt, wide_kernel<l, lx, ga, nt> }
#define WIDE(name, l)                                                                                        \
    extern const struct wide_entry wide_##name[2];                                                           \
    const struct wide_entry wide_##name[2] = {WIDE_ENTRY(l, -1, LAYOUT_COUNT, 32, 4),                        \
                                              WIDE_ENTRY(l, -1, LAYOUT_COUNT, 16, 4)};
#define WIDE_TWO(name, l, l2)                                                                                \
    extern const struct wide_entry wide_##name[1];                                                           \
    const struct wide_entry wide_##name[1] = {WIDE_ENTRY(l, l2, l2, 32, 4)};
