/* What blocks of gemv_streamk.cuh tell each other: behind the packets of q, k and v in the workspace. */
#pragma once
#include "cuda/plan/cuda_plan.h"

enum {
    STREAMK_BLOCKS = 256, /* at most */
    STREAMK_LINKS =
        4, /* buffers that links have in turn: sums of a step's 32 rows of each block; sums of 16 squares */
    STREAMK_SUMS = STREAMK_BLOCKS * 32 * 8
};
static inline size_t streamk_square_bytes(const struct cuda_plan *p) {
    return ((size_t)p->max_k + UNIT_COLS - 1) / UNIT_COLS * 16 * 8;
}
static inline size_t streamk_bytes(const struct cuda_plan *p) {
    return STREAMK_LINKS * (STREAMK_SUMS + streamk_square_bytes(p));
}
