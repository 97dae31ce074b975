// One decode row of codes times a matrix with what adapters add to it, in one launch: LINK_LOW, LINK_LOW_GATED, LINK_LOW_SUM.
#pragma once
#include "cuda/decode/gemv/gemv.h"
#include "cuda/plan/adapted_plan.h"

// What a launch has room for: parts and ranks of an operation; groups of columns of a row of A, pieces of a block.
enum {
    ADAPTED_PARTS = LOWRANK_ONE_PARTS,
    ADAPTED_RANKS = LOWRANK_ONE_RANKS,
    ADAPTED_GROUPS = LOWRANK_ONE_GROUPS,
    ADAPTED_PIECES = 32
};
struct gemv_adapted_job {
    gemv_args j;
    const uint8_t *weights;
    const float *scale; // of the row's adapters
    // packets: A x of each group of columns of all ranks of the operation, times the adapter's scale
    uint2 *sums;
    const int *seq;     // number of the step
    uint32_t tag;       // of this link
    int groups, blocks; // of a row of A: a unit of each warp; blocks that have steps of the matrix
    size_t apart;       // gate and up: bytes from a row tile of gate to that of up; 0: another product
    int n_part;
    lowrank_dev_part part[ADAPTED_PARTS];
};
struct gemv_adapted_kernel {
    enum layout l, l2;
    int ga, r;
    enum mm_epilogue epilogue;
    int warps, ring;                        // as of a struct mm_kernel
    void (*run[2])(const gemv_adapted_job); // [1]: with packets
};
// Of the shape of k; NULL: none.
const struct gemv_adapted_kernel *gemv_adapted_find(const struct mm_kernel *k);
cudaError_t gemv_adapted_prepare(void);
