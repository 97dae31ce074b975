// Instances of the streaming kernels. w: warps that share K; s: ring slots of a warp. Kernels for codes do two row tiles a
// step, but those that store (finer shares for the blocks).
#pragma once
#include "cuda/decode/gemv/gemv.cuh"

#define MM_MAX(a, b)                ((a) > (b) ? (a) : (b))
#define MM_FEW(l, lx, r, w, epi, t) gemv_few_kernel<l, lx, few_tiles(r, epi), w, epi, t>
#define MM_ENTRY_OF(l, lx, lc, ga, r, w, s, s2, epi, bytes, ...)                                             \
    {                                                                                                        \
        l, lc, ga, r, epi, w, bytes,                                                                         \
            {gemv_one_kernel<l, lx, ga, r, w, s, s2, epi, false>,                                            \
             gemv_one_kernel<l, lx, ga, r, w, s, s2, epi, epi != EPI_HEAD>},                                 \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define MM_SINGLE_OF(l, ga, r, w, s, epi, ...)                                                               \
    MM_ENTRY_OF(l, -1, LAYOUT_COUNT, ga, r, w, s, 1, epi, (w) * (s) * (r)*layout_unit_bytes(l), __VA_ARGS__)
#define MM_SINGLE(l, ga, r, w, s, epi) MM_SINGLE_OF(l, ga, r, w, s, epi, NULL, NULL, NULL)
#define MM_SINGLE_FEW(l, r, w, s, epi)                                                                       \
    MM_SINGLE_OF(l, 0, r, w, s, epi, MM_FEW(l, -1, r, w, epi, 2), MM_FEW(l, -1, r, w, epi, 4),               \
                 MM_FEW(l, -1, r, w, epi, 8))
// Wide kernels first, then narrow ones of half the warps for chips with 99 KB of shared memory a block.
#define MM_FEW_SET(l, w, s)                                                                                  \
    MM_SINGLE_FEW(l, 1, w, 2 * (s), EPI_STORE), MM_SINGLE_FEW(l, 2, w, s, EPI_HEAD),                         \
        MM_SINGLE_FEW(l, 2, w, s, EPI_ADD), MM_SINGLE_FEW(l, 2, w, s, EPI_GLU)
#define MM_CODES_SET(l, ga, w, s, s2)                                                                        \
    MM_SINGLE(l, ga, 1, w, 2 * (s), EPI_STORE), MM_SINGLE(l, ga, 2, w, s, EPI_HEAD),                         \
        MM_SINGLE(l, ga, 2, w, s, EPI_ADD), MM_SINGLE(l, ga, 2, w, s2, EPI_GLU)
// Input as halves and, for one row, as codes: groups of 32 columns, or of 16 where they come from a gate.
#define GEMV_CODES(id)                                                                                       \
    MM_CODES(mm_##id, LAYOUT_##id, 8, format<LAYOUT_##id>::slots, format<LAYOUT_##id>::glu_slots)
#define MM_CODES(name, l, w, s, s2)                                                                          \
    extern const struct mm_kernel name[18];                                                                  \
    const struct mm_kernel name[18] = {MM_FEW_SET(l, w, s),                                                  \
                                       MM_CODES_SET(l, 0, (w) / 2, s, s2),                                   \
                                       MM_CODES_SET(l, 32, w, s, s2),                                        \
                                       MM_CODES_SET(l, 32, (w) / 2, s, s2),                                  \
                                       MM_SINGLE(l, 16, 2, w, s, EPI_ADD),                                   \
                                       MM_SINGLE(l, 16, 2, (w) / 2, s, EPI_ADD)};
// The first part of these, for codes that int8 products do not take.
#define GEMV_EIGHTS(id)                                                                                      \
    extern const struct mm_kernel mm_##id[8];                                                                \
    const struct mm_kernel mm_##id[8] = {                                                                    \
        MM_FEW_SET(LAYOUT_##id, 8, format<LAYOUT_##id>::slots),                                              \
        MM_CODES_SET(LAYOUT_##id, 0, 4, format<LAYOUT_##id>::slots, format<LAYOUT_##id>::glu_slots)};
#define MM_TWO_SET(l, l2, ga, w, s, s2, ...)                                                                 \
    MM_ENTRY_OF(l, l2, l2, ga, 1, w, s, s2, EPI_STORE,                                                       \
                (w)*MM_MAX((s)*layout_unit_bytes(l), (s2)*layout_unit_bytes(l2)), __VA_ARGS__)
// Two regions of other layouts.
#define GEMV_PAIR(id, id2, s, s2) MM_TWO(mm_##id##_##id2, LAYOUT_##id, LAYOUT_##id2, 8, s, s2)
#define MM_TWO(name, l, l2, w, s, s2)                                                                        \
    extern const struct mm_kernel name[4];                                                                   \
    const struct mm_kernel name[4] = {MM_TWO_SET(l, l2, 0, w, s, s2, MM_FEW(l, l2, 1, w, EPI_STORE, 2),      \
                                                 MM_FEW(l, l2, 1, w, EPI_STORE, 4),                          \
                                                 MM_FEW(l, l2, 1, w, EPI_STORE, 8)),                         \
                                      MM_TWO_SET(l, l2, 0, (w) / 2, s, s2, NULL, NULL, NULL),                \
                                      MM_TWO_SET(l, l2, 32, w, s, s2, NULL, NULL, NULL),                     \
                                      MM_TWO_SET(l, l2, 32, (w) / 2, s, s2, NULL, NULL, NULL)};
// Halves: long rings first, for chips where another block fits beside them.
#define GEMV_HALVES(id) MM_HALF(mm_##id, LAYOUT_##id, 4, 2)
#define MM_HALF(name, l, w, s)                                                                               \
    extern const struct mm_kernel name[6];                                                                   \
    const struct mm_kernel name[6] = {                                                                       \
        MM_SINGLE(l, 0, 1, w, s, EPI_STORE),     MM_SINGLE(l, 0, 1, w, (s) + 1, EPI_HEAD),                   \
        MM_SINGLE(l, 0, 1, w, s, EPI_HEAD),      MM_SINGLE(l, 0, 1, w, s, EPI_ADD),                          \
        MM_SINGLE(l, 0, 1, w, 2 * (s), EPI_GLU), MM_SINGLE(l, 0, 1, w, s, EPI_GLU)};
