/* What blocks of gemv_even.cuh tell each other: behind the packets of q, k and v in the workspace. */
#pragma once
#include "cuda/plan/cuda_plan.h"

enum {
    EVEN_BLOCKS = 256, /* at most */
    EVEN_LINKS =
        4, /* buffers that links have in turn: sums of a step's 32 rows of each block; sums of 16 squares */
    EVEN_SUMS = EVEN_BLOCKS * 32 * 8
};
static inline size_t even_square_bytes(const struct cuda_plan *p) {
    return ((size_t)p->max_k + UNIT_COLS - 1) / UNIT_COLS * 16 * 8;
}
static inline size_t even_bytes(const struct cuda_plan *p) {
    return EVEN_LINKS * (EVEN_SUMS + even_square_bytes(p));
}
