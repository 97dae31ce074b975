// Instances of the streaming kernels. w: warps that share K; s, sm: ring slots of a warp for one row and for many.
// Every kernel does two row tiles a step, but those that store (finer shares for the blocks, nobody quantises).
#pragma once
#include "stream.h"

#define MM_MAX(a, b) ((a) > (b) ? (a) : (b))
#define MM_ENTRY(l, lx, lc, ga, r, w, s, s2, sm, sm2, epi, ring1, ringm)                                     \
    {                                                                                                        \
        l, lc, ga, r, epi, {w, (w) * (r)}, {ring1, ringm}, {                                                 \
            stream_one_kernel<l, lx, ga, r, w, s, s2, epi, false>,                                           \
                stream_many_kernel<l, lx, ga, r, w, sm, sm2, epi>,                                           \
                stream_one_kernel<l, lx, ga, r, w, s, s2, epi, epi != EPI_HEAD>                              \
        }                                                                                                    \
    }
#define MM_SINGLE(l, ga, r, w, s, sm, epi)                                                                   \
    MM_ENTRY(l, -1, LAYOUT_COUNT, ga, r, w, s, 1, sm, 1, epi, (w) * (s) * (r)*layout_unit_bytes(l),          \
             (w) * (r) * (sm)*layout_unit_bytes(l))
// Wide kernels first, then narrow ones of half the warps for chips with 99 KB of shared memory a block.
#define MM_INT_SET(l, w, s, sm)                                                                              \
    MM_SINGLE(l, 32, 1, w, 2 * (s), 2 * (sm), EPI_STORE), MM_SINGLE(l, 32, 2, w, s, sm, EPI_HEAD),           \
        MM_SINGLE(l, 32, 2, w, s, sm, EPI_ADD), MM_SINGLE(l, 32, 2, w, s, sm, EPI_GLU),                      \
        MM_SINGLE(l, 16, 2, w, s, 1, EPI_ADD)
#define MM_INT(name, l, w, s, sm)                                                                            \
    extern const struct mm_kernel mm_##name[10];                                                             \
    const struct mm_kernel mm_##name[10] = {MM_INT_SET(l, w, s, sm), MM_INT_SET(l, (w) / 2, s, 1)};
#define MM_TWO_SET(l, l2, w, s, s2, sm, sm2)                                                                 \
    MM_ENTRY(l, l2, l2, 32, 1, w, s, s2, sm, sm2, EPI_STORE,                                                 \
             (w)*MM_MAX((s)*layout_unit_bytes(l), (s2)*layout_unit_bytes(l2)),                               \
             (w)*MM_MAX((sm)*layout_unit_bytes(l), (sm2)*layout_unit_bytes(l2)))
#define MM_TWO(name, l, l2, w, s, s2, sm, sm2)                                                               \
    extern const struct mm_kernel mm_##name[2];                                                              \
    const struct mm_kernel mm_##name[2] = {MM_TWO_SET(l, l2, w, s, s2, sm, sm2),                             \
                                           MM_TWO_SET(l, l2, (w) / 2, s, s2, sm, sm2)};
// Halves: long rings first, for chips where another block fits beside them.
#define MM_HALF(name, l, w, s, sm)                                                                           \
    extern const struct mm_kernel mm_##name[6];                                                              \
    const struct mm_kernel mm_##name[6] = {                                                                  \
        MM_SINGLE(l, 0, 1, w, s, sm, EPI_STORE),     MM_SINGLE(l, 0, 1, w, (s) + 1, sm, EPI_HEAD),           \
        MM_SINGLE(l, 0, 1, w, s, sm, EPI_HEAD),      MM_SINGLE(l, 0, 1, w, s, sm, EPI_ADD),                  \
        MM_SINGLE(l, 0, 1, w, 2 * (s), sm, EPI_GLU), MM_SINGLE(l, 0, 1, w, s, sm, EPI_GLU)};
