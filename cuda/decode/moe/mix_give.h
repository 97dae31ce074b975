// The sum of a row's experts with a shared part and with the residual stream, and what the next link reads of that.
#pragma once
#include "cuda/decode/gemv/act_rows.h"

// struct op_mix, out = out + that. p NULL: absent. gate: of one matrix row, if there is one, gate = gate_w gate_x.
struct mix_give_job {
    rows x, w, shared, gate, gate_x, out;
    dev_matrix gate_w; // region NULL: none
    int n_used;
    act_rows_job next; // norm NULL: rows alone
    const int *n_row;
};
cudaError_t mix_give_launch(const mix_give_job &j, int n, cudaStream_t s);
