// Routers whose scores are roots of softplus, and rows that are told their experts.
#pragma once
#include "cuda/common/dev.h"

// r: with device addresses of bias and expert_scale; told[n_told][n_used], NULL: none. Rows are those of the step where told is there.
struct route_told_job {
    rows logits, choice;
    struct router r;
    const int32_t *told;
    int n_told;
    bool out_rows;
};
cudaError_t op_route_told_run(dev_tables t, dev_input in, const route_told_job &j, int n, op_queue s);
