/* MoE of prompt rows as a grouped GEMM: where what belongs to pairs (row, choice) lies. Plain C. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Offsets from cuda_plan.pairs. */
struct moe_grouped_plan {
    /* the pairs in the order of experts, where each of these goes on, what blocks take of them */
    size_t pair, next, tile;
    size_t x, glu; /* their activations and gated units, tiles of 64 columns (prompt/moe_grouped.h) */
    size_t bytes;
};
/* Of decode rows, behind cuda_plan.batch_count: their logits, behind so many bytes of counters. */
enum { BATCH_COUNT_BYTES = 256 };
struct moe_grouped_plan moe_grouped_plan_of(const struct op_list *l); /* NULL: no list */

#ifdef __cplusplus
}
#endif
