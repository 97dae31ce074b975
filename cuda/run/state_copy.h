// Copies of the states of a sequence, all stores in one launch: a copy each took 96 launches of a step that guesses (Qwen3.6-27B).
#pragma once
#include <cuda_runtime.h>
#include <stddef.h>

enum { STATE_COPY_STORES = 128 }; // of a launch
struct state_copy_job {
    struct {
        float *slot0;
        size_t n_elem; // floats of a slot
    } store[STATE_COPY_STORES];
    int n, from, to; // slots; n 0: nothing happens
};
cudaError_t state_copy_run(const state_copy_job &j, cudaStream_t s);
