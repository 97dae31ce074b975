/* What gemv_adapted.h takes of an operation: parts and ranks; its packets, in turn, behind the numbers between two products in the workspace; the
 * scales of a step's first row. */
#pragma once
#include "cuda/plan/cuda_plan.h"

enum { LOWRANK_ONE_PARTS = 32, LOWRANK_ONE_RANKS = 256, LOWRANK_ONE_GROUPS = 8, LOWRANK_ONE_TURNS = 8 };
static inline size_t adapted_sums_at(const struct lowrank_plan *p) {
    return (p->n_low * sizeof(float) + 15) & ~(size_t)15;
}
static inline size_t adapted_bytes(const struct lowrank_plan *p) {
    return adapted_sums_at(p) + (size_t)LOWRANK_ONE_TURNS * LOWRANK_ONE_RANKS * LOWRANK_ONE_GROUPS * 8;
}
/* Bytes of float one[n_adapter], with which the table ends. */
static inline size_t adapted_one_bytes(const struct lowrank_table *t) {
    return ((size_t)t->n_adapter * sizeof(float) + 15) & ~(size_t)15;
}
