// Instances of the kernels of quantised weights times many rows.
#pragma once
#include "wide_codes.cuh"

#define CODES_ENTRY(l, lx, lc, ga, nt, group)                                                                \
    { l, lc, ga, nt, group, wide_codes_kernel<l, lx, ga, nt, group> }
#define CODES(name, l)                                                                                       \
    extern const struct codes_entry codes_##name[4];                                                         \
    const struct codes_entry codes_##name[4] = {                                                             \
        CODES_ENTRY(l, -1, LAYOUT_COUNT, 32, 4, false), CODES_ENTRY(l, -1, LAYOUT_COUNT, 32, 8, true),       \
        CODES_ENTRY(l, -1, LAYOUT_COUNT, 16, 4, false), CODES_ENTRY(l, -1, LAYOUT_COUNT, 16, 8, true)};
#define CODES_TWO(name, l, l2)                                                                               \
    extern const struct codes_entry codes_##name[2];                                                         \
    const struct codes_entry codes_##name[2] = {CODES_ENTRY(l, l2, l2, 32, 4, false),                        \
                                                CODES_ENTRY(l, l2, l2, 32, 8, true)};
