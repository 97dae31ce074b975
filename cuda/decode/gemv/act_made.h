// Rows that are made on their way into a matmul's form, and may be wanted as rows, too (what adapters multiply with A).
#pragma once
#include "cuda/decode/gemv/act_rows.h"

// act(gate) * up, of one width; gate.p NULL: up. up.p NULL: sums of the two parts of GIVE_BF16, which lie where no form is written
struct act_made {
    rows gate, up;
    int act; // enum act_kind, up to RELU2, or SIGMOID
    const uint8_t *parts;
    size_t parts_row;
};
// n rows to j.x (.p NULL: not) and to j.xo; j.norm is not looked at.
cudaError_t act_made_give(const act_rows_job &j, const act_made &m, int n, bool overlap, cudaStream_t s);
