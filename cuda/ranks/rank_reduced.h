// LINK_REDUCED behind its matmul, on cards that reach each other's memory: the sum of all ranks' products, added to the residual stream,
// which goes on as its next reader wants it.
#pragma once
#include "cuda/decode/gemv/post_norm.h"
#include "cuda/ranks/rank_wires.h"

struct rank_reduced_job {
    struct rank_wires w;
    int nth;
    post_job post; // without a norm: y, the product of this rank, is zero again behind this
};
cudaError_t rank_reduced_launch(const rank_reduced_job &j, int n, bool overlap, cudaStream_t s);
