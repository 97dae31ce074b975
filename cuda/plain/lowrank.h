// What adapters add to products (op_lowrank of backend.h): x A^T of the rows that have one, then that times B, added to out. Matrices are
// halves (lowrank_plan.h), sums float32.
#pragma once
#include "cuda/common/dev.h"

struct lowrank_job {
    const uint8_t *weights;
    const lowrank_dev_part *part;
    int n_part;
    // the step's rows with adapters (struct lowrank_table), of the rows or of the outputs
    const int *n_tile;
    const int4 *tile;
    const int2 *order;
    const float *scale;
    int n_adapter;
    rows x, choice, out; // choice.p NULL: no experts
    int pairs, n_used;   // pairs: of a row and a matrix; 1 without experts
    bool by_choice, weighted;
    float *low; // low[row][pairs][r]
    int r;
    int few, more; // blocks of ranks
    // x is the RMS norm of its rows with these weights; NULL: it is as it stands. Not for experts, nor wide.
    const float *norm;
    float eps;
    bool one; // no tile has more than one row
};
// tiles: of this launch, an upper bound; wide: tensor cores, x rounded to TF32 (not for experts).
cudaError_t op_lowrank_down(const lowrank_job &j, int tiles, bool wide, op_queue s); // to low
cudaError_t op_lowrank_up(const lowrank_job &j, int tiles, op_queue s);              // low to out
