// select on the card: see select.cu.
#pragma once
#include "cuda/common/dev.h"

// Results where the host finds them without a copy: those of the fused program, by the number of the step.
struct result_ring {
    uint8_t *host; // NULL: the results are copied
    size_t row;
    int *next; // the number of the next step
};
struct select_job {
    dev_tables t;
    rows logits;
    int n_vocab, parts;
    const float2
        *cand; // cand[outputs][n_cand]: the greatest logit of parts of a row and its token; NULL: not known
    int n_cand;
    // of each output and part: its first candidates, the greatest logit, sums of exponentials
    uint64_t *found; // [outputs][parts][INFER_TOP]
    uint64_t *cut;   // [outputs][parts]: the key from which on found has all of the part
    uint64_t *best;  // [outputs][parts]
    float4 *sums;    // [outputs][parts]
    int *arrived;    // arrived[outputs], 0 between launches
    int32_t *token;  // token[outputs]
    // bytes from the tokens to the struct infer_top of the outputs, on the card and in the ring
    size_t top_offset;
    result_ring ring;
};
// n: outputs of this launch, an upper bound.
cudaError_t select_launch(const select_job &j, int n, op_queue q);
