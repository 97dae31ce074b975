// OP_NGRAM: rows of a table by the ids of a row and of those before it.
#pragma once
#include "cuda/common/dev.h"

struct ngram_job {
    rows out;
    dev_matrix w; // the first of the stack
    int step;     // from a matrix of it to the next one, in rows of the region
    float scale;
    float *state; // slot 0 of its store, slots n_elem floats apart
    size_t n_elem;
    int size, n_head, end, given;
    const int64_t *mult, *rows, *first; // on the device
    const int32_t *input;               // dev_input.at; NULL: no row is given
};
cudaError_t op_ngram_run(dev_tables t, const ngram_job &j, int n, op_queue s);
