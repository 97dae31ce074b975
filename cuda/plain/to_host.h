// Rows to the host and back inside of a graph, which the host cannot enter: the kernel leaves them in pinned memory, says so, and waits
// for the answer.
#pragma once
#include "cuda/common/dev.h"

// In pinned memory. A turn is one such operation; both count them from 1 on.
struct host_turns {
    uint32_t asked;     // by the card: its rows of that turn are there
    uint32_t other[31]; // a line of its own
    uint32_t answered;  // by the host: the results are
};
struct to_host_job {
    rows x, choice, out;     // on the card
    float *to_x, *to_choice; // dense, in pinned memory
    const float *from;
    struct host_turns *turns;
    uint32_t *turn; // on the card: turns so far
    int *arrived;   // on the card: 0 before and after
};
cudaError_t to_host_run(dev_tables t, to_host_job j, int n, op_queue s);
