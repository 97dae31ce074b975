// Instances of the kernels for many decode rows.
#pragma once
#include "cuda/decode/skinny/skinny.cuh"

#define HALF_ENTRY(l, lx, lc, shared, nt, group)                                                             \
    {                                                                                                        \
        l, lc, shared, group, nt, skinny_shape<l, nt, group>::parts *skinny_shape<l, nt, group>::x,          \
            skinny_kernel<l, lx, nt, group, shared>                                                          \
    }
#define HALF_SINGLE(l, shared, nt, group) HALF_ENTRY(l, -1, LAYOUT_COUNT, shared, nt, group)
#define SKINNY_HALVES(id)                 HALF_HALVES(half_##id, LAYOUT_##id)
#define SKINNY_CODES(id)                  HALF_CODES(half_##id, LAYOUT_##id, -1, LAYOUT_COUNT)
#define SKINNY_EIGHTS(id)                 SKINNY_CODES(id)
#define SKINNY_PAIR(id, id2, s, s2)       HALF_CODES(half_##id##_##id2, LAYOUT_##id, LAYOUT_##id2, LAYOUT_##id2)
#define HALF_HALVES(name, l)                                                                                 \
    extern const struct skinny_entry name[SKINNY_ENTRIES];                                                   \
    const struct skinny_entry name[SKINNY_ENTRIES] = {                                                       \
        HALF_SINGLE(l, true, 1, false),  HALF_SINGLE(l, false, 2, false), HALF_SINGLE(l, true, 2, false),    \
        HALF_SINGLE(l, false, 4, false), HALF_SINGLE(l, true, 4, false),  HALF_SINGLE(l, false, 8, false),   \
        HALF_SINGLE(l, false, 16, true)};
#define HALF_CODES(name, l, lx, lc)                                                                          \
    extern const struct skinny_entry name[SKINNY_ENTRIES];                                                   \
    const struct skinny_entry name[SKINNY_ENTRIES] = {                                                       \
        HALF_ENTRY(l, lx, lc, true, 1, false),  HALF_ENTRY(l, lx, lc, true, 2, false),                       \
        HALF_ENTRY(l, lx, lc, false, 4, false), HALF_ENTRY(l, lx, lc, false, 4, true),                       \
        HALF_ENTRY(l, lx, lc, false, 8, false), HALF_ENTRY(l, lx, lc, false, 8, true),                       \
        HALF_ENTRY(l, lx, lc, false, 16, true)};
