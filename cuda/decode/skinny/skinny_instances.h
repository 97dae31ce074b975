// Instances of the kernels for many decode rows.
#pragma once
#include "cuda/decode/skinny/skinny.cuh"
#include "cuda/decode/skinny/skinny_wide.cuh"

#define HALF_ENTRY(l, lx, lc, shared, nt, group)                                                             \
    {                                                                                                        \
        l, lc, shared, group, false, nt, skinny_shape<l, nt, group>::parts *skinny_shape<l, nt, group>::x,   \
            skinny_kernel<l, lx, nt, group, shared>                                                          \
    }
// Layouts whose wide kernels have run on a card; the others keep those of one block.
template <int L> constexpr bool is_wide = L == LAYOUT_Q4K || L == LAYOUT_Q6K;
template <int L, int L2> constexpr skinny_entry widest(enum layout second) {
    constexpr int x = skinny_shape<L, WIDE_NT, true>::x;
    if constexpr (is_wide<L>)
        return {(enum layout)L, second, false, true, true, WIDE_NT, x, skinny_wide_kernel<L, L2>};
    else
        return {(enum layout)L, second,  false, true,
                false,          WIDE_NT, x,     skinny_kernel<L, L2, WIDE_NT, true, false>};
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
    const struct skinny_entry name[SKINNY_ENTRIES] = {HALF_ENTRY(l, lx, lc, true, 1, false),                 \
                                                      HALF_ENTRY(l, lx, lc, true, 2, false),                 \
                                                      HALF_ENTRY(l, lx, lc, false, 4, false),                \
                                                      HALF_ENTRY(l, lx, lc, false, 4, true),                 \
                                                      HALF_ENTRY(l, lx, lc, false, 8, false),                \
                                                      HALF_ENTRY(l, lx, lc, false, 8, true),                 \
                                                      widest<l, lx>(lc)};
