// One decode row of LINK_REDUCED in one kernel, on cards that reach each other's memory: the streaming matmul (gemv.cuh), whose sums go to
// the other ranks as each step has them, the sum over ranks, the residual stream, and the row as its next reader takes it.
#pragma once
#include "cuda/decode/gemv/gemv.h"
#include "cuda/ranks/rank_wires.h"

struct rank_gemv_job {
    gemv_args j; // as of EPI_ADD to the stream
    struct rank_wires w;
    int nth;    // operation of the step
    bool gives; // somebody reads the row behind this
};
struct rank_gemv_kernel {
    enum layout l;
    int ga, r, warps, ring;              // as of a struct mm_kernel, and as much shared memory
    void (*run[2])(const rank_gemv_job); // [1]: the input comes in packets
};
// NULL: none; then the matmul's kernel for a row of its own and rank_reduced.h, which have the same bits.
const struct rank_gemv_kernel *rank_gemv_find(enum layout l, int ga);
cudaError_t rank_gemv_prepare(void);
