// recur.cu: the recurrences whose state is a matrix of each head, on float32 rows.
#pragma once
#include "cuda/common/dev.h"

// struct op_delta and struct op_ssm as the kernel reads them. state: slot 0 of its store, slots n_elem floats apart.
struct recur_job {
    rows x, out;      // x: what the convolution left
    rows gate, write; // delta: a and b; ssm: dt, none
    const float *A, *dt_bias,
        *skip; // of each head; skip NULL: none. by_row: dt_bias and gate of each row of a head's state
    float *state;
    size_t n_elem;
    int n_head, n_group, rows, cols; // a head's state is [rows][cols]
    bool tiled;                      // head h is in group h % n_group
    bool by_row;                     // delta: each row of a state decays by itself
    float beta;                      // of delta
    float lo, hi;                    // of ssm
};
cudaError_t op_delta_run(dev_tables t, const recur_job &j, int n, op_queue s);
cudaError_t op_ssm_run(dev_tables t, const recur_job &j, int n, op_queue s);
