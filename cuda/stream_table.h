// Instances of the streaming kernels: MM_ONE(name, layout, row tiles a step, warps, ring slots for one row, for many).
#pragma once
#include "stream.h"

#define MM_RING(l, r, w, s) ((w) * (s) * (r)*layout_unit_bytes(l))
#define MM_MAX(a, b)        ((a) > (b) ? (a) : (b))
#define MM_ENTRY(name, l, lx, lc, ga, r, w, s, s2, sm, ring1, ringm)                                         \
    {                                                                                                        \
        l, lc, ga, r, w, {ring1, ringm}, {                                                                   \
            stream_kernel<l, lx, ga, r, w, s, s2, false>, stream_kernel<l, lx, ga, r, w, sm, sm, true>       \
        }                                                                                                    \
    }
#define MM_ONE(name, l, r, w, s, sm)                                                                         \
    extern const struct mm_kernel mm_##name[2];                                                              \
    const struct mm_kernel mm_##name[2] = {                                                                  \
        MM_ENTRY(name, l, -1, LAYOUT_COUNT, 32, r, w, s, 1, sm, MM_RING(l, r, w, s), MM_RING(l, r, w, sm)),  \
        MM_ENTRY(name, l, -1, LAYOUT_COUNT, 16, r, w, s, 1, sm, MM_RING(l, r, w, s), MM_RING(l, r, w, sm))};
#define MM_NARROW(name, l, w, s, sm)                                                                         \
    extern const struct mm_kernel mm_##name##_narrow[1];                                                     \
    const struct mm_kernel mm_##name##_narrow[1] = {                                                         \
        MM_ENTRY(name, l, -1, LAYOUT_COUNT, 32, 1, w, s, 1, sm, MM_RING(l, 1, w, s), MM_RING(l, 1, w, sm))};
#define MM_TWO(name, l, l2, r, w, s, s2)                                                                     \
    extern const struct mm_kernel mm_##name[1];                                                              \
    const struct mm_kernel mm_##name[1] = {MM_ENTRY(name, l, l2, l2, 32, r, w, s, s2, 1,                     \
                                                    MM_MAX(MM_RING(l, r, w, s), MM_RING(l2, r, w, s2)),      \
                                                    MM_MAX(MM_RING(l, r, w, 1), MM_RING(l2, r, w, 1)))};
#define MM_HALF(name, l, r, w, s, sm)                                                                        \
    extern const struct mm_kernel mm_##name[1];                                                              \
    const struct mm_kernel mm_##name[1] = {                                                                  \
        MM_ENTRY(name, l, -1, LAYOUT_COUNT, 0, r, w, s, 1, sm, MM_RING(l, r, w, s), MM_RING(l, r, w, sm))};
