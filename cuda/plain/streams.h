// Residual streams that are mixed: by what, and the mixing.
#pragma once
#include "cuda/common/dev.h"

// o: with device addresses of scale and base
cudaError_t op_balance_run(dev_tables t, rows x, rows out, struct op_balance o, int n, bool out_rows,
                           op_queue s);

// write.p NULL: absent
struct streams_job {
    rows x, M, y, write, out;
    int n;
    bool out_rows;
};
cudaError_t op_streams_run(dev_tables t, const streams_job &j, int n, op_queue s);
