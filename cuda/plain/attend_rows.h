// Attention without a store (struct op_attend with store -1).
#pragma once
#include "cuda/common/dev.h"

enum { ATTEND_ROWS_DIM = 256 }; // of a head, at most
struct attend_rows_job {
    rows q, k, v, out; // [row][heads][dim]
    int n_head, n_kv_head;
    float scale, softcap;
    const float *sinks; // NULL: none
    bool both;          // rows of all slots see each other
    int ask;            // the first so many rows alone, which see those behind them; 0: all
};
cudaError_t op_attend_rows_run(dev_tables t, const attend_rows_job &j, int n, op_queue s);
